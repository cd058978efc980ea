"""Submit missing runs exactly once: under a lock, with an intent on disk before anything starts."""

from __future__ import annotations

import re
import shutil
import uuid
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from functools import partial

import polars as pl

from manyseed.jobs.packages import install
from manyseed.jobs.run import MachineError
from manyseed.jobs.training.handling import Device
from manyseed.jobs.whole import appearing
from manyseed.orchestrator.disk.lease import Lease
from manyseed.orchestrator.disk.records import locked, write_json
from manyseed.orchestrator.errors import StillRunning, UnavailableError, UserError, command
from manyseed.orchestrator.grids.resolver import lacking_packages, not_trainable
from manyseed.orchestrator.paths import SweepPaths
from manyseed.orchestrator.plans import cost
from manyseed.orchestrator.plans.change import choose_cells
from manyseed.orchestrator.plans.code import CodeHere, in_bf16, remedy
from manyseed.orchestrator.plans.edited import warn_of_edits
from manyseed.orchestrator.plans.keptmodels import conditions
from manyseed.orchestrator.plans.layout import Groups, lay_out
from manyseed.orchestrator.plans.plan import Plan
from manyseed.orchestrator.plans.searches import (
    fitted,
    is_searched,
    require_searched,
    searches,
    to_tune,
)
from manyseed.orchestrator.plans.stacks import (
    AUTO,
    Choice,
    Stackable,
    choices,
    in_words,
    members_of,
    stacks,
)
from manyseed.orchestrator.provenance import cpu_class, keep_numbers
from manyseed.orchestrator.store.shards import highest_recipe
from manyseed.orchestrator.submissions import cluster, memory
from manyseed.orchestrator.submissions.cluster import TaskSize, cut
from manyseed.orchestrator.submissions.possible import require_possible, unlisted
from manyseed.orchestrator.submissions.requirements import (
    continuing,
    gpu_here,
    left_out_before,
    require_data,
    require_jobs,
    require_packages,
    require_products,
    require_recipe,
    require_space,
)
from manyseed.orchestrator.submissions.scheduler import Scheduler, scheduler_of
from manyseed.orchestrator.submissions.stopping import unpause, wait_for_ending
from manyseed.orchestrator.submissions.submission import (
    Submission,
    TaskState,
    lost_failures,
    submissions,
    tasks_of,
    training,
)
from manyseed.orchestrator.submissions.walltimes import require_more_time
from manyseed.orchestrator.survey import Survey, survey
from manyseed.orchestrator.tasks.intent import (
    LOCAL,
    AnalysisRequest,
    Intent,
    SubmissionPaths,
    TaskArray,
)
from manyseed.orchestrator.tasks.task import held_rows, make_tasks
from manyseed.orchestrator.working.checkpoints import checkpoint_seconds
from manyseed.orchestrator.working.node import broken_nodes, is_environment
from manyseed.orchestrator.working.pool import spawned
from manyseed.orchestrator.working.queue import shards_of, write_shards
from manyseed.slurm import local
from manyseed.slurm.discover import Cluster
from manyseed.slurm.processes import deferred
from manyseed.slurm.profile import Profile


def choose(
    paths: SweepPaths,
    stacks: Sequence[Stackable],
    *,
    gpu: str | None,
    is_here: bool,
    check: Callable[[], None],
    report: Callable[[str], None],
) -> None:
    """Record, once, how many runs of each shape with ``stack = "auto"`` are trained at once.

    The processors of a cluster are taken to choose as this machine's does; of its GPUs nothing is
    known, so runs are trained there one by one.

    `gpu`: the model of this machine's GPU. `is_here`: whether this machine trains. `check`: called
    before a file is written.
    """
    if not (todo := _undecided(paths, stacks)):
        return
    report("Measuring how many seeds a step are fastest.")
    from manyseed.jobs.stacking import best, seconds_a_run, sizes

    shapes = {each.key: each for each in reversed(todo)}
    kinds = dict.fromkeys(each.cell.classifier["name"] for each in todo)
    if (reason := not_trainable(kinds)) is not None:
        raise UnavailableError(f"{reason}\n  {install(lacking_packages(kinds))}")
    devices: dict[str, Device] = {
        key: "gpu" if each.device == "gpu" and (gpu or not is_here) else "cpu"
        for key, each in shapes.items()
    }
    made = []

    def keep(key: str, seconds: dict[int, float]) -> None:
        each, where = shapes[key], gpu if devices[key] == "gpu" else cpu_class()
        choice = Choice(
            each.dataset,
            each.classifier,
            each.runs,
            best(seconds, each.runs) if seconds else 1,
            where if seconds else None,
            {str(members): value for members, value in seconds.items()},
        )
        write_json(paths.stack(key), asdict(choice), before_rename=check)
        made.append(choice)

    calls = []
    for key, each in shapes.items():
        if is_here or devices[key] == "cpu":
            cell = fitted(paths, each.cell).canonical()
            calls.append((key, partial(seconds_a_run, cell, sizes(each.runs), devices[key])))
        else:
            keep(key, {})
    try:
        for key, seconds in spawned(calls, 1, "a process that measures stacks"):
            keep(key, seconds)
    except (MachineError, ImportError, MemoryError, OSError) as error:
        raise UnavailableError(f"cannot measure stacks: {error}{remedy(error, paths)}") from None
    for text in in_words(made):
        report(text)


