"""What the attempts of tasks leave in their folders: how far each is, and which runs failed.

Read by tasks as they start: imports no table library.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Annotated

from annotated_types import Ge, Interval, Le

from manyseed.orchestrator.disk.records import (
    read_record,
    read_records,
    require_same_plan,
    write_json,
)
from manyseed.orchestrator.errors import DamagedFile
from manyseed.orchestrator.tasks.submissionpaths import FAILURES, PROGRESS, SubmissionPaths

UNREADABLE = "unreadable"
"""The state of an attempt whose file cannot be read; others know what became of it."""

_REMEDY = "remove it: the runs that failed there count as missing then"

_Count = Annotated[int, Ge(0), Le(2**40)]
_Number = Annotated[int, Interval(ge=0, lt=2**32)]
_Seconds = Annotated[float, Interval(ge=0, le=2.0**40)]


@dataclass(frozen=True, slots=True)
class Attempt:
    """What an attempt last reported.

    Attributes
    ----------
    state : str
        running; finished, stopped, broken (`reason` says why) or interrupted by the scheduler;
        `UNREADABLE`.
    process : str
        The fingerprint of its process.
    node, job_id : str
        As `orchestrator.working.node.Node` has them.
    started, updated : float
        When it began and when it reported this, in seconds since the epoch.
    runs, pending : int
        Runs of the task, and those of them that are neither finished nor failed.
    set_aside, killed : int
        Runs in whose training processes died over and over; processes that were killed.
    done, failed : mapping
        Runs that this attempt finished, and that raised, by group; of an analysis the ``blocks``.
    workers : int
        Training processes.
    reason, details : str
        Why it is broken: one line, and what there is to read.
    node_at_fault : bool
        Whether it broke before it had finished a run, and not by its own work.
    blocks : int
        Of an analysis: the pieces of its work; 0 before they are known.
    exit_code : int, optional
        Of an analysis that has ended: what `analyze` ends with.
    plan : str
        Identity of the plan that its task is of; empty where an earlier version wrote it.
    folder : Path
        Where it is reported.
    """

    state: str
    process: str
    node: str = ""
    job_id: str = ""
    started: _Seconds = field(kw_only=True)
    updated: _Seconds = 0.0
    runs: _Count = 0
    pending: _Count = 0
    set_aside: _Count = 0
    killed: _Count = 0
    done: Mapping[str, _Count] = field(default_factory=dict)
    failed: Mapping[str, _Count] = field(default_factory=dict)
    workers: _Count = 0
    reason: str = ""
    details: str = ""
    node_at_fault: bool = False
    blocks: _Count = 0
    exit_code: int | None = None
    plan: str = ""
    folder: Path = field(default=Path(), compare=False)

    @classmethod
    def read(cls, folder: Path, plan: str = "") -> Attempt:
        """Read what the attempt of a folder reports.

        `UNREADABLE` where its file is damaged, or is of another plan than the one that is named.
        """
        file = folder / PROGRESS
        try:
            found = read_record(file, cls)
            require_same_plan(file, found.plan, plan)
            return replace(found, folder=folder)
        except DamagedFile as error:
            began, reason = folder.stat().st_mtime, f"{file}: {error.reason}"
            return cls(UNREADABLE, "", started=began, reason=reason, folder=folder)

    def write(self, folder: Path, *, durable: bool = True) -> None:
        """Write it to the attempt's folder, without the keys of faults and analyses it has not."""
        value = asdict(self)
        left_out = ["folder"]
        left_out += [] if self.plan else ["plan"]
        left_out += [] if self.reason else ["reason", "details", "node_at_fault"]
        left_out += [] if self.blocks or self.exit_code is not None else ["blocks", "exit_code"]
        for name in left_out:
            del value[name]
        write_json(folder / PROGRESS, value, durable=durable)

    @property
    def task(self) -> int:
        """The number of its task."""
        return int(self.folder.name.partition("-")[0])

    @property
    def n_done(self) -> int:
        """How many runs it finished."""
        return sum(self.done.values())

    @property
    def n_failed(self) -> int:
        """How many runs it saw failing."""
        return sum(self.failed.values())


@dataclass(frozen=True, slots=True)
class Failure:
    """A run whose training raised.

    Attributes
    ----------
    group, row : int
        Where the store would hold it.
    cell, repeat, run : int
        Its address.
    error, traceback : str
        The exception in a line, and all that was printed of it.
    plan : str
        Identity of the plan that has the address; empty where an earlier version wrote it.
    file : Path
        Where it is reported.
    """

    group: _Number
    row: _Number
    cell: _Number
    repeat: _Number
    run: _Number
    error: str
    traceback: str
    plan: str = ""
    file: Path = field(default=Path())


def attempt_lease(attempt: str) -> str:
    """Return the name of the lease that an attempt keeps while it, or a process of it, may write.

    ``LeaseWatch.wait_until_dead([attempt_lease(attempt)])`` finds whether an attempt is alive, also
    where its process cannot be seen: by the lease's counter, and no clock but one's own.
    """
    return f"life-{attempt}"


def read_attempts(submission: Path, task: int | None = None, *, plan: str) -> list[Attempt]:
    """Return what a submission's attempts, of one task or of all, last reported, oldest first."""
    files = SubmissionPaths(submission).of_attempts(PROGRESS, task)
    return sorted(
        (Attempt.read(file.parent, plan) for file in files), key=lambda attempt: attempt.started
    )


def add_failures(attempt: Path, failures: Iterable[Failure], plan: str) -> None:
    """Report runs of a plan that failed in an attempt."""
    with (attempt / FAILURES).open("a") as file:
        for failure in failures:
            value = asdict(replace(failure, plan=plan))
            del value["file"]
            if not plan:
                del value["plan"]
            file.write(json.dumps(value) + "\n")


def read_failures(attempt: Path, plan: str) -> list[Failure]:
    """Return the runs of a plan that failed in an attempt, oldest first.

    Raises
    ------
    DamagedFile
        Also where they are another plan's.
    """
    file = attempt / FAILURES
    found = read_records(file, Failure, _REMEDY)
    for failure in found:
        require_same_plan(file, failure.plan, plan, _REMEDY)
    return [replace(failure, file=file) for failure in found]
