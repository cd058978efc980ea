"""The files of a submission: their names, its intent, and what users ask of its tasks.

The intent is written before anything starts, and read by everything that follows it. Tasks import
this module at startup, so it imports no table library and no validation library.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import MISSING, asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from manyseed.orchestrator.disk.placing import read_plain
from manyseed.orchestrator.disk.records import read_json, require_same_plan, write_json
from manyseed.orchestrator.errors import DamagedFile
from manyseed.orchestrator.paths import Below
from manyseed.slurm import processes
from manyseed.slurm.processes import user_name

PROGRESS, FAILURES, LOG = "progress.json", "failures.jsonl", "log.txt"
"""The files in an attempt's folder: its progress, its failed runs, and printed output."""

RESERVE = "reserve"
"""A file that an attempt removes at its end, so that its last report fits on a full disk."""


@dataclass(frozen=True, slots=True)
class SubmissionPaths:
    """The files of one submission: a training, or an analysis that runs as a job."""

    folder: Path

    intent = Below("intent.json")  # what it was asked to do
    shards = Below("shards.json")  # which shards each task was given
    local_job = Below("job.json")  # its only job, if it was submitted to this machine
    jobs = Below("jobs.json")  # the job ids of its tasks, by number
    submitted = Below("submitted")  # exists once all its jobs are recorded
    ends = Below("ends.json")  # how jobs ended that reported no end, as their scheduler said
    stop = Below("stop")  # while it exists, tasks finish their fits in flight and end
    skip = Below("skip.json")  # cells that its tasks no longer train
    submitit = Below("submitit")  # the scripts and the output of its jobs
    attempts = Below("lives")  # the attempts of its tasks, one folder each

    def task(self, number: int) -> Path:
        """Return the file of a task."""
        return self.folder / f"task-{number:04d}.json"

    def tasks(self) -> list[Path]:
        """Return the files of all tasks, by number."""
        return sorted(self.folder.glob("task-*.json"))

    def printed(self, job_id: str = "*") -> list[Path]:
        """Return the files with the output of one job, or of all."""
        return sorted(self.submitit.glob(f"{job_id}_0_log.*"))

    def printed_output(self, job_id: str) -> Path:
        """Return the file with a job's standard output."""
        return self.submitit / f"{job_id}_0_log.out"

    def printed_errors(self, job_id: str) -> Path:
        """Return the file with a job's standard error."""
        return self.submitit / f"{job_id}_0_log.err"

    @property
    def leases(self) -> Path:
        """The leases of attempts, shared with the sweep's other submissions."""
        return self.folder.parent / "leases"

    def attempt(self, task: int, name: str) -> Path:
        """Return the folder of one attempt of a task."""
        return self.attempts / f"{task:04d}-{name}"

    def of_attempts(self, name: str, task: int | None = None) -> list[Path]:
        """Return the files with this name, such as `PROGRESS`, of one task's attempts or all."""
        which = "*" if task is None else f"{task:04d}-*"
        return sorted(self.attempts.glob(f"{which}/{name}"))

    def lost_reports(self, task: int | None = None) -> list[Path]:
        """Return the missing progress reports of attempts, of one task or all.

        An attempt with a log must have one: it reports before its first process can print.
        """
        logs = self.of_attempts(LOG, task)
        return [log.parent / PROGRESS for log in logs if not (log.parent / PROGRESS).exists()]


LOCAL = "local"  # the cluster name that stands for this machine

_MOST_SECONDS = 2.0**40  # larger values are refused as times
_MOST_BYTES = 2.0**50  # and as memory


@dataclass(frozen=True, slots=True)
class TaskArray:
    """Tasks of a submission that share one job name.

    `first` is the number of the first task, `count` the number of tasks, `processes` the number of
    training processes of each.
    """

    resource: str
    name: str
    first: int
    count: int
    processes: int = 1


