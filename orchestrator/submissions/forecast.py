"""What a plan takes on a cluster: tasks, memory, waves and hours; the largest plan within a budget.

For a budget, runs are cut first, down to two, then repeats; all cells keep the same number of both,
unless a grid asked for fewer.
"""

from __future__ import annotations

import math
import os
import re
import shutil
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import polars as pl

from manyseed.orchestrator.errors import UnavailableError, UserError
from manyseed.orchestrator.grids.sweepfile import SweepFile
from manyseed.orchestrator.paths import SweepPaths
from manyseed.orchestrator.plans import cost
from manyseed.orchestrator.plans.change import Change
from manyseed.orchestrator.plans.planning import plan_change
from manyseed.orchestrator.submissions import cluster, memory, submitting
from manyseed.orchestrator.submissions.possible import ProfileError, require_possible, unlisted
from manyseed.orchestrator.submissions.requirements import continuing, require_jobs
from manyseed.orchestrator.submissions.scheduler import scheduler_of
from manyseed.orchestrator.submissions.submission import submissions, tasks_known
from manyseed.orchestrator.survey import survey
from manyseed.slurm import commands
from manyseed.slurm.discover import Cluster
from manyseed.slurm.profile import Profile, Resources
from manyseed.slurm.testcluster import MissingPackages, Settings, TestCluster


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

    Raises as `cluster.shapes`, `discover` and `require_possible`.
    """
    rows = to_train(change, paths)
    earlier = submissions(paths) if paths.is_sweep else []
    costs = cost.seconds(change.after, change.observed, change.measuring)
    classes = sorted(costs.join(rows, on="cell", how="semi")["device"].unique())
    scheduler = scheduler_of(profile.reached)
    with scheduler.active():
        discovered = scheduler.system.limits()
    if told := unlisted(profile, classes, discovered):
        raise ProfileError(told)
    require_possible(profile, classes, discovered)
    for name in classes:
        cluster.require(profile, name, paths.directory)
    states = tasks_known(earlier)
    profile, _ = memory.sized(profile, classes, earlier, states, discovered, paths, auto=False)
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
        seconds = times.filter(resource=name)["seconds"] / shape.processes + cluster.START_SECONDS
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


def too_short(
    change: Change, paths: SweepPaths, profile: Profile, placements: Sequence[Placement]
) -> Iterator[str]:
    """Say which fits are longer than the walltime and what becomes of them; too little memory."""
    rows = to_train(change, paths)
    processes = {one.resource: one.processes for one in placements}
    scheduler = scheduler_of(profile.reached)
    with scheduler.active():
        there = scheduler.system.limits()
    yield from memory.scarce(profile, change.after, rows, processes, there)
    asked = (change.after, rows, change.observed, change.measuring, profile)
    try:
        require_jobs(paths, *asked)
    except UserError as error:  # which submit raises
        yield str(error)
    yield from continuing(*asked)


@dataclass(frozen=True, slots=True)
class Rehearsal:
    """What the submission of all missing runs did, played on a SLURM in a box.

    `calls`: of the scheduler's commands, by name, until all was submitted. `files`: that tasks and
    jobs left in the submission's folder once all had ended. `ended`: how many tasks did. `waiting`:
    how many others never started, by SLURM's reason.
    `placements`: what each resource class takes there, by estimate: waves, and hours beside the
    walltime.
    """

    runs: int
    tasks: int
    arrays: int
    largest_array: int
    calls: dict[str, int]
    files: int
    ended: int
    waiting: dict[str, int]
    placements: tuple[Placement, ...]


_BOXED = ("cpus-per-task", "mem", "mem-per-cpu", "mem-per-gpu")
"""The options that jobs keep in the box, which has no accounts and other partitions."""
_BOX_NODES = 2
_LOOK_SECONDS = 0.5
_STUCK_SECONDS = 60.0


def rehearse(
    paths: SweepPaths, profile: Profile, report: Callable[[str], None] = lambda text: None
) -> Rehearsal | None:
    """Play a submission on a throw-away SLURM, with tasks that train nothing; or None.

    A copy is submitted, by the limits of the profile's cluster; the sweep stays as it is. None if
    there is nothing to submit.
    """
    scheduler = scheduler_of(profile.reached)
    scheduler.require_slurm("--rehearse", "there is no box for its scheduler", "use plan --cluster")
    placements = forecast(plan_change(paths.sweep_file, paths.directory), paths, profile)
    with scheduler.active():
        limits = scheduler.system.limits()
    with _copied(paths) as copy, TemporaryDirectory(prefix="manyseed-") as folder:
        box = TestCluster(Path(folder))
        try:
            box.start(_box(profile, limits))
            before = commands.CALLS.copy()
            request = submitting.Request(
                profile,
                patience=0,
                search=lambda *_: [],
                rehearsal=lambda given: _in_box(given, box.conf),
            )
            submission = submitting.submit(copy, request, report)
            if submission is None:
                return None
            calls = commands.CALLS - before
            report(f"{submission.intent.tasks:,} tasks were submitted; playing them.")
            waiting = _play(box)
            arrays = Counter(job.id.partition("_")[0] for job in submission.noted_jobs().values())
            return Rehearsal(
                runs=submission.n_runs,
                tasks=submission.intent.tasks,
                arrays=len(arrays),
                largest_array=max(arrays.values()),
                calls=dict(calls),
                files=sum(1 for file in submission.folder.rglob("*") if file.is_file()),
                ended=sum(each.state == "finished" for each in submission.attempts()),
                waiting=waiting,
                placements=tuple(placements),
            )
        except MissingPackages as error:
            raise UnavailableError(f"a rehearsal takes SLURM's daemons here: {error}") from None
        except RuntimeError as error:
            raise UnavailableError(f"the throw-away SLURM failed: {error}") from None
        finally:
            box.stop()


def _play(box: TestCluster) -> dict[str, int]:
    """Wait until no job is left that could run; return why others wait, and how many."""
    before, since = "", time.monotonic()
    while listed := box.command(["squeue", "-h", "-r", "-o", "%i|%T|%r"]).strip():
        if listed != before:
            before, since = listed, time.monotonic()
        elif "|RUNNING|" not in listed and time.monotonic() - since > _STUCK_SECONDS:
            return dict(Counter(line.rpartition("|")[2] for line in listed.splitlines()))
        time.sleep(_LOOK_SECONDS)
    return {}


@contextmanager
def _copied(paths: SweepPaths) -> Iterator[SweepPaths]:
    """Yield a copy of a sweep beside it, whose files are links: all that writes replaces files."""

    def link(source: str, target: str) -> None:
        try:
            os.link(source, target)
        except OSError:
            shutil.copy2(source, target)

    left_out = shutil.ignore_patterns(".*", "results", "responses", "report", "leases", "lives")
    with TemporaryDirectory(prefix=".manyseed-", dir=paths.directory.resolve().parent) as folder:
        copy = Path(folder, "sweep")
        shutil.copytree(paths.directory, copy, copy_function=link, ignore=left_out)
        yield SweepPaths(copy)


def _box(profile: Profile, there: Cluster) -> Settings:
    """Return a box whose nodes are those of the cluster, but fewer."""
    parts = [
        part
        for each in filter(None, (profile.cpu, profile.gpu))
        for part in there.asked(each.options)
    ]
    return Settings(
        cpu_nodes=_BOX_NODES,
        gpu_nodes=0 if profile.gpu is None else _BOX_NODES,
        cores=max((part.cores for part in parts), default=1),
        memory_mb=max((part.memory_mb for part in parts), default=1000),
        gpus=max(1, *(part.n_gpus for part in parts), 1),
        max_array_size=there.max_array_size,
        max_job_count=there.max_job_count,
        accounting=False,
    )


def _in_box(profile: Profile, conf: Path) -> Profile:
    """Return a profile for the same jobs in the box: its Python is this one."""

    def boxed(resources: Resources | None) -> Resources | None:
        if resources is None:
            return None
        kept = {key: value for key, value in resources.options.items() if key in _BOXED}
        options = kept | {"partition": resources.name}
        if resources.name == "gpu":
            options["gres"] = f"gpu:{cluster.n_gpus(resources)}"
        return Resources(
            *(resources.name, options, resources.minutes),
            whole_node=resources.whole_node,
            parallelism=resources.parallelism,
            processes_per_gpu=resources.processes_per_gpu,
        )

    return replace(profile, cpu=boxed(profile.cpu), gpu=boxed(profile.gpu), slurm_conf=conf)


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


Summary = dict[str, Any]

ERRORS = "standard_errors"
"""In a summary for a budget: `Change.standard_errors`."""

ELAPSED = "elapsed_hours"
"""The figure of a summary that a deadline limits: hours until all is trained."""

_FIGURES = {
    "coreh": ("core_hours", 1.0, "core hours"),
    "gpuh": ("gpu_hours", 1.0, "GPU hours"),
    "kB": ("store_bytes", 1e-3, "kB"),
    "MB": ("store_bytes", 1e-6, "MB"),
    "GB": ("store_bytes", 1e-9, "GB"),
    "TB": ("store_bytes", 1e-12, "TB"),
    "files": ("store_files", 1.0, "files"),
    "h": (ELAPSED, 1.0, "hours"),
    "d": (ELAPSED, 1 / 24, "days"),
}
_LIMIT = re.compile(rf"(\d+(?:\.\d+)?)\s*({'|'.join(_FIGURES)})", re.ASCII)
_DATE = re.compile(r"\d{4}-\d\d-\d\d([T ]\d\d:\d\d)?", re.ASCII)
_FEWEST_RUNS = 2  # fewer tell nothing about how much runs vary


@dataclass(frozen=True, slots=True)
class Limit:
    """The most that a plan may cost in one figure."""

    most: float
    unit: str

    @property
    def is_deadline(self) -> bool:
        """Whether it limits when all is trained."""
        return _FIGURES[self.unit][0] == ELAPSED

    def cost(self, summary: Summary) -> float:
        """Return what a plan costs in this figure, from `Change.summary`."""
        name, scale, _ = _FIGURES[self.unit]
        return float(summary[name]) * scale

    def kept_back(self, summary: Summary) -> float:
        """Return how much of it is kept back, as fits that were measured vary: a standard error."""
        name, scale, _ = _FIGURES[self.unit]
        return float(summary.get(ERRORS, {}).get(name, 0.0)) * scale

    def allows(self, summary: Summary) -> bool:
        """Return whether a plan is within the limit, with what is kept back."""
        return self.cost(summary) + self.kept_back(summary) <= self.most

    @property
    def unit_name(self) -> str:
        """The unit in words."""
        return _FIGURES[self.unit][2]

    def __str__(self) -> str:
        return f"{self.most:,.6g} {self.unit_name}"


def read_budget(text: str) -> tuple[Limit, ...]:
    """Read limits such as ``500gpuh``, ``1000coreh,200GB``, ``8h`` or ``2026-12-01T08:00``."""
    found = [_DATE.fullmatch(part) or _LIMIT.fullmatch(part) for part in re.split(r" *, *", text)]
    limits = tuple(
        Limit(float(one[1]), one[2]) if one.re is _LIMIT else _until(one[0]) for one in found if one
    )
    if len(limits) < len(found) or not all(limit.most > 0 for limit in limits):
        units = ", ".join(_FIGURES)
        remedy = (
            f"write numbers with a unit ({units}), such as 500gpuh or 1000coreh,200GB, or when all "
            "must be trained, such as 2026-12-01T08:00"
        )
        raise UserError("is no budget", key="--budget", value=text, remedy=remedy)
    return limits


def _until(date: str) -> Limit:
    """Return the hours that are left until a local time."""
    try:
        left = datetime.fromisoformat(date).astimezone() - datetime.now().astimezone()
    except ValueError:
        return Limit(0.0, "h")
    if left.total_seconds() <= 0:
        raise UserError("is past", key="--budget", value=date, remedy="name a time to come")
    return Limit(left.total_seconds() / 3600, "h")


@dataclass(frozen=True, slots=True)
class BudgetedDesign:
    """A design within a budget."""

    settings: tuple[str, ...]  # what to set in the sweep file
    asked: tuple[int, int]  # repeats and runs that the file asks for, the most of all its grids
    kept: tuple[int, int]
    summary: Summary

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON values."""
        repeats, runs = self.kept
        return {"settings": [*self.settings], "repeats": repeats, "runs": runs}

    def sentences(self, limits: Sequence[Limit]) -> Iterator[str]:
        """Yield what was cut, and what that costs in precision."""
        costs = " and ".join(f"{limit.cost(self.summary):,.3g} of {limit}" for limit in limits)
        if not self.settings:
            yield f"Within the budget as it is: {costs}."
            return
        names = ("repeats", "runs")
        cut = [
            f"{now} of {before} {name}"
            for name, before, now in zip(names, self.asked, self.kept, strict=True)
            if now < before
        ]
        yield f"Within the budget: {' and '.join(cut)}, {costs}."
        kept = [(limit.kept_back(self.summary), limit) for limit in limits]
        if back := " and ".join(f"{n:,.2g} {limit.unit_name}" for n, limit in kept if n):
            yield f"Kept back: {back}, as the fits measured so far vary (a standard error)."
        fewer = math.prod(self.asked) / math.prod(self.kept)
        yield (
            f"Intervals of means over seeds are about {math.sqrt(fewer):.2g} times as wide as with "
            "what the file asks for."
        )