def _undecided(paths: SweepPaths, stacks: Sequence[Stackable]) -> list[Stackable]:
    known = choices(paths)
    return [each for each in stacks if each.asked == AUTO and each.key not in known]


def _require_decided(
    paths: SweepPaths, stacks: Sequence[Stackable], begun: Collection[int]
) -> None:
    """Refuse to choose a number for cells whose form is fixed, as they have finished runs."""
    for each in _undecided(paths, stacks):
        if each.number in begun:
            raise UserError(
                f"runs of {each.classifier} were trained before a number was chosen for them",
                file=paths.sweep_file,
                key=f"classifier.{each.classifier}.stack",
                value=AUTO,
                remedy="write the number that they were trained with (1 if none was given), or mix "
                "recipes knowingly with --other-recipe: results mark the repeats",
            )


def _require_measurable(paths: SweepPaths, stacks: Sequence[Stackable]) -> None:
    """Refuse to choose a number by measuring cells whose hparams a job will search for."""
    for each in _undecided(paths, stacks):
        if not is_searched(paths, each.cell):
            raise UserError(
                f"is measured with the hparams that are still to be searched for: "
                f"{each.classifier} × {each.dataset}",
                file=paths.sweep_file,
                key=f"classifier.{each.classifier}.stack",
                value=AUTO,
                remedy=f"write a number, or search first with: {command(*to_tune(paths))}",
            )


class NothingStarted(UnavailableError):
    """No process could be started, so that nothing was submitted."""


FUNCTION = "manyseed.orchestrator.working.worker:run_task"
_REHEARSED = "manyseed.orchestrator.working.worker:rehearse_task"


@dataclass(frozen=True)
class Request:
    """What to submit, and where."""

    profile: Profile | None = None  # a SLURM cluster; None for this machine
    workers: int = 1  # largest number of training processes on this machine
    failed: bool = False  # submit exactly the failed runs instead of the missing ones
    other_recipe: bool = False  # allow a recipe that differs from the recorded ones
    only: str | None = None  # an SQL condition on cells
    limit: int | None = None  # largest number of runs, spread over all cells
    memory: str | None = None  # of a task: in the profile already, or `memory.AUTO`
    calibrate: bool = False  # submit only runs whose durations tell what the others take
    search: Callable[[Cluster, Lease], list[str]] | None = None
    """Submits the searches that cells need, and returns the jobs that tasks then wait for; without
    it, cells whose search was not done yet are refused."""
    rehearsal: Callable[[Profile], Profile] | None = None
    """Given the profile, returns that of a box: all is decided for the profile's cluster, but jobs
    that train nothing go to the box. The sweep must be a copy."""
    then: AnalysisRequest | None = None  # the analysis that follows, to be found by a resume
    patience: float = 300.0
    """Seconds to wait for tasks that were asked to stop and still finish their fits in flight."""


