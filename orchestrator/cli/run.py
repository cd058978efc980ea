"""``manyseed run``: from the sweep file to the report."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from manyseed.orchestrator.cli.analyze import analyze_and_report, say_report
from manyseed.orchestrator.cli.answers import in_short
from manyseed.orchestrator.cli.common import (
    Cluster,
    OtherRecipe,
    Out,
    OwnMetrics,
    Settings,
    SweepToml,
    Workers,
)
from manyseed.orchestrator.cli.output import counted, duration, say, say_next, say_training, size
from manyseed.orchestrator.cli.progress import show
from manyseed.orchestrator.cli.status import raise_if_broken
from manyseed.orchestrator.cli.submit import say_gpu, say_kept
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
    """Plan, train, analyse and report; resume a sweep that exists.

    Ctrl-C stops training on this machine after the fits in flight. On a cluster, it only ends the
    watching: submitted jobs keep running. The same command continues where it stopped.

    Examples:

        manyseed run examples/quickstart.toml --cluster local

        manyseed run sweep.toml --out /scratch/me/sweep --workers 8

        manyseed run sweep.toml --cluster mycluster
    """
    from manyseed.orchestrator.grids.loading import read_sweep_file
    from manyseed.orchestrator.paths import SweepPaths
    from manyseed.orchestrator.plans.change import remarks
    from manyseed.orchestrator.plans.data import fetch_datasets
    from manyseed.orchestrator.plans.planning import plan_change, plan_sweep
    from manyseed.orchestrator.submissions.profiles import AUTO, choose
    from manyseed.orchestrator.submissions.requirements import (
        of_earlier_code,
        require_code,
        require_packages,
    )
    from manyseed.orchestrator.submissions.submission import last_intent
    from manyseed.orchestrator.sweep import Sweep
    from manyseed.orchestrator.tasks.intent import LOCAL

    settings = settings or []
    directory = out or Path(read_sweep_file(sweep_file, settings).name)
    again = ["run", sweep_file, "--out", directory]
    again += [word for setting in settings for word in ("--set", setting)]
    again += ["--cluster", cluster] if cluster != AUTO else []
    again += ["--workers", workers] if workers else []
    again += ["--other-recipe"] if other_recipe else []
    again += [word for each in metric or [] for word in ("--metric", each)]
    # reports errors in the file before any others
    asked = plan_change(sweep_file, directory, settings)
    if not other_recipe:
        require_code(SweepPaths(directory), asked)
    name = LOCAL if cluster == AUTO and workers else cluster
    profile = choose(name, last=last_intent(SweepPaths(directory)))
    where = LOCAL if profile is None else str(profile.path)
    if profile is None:
        require_packages(
            asked.after, asked.after.cells.join(asked.added, on="cell", how="semi").sort("cell")
        )
    change = plan_sweep(sweep_file, directory, settings)
    fetch_datasets(change.expansion.datasets)
    sweep = Sweep(directory)
    plan = change.summary()
    counts = [counted(plan[f"{noun}s"], noun) for noun in ("run", "cell", "group")]
    say(f"{change.sweep.name}: {counts[0]} in {counts[1]} of {counts[2]} → {directory}")
    for sentence in () if change.is_empty else remarks(change):
        say(sentence)
    for sentence in () if other_recipe else of_earlier_code(sweep.paths, asked):
        say(sentence, style="yellow")
    search(sweep, where if profile is None else AUTO, workers)
    submission = sweep.submit(cluster=where, workers=workers, other_recipe=other_recipe, tell=say)
    running = sweep.running()
    if submission is not None:
        say_gpu(submission)
        say_kept(sweep)
    for watched in [submission] if submission else running:
        try:
            last = show(watched)
        except KeyboardInterrupt:
            if watched.cluster != LOCAL:
                say(
                    "\nOnly the watching has ended: the submitted jobs continue on "
                    f"{watched.cluster}, without this terminal."
                )
                say_next("Stop them", "cancel", directory)
                say_next("Follow them, then analyse", *again)
                raise typer.Exit(INTERRUPTED) from None
            say(
                "\nStopping after the fits in flight. "
                "Press Ctrl-C again to end them, too; they will be trained again."
            )
            _stop(sweep)
            say_kept(sweep)
            if places := ", ".join(dict.fromkeys(one.cluster for one in sweep.running())):
                say(f"The jobs on {places} continue, without this terminal.")
                say_next("Stop them", "cancel", directory)
            say_next("Continue with", *again)
            raise typer.Exit(INTERRUPTED) from None
        raise_if_broken(sweep, last.reason, last.details)
    page = analyze_and_report(sweep, metric, None if profile is None else where)
    in_short(sweep)
    say_report(page)
    _print_estimate(sweep)
    runs = sweep.status()["runs"]
    if runs["failed"]:
        say(f"\n{counted(runs['failed'], 'run')} failed.")
        say_next("Tracebacks", "logs", directory, "--failed")
        raise typer.Exit(1)
    if runs["missing"]:
        say(f"\n{counted(runs['missing'], 'run')} missing.")
        say_training("Continue with", sweep.paths, "resume")
        raise typer.Exit(NOT_FINISHED)
    say_next("Next", "query", directory, "--by", "classifier")


def _stop(sweep: Sweep) -> None:
    """Stop here after the fits in flight. Ctrl-C ends these; another Ctrl-C stops waiting."""
    from manyseed.orchestrator.submissions import stopping
    from manyseed.orchestrator.submissions.submission import running
    from manyseed.orchestrator.tasks.intent import LOCAL

    here = [one for one in sweep.submissions() if one.cluster == LOCAL]

    def stop(*, now: bool) -> None:
        stopping.cancel(here, now=now)
        while running(here):
            time.sleep(0.1)

    try:
        stop(now=False)
    except KeyboardInterrupt:
        with suppress(KeyboardInterrupt):
            stop(now=True)


def _print_estimate(sweep: Sweep) -> None:
    """Print the actual cost, beside the plan's estimate where that differs."""
    from manyseed.orchestrator.plans.change import estimate_and_outcome

    shown: dict[str, tuple[str, Callable[[float], str]]] = {
        "fits": ("fits", "{:,.0f}".format),
        "hours": ("training", lambda hours: duration(3600 * hours)),
        "store_bytes": ("store", size),
        "store_files": ("files", "{:,.0f}".format),
    }
    figures = []
    for key, (estimated, actual) in estimate_and_outcome(sweep.paths).items():
        name, show_figure = shown[key]
        planned = "–" if math.isnan(estimated) else show_figure(estimated)
        as_planned = planned == show_figure(actual)
        figures.append(
            f"{name} {show_figure(actual)}{'' if as_planned else f' (planned {planned})'}"
        )
    say(f"Cost: {', '.join(figures)}.")
