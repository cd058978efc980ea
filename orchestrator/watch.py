"""How far a submission is, as its tasks tell; the core of progress bars, without one."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass

from orchestrator.submission import Submission

_POLL_SECONDS = 0.25


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
    alive = submission.is_alive()
    lives = submission.lives()
    if not lives:
        return Progress(submission.n_runs, state="starting" if alive else "gone")
    last = lives[-1]
    state = last["state"]
    if state == "running" and not alive:
        state = "gone"
    return Progress(
        runs=submission.n_runs,
        done=sum(sum(life["done"].values()) for life in lives),
        failed=sum(sum(life["failed"].values()) for life in lives),
        set_aside=last["set_aside"],
        workers=last["workers"],
        state=state,
        reason=last.get("reason", ""),
        details=last.get("details", ""),
    )


def watch(submission: Submission) -> Iterator[Progress]:
    """Yield a submission's progress several times a second, until nothing of it lives."""
    while True:
        now = progress(submission)
        yield now
        if now.is_over:
            return
        time.sleep(_POLL_SECONDS)
