"""Jobs of a cluster: runs cut into tasks, nodes to avoid, and how all jobs are submitted."""

from __future__ import annotations

import dataclasses
import math
import re
import shutil
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import polars as pl

from manyseed.jobs.datasets.cache import SUBMITTED_VARIABLE, data_home
from manyseed.orchestrator.errors import UnavailableError, UserError, command, refused
from manyseed.orchestrator.grids.loading import read_sweep_file
from manyseed.orchestrator.paths import SweepPaths
from manyseed.orchestrator.submissions.profiles import remember
from manyseed.orchestrator.submissions.scheduler import scheduler_of
from manyseed.orchestrator.submissions.submission import Submission
from manyseed.orchestrator.tasks.intent import Intent, SubmissionPaths, TaskArray
from manyseed.orchestrator.tasks.task import turns
from manyseed.orchestrator.working.node import EACH_CORE, EACH_GPU
from manyseed.slurm import ClusterError, ClusterUnavailable, Refused, commands
from manyseed.slurm.batch import system_of
from manyseed.slurm.discover import Cluster
from manyseed.slurm.processes import user_name
from manyseed.slurm.profile import Profile, Resources, gpus_asked

_LEAST_SECONDS = 300.0  # shortest training time worth the startup cost of a task
START_SECONDS = 6.0
"""Of a task before it trains: imports of its launcher and training processes, and its data.

Measured on 2 cores and a local disk; a busy shared disk takes longer.
"""
_LEAST_FIT = 1e-4


@dataclass(frozen=True, slots=True)
class TaskSize:
    """Limits for a cluster's tasks of one resource class."""

    processes: int  # training processes of a task
    seconds: float
    """Longest training time of a task; one that takes longer is requeued until it is done."""
    parallelism: int
    """Number of tasks that may run at once; the work is spread over that many if it is enough."""
    most: int  # number of tasks that may be submitted


def cut(
    rows: pl.DataFrame,
    costs: pl.DataFrame,
    identical: pl.Series,
    shapes: Mapping[str, TaskSize],
    stacks: Mapping[int, int] = MappingProxyType({}),
) -> pl.DataFrame:
    """Assign each run its resource class and its task.

    `rows`: runs: columns group, cell, repeat, run, row. `costs`: a row per cell: columns cell,
    seconds (of a fit), device (cpu or gpu). `identical`: cells in which only the first run of a
    repeat is trained; its copies stay in its task. `shapes`: by resource class. `stacks`: for cells
    whose runs are trained several at once: how many, which stay in one task.

    Returns the runs with the columns resource (String) and task (UInt32, counted from 0 over all
    classes), in the order in which they are cut: by repeat, `turns`, group, row.
    """
    priced = (
        rows.join(costs.rename({"device": "resource"}), on="cell", how="left")
        .with_columns(
            copy=pl.col("cell").is_in(identical.implode()),
            members=pl.col("cell").replace_strict(dict(stacks), default=1, return_dtype=pl.UInt32),
            seconds=pl.col("seconds").fill_null(_LEAST_FIT).clip(_LEAST_FIT),
        )
        .with_columns(
            seconds=pl.when(pl.col("copy") & (pl.col("run") > 0)).then(0.0).otherwise("seconds"),
            turn=turns("resource", together=pl.col("copy") | (pl.col("members") > 1)),
        )
        .sort("repeat", "turn", "group", "row")
    )
    parts, first = [priced.clear().with_columns(task=pl.lit(None, dtype=pl.UInt32))], 0
    for resource, shape in shapes.items():
        part = priced.filter(pl.col("resource") == resource)
        if part.is_empty():
            continue
        part = _cut(part, _number(part, shape)).with_columns(pl.col("task") + first)
        first += part["task"].n_unique()
        parts.append(part)
    return pl.concat(parts).drop("copy", "members", "seconds", "turn")


def _number(rows: pl.DataFrame, shape: TaskSize) -> int:
    """Return the number of tasks into which to cut these runs."""
    total = float(rows["seconds"].sum()) / shape.processes
    needed = math.ceil(total / shape.seconds)
    spread = min(shape.parallelism, math.ceil(total / _LEAST_SECONDS))
    return max(1, min(max(needed, spread), shape.most, len(rows)))


