"""What a submission intends: written before anything starts, and read by all who look at it.

Read by tasks as they start: imports neither a table library nor a validating one.
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

LOCAL = "local"
"""The name of this machine, among clusters."""

_MOST_SECONDS = 2.0**40
"""A time beyond that is no time."""


@dataclass(frozen=True, slots=True)
class TaskArray:
    """Tasks of a submission that are submitted under one name.

    `first` is the number of its first task, `count` how many there are; each starts so many
    training `processes`.
    """

    resource: str
    name: str
    first: int
    count: int
    processes: int = 1


@dataclass(frozen=True, slots=True)
class AnalysisRequest:
    """What an analysis that is a job was asked for.

    Attributes
    ----------
    options : mapping
        As `orchestrator.results.conventions.to_json` gives them.
    dask : str
        Who computes.
    workers : int, optional
        Threads or processes.
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
        The name of a cluster's profile, or `LOCAL`.
    submitter : str
        The fingerprint of the process that submitted it.
    submitted : float
        When, in seconds since the epoch.
    user : str
        Who did.
    runs, tasks : int
        How much there is to do.
    workers : int
        Training processes on this machine; 0 on a cluster.
    gpu : str
        On this machine, where a classifier requests one: its model, or ``none``.
    scheduler : str
        SLURM's name of the cluster.
    profile : str
        The profile's file, as an absolute path. It says which of a user's own profiles is meant,
        and is opened for no other reason: `orchestrator.submissions.profiles`.
    arrays : tuple of TaskArray
    excluded : mapping
        Nodes that tasks were kept from, and why.
    exclude : mapping
        By resource class, the nodes that sbatch left out, with commas.
    walltime : mapping
        By resource class, in seconds.
    request : AnalysisRequest, optional
        Of an analysis.
    modules : str
        Of an analysis: the folder that users' metrics are imported from; empty: none.
    plan : str
        Identity of the sweep's plan; empty where an earlier version wrote the intent.
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
        """Return the intent of this process and user, of nothing yet, for a plan."""
        import getpass  # a task, which reads intents alone, does without

        return cls(
            cluster=cluster,
            submitter=processes.fingerprint(os.getpid()),
            submitted=time.time(),
            user=getpass.getuser(),
            plan=plan,
        )

    @classmethod
    def read(cls, folder: Path, plan: str = "") -> Intent:
        """Read the intent of a submission's folder.

        Parameters
        ----------
        folder : Path
        plan : str
            Identity of the plan that it must be for; empty where that is not known.

        Raises
        ------
        FileNotFoundError
        DamagedFile
            For anything but an intent, and for one of another sweep.
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
        """Write it into a submission's folder, without what has its default."""
        value = asdict(self)
        kept = {key: value[key] for key, default in _DEFAULTS.items() if value[key] != default}
        write_json(SubmissionPaths(folder).intent, kept)


def _default(name: str) -> Any:
    found = {one.name: one for one in fields(Intent)}[name]
    if found.default_factory is not MISSING:
        return found.default_factory()
    return found.default


_DEFAULTS = {one.name: _default(one.name) for one in fields(Intent)}


def _intent(value: Any) -> Intent:
    given = _mapping("intent", value)
    # an analysis of earlier versions has one walltime, of the class cpu, and no array's resource
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
        "walltime": lambda key, those: {k: _seconds(key, v) for k, v in those.items()},
        "request": _request,
        "modules": lambda key, given: "" if given is None else _text(key, given),
    }
    known = {**given, "walltime": walltime}
    for key in ("cluster", "submitter"):
        known[key]
    return Intent(**{key: check(key, known[key]) for key, check in read.items() if key in known})


def _arrays(key: str, value: Any) -> tuple[TaskArray, ...]:
    if not isinstance(value, list):
        raise TypeError(f"{key} is no list")
    return tuple(
        TaskArray(
            resource=_text("resource", one.get("resource", "cpu")),
            name=_text("name", one["name"]),
            first=_count("first", one["first"]),
            count=_count("count", one["count"]),
            processes=_count("processes", one.get("processes", 1)),
        )
        for one in (_mapping(key, each) for each in value)
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
        raise TypeError(f"{key} is no text")
    return value


def _count(key: str, value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 2**31:
        raise ValueError(f"{key} is no whole number from 0")
    return value


def _seconds(key: str, value: Any) -> float:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not math.isfinite(value) or not 0 <= value < _MOST_SECONDS:
        raise ValueError(f"{key} is no time in seconds")
    return float(value)


def _mapping(key: str, value: Any) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise TypeError(f"{key} is no object")
    return value


def _texts(key: str, value: Any) -> dict[str, str]:
    return {name: _text(key, text) for name, text in _mapping(key, value).items()}
