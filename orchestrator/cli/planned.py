"""A plan in a table and sentences, as `plan` prints it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from manyseed.orchestrator.cli.output import amount, counted, duration, size

if TYPE_CHECKING:
    from manyseed.orchestrator.plans.change import Change

_DATA_COLUMNS = ("dataset", "classifier", "train", "test")
_COUNT_COLUMNS = ("runs", "fits")
_DEVICES = {"core": "core", "gpu": "GPU"}
_UNITS = {"h": "hours", "min": "minutes"}


def table(summary: dict[str, Any]) -> tuple[list[str], list[list[object]], list[object]]:
    """Return the columns, a row per dataset and classifier, and the total."""
    devices = _devices(summary)
    unit, scale = _unit(summary)

    def costs(figures: dict[str, Any], *, measured: bool) -> list[object]:
        times = (
            amount(figures[f"{device}_hours"] * scale) if measured else "not measured"
            for device in devices
        )
        return [*(figures[name] for name in _COUNT_COLUMNS), *times, size(figures["store_bytes"])]

    order: dict[str, int] = {}  # keeps the groups of a dataset together, whichever grid names it
    groups = sorted(
        summary["by_group"], key=lambda group: order.setdefault(group["dataset"], len(order))
    )
    rows = [
        [*(group[name] for name in _DATA_COLUMNS), *costs(group, measured=group["measured"])]
        for group in groups
    ]
    every = all(group["measured"] for group in groups)
    times = [f"{_DEVICES[device]}-{unit}" for device in devices]
    return (
        [*_DATA_COLUMNS, *_COUNT_COLUMNS, *times, "store"],
        rows,
        ["all", "", "", "", *costs(summary, measured=every)],
    )


def sentences(change: Change) -> Iterator[str]:
    """Yield the sentences below the table and the notes."""
    summary = change.summary()
    held = summary["runs"] - summary["runs_added"]
    asked, distinct = summary["runs_asked"], change.expansion.runs
    yield (
        f"Asked for {counted(asked, 'run')}"
        f"{'' if asked == distinct else f', {distinct:,} of them distinct,'} in "
        f"{counted(summary['cells'], 'cell')}"
        + (f"; +{summary['runs_added']:,} −0 to the {held:,} planned before" if held else "")
        + "."
    )
    unit, scale = _unit(summary)
    times = [
        f"{_few(summary[f'{device}_hours'] * scale)} {_DEVICES[device]}-{_UNITS[unit]}"
        for device in _devices(summary)
    ]
    guessed = {one["classifier"]: one for one in summary["by_group"] if not one["measured"]}
    for name, one in guessed.items():
        yield (
            f"How long {name} trains was not measured (probe = false): "
            f"{duration(one['fit_seconds'])} for a fit is a guess. "
            "After planning, submit --calibrate measures it."
        )
    if names := [*_extrapolated(change)]:
        yield (
            f"How long {', '.join(names)} {'trains' if len(names) == 1 else 'train'} is "
            "extrapolated from fits to a few made-up rows, and may be far off. "
            "After planning, submit --calibrate measures it."
        )
    where = "on an idle machine" if change.observed.is_empty() else "in all, as fits took so far"
    for longest in summary["by_group"]:
        if longest["longest_seconds"] == summary["longest_fit_seconds"]:
            guess = "by this guess " * bool(guessed)
            yield (
                f"Training: {guess}{_about(' and '.join(times))} {where}; the longest fit "
                f"{duration(longest['longest_seconds'])} "
                f"({longest['classifier']} on {longest['dataset']})."
            )
            break
    if features := summary["feature_hours"]:
        yield (
            f"Of these {_UNITS[unit]}, {_about(_few(features * scale))} are for features of "
            "images, computed once per dataset and again for perturbed rows."
        )
    if responses := summary["response_hours"]:
        hours = _about(_few(responses * scale))
        yield f"Of these {_UNITS[unit]}, {hours} are for response curves."
    yield (
        f"Predictions: about {size(summary['store_bytes'])} in {summary['store_files']:,} files "
        f"and folders{'' if change.before.cells.is_empty() else ', with those planned before'}."
    )


def _extrapolated(change: Change) -> Iterator[str]:
    """Yield users' own classifiers of which no fit is known that is about as long as expected."""
    from manyseed.jobs.classifiers import is_own
    from manyseed.jobs.own.findings import PROBE_ROWS

    cells = change.after.cells
    trained = {*cells.join(change.observed, on="cell", how="semi")["classifier"]}
    resolved = change.expansion.classifiers
    longest = cells.sort("core_seconds", descending=True, maintain_order=True)
    longest = longest.unique(["dataset", "classifier"], keep="first", maintain_order=True)
    told = set[str]()
    for dataset, name, expected in longest.select("dataset", "classifier", "core_seconds").rows():
        model = resolved.get((name, dataset))
        if (
            model is None
            or name in told | trained | change.unmeasured
            or not is_own(model.canonical)
        ):
            continue
        probed = model.record.core_seconds(change.expansion.datasets[dataset], model, PROBE_ROWS)
        if expected > max(_FAR * probed, _WORTH_SECONDS):
            told.add(name)
            yield name


_FAR, _WORTH_SECONDS = 2.0, 1.0
"""Times the seconds of a probe, and seconds, from which an expected fit is called extrapolated."""

_LESS = "less than "


def _few(number: float) -> str:
    """Return a number of hours or minutes as a sentence has it."""
    return amount(number).replace("<", _LESS)


def _about(times: str) -> str:
    return times if times.startswith(_LESS) else f"about {times}"


def beyond(fits: list[dict[str, Any]]) -> Iterator[str]:
    """Yield a sentence on fits that are longer than their jobs may be."""
    if fits:
        listed = ", ".join(
            f"{fit['classifier']} on {fit['dataset']} ({duration(fit['hours'] * 3600)})"
            for fit in fits
        )
        yield (
            f"Fits that cannot finish in jobs of that walltime, even by continuing: {listed}. "
            "Leave them out, lower train_fraction, or ask for more time."
        )


def _devices(summary: dict[str, Any]) -> list[str]:
    return [device for device in _DEVICES if summary[f"{device}_hours"]]


def _unit(summary: dict[str, Any]) -> tuple[str, int]:
    """Return the unit of a plan's printed times, and how many of it make an hour."""
    return ("h", 1) if summary["core_hours"] + summary["gpu_hours"] >= 1 else ("min", 60)
