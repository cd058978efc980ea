"""The state of one task, in words that are the same wherever it runs."""

from __future__ import annotations

from dataclasses import dataclass

from manyseed.orchestrator.tasks.attempts import Attempt

OVER = ("finished", "stopped", "broken")
"""How an attempt says that its task is over, wherever it ran."""

ALIVE = ("waiting", "held", "running")
"""States of a task that trains, or will."""

_NONE = Attempt("", "", started=0.0)

ELSEWHERE = "on a cluster that is not reached from here"
UNSEEN = "SLURM shows nothing of it here"


@dataclass(frozen=True, slots=True)
class TaskState:
    """A task at one moment.

    Attributes
    ----------
    number : int
    state : str
        waiting, held, running; finished, stopped, broken (the machine was at fault); killed
        (nothing of it is alive, it reported no end), gone (no attempt of it is known anywhere),
        cancelled, or, where SLURM knows more: failed, timeout, out_of_memory, node_fail, preempted.
    attempts : tuple of Attempt
        What each attempt last reported, oldest first.
    job_id : str
        SLURM's, empty on this machine and where there is none.
    node, note : str
        Where it runs or ran last, and what the scheduler says of it.
    """

    number: int
    state: str
    attempts: tuple[Attempt, ...] = ()
    job_id: str = ""
    node: str = ""
    note: str = ""

    @property
    def is_alive(self) -> bool:
        """Whether it trains, or will."""
        return self.state in ALIVE

    @property
    def is_out_of_sight(self) -> bool:
        """Whether only its files show it, since no scheduler that knows it answers here."""
        return self.note in (ELSEWHERE, UNSEEN)

    @property
    def done(self) -> int:
        """Runs that its attempts finished."""
        return sum(attempt.n_done for attempt in self.attempts)

    @property
    def failed(self) -> int:
        """Runs that its attempts saw failing."""
        return sum(attempt.n_failed for attempt in self.attempts)

    @property
    def last(self) -> Attempt:
        """What its last attempt reported; before the first, nothing."""
        return self.attempts[-1] if self.attempts else _NONE
