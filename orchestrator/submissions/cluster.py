"""A sweep's tasks as jobs of a SLURM cluster: their size, and the nodes to avoid."""

from __future__ import annotations

import dataclasses
import re
import uuid
from collections.abc import Iterable, Sequence

from manyseed.orchestrator.errors import UnavailableError, UserError, command, refused
from manyseed.orchestrator.grids.loading import read_sweep_file
from manyseed.orchestrator.paths import SweepPaths
from manyseed.orchestrator.submissions.sizing import TaskSize
from manyseed.orchestrator.working.node import EACH_CORE, EACH_GPU
from manyseed.slurm import ClusterError, ClusterUnavailable
from manyseed.slurm.discover import Cluster
from manyseed.slurm.profile import Profile, Resources
from manyseed.slurm.refused import Refused

SIGNAL_SECONDS = 120
"""How long before the end of its walltime a task is asked to end."""

_SHARE = 0.5
"""Share of the walltime that a task's estimated time may take: estimates err, and cores differ."""
_PARALLELISM = 256
_SHOWN = 40
"""Number of letters of the sweep's name in a job name."""


def shapes(
    profile: Profile, wanted: Iterable[str], cluster: Cluster, waiting: int
) -> dict[str, TaskSize]:
    """Return the size limits of tasks, by resource class.

    Parameters
    ----------
    profile : Profile
    wanted : iterable of str
        Resource classes.
    cluster : Cluster
        With its limits.
    waiting : int
        Number of jobs that this sweep already has there.
    """
    sizes = {}
    classes = list(wanted)
    for name in classes:
        resources = profile.resources(name)
        limits = (
            resources.max_jobs,
            cluster.max_submit_jobs(resources.options),
            cluster.max_job_count // 2,  # all users share the controller's limit
        )
        most = min(limit for limit in limits if limit is not None) - waiting
        sizes[name] = TaskSize(
            processes=processes(resources, cluster),
            seconds=_SHARE * (resources.minutes * 60 - SIGNAL_SECONDS),
            parallelism=resources.parallelism or _PARALLELISM,
            most=max(1, most // len(classes)),
        )
    return sizes


def processes(resources: Resources, cluster: Cluster) -> int:
    """Return the number of training processes of a task; for whole nodes, the smallest number."""
    parts = cluster.asked(resources.options)
    if resources.name == "gpu":
        least = min((part.n_gpus for part in parts), default=0) if resources.whole_node else 0
        return resources.processes_per_gpu * max(least, n_gpus(resources))
    if resources.cores is not None:
        return resources.cores
    return min((part.cores for part in parts), default=1)


def workers(resources: Resources, shape: TaskSize) -> str:
    """Return the number of training processes to start, or a rule that a whole node resolves."""
    if not resources.whole_node:
        return str(shape.processes)
    return EACH_CORE if resources.name == "cpu" else f"{EACH_GPU}{resources.processes_per_gpu}"


def n_gpus(resources: Resources) -> int:
    """Return the number of GPUs that a task requests."""
    asked = {**resources.options, **{k: str(v) for k, v in resources.extra.items()}}
    for key in ("gpus-per-node", "gpus-per-task", "gpus", "gres"):
        for part in asked.get(key, "").split(","):
            count = part.partition("(")[0].rpartition(":")[2]
            if key != "gres" or part.startswith("gpu"):
                if count.isdigit():
                    return int(count)
                if count:
                    return 1
    return 1


def without_nodes(profile: Profile, nodes: Sequence[str]) -> Profile:
    """Return a profile whose jobs avoid some nodes."""
    if not nodes:
        return profile

    def excluding(resources: Resources) -> Resources:
        already_excluded = resources.options.get("exclude")
        exclude = ",".join([*([already_excluded] if already_excluded else []), *nodes])
        return dataclasses.replace(resources, options={**resources.options, "exclude": exclude})

    gpu = None if profile.gpu is None else excluding(profile.gpu)
    return dataclasses.replace(profile, cpu=excluding(profile.cpu), gpu=gpu)


def refusal(error: ClusterError | Refused, profile: Profile) -> UserError | UnavailableError:
    """Return the error to report when jobs of a profile could not be submitted."""
    if isinstance(error, ClusterUnavailable):
        return UnavailableError(str(error))
    if isinstance(error, ClusterError):
        check = command("cluster", "check", profile.path)
        remedy = f"nothing was submitted; fix the profile ({check})"
        return UserError(f"SLURM refuses: {error}", file=profile.path, remedy=remedy)
    return refused(error, file=profile.path)


def unique_name(paths: SweepPaths, kind: str = "") -> str:
    """Return a unique job name that begins with the sweep's name and the kind of job."""
    sweep = re.sub(r"[^A-Za-z0-9_-]+", "-", read_sweep_file(paths.sweep_file).name)
    parts = (sweep[:_SHOWN].strip("-") or "manyseed", kind, uuid.uuid4().hex[:12])
    return "-".join(filter(None, parts))
