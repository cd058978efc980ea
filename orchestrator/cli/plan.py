"""``manyseed plan``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from manyseed.orchestrator.cli.common import Json, OtherRecipe, Out, Settings, SweepToml
from manyseed.orchestrator.cli.login import one_core
from manyseed.orchestrator.cli.output import (
    console,
    counted,
    duration,
    print_json,
    print_table,
    say,
    say_next,
    size,
)
from manyseed.orchestrator.errors import UserError, refused
from manyseed.orchestrator.paths import SweepPaths

if TYPE_CHECKING:
    from manyseed.orchestrator.plans.change import Change

_DATA = ("dataset", "classifier", "train", "test")
_COUNTS = ("runs", "fits")
_DEVICES = {"core": "core", "gpu": "GPU"}
_UNITS = {"h": "hours", "min": "minutes"}


def plan(
    sweep_file: SweepToml,
    out: Out = None,
    settings: Settings = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", "-n", help="Show the plan; write nothing.")
    ] = False,
    walltime: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="Name fits that cannot finish in jobs of this time, such as 4:00:00 or 1-12.",
            show_default=False,
        ),
    ] = None,
    other_recipe: OtherRecipe = False,
    as_json: Json = False,
) -> None:
    """Plan a sweep file: check it, show its grid, and write the plan.

    Planning an enlarged file into a sweep adds what is new and keeps everything that is done.

    Examples:

        manyseed plan sweep.toml --dry-run

        manyseed plan sweep.toml --out /scratch/me/sweep

        manyseed plan sweep.toml --set runs=2 --set classifier.mlp.epochs=5 --out trial
    """
    from manyseed.jobs.classifiers.weights import counting
    from manyseed.jobs.datasets import data_home
    from manyseed.orchestrator.grids.loading import read_sweep_file
    from manyseed.orchestrator.plans.cost import beyond
    from manyseed.orchestrator.plans.data import prepare_read
    from manyseed.orchestrator.plans.planning import plan_change, plan_sweep, require_room
    from manyseed.orchestrator.submissions.requirements import of_earlier_code, require_code

    hours = None if walltime is None else _parsed(walltime)
    settings = settings or []
    directory = out or Path(read_sweep_file(sweep_file, settings).name)
    require = None if other_recipe else require_code
    absent: list[str] = []
    with one_core(SweepPaths(directory), "reading the data, and trying code of your own,"):
        if dry_run:
            # of a sweep that exists, the weights tell which runs it has already
            with ExitStack() as stack:
                if not SweepPaths(directory).is_sweep:
                    absent = stack.enter_context(counting())
                change = plan_change(sweep_file, directory, settings)
            if require is not None:
                require(SweepPaths(directory), change)
        else:
            change = plan_sweep(sweep_file, directory, settings, require)
        prepared = [] if dry_run else prepare_read(change.expansion.datasets)
    too_long = []
    if hours is not None:
        too_long = beyond(change.after, hours, change.observed, change.measuring).to_dicts()
    no_room = None
    if dry_run:
        try:
            require_room(change, sweep_file, directory)
        except UserError as error:
            no_room = error
    if as_json:
        done = {"directory": str(directory), "written": not dry_run}
        problems = {
            "beyond_walltime": too_long,
            "no_room": None if no_room is None else str(no_room),
            "absent_weights": absent,
        }
        print_json(change.summary() | done | problems)
        return
    columns, rows, total = _table(change.summary())
    print_table(change.sweep.name, columns, rows, total=total, nested=True)
    console.print()
    earlier = [] if other_recipe else of_earlier_code(SweepPaths(directory), change)
    for sentence in [*_sentences(change), *_beyond(too_long), *earlier]:
        say(sentence)
    if no_room is not None:
        say(f"It could not be planned into {directory}: {no_room.message}\n  {no_room.remedy}")
    for told in absent:
        say(f"To plan this, and not only count it, weights are needed: {told}.")
    if dry_run:
        say("Nothing was written (--dry-run).")
        return
    say(f"{directory} already holds it." if change.is_empty else f"Planned into {directory}.")
    if prepared:
        say(f"Prepared {', '.join(prepared)} in {data_home()}.")
    paths = SweepPaths(directory)
    given = paths.sweep_file if settings else sweep_file
    say_next("Next", *_next(change, given, paths, ["--other-recipe"] if other_recipe else []))


def _next(
    change: Change, sweep_file: Path, paths: SweepPaths, further: list[str]
) -> Sequence[object]:
    """Return the next command for a planned sweep; `further` is for `submit`."""
    from manyseed.jobs import datasets
    from manyseed.orchestrator.plans.searches import searches, to_tune
    from manyseed.orchestrator.submissions.hints import on_cluster

    infos = change.expansion.datasets.values()
    if not all(datasets.is_fetched(info.canonical) for info in infos):
        return ["datasets", "fetch", sweep_file]
    cells = change.after.cells
    if searches(paths, cells):
        return to_tune(paths)
    return ["submit", paths.directory, *further, *on_cluster(paths)]


def _parsed(walltime: str) -> float:
    from manyseed.slurm.profile import minutes
    from manyseed.slurm.refused import Refused

    try:
        return minutes(walltime) / 60
    except Refused as error:
        raise refused(error, key="--walltime") from None


def _table(summary: dict[str, Any]) -> tuple[list[str], list[list[object]], list[object]]:
    """Return the columns, a row per dataset and classifier, and the total."""
    devices = _devices(summary)
    unit, scale = _unit(summary)

    def costs(figures: dict[str, Any]) -> list[object]:
        times = (_time(figures[f"{device}_hours"] * scale) for device in devices)
        return [*(figures[name] for name in _COUNTS), *times, size(figures["store_bytes"])]

    order: dict[str, int] = {}  # keeps the groups of a dataset together, whichever grid names it
    groups = sorted(
        summary["by_group"], key=lambda group: order.setdefault(group["dataset"], len(order))
    )
    rows = [[*(group[name] for name in _DATA), *costs(group)] for group in groups]
    times = [f"{_DEVICES[device]}-{unit}" for device in devices]
    return [*_DATA, *_COUNTS, *times, "store"], rows, ["all", "", "", "", *costs(summary)]


def _sentences(change: Change) -> Iterator[str]:
    """Yield the sentences below the table."""
    from manyseed.orchestrator.plans.change import remarks

    yield from remarks(change)
    summary = change.summary()
    held = summary["runs"] - summary["runs_added"]
    yield (
        f"Asked for {summary['runs_asked']:,} runs, {change.expansion.runs:,} of them distinct, in "
        f"{counted(summary['cells'], 'cell')}"
        + (f"; +{summary['runs_added']:,} −0 to the {held:,} planned before" if held else "")
        + "."
    )
    unit, scale = _unit(summary)
    times = [
        f"{_time(summary[f'{device}_hours'] * scale)} {_DEVICES[device]}-{_UNITS[unit]}"
        for device in _devices(summary)
    ]
    for longest in summary["by_group"]:
        if longest["longest_seconds"] == summary["longest_fit_seconds"]:
            yield (
                f"Training: about {' and '.join(times)}; the longest fit "
                f"{duration(longest['longest_seconds'])} "
                f"({longest['classifier']} on {longest['dataset']})."
            )
            break
    if features := summary["feature_hours"]:
        yield (
            f"Of these {_UNITS[unit]}, about {_time(features * scale)} are for features of images, "
            "computed once per dataset and again for perturbed rows."
        )
    if responses := summary["response_hours"]:
        yield f"Of these {_UNITS[unit]}, about {_time(responses * scale)} are for response curves."
    yield (
        f"Predictions: about {size(summary['store_bytes'])} in {summary['store_files']:,} files "
        f"and folders{'' if change.before.cells.is_empty() else ', with those planned before'}."
    )


def _beyond(fits: list[dict[str, Any]]) -> Iterator[str]:
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


def _time(amount: float) -> str:
    if not amount:
        return "–"
    return "<0.01" if amount < 0.005 else f"{amount:,.2f}" if amount < 100 else f"{amount:,.0f}"
