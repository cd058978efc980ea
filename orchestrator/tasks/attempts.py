"""The files of task attempts: their progress, the runs that failed, and failures made void.

Tasks import this module at startup, so it imports no table library.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
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
from manyseed.orchestrator.errors import DamagedFile, StoreUnavailable
from manyseed.orchestrator.paths import SweepPaths
from manyseed.orchestrator.tasks.intent import FAILURES, PROGRESS, SubmissionPaths

UNREADABLE = "unreadable"
"""The state of an attempt whose file cannot be read; other sources show what became of it."""

COPY_OF_FAILED = "the run that this one is a copy of failed"
"""The error of a run that would be a copy."""

MORE_TIME = "give tasks more time in the cluster's profile"
"""How the reason ends for which a task breaks whose runs its walltime cuts every time."""

_REMEDY = "remove it: the runs that failed there count as missing then"

_Count = Annotated[int, Ge(0), Le(2**40)]
_Number = Annotated[int, Interval(ge=0, lt=2**32)]
_Seconds = Annotated[float, Interval(ge=0, le=2.0**40)]


@dataclass(frozen=True, slots=True)
class InFlight:
    """A run that has been in training for long, whose process is alive."""

    cell: _Number
    repeat: _Number
    run: _Number
    began: _Seconds
    usual: _Seconds = 0.0
    """Longest time of fits of its group that the attempt finished, each batch's mean; 0 if none."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """The last report of an attempt."""

    state: str
    """Running; finished, stopped, broken (`reason` says why) or interrupted by the scheduler;
    `UNREADABLE`."""
    process: str  # the fingerprint of its process
    node: str = ""
    job_id: str = ""  # as in `orchestrator.working.node.Node`
    started: _Seconds = field(kw_only=True)
    updated: _Seconds = 0.0  # times of its start and of this report, in seconds since the epoch
    runs: _Count = 0
    pending: _Count = 0
    """Number of runs of the task, and how many of them are neither finished nor failed."""
    set_aside: _Count = 0
    killed: _Count = 0
    """Number of runs given up after repeated process deaths; number of killed processes."""
    done: Mapping[str, _Count] = field(default_factory=dict)
    failed: Mapping[str, _Count] = field(default_factory=dict)
    """Number of runs that this attempt finished, and that raised, by group; for an analysis, of its
    ``blocks``."""
    workers: _Count = 0  # number of training processes
    memory: Annotated[int, Ge(0), Le(2**50)] = 0
    cpu_seconds: _Seconds = 0.0
    """The most bytes that its processes used at once, and their time on cores; 0 if unknown."""
    in_flight: tuple[InFlight, ...] = ()  # only what has been in training for long
    reason: str = ""
    details: str = ""  # why it broke: one line, and the full output
    node_at_fault: bool = False
    """Whether it broke before it finished a run, and not because of its task."""
    blocks: _Count = 0  # for an analysis: the number of units of work; 0 before it is known
    exit_code: int | None = None  # for an analysis that has ended: the exit code of `analyze`
    plan: str = ""  # identity of the task's plan; empty if an earlier version wrote the report
    folder: Path = field(default=Path(), compare=False)  # the attempt's folder

    @classmethod
    def read(cls, folder: Path, plan: str = "") -> Attempt:
        """Read the report in an attempt's folder.

        Its state is `UNREADABLE` if the file is damaged or belongs to a plan other than `plan`.
        """
        file = folder / PROGRESS
        try:
            attempt = read_record(file, cls)
            require_same_plan(file, attempt.plan, plan)
            return replace(attempt, folder=folder)
        except DamagedFile as error:
            began, reason = folder.stat().st_mtime, f"{file}: {error.reason}"
            return cls(UNREADABLE, "", started=began, reason=reason, folder=folder)

    def write(self, folder: Path, *, durable: bool = True) -> None:
        """Write the report to the attempt's folder; omit unused keys of faults and analyses."""
        value = asdict(self)
        left_out = ["folder"]
        left_out += [] if self.plan else ["plan"]
        left_out += [] if self.memory or self.cpu_seconds else ["memory", "cpu_seconds"]
        left_out += [] if self.in_flight else ["in_flight"]
        left_out += [] if self.reason else ["reason", "details", "node_at_fault"]
        left_out += [] if self.blocks or self.exit_code is not None else ["blocks", "exit_code"]
        for name in left_out:
            del value[name]
        if not folder.is_dir():  # a sweep that was moved is not begun anew where it was
            raise StoreUnavailable(f"{folder} is gone: its sweep was moved or removed")
        write_json(folder / PROGRESS, value, durable=durable)

    @property
    def task(self) -> int:
        """The number of its task."""
        return int(self.folder.name.partition("-")[0])

    @property
    def n_done(self) -> int:
        """The number of runs it finished."""
        return sum(self.done.values())

    @property
    def n_failed(self) -> int:
        """The number of runs that failed in it."""
        return sum(self.failed.values())


