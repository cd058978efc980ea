"""Submissions: the states of their tasks, their lost files, and the commands that train."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from manyseed.orchestrator.disk.placing import file_clock
from manyseed.orchestrator.disk.records import read_record, write_json
from manyseed.orchestrator.errors import (
    DamagedFile,
    ManyseedError,
    UnavailableError,
    UserError,
    command,
)
from manyseed.orchestrator.paths import SweepPaths
from manyseed.orchestrator.plans.plan import identity_of
from manyseed.orchestrator.submissions.profiles import AUTO, choose, is_gone, needed, own_profile
from manyseed.orchestrator.submissions.scheduler import Array, Job, Scheduler, scheduler_of
from manyseed.orchestrator.tasks.attempts import (
    UNREADABLE,
    Attempt,
    attempt_lease,
    read_attempts,
    read_failures,
)
from manyseed.orchestrator.tasks.intent import (
    FAILURES,
    LOCAL,
    PAUSED,
    PROGRESS,
    Intent,
    SubmissionPaths,
    skipped_cells,
    stop_request,
)
from manyseed.orchestrator.tasks.task import Task
from manyseed.orchestrator.working.node import read_jobs, write_jobs
from manyseed.slurm import processes
from manyseed.slurm.commands import NO_CLUSTER
from manyseed.slurm.local import LocalJob
from manyseed.slurm.processes import user_name
from manyseed.slurm.profile import Profile
from manyseed.slurm.states import JobState, named_for_memory

OVER = ("finished", "stopped", "broken")
"""States of an attempt that mean its task is over, wherever it ran."""

ALIVE = ("waiting", "held", "running", "unknown")  # states of a task that trains or may train yet

_NONE = Attempt("", "", started=0.0)

_ENDS = ("cancelled", "failed", "timeout", "out_of_memory", "node_fail")
"""States that only a scheduler knows; they are recorded for when it no longer answers."""

ELSEWHERE = "on a cluster that is not reached from here"
UNSEEN = "the scheduler shows nothing of it here"
SILENT = "the cluster does not answer"


@dataclass(frozen=True, slots=True)
class TaskState:
    """A task at one moment."""

    number: int
    state: str
    """Waiting, held, running; finished, stopped, broken (the machine was at fault); killed (no
    process of it is alive and it reported no end), gone (no attempt of it is known anywhere),
    cancelled, or, if its scheduler tells more: failed, timeout, out_of_memory, node_fail,
    preempted. Unknown if the scheduler does not answer and no file shows it."""
    attempts: tuple[Attempt, ...] = ()  # the last report of each attempt, oldest first
    job_id: str = ""  # the scheduler's job id; empty on this machine and if there is none
    node: str = ""
    note: str = ""  # the node where it runs or last ran, and the scheduler's remark on it

    @property
    def is_alive(self) -> bool:
        """Whether it trains or will train."""
        return self.state in ALIVE

    @property
    def is_out_of_sight(self) -> bool:
        """Whether only its files show its state, as no scheduler that knows it is in reach."""
        return self.note in (ELSEWHERE, UNSEEN)

    @property
    def done(self) -> int:
        """The number of runs that its attempts finished."""
        return sum(attempt.n_done for attempt in self.attempts)

    @property
    def failed(self) -> int:
        """The number of runs that failed in its attempts."""
        return sum(attempt.n_failed for attempt in self.attempts)

    @property
    def restarts(self) -> int:
        """How often it was begun again after an attempt that ended without a report."""
        return sum(attempt.state == "running" for attempt in self.attempts[:-1])

    @property
    def killed(self) -> int:
        """How many training processes of its attempts were killed; others took their runs over."""
        return sum(attempt.killed for attempt in self.attempts)

    @property
    def last(self) -> Attempt:
        """The report of its last attempt; an empty one before the first."""
        return self.attempts[-1] if self.attempts else _NONE


_SILENT_SECONDS = 120.0


@dataclass(frozen=True)
class Submission:
    """One submission: its folder and its intent."""

    folder: Path
    intent: Intent

    @property
    def number(self) -> int:
        """The submission's number within the sweep."""
        return int(self.folder.name)

    @property
    def n_runs(self) -> int:
        """The number of its runs."""
        return self.intent.runs

    @property
    def cluster(self) -> str:
        """The name of the cluster's profile, or ``local``."""
        return self.intent.cluster

    @property
    def files(self) -> SubmissionPaths:
        """The names of its files."""
        return SubmissionPaths(self.folder)

    @property
    def is_paused(self) -> bool:
        """Whether it was asked to stop until a `resume`; its waiting tasks are held."""
        return stop_request(self.folder) == PAUSED

    @property
    def skipped_cells(self) -> list[int]:
        """The cells that its tasks no longer train."""
        return skipped_cells(self.folder)

    def attempts(self, task: int | None = None) -> list[Attempt]:
        """Return the last reports of its attempts, of one task or all, oldest first."""
        return read_attempts(self.folder, task, plan=self.intent.plan)

    @property
    def is_training(self) -> bool:
        """Whether its tasks train; others are an analysis or a search for hparams."""
        return self.folder.parent.name not in ("analyses", "searches")

    def is_alive(self) -> bool:
        """Return whether one of its tasks trains or will train."""
        return any(task.is_alive for task in self.tasks())

    def tasks(self) -> list[TaskState]:
        """Return the state of every task, by number."""
        return tasks_of([self])[0]

    @cached_property
    def scheduler(self) -> Scheduler:
        """The scheduler of its jobs; only for a submission to a cluster."""
        profile = own_profile(self.intent)
        return scheduler_of(None if profile is None else profile.reached)

    @cached_property
    def arrays(self) -> dict[int, Array]:
        """Its arrays by the number of their first task; empty for a submission to this machine."""
        user = self.intent.user or user_name()
        return {
            array.first: Array(array.name, self.intent.submitted, user, self.folder)
            for array in self.intent.arrays
        }

    def noted_jobs(self) -> dict[int, Job]:
        """Return the jobs of its tasks that its submitter recorded."""
        noted, firsts = read_jobs(self.folder), sorted(self.arrays)
        if noted and min(noted) < min(firsts, default=math.inf):
            raise DamagedFile(self.files.jobs, "names tasks that were not submitted")
        return {
            number: Job(job, self.arrays[firsts[bisect_right(firsts, number) - 1]])
            for number, job in noted.items()
        }

    def job_name(self, task: int, job_id: str) -> str:
        """Return what the logs of a task's job are named after."""
        if self.intent.scheduler != NO_CLUSTER:
            return job_id
        array = next(each for each in reversed(self.intent.arrays) if each.first <= task)
        return f"{array.name}.{task - array.first}"

    def jobs(self) -> dict[int, Job]:
        """Return the job of every task that has one.

        If the submitter died before it recorded them, the scheduler is asked for them by name.
        """
        lost = self.lost_arrays
        states = self.scheduler.states([], lost) if lost else {}
        return self.noted_jobs() | self.named(states)

    def named(self, states: Mapping[str, JobState]) -> dict[int, Job]:
        """Return the jobs of its tasks that a scheduler knows by the names of its arrays."""
        firsts = {array.name: first for first, array in self.arrays.items()}
        return {
            first + index: Job(job, self.arrays[first])
            for job, state in states.items()
            if (first := firsts.get(state.submission)) is not None
            and (index := state.index) is not None
        }

    @property
    def lost_arrays(self) -> list[Array]:
        """Its arrays, if only the scheduler may know some of their jobs; else none."""
        is_lost = not self.is_noted and not self.is_being_submitted
        return list(self.arrays.values()) if is_lost else []

    def note_jobs(self, jobs: Mapping[int, str]) -> None:
        """Record the job id of each task."""
        write_jobs(self.folder, jobs)

    def noted_ends(self) -> dict[str, tuple[str, int]]:
        """Return the recorded end of each task that reported none, and after how many attempts."""
        with suppress(OSError, DamagedFile):  # it only replaces what a scheduler says
            return read_record(self.files.ends, dict[str, tuple[str, int]])
        return {}

    @property
    def is_noted(self) -> bool:
        """Whether all its jobs are recorded; if not, its submitter is still at work or died."""
        return self.files.submitted.exists()

    @property
    def is_being_submitted(self) -> bool:
        """Whether its submitter still works on it and is visible from here."""
        return not self.is_noted and processes.is_alive(self.intent.submitter)

    def local_state(self, attempts: Sequence[Attempt]) -> TaskState:
        """Return the state of the only task of a submission to this machine."""
        state = attempts[-1].state if attempts else "waiting"
        if state not in OVER:
            state = "running" if attempts else "waiting"
            state = state if self._is_alive_locally(attempts) else "killed"
        return TaskState(0, state, tuple(attempts))

    def _is_alive_locally(self, attempts: Sequence[Attempt]) -> bool:
        """Return whether a process of it is alive.

        Processes of another machine or container are not visible; an attempt that has reported no
        end then counts as alive while its files change.
        """
        job = self.files.local_job
        # without a record of the job it is being submitted, or its submitter died
        first = read_record(job, LocalJob).process if job.exists() else self.intent.submitter
        running = [attempt.process for attempt in attempts if attempt.state == "running"]
        if any(processes.is_alive(name) for name in (first, *running)):
            return True
        is_known = attempts and all(attempt.state != UNREADABLE for attempt in attempts)
        names = running if is_known else [first, *running]
        is_unclear = any(processes.state(name) == "unknown" for name in names)
        return is_unclear and _changed_lately(self.files.of_attempts(PROGRESS), self.folder)


