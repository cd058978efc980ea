"""``manyseed plan``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from orchestrator.cli.common import Json, Out, SweepToml
from orchestrator.cli.output import console, duration, print_json, print_table, size
from orchestrator.errors import UserError

if TYPE_CHECKING:
    from orchestrator.change import Change

_DATA = ("dataset", "classifier", "train", "test")
_HOURS = {"core": "core-h", "gpu": "GPU-h"}


def plan(
    sweep_file: SweepToml,
    out: Out = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", "-n", help="Show the plan; write nothing.")
    ] = False,
    walltime: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="Name fits that end in no job of this time, as SLURM writes it: 4:00:00, 1-12.",
            show_default=False,
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Plan a sweep file: check it, show its grid, and write the plan.

    Planning an enlarged file into a sweep adds what is new and keeps all that is done.

    Examples:

        manyseed plan sweep.toml --dry-run

        manyseed plan sweep.toml --out /scratch/me/sweep
    """
    from orchestrator.cost import beyond
    from orchestrator.planning import plan_change, plan_sweep
    from orchestrator.sweepfile import read_sweep_file

    hours = None if walltime is None else _parsed(walltime)
    directory = out or Path(read_sweep_file(sweep_file).name)
    change = (plan_change if dry_run else plan_sweep)(sweep_file, directory)
    too_long = [] if hours is None else beyond(change.after, hours, change.observed).to_dicts()
    if as_json:
        done = {"directory": str(directory), "written": not dry_run}
        print_json(change.summary() | done | {"beyond_walltime": too_long})
        return
    _print(change)
    for fit in too_long:
        _say(
            f"A fit of {fit['classifier']} on {fit['dataset']} takes about "
            f"{duration(fit['hours'] * 3600)} and cannot go on in a second job: leave the pair "
            "out, lower train_fraction, or ask for more time."
        )
    if dry_run:
        console.print("Nothing was written (--dry-run).")
    elif change.is_empty:
        console.print(f"{directory} holds all of it already.")
    else:
        console.print(f"Planned into {directory}. Next: manyseed submit {directory}")


def _parsed(walltime: str) -> float:
    from slurm.profile import minutes

    try:
        return minutes(walltime) / 60
    except ValueError as error:
        raise UserError(str(error), key="--walltime") from None


def _print(change: Change) -> None:
    summary = change.summary()
    groups = summary["by_group"]
    hours = [kind for kind in ("core", "gpu") if summary[f"{kind}_hours"]]
    counts = ("cells", "runs", "fits")
    rows = [
        [*(group[name] for name in (*_DATA, *counts)), *_ends(group, hours)] for group in groups
    ]
    for row, group, above in zip(rows[1:], groups[1:], groups, strict=False):
        if group["dataset"] == above["dataset"]:
            row[0] = ""  # a long name takes several lines: once is enough
    print_table(
        change.sweep.name,
        (*_DATA, *counts, *(_HOURS[kind] for kind in hours), "store"),
        rows,
        total=("all", "", "", "", *(summary[name] for name in counts), *_ends(summary, hours)),
    )
    console.print()
    for removed in summary["runs_excluded"]:
        _say(f"{removed['key']} = {removed['rule']} removes {removed['runs']:,} runs.")
    for note in summary["notes"]:
        _say(f"{note}.")
    if summary["searches"]:
        _say(
            f"Tuned hparams need {summary['searches']:,} searches of "
            f"{change.sweep.tune.draws:,} draws each."
        )
    if summary["runs_identical"]:
        _say(
            f"{summary['runs_identical']:,} runs are identical to the first of their repeat "
            "(nothing that varies reaches the classifier): stored as copies, not trained."
        )
    if summary["cells_dropped"]:
        _say(f"{summary['cells_dropped']:,} cells were dropped and stay out.")
    held = summary["runs"] - summary["runs_added"]
    _say(
        f"Asked for {summary['runs_asked']:,} runs, {change.expansion.runs:,} of them distinct"
        + (f"; +{summary['runs_added']:,} −0 to the {held:,} planned before" if held else "")
        + "."
    )
    longest = max(groups, key=lambda group: group["longest_seconds"])
    _say(
        f"Training: about {_hours(summary['core_hours'])} core-hours"
        + (f" and {_hours(summary['gpu_hours'])} GPU-hours" if summary["gpu_hours"] else "")
        + f"; the longest fit {duration(longest['longest_seconds'])} "
        f"({longest['classifier']} on {longest['dataset']})."
    )
    _say(
        f"Predictions: about {size(summary['store_bytes'])} in {summary['store_files']:,} files "
        "and folders."
    )


def _ends(figures: dict[str, Any], hours: list[str]) -> tuple[str, ...]:
    return (*(_hours(figures[f"{kind}_hours"]) for kind in hours), size(figures["store_bytes"]))


def _hours(hours: float) -> str:
    if not hours:
        return "–"
    return "<0.01" if 0 < hours < 0.005 else f"{hours:,.2f}" if hours < 100 else f"{hours:,.0f}"


def _say(text: str) -> None:
    console.print(text, markup=False)
