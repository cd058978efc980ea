"""A sweep's tasks as jobs of a SLURM cluster: which profile, how large, with what left out."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from orchestrator.errors import UserError
from orchestrator.submissions.sizing import Shape
from orchestrator.submissions.submission import LOCAL, Submission
from orchestrator.working.node import EACH_CORE, EACH_GPU
from slurm import available
from slurm.discover import Cluster
from slurm.profile import Profile, Resources, find_profile, read_profile, user_folder

AUTO = "auto"
TESTCLUSTER = "testcluster"
SIGNAL_SECONDS = 120
"""How long before its walltime a task is asked to end."""

_SHARE = 0.5
"""Of the walltime, that a task's estimated time may take: estimates err, and cores differ."""
_PARALLELISM = 256


def choose(name: str, memory: str | None = None) -> Profile | None:
    """Return the profile of a cluster, with other memory where given; None for this machine.

    ``auto`` is SLURM where ``sbatch`` and a profile of the user's are there, else this machine.
    A running test cluster is chosen by its name alone.

    Raises
    ------
    UserError
        For an unknown or wrong profile, and where ``auto`` could mean several.
    """
    profile = None if name == LOCAL else _read(name)
    if memory is None:
        return profile
    if profile is None:
        raise UserError(
            "this machine gives every process what it asks for", key="--memory", value=memory
        )
    try:
        return profile.with_memory(memory)
    except ValueError as error:
        raise UserError(str(error), key="--memory", value=memory) from None


def _read(name: str) -> Profile | None:
    try:
        if name != AUTO:
            return read_profile(find_profile(name))
        if not available():
            return None
        there = [p for p in sorted(user_folder().glob("*.toml")) if p.stem != TESTCLUSTER]
        if len(there) > 1:
            raise UserError(
                "there are several cluster profiles",
                key="--cluster",
                remedy=f"choose one: {', '.join(path.stem for path in there)}, or local",
            )
        return read_profile(there[0]) if there else None
    except ValueError as error:
        raise UserError(str(error), key="--cluster", value=name) from None


def shapes(
    profile: Profile, wanted: Iterable[str], cluster: Cluster, waiting: int
) -> dict[str, Shape]:
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
        found[name] = Shape(
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


def workers(resources: Resources, shape: Shape) -> str:
    """Return how many training processes a task is told to start; a whole node says it itself."""
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


def lives_on(submissions: Iterable[Submission], cluster: str) -> list[dict[str, Any]]:
    """Return the lives of all tasks on a cluster."""
    return [
        life
        for submission in submissions
        if submission.cluster == cluster
        for life in submission.lives()
    ]


def logs(folder: Path) -> Path:
    """Return where submitit keeps a submission's files."""
    return folder / "submitit"