def running(
    submissions: Sequence[Submission], *, ask: bool = True, trained: bool = False
) -> list[Submission]:
    """Return the submissions with a task that trains or will train; as `tasks_of`.

    If no scheduler is asked, a task counts whose files show it, and one of which they show nothing
    unless it was asked to stop, or all runs are `trained`.
    """
    alive = []
    for submission, tasks in zip(submissions, tasks_of(submissions, ask=ask), strict=True):
        states = {task.state for task in tasks if task.is_alive}
        # a submission that another place took over is stopped, and nothing tells that it ended
        if not ask and (trained or submission.files.stop.exists()):
            states.discard("unknown")
        alive += [submission] if states else []
    return alive


def tasks_known(listed: Sequence[Submission]) -> list[list[TaskState]]:
    """Return what `tasks_of` does; where a scheduler does not answer, by what tasks wrote."""
    try:
        return tasks_of(listed)
    except UnavailableError:
        return tasks_of(listed, ask=False)


def is_training(paths: SweepPaths) -> bool:
    """Return whether a task of a sweep trains or will train, as far as is known."""
    return any(task.is_alive for tasks in tasks_known(submissions(paths)) for task in tasks)


def tasks_of(
    submissions: Sequence[Submission],
    *,
    ask: bool = True,
    fresh: bool = False,
    dispensable: Callable[[Scheduler], bool] = lambda scheduler: False,
) -> list[list[TaskState]]:
    """Return the states of all tasks of several submissions, querying each scheduler once.

    `ask`: whether to query schedulers; if not, only the files of the tasks and jobs are used.
    `fresh`: query the scheduler however recently it was queried. `dispensable`: whether a
    scheduler that does not answer may be treated as out of reach.
    """
    views = [_View(submission) for submission in submissions]
    remote = [view for view in views if view.submission.cluster != LOCAL] if ask else []
    for scheduler in dict.fromkeys(view.submission.scheduler for view in remote):
        mine = [view for view in remote if view.submission.scheduler is scheduler]
        asked = [job for view in mine for job in view.open_jobs.values()]
        lost = [array for view in mine for array in view.submission.lost_arrays]
        try:
            known = scheduler.states(asked, lost, fresh=fresh)
        except UnavailableError:
            if not dispensable(scheduler):
                raise
            known = None
        for view in mine:
            view.set_known(known)
    found = [view.states() for view in views]
    for view in views:
        view.note_ends()
    return found


