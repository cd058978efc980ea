"""``manyseed submit``, and the report on a submission."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from manyseed.orchestrator.cli.common import Cluster, Directory, Only, OtherRecipe, Workers
from manyseed.orchestrator.cli.output import counted, say, say_next, say_steps
from manyseed.orchestrator.cli.status import follow, say_unreadable

if TYPE_CHECKING:
    from manyseed.orchestrator.submissions.submission import Submission
    from manyseed.orchestrator.sweep import Sweep

Limit = Annotated[
    int | None,
    typer.Option("--limit", min=1, help="Submit at most N runs, spread over the cells: a pilot."),
]


Watch = Annotated[
    bool,
    typer.Option("--watch", help="Show progress until nothing runs any more; exit as status does."),
]


def submit(
    directory: Directory,
    cluster: Cluster = "auto",
    workers: Workers = None,
    only: Only = None,
    limit: Limit = None,
    other_recipe: OtherRecipe = False,
    watch: Watch = False,
) -> None:
    """Submit every missing run and return at once. The work goes on without this terminal.

    This holds with --watch, too: interrupting it does not stop the work.

    Examples:

        manyseed submit sweep

        manyseed submit sweep --cluster mycluster --limit 100

        manyseed submit sweep --watch
    """
    submit_and_report(
        directory,
        watch=watch,
        cluster=cluster,
        workers=workers,
        only=only,
        limit=limit,
        other_recipe=other_recipe,
    )


def submit_and_report(
    directory: Path, *, watch: bool, failed: bool = False, **options: Any
) -> None:
    """Submit with the options of `Sweep.submit`, report it, and show progress if asked to."""
    from manyseed.orchestrator.sweep import Sweep

    sweep = Sweep(directory)
    _say_submitted(sweep, sweep.submit(failed=failed, tell=say, **options), failed)
    if watch:
        follow(sweep)


def _say_submitted(sweep: Sweep, submission: Submission | None, failed: bool) -> None:
    """Report what was submitted, or why nothing was."""
    if submission is None:
        _say_nothing_to_submit(sweep, failed)
        return
    intent = submission.intent
    say_gpu(submission)
    where = counted(intent.workers, "local process")
    if intent.arrays:
        where = f"{intent.cluster}: " + ", ".join(
            f"{counted(a.count, a.resource + ' task')} of {counted(a.processes, 'process')}"
            for a in intent.arrays
        )
        for node, reason in intent.excluded.items():
            say(f"Excluded {node}: {reason}")
    say_kept(sweep)
    say(f"Submitted {counted(submission.n_runs, 'run')} to {where}.")
    say_next("Watch", "status", sweep.directory, "--watch")


def say_kept(sweep: Sweep) -> None:
    """Say how many runs are finished, if any: they are never trained again."""
    counts = sweep.survey().counts
    if finished := counts["done"] + counts["copy"]:
        say(f"{finished:,} of {counts['runs']:,} runs are kept.")


def say_gpu(submission: Submission) -> None:
    """Say on which device classifiers with device = "gpu" train on this machine."""
    gpu = submission.intent.gpu
    if gpu == "none":
        say('No GPU responds here: classifiers with device = "gpu" train on the CPU.')
    elif gpu:
        say(f'Classifiers with device = "gpu" train on {gpu}.')


def _say_nothing_to_submit(sweep: Sweep, failed: bool) -> None:
    from manyseed.orchestrator.plans.plan import Plan

    if sweep.is_running:
        say("Nothing to submit: all missing runs are waiting or being trained.")
        say_unreadable(sweep)
        say_next("Watch", "status", sweep.directory, "--watch")
        return
    state = sweep.status()
    if Plan.read(sweep.paths).is_imported:
        say("Nothing to train: the predictions were imported.")
    elif failed:
        say("Nothing to submit: no run failed.")
    elif n_failed := state["runs"]["failed"]:
        say(f"Nothing to submit: no run is missing; {n_failed:,} failed.")
    else:
        say("Nothing to submit: no run is missing.")
    say_steps(state)
