"""``manyseed run``: from the sweep file to the report."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from orchestrator.cli.analyze import analyze_and_report, print_summary
from orchestrator.cli.common import OtherRecipe, Out, SweepToml, Workers
from orchestrator.cli.output import console, duration, size
from orchestrator.cli.progress import show
from orchestrator.cli.status import raise_if_broken
from orchestrator.cli.submit import tell_gpu
from orchestrator.cli.tune import search
from orchestrator.errors import INTERRUPTED, NOT_FINISHED

if TYPE_CHECKING:
    from orchestrator.sweep import Sweep


def run(
    sweep_file: SweepToml,
    out: Out = None,
    workers: Workers = None,
    other_recipe: OtherRecipe = False,
) -> None:
    """Plan, train on this machine, analyse and report; on a sweep that exists, resume it.

    Ctrl-C stops it; the same command goes on where it stopped.

    Examples:

        manyseed run examples/quickstart.toml

        manyseed run sweep.toml --out /scratch/me/sweep --workers 8
    """
    from orchestrator.grids.sweepfile import read_sweep_file
    from orchestrator.plans.data import fetch_datasets
    from orchestrator.plans.planning import plan_sweep
    from orchestrator.sweep import Sweep

    directory = out or Path(read_sweep_file(sweep_file).name)
    change = plan_sweep(sweep_file, directory)
    fetch_datasets(change.expansion.datasets)
    sweep = Sweep(directory)
    plan = change.summary()
    console.print(
        f"[bold]{change.sweep.name}[/]: {plan['runs']:,} runs in {plan['cells']:,} cells "
        f"of {plan['groups']} groups → {directory}"
    )
    search(sweep, workers)
    submission = sweep.submit(cluster="local", workers=workers, other_recipe=other_recipe)
    running = sweep.running()
    if submission is not None:
        tell_gpu(submission)
    for watched in [submission] if submission else running:
        try:
            last = show(watched)
        except KeyboardInterrupt:
            console.print("\nStopping; fits in flight are finished first …")
            sweep.cancel()
            sweep.wait()
            console.print(f"Go on with: manyseed run {sweep_file} --out {directory}")
            raise typer.Exit(INTERRUPTED) from None
        raise_if_broken(last.reason, last.details)
    analyze_and_report(sweep)
    print_summary(sweep)
    _print_promise(sweep)
    counts = sweep.status()["runs"]
    if counts["failed"]:
        console.print(f"\n{counts['failed']:,} runs failed: manyseed status {directory}")
        raise typer.Exit(1)
    if counts["missing"]:
        console.print(f"\n{counts['missing']:,} runs are missing: manyseed resume {directory}")
        raise typer.Exit(NOT_FINISHED)


def _print_promise(sweep: Sweep) -> None:
    """Print what the plan promised beside what there is."""
    from orchestrator.plans.promise import promise_and_outcome

    figures = promise_and_outcome(sweep.paths)
    shown = {
        "fits": lambda value: f"{value:,.0f}",
        "hours": lambda value: duration(3600 * value),
        "store_bytes": size,
        "store_files": lambda value: f"{value:,.0f}",
    }
    names = {"hours": "training", "store_bytes": "store", "store_files": "files"}
    told = [
        f"{names.get(name, name)} {shown[name](found)} (planned {shown[name](promised)})"
        for name, (promised, found) in figures.items()
    ]
    console.print("\n" + ", ".join(told))