class _View:
    """A submission as its files and its scheduler show it."""

    def __init__(self, submission: Submission) -> None:
        self.submission = submission
        self.known: Mapping[str, JobState] | None = None
        self.is_silent = False
        self.attempts: dict[int, list[Attempt]] = {}
        for attempt in submission.attempts():
            self.attempts.setdefault(attempt.task, []).append(attempt)
        self.jobs = submission.noted_jobs()
        self.ends: dict[str, tuple[str, int]] = {}

    def note_ends(self) -> None:
        """Record the ends that the scheduler told, unless the sweep can only be read."""
        if not self.ends or (ends := self._noted_ends | self.ends) == self._noted_ends:
            return
        with suppress(OSError, ManyseedError):
            write_json(self.submission.files.ends, ends)

    @cached_property
    def _noted_ends(self) -> dict[str, tuple[str, int]]:
        return self.submission.noted_ends()

    def set_known(self, known: Mapping[str, JobState] | None) -> None:
        """Set the scheduler's answer: states by job id, None if it did not answer."""
        self.known, self.is_silent = known, known is None
        self.jobs |= self.submission.named(known or {})

    @property
    def open_jobs(self) -> dict[int, Job]:
        """The jobs of tasks that have not reported their end."""
        return {number: job for number, job in self.jobs.items() if self._last(number) not in OVER}

    def states(self) -> list[TaskState]:
        if self.submission.cluster == LOCAL:
            return [self.submission.local_state(self.attempts.get(0, []))]
        return [self._state(number) for number in range(self.submission.intent.tasks)]

    def _last(self, number: int) -> str:
        attempts = self.attempts.get(number)
        return attempts[-1].state if attempts else ""

    def _state(self, number: int) -> TaskState:
        attempts = tuple(self.attempts.get(number, ()))
        last, job = self._last(number), self.jobs.get(number)
        job_id, node = job.id if job else "", attempts[-1].node if attempts else ""
        if last in OVER:
            return TaskState(number, last, attempts, job_id, node)
        if self.is_silent:
            return self._elsewhere(number, "killed")
        if job is None:
            if self.known is None and self.submission.lost_arrays:
                return TaskState(number, "unknown", attempts, note=SILENT)
            state = "waiting" if self.submission.is_being_submitted else "gone"
            return TaskState(number, state, attempts, note="never submitted")
        if self.known is None:  # no scheduler was asked
            return self._unanswered(number, job)
        job_state = self.known[job.id]
        if not job_state.is_alive and (ended := self._ended(number)):
            return TaskState(number, ended[-1].state, ended, job_id, ended[-1].node)
        state = _WORDS.get(job_state.state, job_state.state)
        if job_state.is_held:
            state = "held"
        if job_state.state == "gone" and (self._is_elsewhere or self._writes(number)):
            return self._elsewhere(number, state)
        if job_state.state == "gone" and not attempts:
            state = "cancelled" if self._was_cancelled(number) else "gone"
        if state in _ENDS:
            self.ends[str(number)] = (state, len(attempts))
        note = job_state.reason or (job_state.exit_status if state == "failed" else "")
        return TaskState(number, state, attempts, job_id, job_state.node or node, note)

    def _unanswered(self, number: int, job: Job) -> TaskState:
        """Return what only files show of a task that has reported no end, and of its job."""
        attempts = tuple(self.attempts.get(number, ()))
        node = attempts[-1].node if attempts else ""
        if attempts and self._writes(number):
            return TaskState(number, "running", attempts, job.id, node)
        shown = named_for_memory(JobState(job.id, "", "gone"), job.array.logs)
        noted, after = self._noted_ends.get(str(number), ("", 0))
        if shown.state != "gone" or (noted in _ENDS and after == len(attempts)):
            state = noted if shown.state == "gone" else shown.state
            return TaskState(number, state, attempts, job.id, node)
        return TaskState(number, "unknown", attempts, job.id, node, SILENT)

    def _elsewhere(self, number: int, otherwise: str) -> TaskState:
        """Return the state of a task that only its files show: it runs while they change.

        If its job waits there, continuing the sweep here keeps it from ever starting.
        """
        runs = self._last(number) in ("running", UNREADABLE) and self._writes(number)
        attempts, job = tuple(self.attempts.get(number, ())), self.jobs.get(number)
        job_id, node = job.id if job else "", attempts[-1].node if attempts else ""
        note = ELSEWHERE if self.is_silent or self._is_other_cluster else UNSEEN
        return TaskState(number, "running" if runs else otherwise, attempts, job_id, node, note)

    def _writes(self, number: int) -> bool:
        """Return whether a task's last attempt wrote in the last minutes, that is, is alive."""
        if not (attempts := self.attempts.get(number)):
            return False
        attempt = attempts[-1].folder
        leases = self._leases.get(attempt_lease(attempt.name), ())
        return _changed_lately((attempt / PROGRESS, *leases), self.submission.folder)

    @cached_property
    def _leases(self) -> dict[str, list[Path]]:
        """The files of the sweep's leases, by the leases' names."""
        leases: dict[str, list[Path]] = {}
        with suppress(OSError):
            for file in self.submission.files.leases.iterdir():
                leases.setdefault(file.name.rsplit(".", 2)[0], []).append(file)
        return leases

    def _ended(self, number: int) -> tuple[Attempt, ...]:
        """Return a task's attempts, read again, if it has reported its end by now; else none."""
        attempts = self.submission.attempts(number)
        return tuple(attempts) if attempts and attempts[-1].state in OVER else ()

    def _was_cancelled(self, number: int) -> bool:
        """Return whether users' requests kept a task from ever starting.

        Accounting may leave out jobs that were cancelled while they waited.
        """
        submission = self.submission
        if submission.files.stop.exists() and not submission.is_paused:
            return True
        skipped = set(submission.skipped_cells)
        return bool(skipped) and Task.read(submission.files.task(number)).cells.keys() <= skipped

    @cached_property
    def _is_elsewhere(self) -> bool:
        """Whether the queried scheduler does not have the jobs, or may not show them to us."""
        if not self.submission.scheduler.is_here:
            return True
        mine = [job.id for job in self.jobs.values()]
        if any(job in mine and state.state != "gone" for job, state in (self.known or {}).items()):
            return False
        is_ours = self.submission.intent.user in ("", user_name())
        return self._is_other_cluster or not is_ours

    @cached_property
    def _is_other_cluster(self) -> bool:
        if not self.submission.scheduler.is_here:
            return True
        intended = self.submission.intent.scheduler
        return bool(intended) and self.submission.scheduler.cluster_name != intended


