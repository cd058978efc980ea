"""``manyseed submit``, ``resume`` and ``cancel``."""

from __future__ import annotations

from typing import Annotated

import typer

from orchestrator.cli.common import Directory, OtherRecipe, Workers
from orchestrator.cli.output import console


def submit(
    directory: Directory, workers: Workers = None, other_recipe: OtherRecipe = False
) -> None:
    """Submit every missing run, and return at once; the work goes on without this terminal.

    Examples:

        manyseed submit sweep

        manyseed status sweep --watch
    """
    _submit(directory, workers, failed=False, other_recipe=other_recipe)


def resume(
    directory: Directory,
    workers: Workers = None,
    failed: Annotated[
        bool, typer.Option("--failed", help="Train exactly the failed runs again, same seeds.")
    ] = False,
    other_recipe: OtherRecipe = False,
) -> None:
    """Submit what an interrupted sweep still misses; finished runs are never trained again.

    Failed runs are left alone unless --failed asks for them.
    """
    _submit(directory, workers, failed=failed, other_recipe=other_recipe)


def cancel(directory: Directory) -> None:
    """Stop what is running: fits in flight are finished, then the tasks end. Nothing is lost."""
    from orchestrator.sweep import Sweep

    stopped = Sweep(directory).cancel()
    if stopped:
        console.print(f"Asked {stopped} submission(s) to stop. Go on with: manyseed resume")
    else:
        console.print("Nothing is running.")


def _submit(directory: Directory, workers: int | None, *, failed: bool, other_recipe: bool) -> None:
    from orchestrator.sweep import Sweep

    sweep = Sweep(directory)
    submission = sweep.submit(workers=workers, failed=failed, other_recipe=other_recipe)
    if submission is None:
        console.print(_nothing(sweep, failed))
        return
    console.print(
        f"Submitted {submission.n_runs:,} runs to {submission.intent['workers']} local processes. "
        f"Watch: manyseed status {directory} --watch"
    )


def _nothing(sweep: object, failed: bool) -> str:
    from orchestrator.sweep import Sweep

    assert isinstance(sweep, Sweep)
    counts = sweep.status()["runs"]
    if sweep.is_running:
        return "Nothing to submit: what is missing is being trained."
    if failed:
        return "Nothing to submit: no run is failed."
    text = "Nothing to submit: no run is missing"
    if counts["failed"]:
        return f"{text}; {counts['failed']:,} failed (retry them with: manyseed resume --failed)."
    return f"{text}."
