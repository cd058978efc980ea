"""A sweep's tasks as jobs of a SLURM cluster: how large, with what left out."""

from __future__ import annotations

import dataclasses
import re
import uuid
from collections.abc import Iterable, Sequence

from manyseed.orchestrator.errors import UnavailableError, UserError, refused
from manyseed.orchestrator.grids.loading import read_sweep_file
from manyseed.orchestrator.paths import SweepPaths
from manyseed.orchestrator.submissions.sizing import TaskSize
from manyseed.orchestrator.submissions.submission import Submission
from manyseed.orchestrator.tasks.attempts import Attempt
from manyseed.orchestrator.working.node import EACH_CORE, EACH_GPU
from manyseed.slurm import ClusterError, ClusterUnavailable
from manyseed.slurm.discover import Cluster
from manyseed.slurm.profile import Profile, Resources
from manyseed.slurm.refused import Refused

SIGNAL_SECONDS = 120
"""How long before its walltime a task is asked to end."""

_SHARE = 0.5
"""Of the walltime, that a task's estimated time may take: estimates err, and cores differ."""
_PARALLELISM = 256
_SHOWN = 40
"""Letters of the sweep's name in a job's."""


def shapes(
    profile: Profile, wanted: Iterable[str], cluster: Cluster, waiting: int
) -> dict[str, TaskSize]:
    """Return what the tasks of each resource class can be.

    Parameters
    ----------
    profile : Profile
    wanted : iterable of str
        Resource classes.
    cluster : Cluster
        What the cluster allows.
    waiting : int
        Jobs that this sweep has there already.
    """
    found = {}
    classes = list(wanted)
    for name in classes:
        resources = profile.resources(name)
        # the controller's limit is for all users
        theirs = cluster.max_submit_jobs(resources.options), cluster.max_job_count // 2
        limits = (resources.max_jobs, *theirs)
        most = min(limit for limit in limits if limit is not None) - waiting
        found[name] = TaskSize(
            processes=processes(resources, cluster),
            seconds=_SHARE * (resources.minutes * 60 - SIGNAL_SECONDS),
            parallelism=resources.parallelism or _PARALLELISM,
            most=max(1, most // len(classes)),
        )
    return found


def processes(resources: Resources, cluster: Cluster) -> int:
    """Return how many training processes a task starts; of a whole node, at least."""
    parts = cluster.asked(resources.options)
    if resources.name == "gpu":
        least = min((part.n_gpus for part in parts), default=0) if resources.whole_node else 0
        return resources.processes_per_gpu * max(least, n_gpus(resources))
    if resources.cores is not None:
        return resources.cores
    return min((part.cores for part in parts), default=1)


def workers(resources: Resources, shape: TaskSize) -> str:
    """Return how many training processes a task must start; a whole node decides itself."""
    if not resources.whole_node:
        return str(shape.processes)
    return EACH_CORE if resources.name == "cpu" else f"{EACH_GPU}{resources.processes_per_gpu}"


def n_gpus(resources: Resources) -> int:
    """Return how many GPUs a task asks for."""
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
    """Return a profile whose jobs are kept from some nodes."""
    if not nodes:
        return profile

    def changed(resources: Resources) -> Resources:
        held = resources.options.get("exclude")
        exclude = ",".join([*([held] if held else []), *nodes])
        return dataclasses.replace(resources, options={**resources.options, "exclude": exclude})

    gpu = None if profile.gpu is None else changed(profile.gpu)
    return dataclasses.replace(profile, cpu=changed(profile.cpu), gpu=gpu)


def refusal(error: ClusterError | Refused, profile: Profile) -> UserError | UnavailableError:
    """Return the command's error where jobs of a profile could not be submitted."""
    if isinstance(error, ClusterUnavailable):
        return UnavailableError(str(error))
    if isinstance(error, ClusterError):
        remedy = f"nothing was submitted; mend the profile (manyseed cluster check {profile.name})"
        return UserError(f"SLURM refuses: {error}", file=profile.path, remedy=remedy)
    return refused(error, file=profile.path)


def attempts_on(submissions: Iterable[Submission], cluster: str) -> list[Attempt]:
    """Return the attempts of all tasks on a cluster."""
    return [
        attempt
        for submission in submissions
        if submission.cluster == cluster
        for attempt in submission.attempts()
    ]


def unique_name(paths: SweepPaths, kind: str = "") -> str:
    """Return a name for jobs: the sweep's name, what they are, and what no other jobs have."""
    sweep = re.sub(r"[^A-Za-z0-9_-]+", "-", read_sweep_file(paths.sweep_file).name)
    parts = (sweep[:_SHOWN].strip("-") or "manyseed", kind, uuid.uuid4().hex[:12])
    return "-".join(filter(None, parts))