def _cut(rows: pl.DataFrame, number: int) -> pl.DataFrame:
    share = max(float(rows["seconds"].sum()), _LEAST_FIT) / number
    before = pl.col("seconds").cum_sum() - pl.col("seconds")
    block = pl.col("run") // pl.col("members")
    part = (before / share).floor().clip(0, number - 1).cast(pl.UInt32)
    cut = rows.with_columns(part=part).with_columns(
        part=pl.when("copy")
        .then(pl.col("part").min().over("group", "cell", "repeat"))
        .when(pl.col("members") > 1)
        .then(pl.col("part").min().over("group", "cell", "repeat", block))
        .otherwise("part")
    )
    # runs that moved to another's task may leave a number without runs
    return cut.with_columns(task=(pl.col("part").rank("dense") - 1).cast(pl.UInt32)).drop("part")


SIGNAL_SECONDS = 120  # how long before the end of its walltime a task is asked to end

_SHARE = 0.5
"""Share of the walltime that a task's estimated time may take: estimates err, and cores differ."""
_PARALLELISM = 256
_SHOWN = 40  # number of letters of the sweep's name in a job name


def shapes(
    profile: Profile, wanted: Iterable[str], cluster: Cluster, waiting: int
) -> dict[str, TaskSize]:
    """Return the size limits of tasks, by resource class.

    `wanted`: resource classes. `cluster`: with its limits. `waiting`: number of jobs that this
    sweep already has there.
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
    found = gpus_asked({**resources.options, **resources.extra})
    count = next((count for _, count in found if count), "1")
    return int(count) if count.isdecimal() else 1


def without_nodes(profile: Profile, nodes: Sequence[str]) -> Profile:
    """Return a profile whose jobs avoid some nodes."""
    if not nodes:
        return profile

    def excluding(resources: Resources) -> Resources:
        already_excluded = resources.options.get("exclude")
        exclude = ",".join([*([already_excluded] if already_excluded else []), *nodes])
        return dataclasses.replace(resources, options={**resources.options, "exclude": exclude})

    cpu = None if profile.cpu is None else excluding(profile.cpu)
    gpu = None if profile.gpu is None else excluding(profile.gpu)
    return dataclasses.replace(profile, cpu=cpu, gpu=gpu)


def require(
    profile: Profile, resource: str, folder: Path, signal_seconds: int | None = None
) -> None:
    """Refuse a profile or a submission's folder with which no job of this class is submitted.

    `signal_seconds`: how long before the end of its walltime a job is asked to end; by default
    `SIGNAL_SECONDS`.
    """
    from manyseed.slurm.arrays import require as required

    try:
        seconds = signal_seconds or SIGNAL_SECONDS
        required(profile, resource, SubmissionPaths(folder).submitit, seconds)
    except Refused as error:
        raise refusal(error, profile) from None


def require_chains(profile: Profile) -> None:
    """Refuse a profile whose jobs cannot wait for others."""
    remedy = "run without --detach, or analyze when the training has ended"
    scheduler_of(profile.reached).require_slurm("--detach", "no job waits for others", remedy)


def refusal(
    error: ClusterError | Refused, profile: Profile, unlisted: str = ""
) -> UserError | UnavailableError:
    """Return the error to report when jobs of a profile could not be submitted."""
    if isinstance(error, ClusterUnavailable):
        return UnavailableError(str(error))
    if isinstance(error, ClusterError):
        check = "" if profile.template else f" ({command('cluster', 'check', profile.path)})"
        given = ", or what --memory asks for" if "memory" in str(error).lower() else ""
        remedy = f"nothing was submitted; fix the profile{given}{check}"
        name = system_of(profile.reached).name
        told = "; ".join(filter(None, (f"{name} refuses: {error}", unlisted)))
        return UserError(told, file=profile.path, remedy=remedy)
    if error.option == "folder":
        return UserError(error.reason, file=str(error.value), remedy="rename the folder")
    remedy = 'add it with gres or gpus, or leave out device = "gpu"'
    return refused(error, file=profile.path, remedy=remedy if error.option == "gpu" else None)


def copied_secrets(profile: Profile, folder: Path) -> Iterator[str]:
    """Say what looks like a secret in the lines that a submission's job scripts copy."""
    classes = filter(None, (profile.cpu, profile.gpu))
    if found := dict.fromkeys(name for resources in classes for name in resources.secrets):
        yield (
            f"{profile.path} holds what looks like a secret ({', '.join(found)}), which the job "
            f"scripts in {folder} copy, readable by you alone; lines in a setup-file are not copied"
        )


def intent_for(
    profile: Profile, plan: str, scheduler: str, arrays: tuple[TaskArray, ...], **more: Any
) -> Intent:
    """Return the intent to submit arrays to a profile's cluster, called `scheduler` there."""
    return dataclasses.replace(
        Intent.now(profile.name, plan),
        scheduler=scheduler,
        profile=str(profile.path.absolute()),
        arrays=arrays,
        walltime={
            each.resource: profile.resources(each.resource).minutes * 60.0 for each in arrays
        },
        **more,
    )


