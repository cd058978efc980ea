"""``manyseed cancel``, ``pause`` and ``throttle``: change what was submitted."""

from __future__ import annotations

from typing import Annotated

import typer

from orchestrator.cli.common import Directory
from orchestrator.cli.output import console


def cancel(
    directory: Directory,
    only: Annotated[
        str | None,
        typer.Option("--only", metavar="SQL", help="Only these cells: classifier = 'mlp'."),
    ] = None,
) -> None:
    """Stop what is running: fits in flight are finished, then the tasks end. Nothing is lost.

    What waits in a queue never starts.
    """
    from orchestrator.sweep import Sweep

    sweep = Sweep(directory)
    running, waiting = sweep.cancel(only)
    if only is not None:
        console.print("What is submitted trains no more of these cells.")
    elif running + waiting == 0:
        console.print("Nothing is running.")
    else:
        console.print(
            f"{_tasks(running)} asked to stop, {_tasks(waiting)} that waited cancelled. "
            f"Go on with: manyseed resume {directory}",
            soft_wrap=True,
        )


def pause(directory: Directory) -> None:
    """Stop what is running after the fits in flight, and hold what waits in the queue.

    manyseed resume releases it, and submits again what the stopped tasks left.
    """
    from orchestrator.sweep import Sweep

    running, waiting = Sweep(directory).pause()
    if running + waiting == 0:
        console.print("Nothing is running.")
    else:
        console.print(
            f"{_tasks(running)} asked to stop, {_tasks(waiting)} held. "
            f"Go on with: manyseed resume {directory}",
            soft_wrap=True,
        )


def throttle(
    directory: Directory,
    parallelism: Annotated[
        int, typer.Argument(metavar="N", min=0, help="0: no limit.", show_default=False)
    ],
) -> None:
    """Let at most N tasks run at once on a cluster, from now on; running ones are not ended."""
    from orchestrator.sweep import Sweep

    arrays = Sweep(directory).throttle(parallelism)
    limit = f"{parallelism:,} tasks" if parallelism else "as many tasks as the site allows"
    console.print(f"From now on {limit} at once (in {arrays:,} arrays).")


def _tasks(n: int) -> str:
    return f"{n:,} task" if n == 1 else f"{n:,} tasks"
