"""Tasks that were asked to stop and have not ended: what they hold cannot be submitted yet."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from manyseed.orchestrator.submissions.scheduler import Scheduler
from manyseed.orchestrator.submissions.submission import Submission, tasks_of
from manyseed.orchestrator.submissions.taskstate import TaskState
from manyseed.orchestrator.tasks.intent import LOCAL

_POLL_SECONDS = 0.25
_PATIENCE = 10.0
"""Of the time between two looks, one takes a tenth at most."""


def wait_for_ending(
    submissions: Sequence[Submission],
    seconds: float,
    dispensable: Callable[[Scheduler], bool],
    report: Callable[[str], None],
) -> int:
    """Wait until tasks that were asked to stop have ended; return how many have not.

    Fits in flight are finished first, which may take as long as they do. What a pause holds in a
    queue does not end by itself, and is not waited for; nor is what cannot be seen from here.

    Parameters
    ----------
    submissions : sequence of Submission
    seconds : float
        How long to wait at most.
    dispensable : callable
        As `tasks_of` takes it.
    report : callable
        Called once, to say that there is something to wait for.

    Raises
    ------
    UnavailableError
        When a cluster does not answer that is needed.
    """
    stopped = [one for one in submissions if one.files.stop.exists()]
    until, is_reported = time.monotonic() + seconds, False
    while stopped:
        began = time.monotonic()
        looked = tasks_of(stopped, dispensable=dispensable)
        left = [sum(_is_ending(s, t) for t in ts) for s, ts in zip(stopped, looked, strict=True)]
        if not sum(left) or began > until:
            return sum(left)
        if not is_reported:
            report("Waiting for tasks that were asked to stop: they finish their fits in flight.")
            is_reported = True
        stopped = [one for one, n in zip(stopped, left, strict=True) if n]
        time.sleep(max(_POLL_SECONDS, _PATIENCE * (time.monotonic() - began)))
    return 0


def _is_ending(submission: Submission, task: TaskState) -> bool:
    if task.is_out_of_sight or not task.is_alive:
        return False
    is_queued = submission.cluster != LOCAL and task.state != "running"
    return not (submission.is_paused and is_queued)
