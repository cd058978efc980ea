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
    now: Annotated[
        bool,
        typer.Option("--now", help="End the fits in flight; resume trains them again."),
    ] = False,
) -> None:
    """Stop what is running: fits in flight are finished, then the tasks end. Nothing is lost.

    That takes as long as these fits do. What waits in a queue never starts.
    """
    from orchestrator.errors import UserError
    from orchestrator.sweep import Sweep

    if now and only is not None:
        raise UserError("the fits in flight of all cells are ended, or of none", key="--now")
    sweep = Sweep(directory)
    running, waiting = sweep.cancel(only, now=now)
    if only is not None:
        say("What is submitted trains no more of these cells.")
    elif running + waiting == 0:
        say("Nothing is running.")
    else:
        when = "now" if now else "after the fits in flight"
        stopped = f"{counted(running, 'task')} asked to stop {when}"
        say(f"{stopped}, {counted(waiting, 'task')} that waited cancelled.")
        if running and not now:
            say_next("End these fits, too", "cancel", directory, "--now")
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
        stopped = f"{counted(running, 'task')} asked to stop after the fits in flight"
        say(f"{stopped}, {counted(waiting, 'task')} held.")
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
