"""The state of one task, in the same terms wherever it runs."""

from __future__ import annotations

from dataclasses import dataclass

from manyseed.orchestrator.tasks.attempts import Attempt

OVER = ("finished", "stopped", "broken")
"""States of an attempt that mean its task is over, wherever it ran."""

ALIVE = ("waiting", "held", "running")
"""States of a task that trains or will train."""

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
        waiting, held, running; finished, stopped, broken (the machine was at fault); killed (no
        process of it is alive and it reported no end), gone (no attempt of it is known anywhere),
        cancelled, or, if SLURM knows more: failed, timeout, out_of_memory, node_fail, preempted.
    attempts : tuple of Attempt
        The last report of each attempt, oldest first.
    job_id : str
        SLURM's job id; empty on this machine and if there is none.
    node, note : str
        The node where it runs or last ran, and the scheduler's remark on it.
    """

    number: int
    state: str
    attempts: tuple[Attempt, ...] = ()
    job_id: str = ""
    node: str = ""
    note: str = ""

    @property
    def is_alive(self) -> bool:
        """Whether it trains or will train."""
        return self.state in ALIVE

    @property
    def is_out_of_sight(self) -> bool:
        """Whether only its files show its state, as no scheduler that knows it is in reach."""
        return self.note in (ELSEWHERE, UNSEEN)

    @property
    def done(self) -> int:
        """The number of runs that its attempts finished."""
        return sum(attempt.n_done for attempt in self.attempts)

    @property
    def failed(self) -> int:
        """The number of runs that failed in its attempts."""
        return sum(attempt.n_failed for attempt in self.attempts)

    @property
    def last(self) -> Attempt:
        """The report of its last attempt; an empty one before the first."""
        return self.attempts[-1] if self.attempts else _NONE
