"""The progress of a submission, as its tasks report it; progress bars are built on this."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from manyseed.orchestrator.errors import UnavailableError
from manyseed.orchestrator.submissions.submission import Submission, TaskState, tasks_of
from manyseed.orchestrator.tasks.attempts import Attempt
from manyseed.orchestrator.tasks.intent import LOCAL

_LEAST_BYTES = 2**16  # the disk space that a task needs to start
_POLL_SECONDS = 0.25
_SILENCE_SECONDS = 900.0
"""How long the cluster may be silent: a restarted controller takes some minutes."""
_PATIENCE = 10.0
"""The pause after a poll, relative to its duration: there may be thousands of tasks."""


@dataclass(frozen=True, slots=True)
class Progress:
    """A submission at one moment."""

    runs: int  # runs of the submission
    done: int = 0
    failed: int = 0  # finished runs, including copies, and failed runs
    set_aside: int = 0  # runs that killed their process repeatedly; they stay missing
    workers: int = 0  # training processes
    state: str = "starting"
    """Starting, running, finished, stopped, broken (the machine was at fault) or gone (killed)."""
    reason: str = ""
    details: str = ""  # why it is broken, or if known why it is gone: one line, and the full text

    @property
    def is_over(self) -> bool:
        """Whether no task of the submission is alive any more."""
        return self.state not in ("starting", "running")


def progress(submission: Submission) -> Progress:
    """Return the current progress of a submission."""
    return summed(submission, submission.tasks())


def summed(submission: Submission, tasks: Sequence[TaskState]) -> Progress:
    """Return the progress of a submission, given its tasks."""
    broken = [(task.last.reason, task.last.details) for task in tasks if task.state == "broken"]
    attempts = [attempt for task in tasks for attempt in task.attempts]
    silent = submission.cluster == LOCAL and _state(tasks) == "gone" and not attempts
    reason, details = broken[-1] if broken else _last_words(submission) if silent else ("", "")
    return Progress(
        runs=submission.n_runs,
        done=sum(task.done for task in tasks),
        failed=sum(task.failed for task in tasks),
        set_aside=sum(task.last.set_aside for task in tasks),
        workers=sum(attempt.workers for attempt in attempts if attempt.state == "running"),
        state=_state(tasks),
        reason=reason,
        details=details,
    )


def _state(tasks: Sequence[TaskState]) -> str:
    """Return the state of a submission: the most advanced while alive, else the worst."""
    states = {task.state for task in tasks}
    if "running" in states:
        return "running"
    if states & {"waiting", "held", "unknown"}:
        return "starting"
    if "broken" in states:
        return "broken"
    if states <= {"finished"}:
        return "finished"
    return "stopped" if states <= {"finished", "stopped"} else "gone"


def _last_words(submission: Submission) -> tuple[str, str]:
    """Return why a task on this machine did not start, if that is known.

    A full disk leaves neither progress nor a log.
    """
    if shutil.disk_usage(submission.folder).free < _LEAST_BYTES:
        return f"a task could not start: no space left at {submission.folder}", ""
    logs = [log for log in submission.files.printed() if log.suffix == ".err" and log.is_file()]
    printed = "\n".join(log.read_text(errors="replace") for log in logs).strip()
    return (f"a task could not start: {printed.splitlines()[-1]}", printed) if printed else ("", "")


def runs_per_hour(missing: int, left: float | None, running: Sequence[Attempt]) -> float:
    """Return the rate at which the missing runs take `left` seconds, or else the rate so far."""
    if missing and left:
        return round(3600 * missing / left, 1)
    now = time.time()
    return round(sum(3600 * one.n_done / max(1.0, now - one.started) for one in running), 1)


def watch(submission: Submission) -> Iterator[Progress]:
    """Yield a submission's progress several times a second, until all its tasks have ended.

    While its cluster does not answer, progress relies on the reports of tasks.
    """
    heard = time.monotonic()
    while True:
        began = time.monotonic()
        try:
            tasks, heard = submission.tasks(), began
        except UnavailableError:
            if began - heard > _SILENCE_SECONDS:
                raise
            began = time.monotonic()  # that it did not answer may have taken minutes
            (tasks,) = tasks_of([submission], ask=False)
        now = summed(submission, tasks)
        yield now
        if now.is_over:
            return
        time.sleep(max(_POLL_SECONDS, _PATIENCE * (time.monotonic() - began)))
