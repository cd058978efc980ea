"""``manyseed status``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from orchestrator.cli.common import Directory, Json
from orchestrator.cli.output import console, duration, errors, print_json, print_table
from orchestrator.cli.progress import show
from orchestrator.errors import NOT_FINISHED, UnavailableError

if TYPE_CHECKING:
    from orchestrator.sweep import Sweep

_COLUMNS = ("dataset", "classifier", "runs", "done", "copy", "failed", "missing")


def status(
    directory: Directory,
    watch: Annotated[
        bool, typer.Option("--watch", help="Show progress until nothing runs any more.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Tell what has become of every run and every task.

    Exit code 0 when all is done, 1 when runs failed, 3 when runs are missing.
    """
    from orchestrator.sweep import Sweep

    sweep = Sweep(directory)
    if watch:
        for submission in sweep.running():
            show(submission)
    state = sweep.status()
    if as_json:
        print_json(state)
    else:
        _print(sweep, state)
    raise typer.Exit(_exit_code(state))


def _exit_code(state: dict[str, Any]) -> int:
    runs = state["runs"]
    return 1 if runs["failed"] else NOT_FINISHED if runs["missing"] else 0


def _print(sweep: Sweep, state: dict[str, Any]) -> None:
    runs = state["runs"]
    print_table(
        sweep.name,
        _COLUMNS,
        ([group[name] for name in _COLUMNS] for group in state["groups"]),
        total=("all", "", *(runs[name] for name in _COLUMNS[2:])),
    )
    if state["tasks"]:
        listed = ", ".join(f"{n:,} {name.replace('_', ' ')}" for name, n in state["tasks"].items())
        console.print(f"\nTasks: {listed}.")
    if state["workers"]:
        left = state["seconds_left"]
        console.print(
            f"Training: {state['workers']:,} processes, {state['runs_per_hour']:,.0f} runs an "
            f"hour; about {duration(left)} left as it goes now."
        )
    if state["cluster_silent"]:
        errors.print(f"\n{state['cluster_silent']}", markup=False, soft_wrap=True)
    for problem in state["problems"]:
        errors.print(f"\n{problem}", markup=False, soft_wrap=True)
    if state["duplicates"]:
        console.print(f"\n{state['duplicates']:,} fits were trained more than once.")
    for failure in state["failures"]:
        console.print(
            f"\n{failure['count']:,} failed: {failure['error']}", markup=False, soft_wrap=True
        )
    if state["failures"]:
        console.print(f"  tracebacks: manyseed logs {sweep.directory} --failed", soft_wrap=True)
    if runs["missing"] and not _is_alive(state):
        console.print(f"\nGo on with: manyseed resume {sweep.directory}", soft_wrap=True)


def _is_alive(state: dict[str, Any]) -> bool:
    return any(name in state["tasks"] for name in ("waiting", "held", "running"))


def raise_if_broken(reason: str, details: str) -> None:
    """Turn a fault of the machine into the command's error."""
    if reason:
        text = f"{reason}\n{details.strip()}" if details else reason
        raise UnavailableError(f"{text}\n  mend it, then: manyseed resume DIR")
