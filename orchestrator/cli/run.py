"""``manyseed run``: from the sweep file to the report."""

from __future__ import annotations

import math
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from manyseed.orchestrator.cli.analyze import analyze_and_report, print_summary, say_report
from manyseed.orchestrator.cli.common import (
    Cluster,
    OtherRecipe,
    Out,
    OwnMetrics,
    Settings,
    SweepToml,
    Workers,
)
from manyseed.orchestrator.cli.output import counted, duration, say, say_next, size
from manyseed.orchestrator.cli.progress import show
from manyseed.orchestrator.cli.status import raise_if_broken
from manyseed.orchestrator.cli.submit import say_gpu
from manyseed.orchestrator.cli.tune import search
from manyseed.orchestrator.errors import INTERRUPTED, NOT_FINISHED

if TYPE_CHECKING:
    from manyseed.orchestrator.sweep import Sweep


def run(
    sweep_file: SweepToml,
    out: Out = None,
    settings: Settings = None,
    cluster: Cluster = "auto",
    workers: Workers = None,
    other_recipe: OtherRecipe = False,
    metric: OwnMetrics = None,
) -> None:
    """Plan, train, analyse and report; on a sweep that exists, resume it.

    Ctrl-C stops what trains on this machine after the fits in flight; jobs of a cluster go on. The
    same command goes on where it stopped.

    Examples:

        manyseed run examples/quickstart.toml --cluster local

        manyseed run sweep.toml --out /scratch/me/sweep --workers 8

        manyseed run sweep.toml --cluster mycluster
    """
    from manyseed.orchestrator.grids.loading import read_sweep_file
    from manyseed.orchestrator.paths import SweepPaths
    from manyseed.orchestrator.plans.data import fetch_datasets
    from manyseed.orchestrator.plans.planning import plan_change, plan_sweep
    from manyseed.orchestrator.submissions.profiles import AUTO, choose
    from manyseed.orchestrator.submissions.submission import last_intent
    from manyseed.orchestrator.sweep import Sweep
    from manyseed.orchestrator.tasks.intent import LOCAL

    given = settings or []
    directory = out or Path(read_sweep_file(sweep_file, given).name)
    again = ["run", sweep_file, "--out", directory, *(w for one in given for w in ("--set", one))]
    plan_change(sweep_file, directory, given)  # what is wrong in the file is said before all else
    name = LOCAL if cluster == AUTO and workers else cluster
    profile = choose(name, last=last_intent(SweepPaths(directory)))
    where = LOCAL if profile is None else str(profile.path)
    change = plan_sweep(sweep_file, directory, given)
    fetch_datasets(change.expansion.datasets)
    sweep = Sweep(directory)
    plan = change.summary()
    counts = [counted(plan[f"{noun}s"], noun) for noun in ("run", "cell", "group")]
    say(f"{change.sweep.name}: {counts[0]} in {counts[1]} of {counts[2]} → {directory}")
    search(sweep, where if profile is None else AUTO, workers)
    submission = sweep.submit(cluster=where, workers=workers, other_recipe=other_recipe, tell=say)
    running = sweep.running()
    if submission is not None:
        say_gpu(submission)
    for watched in [submission] if submission else running:
        try:
            last = show(watched)
        except KeyboardInterrupt:
            if watched.cluster != LOCAL:
                say(f"\nIts jobs on {watched.cluster} go on.")
                say_next("Stop them", "cancel", directory)
                say_next("Follow them", *again)
                raise typer.Exit(INTERRUPTED) from None
            say(
                "\nStopping: fits in flight are finished first. "
                "Ctrl-C again: end them, to be trained again."
            )
            _stop(sweep)
            say_next("Go on with", *again)
            raise typer.Exit(INTERRUPTED) from None
        raise_if_broken(sweep, last.reason, last.details)
    page = analyze_and_report(sweep, metric, None if profile is None else where)
    print_summary(sweep)
    _print_estimate(sweep)
    say_report(page)
    found = sweep.status()["runs"]
    if found["failed"]:
        say(f"\n{counted(found['failed'], 'run')} failed.")
        say_next("Tracebacks", "logs", directory, "--failed")
        raise typer.Exit(1)
    if found["missing"]:
        say(f"\n{counted(found['missing'], 'run')} missing.")
        say_next("Go on with", "resume", directory)
        raise typer.Exit(NOT_FINISHED)
    say_next("Next", "query", directory, "--by", "classifier")


def _stop(sweep: Sweep) -> None:
    """Let fits in flight be finished, by Ctrl-C be ended, and by one more not be waited for."""
    try:
        sweep.cancel()
        sweep.wait()
    except KeyboardInterrupt:
        with suppress(KeyboardInterrupt):
            sweep.cancel(now=True)
            sweep.wait()


def _print_estimate(sweep: Sweep) -> None:
    """Print the plan's estimate beside what there is."""
    from manyseed.orchestrator.plans.estimate import estimate_and_outcome

    figures = estimate_and_outcome(sweep.paths)
    shown = {
        "fits": lambda value: f"{value:,.0f}",
        "hours": lambda value: duration(3600 * value),
        "store_bytes": size,
        "store_files": lambda value: f"{value:,.0f}",
    }
    names = {"hours": "training", "store_bytes": "store", "store_files": "files"}
    figures_shown = [
        f"{names.get(name, name)} {shown[name](found)} "
        f"(planned {'–' if math.isnan(estimated) else shown[name](estimated)})"
        for name, (estimated, found) in figures.items()
    ]
    say(f"\nCost: {', '.join(figures_shown)}.")