@dataclass(frozen=True, slots=True)
class AnalysisRequest:
    """The request for an analysis that runs as a job, now or after the training."""

    options: Mapping[str, object]  # as returned by `orchestrator.computing.tables.to_json`
    dask: str  # the Dask scheduler
    workers: int | tuple[int, int] | None  # number of threads, processes or jobs, or a range
    page: bool = False  # whether to write the page afterwards


@dataclass(frozen=True, slots=True)
class Intent:
    """What one submission was asked to do."""

    cluster: str  # the name of a cluster profile, or `LOCAL`
    submitter: str  # the fingerprint of the process that submitted it
    submitted: float = 0.0  # the time of submission, in seconds since the epoch
    user: str = ""  # the user who submitted it
    runs: int = 0
    tasks: int = 1  # number of runs and of tasks
    workers: int = 0  # number of training processes on this machine; 0 on a cluster
    gpu: str = ""  # on this machine, if a classifier requests a GPU: its model, or ``none``
    scheduler: str = ""  # SLURM's name for the cluster, or `slurm.commands.NO_CLUSTER`
    profile: str = ""
    """The absolute path of the profile's file. It only identifies one of the user's own profiles
    and is never opened for any other reason: see `orchestrator.submissions.profiles`."""
    arrays: tuple[TaskArray, ...] = ()
    excluded: Mapping[str, str] = field(default_factory=dict)
    """Nodes that tasks were kept away from, and why."""
    exclude: Mapping[str, str] = field(default_factory=dict)
    """By resource class, the nodes excluded in sbatch, separated by commas."""
    walltime: Mapping[str, float] = field(default_factory=dict)  # by resource class, in seconds
    memory: Mapping[str, float] = field(default_factory=dict)
    """By resource class, the bytes that a task asks for; none if the site decides."""
    request: AnalysisRequest | None = None  # the analysis, or the one that follows by itself
    modules: str = ""
    """For an analysis: the folder from which users' metrics are imported; empty if none."""
    only: str = ""  # the condition on cells to which the submission was confined
    plan: str = ""  # identity of the sweep's plan; empty if an earlier version wrote the intent

    @classmethod
    def now(cls, cluster: str, plan: str) -> Intent:
        """Return an intent of this process and user for a plan, with nothing to do yet."""
        return cls(
            cluster=cluster,
            submitter=processes.fingerprint(os.getpid()),
            submitted=time.time(),
            user=user_name(),
            plan=plan,
        )

    @classmethod
    def read(cls, folder: Path, plan: str = "") -> Intent:
        """Read the intent of a submission's folder.

        `plan`: identity that its plan must have; empty if unknown.
        """
        file = SubmissionPaths(folder).intent
        value = read_json(file)
        try:
            intent = _intent(value)
        except (KeyError, TypeError, ValueError) as error:
            reason = f"lacks {error}" if isinstance(error, KeyError) else str(error)
            raise DamagedFile(file, reason) from None
        require_same_plan(file, intent.plan, plan)
        return intent

    def write(self, folder: Path) -> None:
        """Write it to a submission's folder, without the fields that have their defaults."""
        value = asdict(self)
        kept = {key: value[key] for key, default in _DEFAULTS.items() if value[key] != default}
        if self.request is not None and not self.request.page:
            del kept["request"]["page"]
        write_json(SubmissionPaths(folder).intent, kept)


_DEFAULTS: dict[str, Any] = {
    each.name: each.default if each.default_factory is MISSING else each.default_factory()
    for each in fields(Intent)
}


