"""The messages between a task and its training processes."""

from __future__ import annotations

from dataclasses import dataclass

from manyseed.orchestrator.tasks.attempts import Failure


@dataclass(frozen=True, slots=True)
class Batch:
    """Runs of one repeat of one cell that a process trains in one go."""

    group: int
    shard: int
    cell: int
    repeat: int
    runs: tuple[tuple[int, int], ...]
    """(row, run) of each."""
    source: int = -1
    """Row of the run that these are copies of; -1 if each is trained."""
    models: bool = True
    """Whether their parameters are kept, if the group keeps those of some runs."""


@dataclass(frozen=True, slots=True)
class Ready:
    """The process has imported what it needs."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of a batch: finished rows, failures, and seconds per run."""

    done: tuple[int, ...]
    failures: tuple[Failure, ...]
    seconds: float


@dataclass(frozen=True, slots=True)
class Fault:
    """The process cannot continue, for a reason that is not a run's failure."""

    reason: str
    details: str
    is_of_task: bool = False
    """Whether the task is at fault: it would end the same way on any node."""
    is_crowded: bool = False
    """Whether the memory of the GPU, which other processes may share, was full."""