def fit_budget(
    limits: Sequence[Limit],
    sweep: SweepFile,
    price: Callable[[Sequence[str]], Summary],
) -> BudgetedDesign:
    """Return the largest design of a sweep file within a budget.

    `price`: returns the summary of the plan with settings, as after ``--set``.
    """
    asked = (
        max(grid.repeats or sweep.repeats for grid in sweep.grid),
        max(grid.runs or sweep.runs for grid in sweep.grid),
    )
    power = math.lcm(*(each.count("*") + 1 for grid in sweep.grid for each in grid.vary))

    def at(repeats: int, runs: int) -> BudgetedDesign | None:
        """Return a design; None if the sweep holds more than it already."""
        most = {"repeats": repeats, "runs": runs}
        tables = {"": sweep} | {f"grid[{n}].": each for n, each in enumerate(sweep.grid)}
        settings = tuple(
            f"{prefix}{key}={most[key]}"
            for prefix, table in tables.items()
            for key in most
            if (getattr(table, key) or 0) > most[key]
        )
        try:
            return BudgetedDesign(settings, asked, (repeats, runs), price(settings))
        except UserError:
            if not settings:
                raise
            return None

    def is_within(design: BudgetedDesign) -> bool:
        return all(limit.allows(design.summary) for limit in limits)

    whole = at(*asked)
    assert whole is not None
    if is_within(whole):
        return whole
    runs = _counts(min(_FEWEST_RUNS, asked[1]), asked[1] - 1, power)
    if best := _largest(lambda n: at(asked[0], n), runs, is_within):
        return best
    least = min(runs, default=asked[1])
    if best := _largest(lambda n: at(n, least), range(1, asked[0]), is_within):
        return best
    fewest = at(1, least)
    if fewest is None:
        raise UserError(
            "the sweep holds more runs already than the budget allows",
            key="--budget",
            value=" and ".join(map(str, limits)),
            remedy="allow more, or plan into another directory with --out",
        )
    smallest = fewest.summary
    beyond = next(limit for limit in limits if not limit.allows(smallest))
    costs = beyond.cost(smallest) + beyond.kept_back(smallest)
    raise UserError(
        f"one repeat of {least} runs costs {costs:,.3g} of {beyond}",
        key="--budget",
        remedy="leave out datasets, classifiers or levels, or allow more",
    )


def _counts(low: int, high: int, power: int) -> Sequence[int]:
    """Return numbers of runs; those of crossed sources are squares or cubes."""
    if power == 1:
        return range(low, high + 1)
    return [n**power for n in range(2, math.ceil(high ** (1 / power)) + 1) if n**power <= high]


def _largest(
    design: Callable[[int], BudgetedDesign | None],
    counts: Sequence[int],
    is_within: Callable[[BudgetedDesign], bool],
) -> BudgetedDesign | None:
    """Return the largest design within the budget by one of these counts; None if none is.

    Counts of which there is no design, as the sweep holds more, are too small.
    """
    best, low, high = None, 0, len(counts) - 1
    while low <= high:
        middle = (low + high) // 2
        tried = design(counts[middle])
        if tried is None:
            low = middle + 1
        elif is_within(tried):
            best, low = tried, middle + 1
        else:
            high = middle - 1
    return best
