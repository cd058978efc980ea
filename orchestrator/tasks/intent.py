"""The intent of a submission: written before anything starts, read by everything that follows it.

Tasks import this module at startup, so it imports no table library and no validation library.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import MISSING, asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from manyseed.orchestrator.disk.records import read_json, require_same_plan, write_json
from manyseed.orchestrator.errors import DamagedFile
from manyseed.orchestrator.tasks.submissionpaths import SubmissionPaths
from manyseed.slurm import processes
from manyseed.slurm.processes import user_name

LOCAL = "local"
"""The cluster name that stands for this machine."""

_MOST_SECONDS = 2.0**40
"""Larger values are refused as times."""


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
    """The request for an analysis that runs as a job.

    Attributes
    ----------
    options : mapping
        As returned by `orchestrator.computing.tables.to_json`.
    dask : str
        The Dask scheduler.
    workers : int, optional
        Number of threads or processes.
    """

    options: Mapping[str, object]
    dask: str
    workers: int | None


@dataclass(frozen=True, slots=True)
class Intent:
    """What one submission was asked to do.

    Attributes
    ----------
    cluster : str
        The name of a cluster profile, or `LOCAL`.
    submitter : str
        The fingerprint of the process that submitted it.
    submitted : float
        The time of submission, in seconds since the epoch.
    user : str
        The user who submitted it.
    runs, tasks : int
        Number of runs and of tasks.
    workers : int
        Number of training processes on this machine; 0 on a cluster.
    gpu : str
        On this machine, if a classifier requests a GPU: its model, or ``none``.
    scheduler : str
        SLURM's name for the cluster.
    profile : str
        The absolute path of the profile's file. It only identifies one of the user's own profiles
        and is never opened for any other reason: see `orchestrator.submissions.profiles`.
    arrays : tuple of TaskArray
    excluded : mapping
        Nodes that tasks were kept away from, and why.
    exclude : mapping
        By resource class, the nodes excluded in sbatch, separated by commas.
    walltime : mapping
        By resource class, in seconds.
    request : AnalysisRequest, optional
        For an analysis only.
    modules : str
        For an analysis: the folder from which users' metrics are imported; empty if none.
    plan : str
        Identity of the sweep's plan; empty if an earlier version wrote the intent.
    """

    cluster: str
    submitter: str
    submitted: float = 0.0
    user: str = ""
    runs: int = 0
    tasks: int = 1
    workers: int = 0
    gpu: str = ""
    scheduler: str = ""
    profile: str = ""
    arrays: tuple[TaskArray, ...] = ()
    excluded: Mapping[str, str] = field(default_factory=dict)
    exclude: Mapping[str, str] = field(default_factory=dict)
    walltime: Mapping[str, float] = field(default_factory=dict)
    request: AnalysisRequest | None = None
    modules: str = ""
    plan: str = ""

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

        Parameters
        ----------
        folder : Path
        plan : str
            Identity that its plan must have; empty if unknown.

        Raises
        ------
        FileNotFoundError
        DamagedFile
            If it is not an intent, or belongs to another sweep.
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
            ("cluster", "submitter", "user", "gpu", "scheduler", "profile", "plan"), _text
        ),
        **dict.fromkeys(("runs", "tasks", "workers"), _count),
        **dict.fromkeys(("excluded", "exclude"), _texts),
        "submitted": _seconds,
        "arrays": _arrays,
        "walltime": lambda key, times: {k: _seconds(key, v) for k, v in times.items()},
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
    workers = given["workers"]
    return AnalysisRequest(
        options=_mapping("options", given["options"]),
        dask=_text("dask", given["dask"]),
        workers=None if workers is None else _count("workers", workers),
    )


def _text(key: str, value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{key} is not a string")
    return value


def _count(key: str, value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 2**31:
        raise ValueError(f"{key} is not a nonnegative integer")
    return value


def _seconds(key: str, value: Any) -> float:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not math.isfinite(value) or not 0 <= value < _MOST_SECONDS:
        raise ValueError(f"{key} is not a time in seconds")
    return float(value)


def _mapping(key: str, value: Any) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise TypeError(f"{key} is not an object")
    return value


def _texts(key: str, value: Any) -> dict[str, str]:
    return {name: _text(key, text) for name, text in _mapping(key, value).items()}