def _intent(value: Any) -> Intent:
    given = _mapping("intent", value)
    # earlier versions wrote analyses with a single walltime, for the class cpu, and wrote arrays
    # without a resource
    walltime = given.get("walltime", {})
    walltime = walltime if isinstance(walltime, dict) else {"cpu": walltime}
    read: dict[str, Callable[[str, Any], Any]] = {
        **dict.fromkeys(
            ("cluster", "submitter", "user", "gpu", "scheduler", "profile", "only", "plan"), _text
        ),
        **dict.fromkeys(("runs", "tasks", "workers"), _count),
        **dict.fromkeys(("excluded", "exclude"), _texts),
        "submitted": _seconds,
        "arrays": _arrays,
        "walltime": lambda key, times: {k: _seconds(key, v) for k, v in times.items()},
        "memory": lambda key, sizes: {
            k: _number(key, v, _MOST_BYTES, "a number of bytes")
            for k, v in _mapping(key, sizes).items()
        },
        "request": _request,
        "modules": lambda key, folder: "" if folder is None else _text(key, folder),
    }
    known = {**given, "walltime": walltime}
    for key in ("cluster", "submitter"):
        known[key]
    return Intent(**{key: check(key, known[key]) for key, check in read.items() if key in known})


def _arrays(key: str, value: Any) -> tuple[TaskArray, ...]:
    if not isinstance(value, list):
        raise TypeError(f"{key} is not a list")
    return tuple(
        TaskArray(
            resource=_text("resource", array.get("resource", "cpu")),
            name=_text("name", array["name"]),
            first=_count("first", array["first"]),
            count=_count("count", array["count"]),
            processes=_count("processes", array.get("processes", 1)),
        )
        for array in (_mapping(key, each) for each in value)
    )


def _request(key: str, value: Any) -> AnalysisRequest | None:
    if not (given := _mapping(key, value)):
        return None
    return AnalysisRequest(
        options=_mapping("options", given["options"]),
        dask=_text("dask", given["dask"]),
        workers=_workers("workers", given["workers"]),
        page=given.get("page") is True,
    )


def _workers(key: str, value: Any) -> int | tuple[int, int] | None:
    if isinstance(value, list):
        low, high = (_count(key, each) for each in value)
        return low, high
    return None if value is None else _count(key, value)


def _text(key: str, value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{key} is not a string")
    return value


def _count(key: str, value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 2**31:
        raise ValueError(f"{key} is not a nonnegative integer")
    return value


def _seconds(key: str, value: Any) -> float:
    return _number(key, value, _MOST_SECONDS, "a time in seconds")


def _number(key: str, value: Any, most: float, what: str) -> float:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not math.isfinite(value) or not 0 <= value < most:
        raise ValueError(f"{key} is not {what}")
    return float(value)


def _mapping(key: str, value: Any) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise TypeError(f"{key} is not an object")
    return value


def _texts(key: str, value: Any) -> dict[str, str]:
    return {name: _text(key, text) for name, text in _mapping(key, value).items()}


STOPPED = ""
"""Content of the stop file: finish the fits in flight, however long they take, then end."""

PAUSED = "pause\n"  # like `STOPPED`, until `resume` revokes it

NOW = "now\n"  # end at once; fits in flight are trained again


def stop_request(submission: Path) -> str | None:
    """Return how the tasks of a submission must stop; None if they continue.

    A stop file with unknown content means `STOPPED`.
    """
    try:
        text = read_plain(SubmissionPaths(submission).stop).decode(errors="replace")
    except FileNotFoundError:
        return None
    return text if text in (PAUSED, NOW) else STOPPED


def skipped_cells(submission: Path) -> list[int]:
    """Return the cells that the tasks of a submission must no longer train.

    Earlier versions wrote only the list, without a checksum.
    """
    file = SubmissionPaths(submission).skip
    remedy = "remove it, then cancel these cells once more"
    try:
        value = read_json(file)
    except FileNotFoundError:
        return []
    except DamagedFile as error:
        raise DamagedFile(file, error.reason, remedy) from None
    cells = value.get("cells") if isinstance(value, dict) else value
    if not isinstance(cells, list) or not all(type(cell) is int and cell >= 0 for cell in cells):
        raise DamagedFile(file, "is not a list of cells", remedy)
    return cells


def skip_cells(submission: Path, cells: Collection[int]) -> set[int]:
    """Request that a submission's tasks stop training these cells; return all skipped cells."""
    skipped = {*skipped_cells(submission), *cells}
    write_json(SubmissionPaths(submission).skip, {"cells": sorted(skipped)})
    return skipped
