"""``manyseed pause``."""

from __future__ import annotations

from manyseed.orchestrator.cli.common import Directory
from manyseed.orchestrator.cli.output import counted, say, say_training
from manyseed.orchestrator.cli.status import say_unreadable


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
        say_training("Continue with", sweep.paths, "resume")