def submit(
    paths: SweepPaths, request: Request, report: Callable[[str], None] = lambda text: None
) -> Submission | None:
    """Submit every missing run; return None if there is nothing to submit.

    Runs of tasks that train or wait are never submitted again, and failed ones only on request.
    Waiting tasks that a pause holds are released. Tasks that were asked to stop are waited for,
    with a message to `report`.
    """
    warn_of_edits(paths)
    scheduler = scheduler_of(request.profile.reached) if request.profile else None

    def dispensable(other: Scheduler) -> bool:
        # a cluster that does not answer must not block work elsewhere
        return other is not scheduler

    n_ending = wait_for_ending(submissions(paths), request.patience, dispensable, report)
    with locked(paths.lock, "submitting") as lease:
        state = survey(paths)
        rows = _chosen(state, request)
        earlier = submissions(paths)
        states = tasks_of(earlier, fresh=True, dispensable=dispensable)
        held, n_waiting = _held(earlier, states)
        is_complete = rows.is_empty()
        rows = rows.join(held, on=["group", "row"], how="anti")
        if request.limit is not None:
            rows = rows.sort("repeat", "run", "cell").head(request.limit)
        groups = Groups.read(paths)
        if request.profile is not None or request.calibrate:
            observed = cost.observed_seconds(paths, state.plan, groups)
            measuring = cost.planned_seconds(paths, state.plan, groups.specs)
            costs = cost.seconds(state.plan, observed, measuring)
        if request.calibrate:
            rows = cost.pilot(state.plan, rows, costs, cost.PILOT_SECONDS * _processes(request))
        if rows.is_empty():
            if request.rehearsal is None:
                _go_on(earlier, states, dispensable)
            if n_ending and not is_complete:
                raise _still_ending(paths, n_ending)
            return None
        notes = [] if request.only or request.rehearsal else left_out_before(paths, rows, earlier)
        for text in (*lost_failures(earlier), *notes):
            report(text)
        cells = state.plan.cells.join(rows, on="cell", how="semi")
        if request.search is None:
            require_searched(paths, cells)
        checkpoint_seconds()  # to refuse an invalid value here rather than in each task
        devices = cells["device"].unique().sort()
        is_here = request.profile is None
        gpu = gpu_here(devices) if is_here else None
        bf16 = in_bf16(paths, cells)
        if is_here:
            require_packages(state.plan, cells)
            require_products(paths, cells, bf16, gpu=gpu)
        require_data(paths, state, rows)
        if request.profile is not None:
            require_jobs(paths, state.plan, rows, observed, measuring, request.profile)
            require_more_time(paths, earlier, states, rows, request.profile)
            for text in continuing(state.plan, rows, observed, measuring, request.profile):
                report(text)
        code, stacked = CodeHere(paths, cells), stacks(paths, state.plan, cells)
        needs_search = request.search is not None and bool(searches(paths, cells))
        if needs_search:
            _require_measurable(paths, stacked)
        if not request.other_recipe:
            _require_decided(paths, stacked, {*state.finished_cells["cell"]})
            members = members_of(paths, stacked)
            recipe = require_recipe(paths, state, cells, members, bf16, gpu=gpu, is_here=is_here)
            code.require_same(state.finished_cells)
            for text in recipe:
                report(text)
        require_space(paths, state, groups, rows)
        if scheduler is not None:
            with scheduler.active():
                discovered = scheduler.system.limits()
            if request.profile is not None:
                classes = sorted(devices.unique())
                require_possible(request.profile, classes, discovered)
                if request.memory in (None, memory.AUTO):
                    auto = request.memory is not None
                    known = request.profile, classes, earlier, states, discovered, paths
                    profile, said = memory.sized(*known, auto=auto)
                    request = replace(request, profile=profile)
                    for text in said:
                        report(text)
        # what is refused was refused by now, except for what only sbatch knows
        with _taken_back(paths, groups, lease.check):
            choose(paths, stacked, gpu=gpu, is_here=is_here, check=lease.check, report=report)
            lay_out(paths, state.plan, groups)
            # otherwise each process of a task would first read the whole store
            journals = state.plan.journals(paths)
            keep_numbers(paths.recipes, lambda: highest_recipe(paths.store, journals))
            number = _next_number(paths)
            code.copy()
            submitter = _Submitter(paths, number, state.plan, groups, request, lease, code.of_tasks)
            submitter.stacks, submitter.bf16 = members_of(paths, stacked), bf16
            if request.profile is None:
                submission = submitter.to_this_machine(rows, devices, gpu)
            else:
                for text in cluster.copied_secrets(request.profile, submitter.folder):
                    report(text)
                if request.search is not None and needs_search:
                    submitter.needs = request.search(discovered, lease)
                given = discovered, costs, earlier, n_waiting
                submission = submitter.to_cluster(rows, request.profile, *given, report=report)
        if request.rehearsal is None:
            _go_on(earlier, states, dispensable)
        return submission


@contextmanager
def _taken_back(paths: SweepPaths, groups: Groups, check: Callable[[], None]) -> Iterator[None]:
    """Remove the folders that the block makes if nothing is submitted.

    Rows that it adds to groups that exist stay, as any submission would add them.
    """
    folders = [paths.recipes, paths.stack("").parent, paths.code(""), paths.store]
    for spec in groups.specs:
        folders += [(paths.store / spec.path).parent, paths.store / spec.path]
    new = [folder for folder in folders if not folder.exists()]
    had_tasks = paths.tasks.exists()
    try:
        yield
    except (UserError, NothingStarted):
        check()  # who took over may have submitted
        removed = paths.unfinished_submission(uuid.uuid4().hex)
        with suppress(OSError):  # whatever stays is used by the next submission
            removed.mkdir(parents=True)
            for number, folder in enumerate(folder for folder in new if folder.exists()):
                folder.rename(removed / str(number))
            shutil.rmtree(removed)
            if not had_tasks:
                paths.tasks.rmdir()
        raise


