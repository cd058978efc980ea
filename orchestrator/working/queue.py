"""The runs of a task: handed out in batches, reported by messages, shared with other tasks' shards.

A journal's name contains the submission and the task, and a submission's ``shards.json`` lists the
shards of each task. So a task on a cluster with thousands of tasks reads only a few journals.
"""

from __future__ import annotations

import errno
import os
import re
from collections import Counter, deque
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from manyseed.jobs.run import GpuFull, PreparedElsewhere
from manyseed.orchestrator.disk.records import read_json, write_json
from manyseed.orchestrator.errors import DamagedFile, StoreUnavailable
from manyseed.orchestrator.paths import JOURNAL, SweepPaths
from manyseed.orchestrator.tasks.attempts import Failure
from manyseed.orchestrator.tasks.intent import SubmissionPaths
from manyseed.orchestrator.tasks.task import Span, Task


@dataclass(frozen=True, slots=True)
class Batch:
    """Runs of one repeat of one cell that a process trains in one go."""

    group: int
    shard: int
    cell: int
    repeat: int
    runs: tuple[tuple[int, int], ...]  # (row, run) of each
    source: int = -1  # row of the run that these are copies of; -1 if each is trained
    members: int = 1  # how many runs are trained at once
    models: bool = True  # whether their parameters are kept, if the group keeps those of some runs
    is_alone: bool = True  # whether no other process of the task trains beside


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
    is_of_task: bool = False  # whether the task is at fault: it would end the same way on any node
    is_crowded: bool = False
    """Whether the memory of the GPU, which other processes may share, was full."""


_BATCH_SECONDS = 0.25
_BATCH_RUNS = 64

Shard = tuple[int, int]  # (group, shard)


