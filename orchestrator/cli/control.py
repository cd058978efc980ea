"""``manyseed cancel``, ``pause`` and ``throttle``."""

from __future__ import annotations

from typing import Annotated

import typer

from manyseed.orchestrator.cli.common import Directory, Only
from manyseed.orchestrator.cli.output import counted, say, say_next
from manyseed.orchestrator.cli.status import say_unreadable
from manyseed.orchestrator.errors import UserError


def cancel(
    directory: Directory,
    only: Only = None,
    now: Annotated[
        bool,
        typer.Option("--now", help="End the fits in flight; resume trains them again."),
    ] = False,
) -> None:
    """Stop all tasks after the fits in flight. Nothing is lost.

    This takes as long as these fits do. Tasks that wait in a queue never start.

    Examples:

        manyseed cancel quickstart

        manyseed cancel quickstart --now
    """
    from manyseed.orchestrator.sweep import Sweep

    if now and only is not None:
        raise UserError("cannot end the fits in flight of some cells only", key="--now")
    sweep = Sweep(directory)
    running, waiting = sweep.cancel(only, now=now)
    say_unreadable(sweep)
    if only is not None:
        say("Submitted tasks train no more runs of these cells.")
    elif running + waiting == 0:
        say("Nothing is running.")
    else:
        when = "now" if now else "after the fits in flight"
        stopped = f"{counted(running, 'task')} asked to stop {when}"
        say(f"{stopped}, {counted(waiting, 'waiting task')} cancelled.")
        if running and not now:
            say_next("End these fits, too", "cancel", directory, "--now")
        say_next("Go on with", "resume", directory)


def pause(directory: Directory) -> None:
    """Stop running tasks after the fits in flight, and hold tasks that wait in the queue.

    manyseed resume releases held tasks, and submits the runs that stopped tasks left.

    Examples:

        manyseed pause quickstart
    """
    from manyseed.orchestrator.sweep import Sweep

    sweep = Sweep(directory)
    running, waiting = sweep.pause()
    say_unreadable(sweep)
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
    """Let at most N tasks run at once on a cluster from now on. Running tasks are not ended.

    Examples:

        manyseed throttle quickstart 10

        manyseed throttle quickstart 0
    """
    from manyseed.orchestrator.sweep import Sweep

    arrays = Sweep(directory).throttle(parallelism)
    limit = counted(parallelism, "task") if parallelism else "as many tasks as the site allows"
    say(f"From now on {limit} at once (in {counted(arrays, 'array')}).")
