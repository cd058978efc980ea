"""``manyseed status``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from manyseed.orchestrator.cli.common import Directory, Json
from manyseed.orchestrator.cli.output import (
    console,
    counted,
    duration,
    errors,
    print_json,
    print_table,
    say,
    say_next,
    say_steps,
)
from manyseed.orchestrator.errors import INTERRUPTED, NOT_FINISHED, UnavailableError
from manyseed.orchestrator.tasks.attempts import UNREADABLE
from manyseed.orchestrator.tasks.intent import LOCAL

if TYPE_CHECKING:
    from manyseed.orchestrator.progress.status import Status
    from manyseed.orchestrator.sweep import Sweep

_COLUMNS = ("dataset", "classifier", "runs", "done", "copy", "failed", "missing")
_HEADS = {"copy": "copies"}
_MOST_JOBS = 5
"""How many jobs in a state are named; ``--json`` names all."""


def status(
    directory: Directory,
    watch: Annotated[
        bool, typer.Option("--watch", help="Show progress until nothing runs any more.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Report the state of every run and every task.

    Exit code 0 if all runs are done, 1 if runs failed, 3 if runs are missing.

    Examples:

        manyseed status quickstart

        manyseed status quickstart --watch
    """
    from manyseed.orchestrator.sweep import Sweep

    sweep = Sweep(directory)
    if watch:
        follow(sweep, as_json=as_json)
    _report(sweep, as_json=as_json)


def follow(sweep: Sweep, *, as_json: bool = False) -> None:
    """Show progress until nothing runs; report on the sweep and exit with its code.

    Ctrl-C ends only the watching.
    """
    from manyseed.orchestrator.cli.progress import show

    running = sweep.running()
    try:
        for submission in running:
            show(submission, errors if as_json else console)
    except KeyboardInterrupt:
        names = dict.fromkeys(one.cluster for one in running)
        places = " and ".join("this machine" if name == LOCAL else name for name in names)
        left = f"training continues on {places}, without this terminal"
        say(f"\nOnly the watching has ended: {left}.", to=errors)
        say_next("Watch", "status", sweep.directory, "--watch", to=errors)
        say_next("Stop it", "cancel", sweep.directory, to=errors)
        raise typer.Exit(INTERRUPTED) from None
    _report(sweep, as_json=as_json)


def _report(sweep: Sweep, *, as_json: bool) -> None:
    state = sweep.status()
    if as_json:
        print_json(state)
    else:
        _print(sweep, state)
    raise typer.Exit(_exit_code(state))


def _exit_code(state: Status) -> int:
    runs = state["runs"]
    return 1 if runs["failed"] else NOT_FINISHED if runs["missing"] else 0


def _print(sweep: Sweep, state: Status) -> None:
    runs = state["runs"]
    print_table(
        sweep.name,
        tuple(_HEADS.get(name, name) for name in _COLUMNS),
        ([group[name] for name in _COLUMNS] for group in state["groups"]),
        total=("all", "", *(runs[name] for name in _COLUMNS[2:])),
        nested=True,
    )
    if state["tasks"]:
        listed = ", ".join(_tasks(state, name) for name in state["tasks"])
        say(f"\nTasks: {listed}.")
    if state["workers"]:
        say(_training(state))
    if job := state["analysis"]:
        reason = f", {job['reason']}" if job["reason"] else ""
        job_state = job["state"].replace("_", " ")
        say(f"\nAnalysis: job {job['job']} {job_state}{reason}; log: {job['log']}")
    for problem in filter(None, (state["cluster_silent"], *state["problems"])):
        say(f"\n{problem}", to=errors)
    if state["duplicates"]:
        say(f"\nRuns trained more than once: {state['duplicates']:,}.")
    if state["recipes"] > 1:
        say(f"\n{state['recipes']:,} recipes: runs were made in several ways.")
    for count, error in _failures(sweep, state):
        say(f"\n{count:,} failed: {error}")
    console.print()
    if state["report"]:
        console.print(f"Report: {state['report']}", soft_wrap=True)
    say_steps(state)


def _failures(sweep: Sweep, state: Status) -> list[tuple[int, str]]:
    """Return the most frequent errors with their counts; copies count with their cause."""
    if not state["failures"]:
        return []
    from manyseed.orchestrator.progress.logs import failures, is_of_copy
    from manyseed.orchestrator.progress.status import FAILURES_SHOWN

    shown = [(failure["count"], failure["error"]) for failure in state["failures"]]
    # copies, or what they are copies of, may be among the errors that are not shown
    every = sum(count for count, _ in shown) == state["runs"]["failed"]
    if every and not any(is_of_copy(error) for _, error in shown):
        return shown
    folded = failures(sweep.paths, fold=True)[:FAILURES_SHOWN]
    return [(group.count, group.error) for group in folded]


def _tasks(state: Status, name: str) -> str:
    """Return how many tasks are in a state, with their jobs unless they finished."""
    text = f"{state['tasks'][name]:,} {name.replace('_', ' ')}"
    jobs = state["jobs"].get(name, [])
    if name == "finished" or not jobs:
        return text
    more = f", and {len(jobs) - _MOST_JOBS} more" if len(jobs) > _MOST_JOBS else ""
    return f"{text} ({', '.join(jobs[:_MOST_JOBS])}{more})"


def _training(state: Status) -> str:
    rate, left = state["runs_per_hour"], duration(state["seconds_left"] or 0.0)
    done = f"{rate:,.0f} runs per hour" if rate else "no run has finished yet"
    return f"Training: {counted(state['workers'], 'process')}, {done}; about {left} left."


def say_unreadable(sweep: Sweep) -> None:
    """Name unreadable reports of tasks; while a report is recent, its task counts as running."""
    for submission in sweep.submissions():
        for attempt in submission.attempts():
            if attempt.state == UNREADABLE:
                say(attempt.reason, to=errors)


def raise_if_broken(sweep: Sweep, reason: str, details: str) -> None:
    """Raise a fault of the machine as the command's error."""
    if reason:
        from manyseed.orchestrator.submissions.submission import training

        text = f"{reason}\n{details.strip()}" if details else reason
        raise UnavailableError(f"{text}\n  fix it, then: {training(sweep.paths, 'resume')}")