def _changed_lately(files: Iterable[Path], folder: Path) -> bool:
    """Return whether a file changed in the last minutes, by the clock of the file system."""
    times = []
    for file in files:
        with suppress(OSError):
            times.append(file.stat().st_mtime)
    return bool(times) and file_clock(folder) - max(times) < _SILENT_SECONDS


_WORDS = {"pending": "waiting", "ended": "killed", "gone": "killed"}


def last_intent(paths: SweepPaths) -> Intent | None:
    """Return the intent of the latest submission; None if nothing was submitted."""
    folders = [folder for folder in paths.submissions() if SubmissionPaths(folder).intent.exists()]
    return Intent.read(folders[-1], identity_of(paths)) if folders else None


def place(
    paths: SweepPaths, cluster: str, workers: int | None, memory: str | None = None
) -> Profile | None:
    """Return the profile with which a sweep's runs are submitted; None for this machine.

    `workers`: if given, ``auto`` is this machine. The others are those of `profiles.choose`.
    """
    name, last = LOCAL if cluster == AUTO and workers else cluster, last_intent(paths)
    try:
        return choose(name, memory, last, paths.directory if paths.is_sweep else None)
    except UserError as error:
        if error.key == "--cluster" and is_gone(last):
            here = command("resume", paths.directory, "--cluster", LOCAL)
            error.remedy = f"{error.remedy}\n  to go on on this machine: {here}"
        raise