def submit_arrays(
    submission: Submission,
    profile: Profile,
    function: str,
    arguments: Callable[[TaskArray], list[list[str]]],
    check: Callable[[], None],
    again: str = "",
    after: Sequence[str] = (),
    needs: Sequence[str] = (),
    noted: bool = True,
    unlisted: str = "",
) -> None:
    """Submit the arrays of a submission whose intent is on disk, as `submit_jobs` does.

    What the scheduler refuses is told as a user's error; if it took nothing, the folder goes.
    `again` is the command that submits the rest, for messages. `after`, `needs`: as in
    `slurm.arrays.Tasks`. `noted`: whether the profile becomes one of the user's. `unlisted`:
    as `possible.unlisted` says, told if the scheduler refuses.
    """
    is_taken = True
    try:
        submit_jobs(submission, profile, function, arguments, check, after=after, needs=needs)
    except ClusterUnavailable as error:
        # it may have received the job all the same: the next look finds it by name
        retry = f"\n  when it answers again: {again}" if again else ""
        raise UnavailableError(f"{error}{retry}") from None
    except (ClusterError, Refused) as error:
        if not (jobs := submission.noted_jobs()):
            is_taken = False
            shutil.rmtree(submission.folder)
            raise refusal(error, profile, unlisted) from None
        submission.files.submitted.touch()
        raise UnavailableError(
            f"{system_of(profile.reached).name} took {len(jobs):,} of "
            f"{submission.intent.tasks:,} tasks, then refused: "
            f"{error}\n  submit the rest when these are done: {again}"
        ) from None
    finally:
        if is_taken and noted:
            remember(profile)


def submit_jobs(
    submission: Submission,
    profile: Profile,
    function: str,
    arguments: Callable[[TaskArray], list[list[str]]],
    check: Callable[[], None] = lambda: None,
    signal_seconds: int | None = None,
    after: Sequence[str] = (),
    needs: Sequence[str] = (),
    parallelism: int | None = None,
) -> None:
    """Submit the arrays of a submission and note their jobs; raises as `arrays.submit_array`.

    Each job calls `function`, given as ``module:name``, with its own of the `arguments` of its
    array. `check` is called before each array, and raises if this process may submit no more.
    `signal_seconds`: by default `SIGNAL_SECONDS`. `after`, `needs`, `parallelism`: as in `Tasks`.
    """
    from manyseed.slurm.arrays import Tasks

    jobs: dict[int, str] = {}
    comment, submitit = str(submission.folder.absolute()), submission.files.submitit
    for array in submission.intent.arrays:

        def note(ids: list[str], first: int = array.first) -> None:
            start = max((n + 1 for n in jobs if n >= first), default=first)
            jobs.update(enumerate(ids, start))
            submission.note_jobs(jobs)

        check()
        each = arguments(array)
        seconds = signal_seconds or SIGNAL_SECONDS
        tasks = Tasks(
            *(function, each, array.name, comment, parallelism),
            signal_seconds=seconds,
            after=after,
            needs=needs,
            environment={SUBMITTED_VARIABLE: str(data_home().absolute())},
        )
        system_of(profile.reached).submit(profile, array.resource, submitit, tasks, note)
    submission.files.submitted.touch()


@contextmanager
def passing(
    profile: Profile, resource: str, folder: Path, name: str, n: int = 1
) -> Iterator[Submission]:
    """Yield a submission of `n` jobs, to be submitted; its jobs and folder end with the block."""
    intent = intent_for(profile, "", "", (TaskArray(resource, name, first=0, count=n),), tasks=n)
    folder.mkdir(mode=0o700)
    submission = Submission(folder, intent)
    try:
        yield submission
    finally:
        # names are known even if the submission was interrupted
        scripts = sorted(submission.files.submitit.glob(f"{name}.*.sh"))
        with suppress(ClusterError), commands.speaking_to(profile.slurm_conf):
            for script in scripts:
                commands.run(["scancel", f"--user={user_name()}", f"--name={script.stem}"])
        shutil.rmtree(folder, ignore_errors=True)


def unique_name(paths: SweepPaths, kind: str = "") -> str:
    """Return a unique job name that begins with the sweep's name and the kind of job."""
    sweep = re.sub(r"[^A-Za-z0-9_-]+", "-", read_sweep_file(paths.sweep_file).name)
    parts = (sweep[:_SHOWN].strip("-") or "manyseed", kind, uuid.uuid4().hex[:12])
    return "-".join(filter(None, parts))