class Queue:
    """The unfinished runs of a task, breadth first.

    `settled`: by group, the rows that are already finished or failed.
    """

    def __init__(self, task: Task, settled: dict[int, set[int]]) -> None:
        self._waiting: deque[Batch] = deque()
        self.pending: Counter[Shard] = Counter()
        self._seconds: dict[int, float] = {}
        self._stacks = task.stacks
        for span in task.spans:
            self._add(span, settled.get(span.group, set()))

    @property
    def n_pending(self) -> int:
        """Number of runs not finished, failed or set aside, including those in training."""
        return self.pending.total()

    def take(self) -> Batch | None:
        """Return the next batch: a quarter second of work, as estimated, or the runs of a stack.

        None if none is left.
        """
        if not self._waiting:
            return None
        batch = self._waiting.popleft()
        size = self._size(batch)
        if size < len(batch.runs):
            rest = batch.runs[size:]
            self._waiting.appendleft(replace(batch, runs=rest))
            batch = replace(batch, runs=batch.runs[:size])
        return batch

    def put_back(self, batch: Batch, rows: Iterable[int]) -> None:
        """Requeue the runs of a batch that its process did not finish.

        Each becomes a batch of its own, to identify a run that kills its process; copies stay with
        their source, and a stack stays together.
        """
        rows = set(rows)
        runs = tuple(run for run in batch.runs if run[0] in rows)
        is_one = batch.source >= 0 or batch.members > 1
        parts = [runs] if is_one else [(run,) for run in runs]
        self._waiting.extendleft(replace(batch, runs=part) for part in reversed(parts) if part)

    def settle(self, batch: Batch, rows: Iterable[int]) -> None:
        """Mark runs of a batch as finished, failed or set aside."""
        self.pending[batch.group, batch.shard] -= len(set(rows))

    def skip(self, cells: Collection[int]) -> None:
        """Hand out no more runs of some cells."""
        kept = [batch for batch in self._waiting if batch.cell not in cells]
        if len(kept) < len(self._waiting):
            for batch in self._waiting:
                if batch.cell in cells:
                    self.settle(batch, [row for row, _ in batch.runs])
            self._waiting = deque(kept)

    def leave(self, rows: Mapping[int, Collection[int]]) -> None:
        """Hand out no more runs in some rows, given by group, which other tasks train."""
        waiting, self._waiting = self._waiting, deque()
        for batch in waiting:
            others = rows.get(batch.group, ())
            kept = tuple(run for run in batch.runs if run[0] not in others)
            self.settle(batch, [row for row, _ in batch.runs if row in others])
            if kept:
                self._waiting.append(replace(batch, runs=kept))

    def learn(self, group: int, seconds: float) -> None:
        """Update the estimated time of a run in a group by the time of a recent one."""
        before = self._seconds.get(group, seconds)
        self._seconds[group] = 0.7 * before + 0.3 * seconds

    def _add(self, span: Span, settled: set[int]) -> None:
        runs = tuple(run for run in span.runs() if run[0] not in settled)
        if runs:
            place = (span.group, span.shard, span.cell, span.repeat)
            members = 1 if span.source >= 0 else self._stacks.get(span.cell, 1)
            self._waiting.append(Batch(*place, runs, span.source, members, bool(span.models)))
            self.pending[span.group, span.shard] += len(runs)

    def _size(self, batch: Batch) -> int:
        """Return how many runs of a batch are handed out."""
        if batch.source >= 0:
            return len(batch.runs)
        if batch.members > 1:
            blocks = [run // batch.members for _, run in batch.runs]
            return blocks.count(blocks[0])
        seconds = self._seconds.get(batch.group)
        if seconds is None:
            return 1
        return max(1, min(_BATCH_RUNS, int(_BATCH_SECONDS / max(seconds, 1e-6))))


_FULL = (errno.ENOSPC, errno.EDQUOT)
_LEAST_BYTES = 2**20


def fault(error: BaseException, reason: str, details: str, paths: SweepPaths) -> Fault:
    """Return the fault for an error; a full disk and a wrong folder are the same on every node.

    Their reason says all; of others there are details, such as a traceback.
    """
    if not paths.directory.is_dir():
        told = f"{paths.directory} was moved or removed while it trained"
        return Fault(told, "", is_of_task=True)
    if isinstance(error, PreparedElsewhere):
        return Fault(reason, "", is_of_task=True)
    if (code := _sweeps_disk_full(error, paths.directory)) is None:
        return Fault(reason, details, is_crowded=isinstance(error, GpuFull))
    # without the file, which is another for each task: the same reason is told once for all
    told = f"the disk of {paths.directory} is full ({os.strerror(code)})"
    return Fault(told, "", is_of_task=True)


def _sweeps_disk_full(error: BaseException | None, directory: Path) -> int | None:
    """Return the errno if an error, or one that it came from, is of the disk that nodes share."""
    is_of_store = False
    while error is not None:
        is_of_store |= isinstance(error, StoreUnavailable)
        if isinstance(error, OSError) and error.errno in _FULL:
            if isinstance(error.filename, str | os.PathLike):
                is_of_it = Path(error.filename).resolve().is_relative_to(directory.resolve())
            else:
                is_of_it = is_of_store or _free_bytes(directory) < _LEAST_BYTES
            return error.errno if is_of_it else None
        error = error.__cause__ or error.__context__
    return None


def _free_bytes(directory: Path) -> float:
    with suppress(OSError):
        disk = os.statvfs(directory)
        return disk.f_bavail * disk.f_frsize
    return float("inf")


_NAME = re.compile(rf"([0-9]+)-([0-9]+)-[0-9a-f]{{8}}-[0-9]+{re.escape(JOURNAL)}")


def journal_name(attempt: str, process: int) -> str:
    """Return the name of a process's journal; `attempt` is ``<submission>-<task>-<random>``."""
    return f"{attempt}-{process:03d}{JOURNAL}"


def write_shards(submission: Path, tasks: Iterable[Collection[Shard]]) -> None:
    """Record the shards of each task of a submission, in the order of task numbers."""
    write_json(SubmissionPaths(submission).shards, {"tasks": [sorted(shards) for shards in tasks]})


def read_shards(submission: Path) -> list[set[Shard]]:
    """Return the shards of each task of a submission, in the order of task numbers.

    The list is empty if they were not recorded or the record is invalid; then more journals are
    read, with no other effect.
    """
    try:
        given = read_json(SubmissionPaths(submission).shards)
        tasks = given["tasks"] if isinstance(given, dict) else given  # a list in earlier versions
        return [{_shard(*shard) for shard in shards} for shards in tasks]
    except (FileNotFoundError, DamagedFile, LookupError, TypeError, ValueError):
        return []


def _shard(group: object, shard: object) -> Shard:
    if type(group) is not int or type(shard) is not int:
        raise ValueError
    return group, shard


def shards_of(task: Task) -> set[Shard]:
    """Return the shards that hold a task's runs."""
    return {(span.group, span.shard) for span in task.spans}


def given_since(paths: SweepPaths, submission: Path, task: Task) -> dict[int, set[int]]:
    """Return, by group, the rows in a task's shards that later submissions were given.

    Their submitter considered the task dead, so they are no longer the task's to train, even if
    its job was requeued or resumed in the meantime.
    """
    shards, given = shards_of(task), dict[int, set[int]]()
    for later in paths.submissions():
        if int(later.name) <= int(submission.name):
            continue
        later_shards = read_shards(later)
        for number, file in enumerate(SubmissionPaths(later).tasks()):
            if number < len(later_shards) and shards.isdisjoint(later_shards[number]):
                continue
            with suppress(DamagedFile, FileNotFoundError):  # such a task trains nothing
                for span in Task.read(file).spans:
                    rows = range(span.row, span.row + span.count)
                    given.setdefault(span.group, set()).update(rows)
    return given


class SharedJournals:
    """Separates journals that may hold rows of some shards from those that cannot.

    In doubt a journal may: if it has an unknown name, or its submission's ``shards.json`` is
    missing or damaged.
    """

    def __init__(self, paths: SweepPaths, shards: Collection[Shard]) -> None:
        self._paths = paths
        self._shards = frozenset(shards)
        self._unrelated: dict[int, frozenset[int]] = {}

    def may_hold(self, journal: str) -> bool:
        """Return whether a journal may hold rows of the shards."""
        name = _NAME.fullmatch(journal)
        if name is None:
            return True
        submission, task = map(int, name.groups())
        if submission not in self._unrelated:
            tasks = enumerate(read_shards(self._paths.submission(submission)))
            self._unrelated[submission] = frozenset(
                n for n, shards in tasks if self._shards.isdisjoint(shards)
            )
        return task not in self._unrelated[submission]