def submissions(paths: SweepPaths) -> list[Submission]:
    """Return a sweep's submissions, oldest first."""
    plan = identity_of(paths)
    return [
        Submission(folder, Intent.read(folder, plan))
        for folder in paths.submissions()
        if SubmissionPaths(folder).intent.exists()
    ]


_SHOWN = 5


def lost_files(paths: SweepPaths) -> list[Path]:
    """Return the files that a sweep's submissions lost: they were written, but are missing."""
    plan = identity_of(paths)
    return [file for folder in paths.submissions() for file in _lost(SubmissionPaths(folder), plan)]


def _lost(files: SubmissionPaths, plan: str) -> Iterator[Path]:
    tasks = set(files.tasks())
    if files.intent.exists():
        intent = Intent.read(files.folder, plan)
        yield from (file for file in map(files.task, range(intent.tasks)) if file not in tasks)
    elif tasks:
        yield files.intent
    if files.submitted.exists() and not files.jobs.exists():
        yield files.jobs
    yield from files.lost_reports()


def lost_failures(listed: Sequence[Submission]) -> list[str]:
    """Return a message for each file that holds fewer failures than its attempt reported."""
    messages = []
    for attempt in (attempt for submission in listed for attempt in submission.attempts()):
        if not attempt.n_failed:
            continue
        n = attempt.n_failed - len(read_failures(attempt.folder, attempt.plan))
        if n > 0:
            messages.append(
                f"{attempt.folder / FAILURES} lacks {n:,} of the {attempt.n_failed:,} failures "
                "that its attempt reported: these runs count as missing until trained again"
            )
    return messages[:_SHOWN]


def on_cluster(paths: SweepPaths | None = None) -> list[str]:
    """Return the words by which a command trains on this machine or its cluster; mostly none.

    Where ``sbatch`` is found and ``auto`` could not choose, these name the user's first profile,
    if there is one. `paths` is None for a sweep that is not planned yet.
    """
    try:
        name = needed(None if paths is None else last_intent(paths))
    except ManyseedError:  # what is damaged is reported by whoever reads it
        return []
    return [] if name is None else ["--cluster", name]


def training(paths: SweepPaths, verb: str, *words: object) -> str:
    """Return the command that trains a sweep: ``submit`` or ``resume``, with further words."""
    return command(verb, paths.directory, *words, *on_cluster(paths))


def watching(paths: SweepPaths) -> str:
    """Return the command that watches tasks."""
    return command("status", paths.directory, "--watch")