@dataclass(frozen=True, slots=True)
class Failure:
    """A run whose training raised."""

    group: _Number
    row: _Number  # its place in the store
    cell: _Number
    repeat: _Number
    run: _Number  # its address
    error: str
    traceback: str  # the exception in one line, and its full traceback
    plan: str = ""
    """Identity of the plan that the address refers to; empty if an earlier version wrote it."""
    file: Path = field(default=Path())  # the file that reports it


def begin(folder: Path) -> int:
    """Make an attempt's folder, and return its descriptor for `followed`."""
    folder.mkdir(parents=True)
    return os.open(folder, os.O_RDONLY | os.O_CLOEXEC)


def followed(folder: Path, descriptor: int) -> Path:
    """Return where the folder of an attempt is now, if it was moved and the system tells that.

    It closes the descriptor.
    """
    try:
        with suppress(OSError):
            now = Path(f"/proc/self/fd/{descriptor}").readlink()
            if not folder.is_dir() and now.is_dir():
                return now
        return folder
    finally:
        os.close(descriptor)


def attempt_lease(attempt: str) -> str:
    """Return the name of the lease held while an attempt, or one of its processes, may write.

    ``LeaseWatch.wait_until_dead([attempt_lease(attempt)])`` tells whether an attempt is alive even
    if its process is not visible: it watches the lease's counter by the local clock alone.
    """
    return f"life-{attempt}"


def read_attempts(submission: Path, task: int | None = None, *, plan: str) -> list[Attempt]:
    """Return the last reports of a submission's attempts, of one task or all, oldest first."""
    files = SubmissionPaths(submission).of_attempts(PROGRESS, task)
    return sorted(
        (Attempt.read(file.parent, plan) for file in files), key=lambda attempt: attempt.started
    )


def add_failures(attempt: Path, failures: Iterable[Failure], plan: str) -> None:
    """Append runs that failed in an attempt to its report."""
    with (attempt / FAILURES).open("a") as file:
        for failure in failures:
            value = asdict(replace(failure, plan=plan))
            del value["file"]
            if not plan:
                del value["plan"]
            file.write(json.dumps(value) + "\n")


def read_failures(attempt: Path, plan: str) -> list[Failure]:
    """Return the runs that failed in an attempt, oldest first."""
    file = attempt / FAILURES
    failures = read_records(file, Failure, _REMEDY)
    for failure in failures:
        require_same_plan(file, failure.plan, plan, _REMEDY)
    return [replace(failure, file=file) for failure in failures]


MOST_LINES = 22  # the most lines of a traceback that are shown of many failures

_FRAME = re.compile(r'^  File "(.+)", line (\d+), in ')
_OURS = re.compile(r"[/\\](?:manyseed)[/\\](?:orchestrator|jobs|slurm|analysis)[/\\]")
_INSTALLED = re.compile(r"[/\\](?:site-packages|dist-packages|lib[/\\]python3[^/\\]*)[/\\]|^<")
_RAISED = re.compile(r"manyseed\.jobs\.own\.calling\.\w+: ")
_PATH = re.compile(r"(?<![\w.])(?:~|[A-Za-z]:)?[/\\][^\s'\"<>:,;()]+")
_DIGITS = re.compile(r"0x[0-9a-fA-F]+|\d(?:[\d_,.]*\d)?(?:e[-+]?\d+)?")
_WIDEST = 500


