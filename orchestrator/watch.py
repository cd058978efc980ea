"""How far a submission is, as its tasks tell; the core of progress bars, without one."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from orchestrator.submission import Submission, TaskState

_POLL_SECONDS = 0.25
_PATIENCE = 10.0
"""Of the time between two looks, one takes a tenth at most: there may be thousands of tasks."""


@dataclass(frozen=True, slots=True)
class Progress:
    """A submission at one moment.

    Attributes
    ----------
    runs : int
        What it was given.
    done, failed : int
        Finished (copies included), and raised.
    set_aside : int
        Runs that killed their process again and again; they stay missing.
    workers : int
        Training processes.
    state : str
        starting, running, finished, stopped, broken (the machine was at fault) or gone (killed).
    reason, details : str
        Why it is broken: one line, and what there is to read.
    """

    runs: int
    done: int = 0
    failed: int = 0
    set_aside: int = 0
    workers: int = 0
    state: str = "starting"
    reason: str = ""
    details: str = ""

    @property
    def is_over(self) -> bool:
        """Whether nothing of the submission lives any more."""
        return self.state not in ("starting", "running")


def progress(submission: Submission) -> Progress:
    """Look at a submission once."""
    return summed(submission, submission.tasks())


def summed(submission: Submission, tasks: Sequence[TaskState]) -> Progress:
    """Return the progress of a submission whose tasks are known."""
    broken = [task.last for task in tasks if task.state == "broken"]
    lives = [life for task in tasks for life in task.lives]
    return Progress(
        runs=submission.n_runs,
        done=sum(task.done for task in tasks),
        failed=sum(task.failed for task in tasks),
        set_aside=sum(task.last.get("set_aside", 0) for task in tasks),
        workers=sum(life["workers"] for life in lives if life["state"] == "running"),
        state=_state(tasks),
        reason=broken[-1]["reason"] if broken else "",
        details=broken[-1]["details"] if broken else "",
    )


def _state(tasks: Sequence[TaskState]) -> str:
    """Return the state of a submission: while anything lives, how far that is, else the worst."""
    found = {task.state for task in tasks}
    if "running" in found:
        return "running"
    if found & {"waiting", "held"}:
        return "starting"
    if "broken" in found:
        return "broken"
    if found <= {"finished"}:
        return "finished"
    return "stopped" if found <= {"finished", "stopped"} else "gone"


def watch(submission: Submission) -> Iterator[Progress]:
    """Yield a submission's progress several times a second, until nothing of it lives."""
    while True:
        began = time.monotonic()
        now = progress(submission)
        yield now
        if now.is_over:
            return
        time.sleep(max(_POLL_SECONDS, _PATIENCE * (time.monotonic() - began)))
