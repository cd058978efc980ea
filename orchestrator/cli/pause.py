"""``manyseed cancel``, ``pause`` and ``throttle``: change what was submitted."""

from __future__ import annotations

from typing import Annotated

import typer

from orchestrator.cli.common import Directory
from orchestrator.cli.output import counted, say, say_next


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
        say("What is submitted trains no more of these cells.")
    elif running + waiting == 0:
        say("Nothing is running.")
    else:
        stopped = f"{counted(running, 'task')} asked to stop"
        say(f"{stopped}, {counted(waiting, 'task')} that waited cancelled.")
        say_next("Go on with", "resume", directory)


def pause(directory: Directory) -> None:
    """Stop what is running after the fits in flight, and hold what waits in the queue.

    manyseed resume releases it, and submits again what the stopped tasks left.
    """
    from orchestrator.sweep import Sweep

    running, waiting = Sweep(directory).pause()
    if running + waiting == 0:
        say("Nothing is running.")
    else:
        say(f"{counted(running, 'task')} asked to stop, {counted(waiting, 'task')} held.")
        say_next("Go on with", "resume", directory)


def throttle(
    directory: Directory,
    parallelism: Annotated[
        int, typer.Argument(metavar="N", min=0, help="0: no limit.", show_default=False)
    ],
) -> None:
    """Let at most N tasks run at once on a cluster, from now on; running ones are not ended."""
    from orchestrator.sweep import Sweep

    arrays = Sweep(directory).throttle(parallelism)
    limit = counted(parallelism, "task") if parallelism else "as many tasks as the site allows"
    say(f"From now on {limit} at once (in {counted(arrays, 'array')}).")