def kind(failure: Failure) -> tuple[str, str]:
    """Return what failures of one cause share.

    Returns `error`: exception and message without paths and digits, which differ from run to run.
    `line`: the innermost line of the user's own code that raised it; empty if none did.
    """
    files = [_FRAME.match(line) for line in failure.traceback.splitlines()]
    own = [found for found in files if found and not _foreign(found[1])]
    line = f"{own[-1][1].rpartition('/')[2]}:{own[-1][2]}" if own else ""
    return _DIGITS.sub("#", _PATH.sub("…", failure.error)), line


def shortened(traceback: str) -> str:
    """Return a traceback without manyseed's own frames and cut in its middle, if it is long."""
    lines = [line[:_WIDEST] for line in _without_ours(traceback)]
    if len(lines) > MOST_LINES:
        first = MOST_LINES // 4
        left = len(lines) - MOST_LINES + 1
        lines[first : first + left] = [f"  … {left:,} lines"]
    return "\n".join(lines)


def _without_ours(traceback: str) -> Iterator[str]:
    lines = traceback.strip().splitlines()
    raised = next((n for n, line in enumerate(lines) if _RAISED.match(line)), -1)
    frames = [found for line in lines[: raised + 1] if (found := _FRAME.match(line))]
    if all(_foreign(found[1]) for found in frames):  # no more than its error, which is told
        lines = lines[raised + 1 :]
    is_ours = False
    for line in lines:
        if found := _FRAME.match(line):
            is_ours = _OURS.search(found[1]) is not None
        elif not line.startswith("   "):  # no line of a frame's code
            is_ours = False
        if not is_ours:
            yield line


def _foreign(file: str) -> bool:
    return bool(_OURS.search(file) or _INSTALLED.search(file))


@dataclass(frozen=True, slots=True)
class _SetBack:
    """Rows by group number, and the attempts (below ``tasks``) whose failures in them are void."""

    rows: dict[int, list[int]]
    lives: list[str]


def set_back(paths: SweepPaths, plan: str, rows: Mapping[int, Collection[int]]) -> None:
    """Note these rows of a plan, by group number, and void all their failures so far."""
    attempts = {
        attempt
        for attempt, failure in _failures(paths, plan)
        if failure.row in rows.get(failure.group, ())
    }
    if any(rows.values()):
        record = _SetBack({group: sorted(n) for group, n in rows.items()}, sorted(attempts))
        write_json(paths.set_back(os.urandom(16).hex()), asdict(record))


def rows_set_back(paths: SweepPaths) -> dict[int, set[int]]:
    """Return the rows that repairs set back, by group number, whether or not trained since."""
    found: dict[int, set[int]] = {}
    for file in paths.all_set_back():
        for group, rows in read_record(file, _SetBack).rows.items():
            found.setdefault(group, set()).update(rows)
    return found


def valid_failures(
    paths: SweepPaths, plan: str, attempts: Iterable[Path] | None = None
) -> Iterator[Failure]:
    """Yield the failures of a plan that count, of all or some attempts, oldest submission first."""
    records = [read_record(file, _SetBack) for file in paths.all_set_back()]
    void = [
        (set(record.lives), {group: set(rows) for group, rows in record.rows.items()})
        for record in records
    ]
    for attempt, failure in _failures(paths, plan, attempts):
        if not any(
            attempt in void_attempts and failure.row in void_rows.get(failure.group, ())
            for void_attempts, void_rows in void
        ):
            yield failure


def _failures(
    paths: SweepPaths, plan: str, attempts: Iterable[Path] | None = None
) -> Iterator[tuple[str, Failure]]:
    if attempts is None:
        attempts = (
            file.parent
            for submission in paths.submissions()
            for file in SubmissionPaths(submission).of_attempts(FAILURES)
        )
    for attempt in attempts:
        for failure in read_failures(attempt, plan):
            yield attempt.relative_to(paths.tasks).as_posix(), failure
