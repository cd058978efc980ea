"""What a plan takes on a cluster, before anything is submitted: tasks, memory, waves and hours."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import polars as pl

from manyseed.orchestrator.errors import UserError
from manyseed.orchestrator.paths import SweepPaths
from manyseed.orchestrator.plans import cost
from manyseed.orchestrator.plans.change import Change
from manyseed.orchestrator.submissions import cluster, memory
from manyseed.orchestrator.submissions.requirements import continuing, require_jobs
from manyseed.orchestrator.submissions.scheduler import scheduler_of
from manyseed.orchestrator.submissions.submission import submissions
from manyseed.orchestrator.survey import survey
from manyseed.slurm.discover import Cluster
from manyseed.slurm.profile import Profile, Resources


@dataclass(frozen=True, slots=True)
class Placement:
    """The tasks of a resource class on a cluster, if nothing waits for jobs of other users."""

    resource: str
    tasks: int
    processes: int  # training processes of a task; on whole nodes, of the smallest
    memory: float | None  # bytes that a task asks for; None if the site decides
    at_once: int  # tasks that run at once, as the profile and the nodes permit
    waves: int
    task_hours: float  # of the longest task
    walltime_hours: float  # of the profile
    hours: float  # until all are done


def forecast(change: Change, paths: SweepPaths, profile: Profile) -> list[Placement]:
    """Cut the missing runs of a plan into tasks as `submit` would; stacks are not known yet.

    Raises as `cluster.shapes` and `discover`.
    """
    rows, earlier = to_train(change, paths), []
    if paths.is_sweep:
        earlier = [one for one in submissions(paths) if one.cluster == profile.name]
    costs = cost.seconds(change.after, change.observed, change.measuring)
    classes = sorted(costs.join(rows, on="cell", how="semi")["device"].unique())
    scheduler = scheduler_of(profile.reached)
    with scheduler.active():
        discovered = scheduler.system.limits()
    profile, _ = memory.sized(profile, classes, earlier, (), discovered, auto=False)
    shapes = cluster.shapes(profile, classes, discovered, 0)
    identical = change.after.cells.filter("identical")["cell"]
    is_copy = cost.untrained_copies(change.after)
    times = (
        cluster.cut(rows, costs, identical, shapes)
        .join(costs.select("cell", "seconds"), on="cell")
        .group_by("resource", "task")
        .agg(pl.when(is_copy).then(0.0).otherwise("seconds").sum().alias("seconds"))
    )
    found = []
    for name in classes:
        resources, shape = profile.resources(name), shapes[name]
        seconds = times.filter(resource=name)["seconds"] / shape.processes
        room = len(seconds)  # other schedulers than SLURM do not tell what there is
        if discovered.partitions:
            room = _room(resources, shape.processes, discovered)
        at_once = max(1, min(len(seconds), resources.parallelism or len(seconds), room))
        longest = float(seconds.max() or 0.0)  # type: ignore[arg-type]
        whole = max(longest, float(seconds.sum()) / at_once)
        asked = memory.asked(resources) or None
        found.append(
            Placement(
                *(name, len(seconds), shape.processes, asked, at_once),
                waves=math.ceil(len(seconds) / at_once),
                task_hours=longest / 3600,
                walltime_hours=resources.minutes / 60,
                hours=whole / 3600,
            )
        )
    return found


def to_train(change: Change, paths: SweepPaths) -> pl.DataFrame:
    """Return the runs that a plan lacks, whether the change is written by now or not."""
    rows = change.added
    if not paths.is_sweep:
        return rows
    missing = survey(paths).with_state("missing").select(rows.columns)
    both = pl.concat([missing, rows], how="vertical_relaxed")
    return both.unique(["cell", "repeat", "run"], keep="first", maintain_order=True)


def too_short(change: Change, paths: SweepPaths, profile: Profile) -> Iterator[str]:
    """Say which fits are longer than the walltime, and what becomes of them."""
    asked = (change.after, to_train(change, paths), change.observed, change.measuring, profile)
    try:
        require_jobs(paths, *asked)
    except UserError as error:  # which submit raises
        yield str(error)
    yield from continuing(*asked)


def _room(resources: Resources, processes: int, there: Cluster) -> int:
    """Return how many tasks fit on all nodes of their partitions at once, by cores or GPUs."""
    tasks = 0
    for part in there.asked(resources.options):
        each = 1
        if not resources.whole_node:
            each = part.cores // (resources.cores or 1)
            if resources.name == "gpu":
                each = min(each, part.n_gpus // cluster.n_gpus(resources))
        tasks += part.n_nodes * max(1, each)
    return tasks
