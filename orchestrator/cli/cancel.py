"""``manyseed cancel``."""

from __future__ import annotations

from typing import Annotated

import typer

from manyseed.orchestrator.cli.common import Directory, Only
from manyseed.orchestrator.cli.output import counted, say, say_next, say_training
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
        say_training("Continue with", sweep.paths, "resume")
