"""Wait for tasks that were asked to stop: until they end, their runs cannot be submitted."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from manyseed.orchestrator.submissions.scheduler import Scheduler
from manyseed.orchestrator.submissions.submission import Submission, tasks_of
from manyseed.orchestrator.submissions.taskstate import TaskState
from manyseed.orchestrator.tasks.intent import LOCAL

_POLL_SECONDS = 0.25
_PATIENCE = 10.0
"""The pause between two checks, in multiples of the time that a check takes."""


def wait_for_ending(
    submissions: Sequence[Submission],
    seconds: float,
    dispensable: Callable[[Scheduler], bool],
    report: Callable[[str], None],
) -> int:
    """Wait until tasks that were asked to stop have ended; return how many have not.

    They finish their fits in flight first. Tasks that a pause holds in a queue never end by
    themselves, so they are not waited for; nor are tasks that are not visible from here.

    Parameters
    ----------
    submissions : sequence of Submission
    seconds : float
        Longest time to wait.
    dispensable : callable
        As in `tasks_of`.
    report : callable
        Called once with a message if there is something to wait for.

    Raises
    ------
    UnavailableError
        If a cluster that is needed does not answer.
    """
    stopped = [submission for submission in submissions if submission.files.stop.exists()]
    until, is_reported = time.monotonic() + seconds, False
    while stopped:
        began = time.monotonic()
        states = tasks_of(stopped, dispensable=dispensable)
        left = [sum(_is_ending(s, t) for t in ts) for s, ts in zip(stopped, states, strict=True)]
        if not sum(left) or began > until:
            return sum(left)
        if not is_reported:
            report("Waiting for tasks that were asked to stop to finish their fits in flight.")
            is_reported = True
        stopped = [submission for submission, n in zip(stopped, left, strict=True) if n]
        time.sleep(max(_POLL_SECONDS, _PATIENCE * (time.monotonic() - began)))
    return 0


def _is_ending(submission: Submission, task: TaskState) -> bool:
    if task.is_out_of_sight or not task.is_alive:
        return False
    is_queued = submission.cluster != LOCAL and task.state != "running"
    return not (submission.is_paused and is_queued)