class _Submitter:
    def __init__(
        self,
        paths: SweepPaths,
        number: int,
        plan: Plan,
        groups: Groups,
        request: Request,
        lease: Lease,
        code: Mapping[int, tuple[str, float]],
    ) -> None:
        self.lease, self.code, self.stacks = lease, code, dict[int, int]()
        self.bf16, self.needs = frozenset[int](), list[str]()
        self.paths, self.number, self.plan, self.request = paths, number, plan, request
        self.folder = paths.submission(number)
        self.shard_lengths = {spec.number: spec.shard_length for spec in groups.specs}
        self.where = conditions(groups.specs)
        self.intent = Intent.now(request.profile.name if request.profile else LOCAL, plan.identity)

    def to_this_machine(
        self, rows: pl.DataFrame, devices: pl.Series, gpu: str | None
    ) -> Submission:
        """Submit one task, which keeps all processes busy."""
        resource = pl.lit("gpu" if gpu else "cpu")
        work = rows.with_columns(resource=resource, task=pl.lit(0, dtype=pl.UInt32))
        self.intent = replace(
            self.intent,
            workers=self.request.workers,
            gpu=(gpu or "none") if "gpu" in devices else "",
        )
        files = SubmissionPaths(self.folder)
        try:
            self._write(work)
            self.lease.check()  # if another process took it over, it submits these runs anew
            with deferred():  # a job that starts but is not recorded would be submitted again
                arguments = self._arguments(0, self.request.workers)
                try:
                    job = local.submit(files.submitit, FUNCTION, arguments, {})
                except (OSError, RuntimeError) as error:
                    shutil.rmtree(self.folder, ignore_errors=True)
                    raise NothingStarted(f"cannot submit to this machine: {error}") from None
                write_json(files.local_job, asdict(job))
        except (OSError, RuntimeError) as error:
            raise UnavailableError(f"cannot submit to this machine: {error}") from None
        return Submission(self.folder, self.intent)

    def to_cluster(
        self,
        rows: pl.DataFrame,
        profile: Profile,
        discovered: Cluster,
        costs: pl.DataFrame,
        earlier: Sequence[Submission],
        n_waiting: int,
        *,
        report: Callable[[str], None],
    ) -> Submission:
        """Submit an array of tasks for each resource class, split to respect the cluster's limits.

        `rows`: the runs to train. `profile`: the resources that jobs request on this cluster.
        `discovered`: its limits. `costs`: as `cost.seconds` returns them. `earlier`: their
        attempts show which nodes are broken. `n_waiting`: how many tasks already wait or run, which
        count towards the user's limits.
        """
        classes = sorted(costs.join(rows, on="cell", how="semi")["device"].unique())
        there = [submission for submission in earlier if submission.cluster == profile.name]
        attempts = [attempt for submission in there for attempt in submission.attempts()]
        nodes = {} if is_environment(attempts) else broken_nodes(attempts)
        profile = cluster.without_nodes(profile, sorted(nodes))
        shapes = cluster.shapes(profile, classes, discovered, n_waiting)
        processes = {name: shape.processes for name, shape in shapes.items()}
        for text in memory.scarce(profile, self.plan, rows, processes, discovered):
            report(text)
        identical = self.plan.cells.filter("identical")["cell"]
        work = cut(rows, costs, identical, shapes, self.stacks)
        self.intent = cluster.intent_for(
            profile,
            self.plan.identity,
            discovered.name,
            self._arrays(work, shapes),
            excluded=nodes,
            memory={n: size for n in classes if (size := memory.asked(profile.resources(n)))},
            exclude={name: profile.resources(name).options.get("exclude", "") for name in classes},
            request=self.request.then,
        )
        self._write(work)
        submission = Submission(self.folder, self.intent)

        def arguments(array: TaskArray) -> list[list[str]]:
            each = cluster.workers(profile.resources(array.resource), shapes[array.resource])
            numbers = range(array.first, array.first + array.count)
            return [self._arguments(number, each) for number in numbers]

        box = self.request.rehearsal
        cluster.submit_arrays(
            submission,
            profile if box is None else box(profile),
            FUNCTION if box is None else _REHEARSED,
            arguments,
            self.lease.check,
            training(self.paths, "resume"),
            needs=self.needs,
            noted=box is None,
            unlisted=unlisted(profile, classes, discovered),
        )
        return submission

    def _arguments(self, task: int, workers: int | str) -> list[str]:
        return [str(self.paths.directory.resolve()), str(self.number), str(task), str(workers)]

    def _write(self, work: pl.DataFrame) -> None:
        """Write the submission's folder atomically."""
        for unfinished in self.paths.unfinished_submissions():
            # its submitter was killed or suspended; a suspended one will find its folder gone
            shutil.rmtree(unfinished, ignore_errors=True)
        building = self.paths.unfinished_submission(uuid.uuid4().hex)
        with appearing(self.folder, building) as folder:
            files = SubmissionPaths(folder)
            files.attempts.mkdir()
            shards = []
            given = self.shard_lengths, self.code, self.where, self.stacks, self.bf16
            tasks = make_tasks(self.plan, work, *given)
            for number, task in enumerate(tasks):
                task.write(files.task(number))
                shards.append(shards_of(task))
            write_shards(folder, shards)
            only = self.request.only or ""
            self.intent = replace(self.intent, runs=len(work), tasks=len(shards), only=only)
            self.intent.write(folder)
            self.lease.check()

    def _arrays(self, work: pl.DataFrame, shapes: dict[str, TaskSize]) -> tuple[TaskArray, ...]:
        name = cluster.unique_name(self.paths)
        counts = work.group_by("resource").agg(
            first=pl.col("task").min(), last=pl.col("task").max()
        )
        return tuple(
            TaskArray(
                resource=resource,
                name=f"{name}-{resource}",
                first=first,
                count=last + 1 - first,
                processes=shapes[resource].processes,
            )
            for resource, first, last in counts.sort("first").iter_rows()
        )


