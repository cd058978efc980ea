"""``manyseed plan``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from orchestrator.cli.common import Json, Out, SweepToml
from orchestrator.cli.output import console, print_json, print_table, size

if TYPE_CHECKING:
    from orchestrator.planning import Change


def plan(
    sweep_file: SweepToml,
    out: Out = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", "-n", help="Show the plan; write nothing.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Plan a sweep file: check it, show its grid, and write the plan.

    Planning an enlarged file into a sweep adds what is new and keeps all that is done.

    Examples
    --------
        manyseed plan sweep.toml --dry-run

        manyseed plan sweep.toml --out /scratch/me/sweep
    """
    from orchestrator.planning import plan_change, plan_sweep
    from orchestrator.sweepfile import read_sweep_file

    directory = out or Path(read_sweep_file(sweep_file).name)
    change = plan_change(sweep_file, directory)[0] if dry_run else plan_sweep(sweep_file, directory)
    if as_json:
        print_json(change.summary() | {"directory": str(directory), "written": not dry_run})
        return
    _print(change)
    if dry_run:
        console.print("Nothing was written (--dry-run).")
    elif change.is_empty:
        console.print(f"{directory} holds all of it already.")
    else:
        console.print(f"Planned into {directory}. Next: manyseed submit {directory}")


def _print(change: Change) -> None:
    summary = change.summary()
    print_table(
        change.sweep.name,
        ("dataset", "classifier", "train", "test", "classes", "cells", "runs", "identical"),
        change.by_group().iter_rows(),
        total=("all", "", "", "", "", summary["cells"], summary["runs"], summary["runs_identical"]),
    )
    held = len(change.before.rows)
    console.print(
        f"\nAsked for {summary['runs_asked']:,} runs, {change.expansion.runs:,} of them distinct"
        + (f"; +{len(change.added):,} −0 to the {held:,} planned before" if held else "")
        + "."
    )
    if summary["runs_identical"]:
        console.print(
            f"{summary['runs_identical']:,} runs are identical to the first of their repeat "
            "(nothing that varies reaches the classifier): stored as copies, not trained."
        )
    for note in change.expansion.notes:
        console.print(note)
    console.print(
        f"Predictions: about {size(summary['store_bytes'])} in {summary['store_files']:,} files "
        "and folders."
    )
