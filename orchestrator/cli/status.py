"""``manyseed status``."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated

import typer

from orchestrator.cli.common import Directory, Json
from orchestrator.cli.output import console, duration, errors, print_json, print_table
from orchestrator.cli.progress import show
from orchestrator.errors import NOT_FINISHED, UnavailableError

if TYPE_CHECKING:
    from orchestrator.sweep import Sweep


def status(
    directory: Directory,
    watch: Annotated[
        bool, typer.Option("--watch", help="Show progress until nothing runs any more.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Tell what has become of every run.

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


def _exit_code(state: dict[str, object]) -> int:
    runs = state["runs"]
    assert isinstance(runs, dict)
    return 1 if runs["failed"] else NOT_FINISHED if runs["missing"] else 0


def _print(sweep: Sweep, state: dict[str, object]) -> None:
    runs = state["runs"]
    assert isinstance(runs, dict)
    survey = sweep.survey()
    columns = ("dataset", "classifier", "runs", "done", "copy", "failed", "missing")
    print_table(
        sweep.name,
        columns,
        survey.by_group.select(columns).iter_rows(),
        total=("all", "", *(runs[name] for name in columns[2:])),
    )
    for task in state["tasks"]:  # type: ignore[attr-defined]
        if task["state"] in ("running", "starting"):
            since = duration(time.time() - task["submitted"])
            console.print(
                f"\nSubmission {task['number']} is {task['state']} for {since}: "
                f"{task['done']:,} of {task['runs']:,} done, {task['workers']} processes."
            )
    last = state["tasks"][-1] if state["tasks"] else None  # type: ignore[index]
    if last and last["state"] == "broken":
        errors.print(f"\nSubmission {last['number']} ended: {last['reason']}", soft_wrap=True)
    if state["duplicates"]:
        console.print(f"\n{state['duplicates']:,} fits were trained more than once.")
    failures = state["failures"]
    assert isinstance(failures, list)
    for failure in failures:
        console.print(f"\n{failure['count']:,} failed: {failure['error']}", soft_wrap=True)
        console.print(f"  traceback: {failure['file']}", soft_wrap=True, style="dim")
    if runs["missing"] and not sweep.is_running:
        console.print(f"\nGo on with: manyseed resume {sweep.directory}")


def raise_if_broken(reason: str, details: str) -> None:
    """Turn a fault of the machine into the command's error."""
    if reason:
        text = f"{reason}\n{details.strip()}" if details else reason
        raise UnavailableError(f"{text}\n  mend it, then: manyseed resume DIR")