def _chosen(state: Survey, request: Request) -> pl.DataFrame:
    rows = state.with_state("failed" if request.failed else "missing")
    if request.only is None:
        return rows
    cells = choose_cells(state.plan, request.only, "--only")
    return rows.join(cells.select("cell"), on="cell", how="semi")


def _processes(request: Request) -> int:
    """Return how many processes train at once on this machine, or at least in a task."""
    if request.profile is None:
        return request.workers
    classes = (request.profile.cpu, request.profile.gpu)
    return max(each.cores or 1 for each in classes if each is not None)


def _still_ending(paths: SweepPaths, n: int) -> StillRunning:
    tasks = "1 task that was" if n == 1 else f"{n:,} tasks that were"
    return StillRunning(
        f"nothing to submit yet: {tasks} asked to stop still finish fits in flight\n"
        f"  try again later: {training(paths, 'resume')}; or kill these fits, which are then "
        f"trained again: {command('cancel', paths.directory, '--now')}"
    )


def _next_number(paths: SweepPaths) -> int:
    """Return a number that no submission ever had, judging by folders and the journals left."""
    journals = paths.journals.iterdir() if paths.journals.is_dir() else ()
    numbers = (re.match(r"[0-9]{4}(?=-|$)", p.name) for p in (*paths.submissions(), *journals))
    return 1 + max((int(number[0]) for number in numbers if number), default=0)


def _held(
    earlier: Sequence[Submission], states: Sequence[Sequence[TaskState]]
) -> tuple[pl.DataFrame, int]:
    """Return the runs that living tasks hold, and the number of these tasks."""
    parts = [held_rows([])]
    n_alive = 0
    for submission, tasks in zip(earlier, states, strict=True):
        alive = [submission.files.task(task.number) for task in tasks if task.is_alive]
        n_alive += len(alive)
        if alive:
            is_stopped = submission.files.stop.exists() and not submission.is_paused
            skipped = [] if is_stopped or _is_lost(tasks) else submission.skipped_cells
            parts.append(held_rows(alive).filter(~pl.col("cell").is_in(skipped)))
    return pl.concat(parts), n_alive


def _go_on(
    earlier: list[Submission],
    states: Sequence[Sequence[TaskState]],
    dispensable: Callable[[Scheduler], bool],
) -> None:
    """Release what is paused, stop what others take over, and note jobs found by their names."""
    unpause(earlier, dispensable)
    for submission, tasks in zip(earlier, states, strict=True):
        if _is_lost(tasks):
            submission.files.stop.touch()  # tasks that still wait there end as soon as they start
        elif submission.cluster != LOCAL and not submission.is_noted:
            submission.note_jobs({n: job.id for n, job in submission.jobs().items()})
            submission.files.submitted.touch()


def _is_lost(tasks: Sequence[TaskState]) -> bool:
    return any(task.is_out_of_sight and not task.is_alive for task in tasks)
