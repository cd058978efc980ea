"""What was submitted, and what of it is still alive."""

from __future__ import annotations

import getpass
import math
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from manyseed.orchestrator.disk.placing import file_clock
from manyseed.orchestrator.disk.records import read_record
from manyseed.orchestrator.errors import DamagedFile, UnavailableError
from manyseed.orchestrator.paths import SweepPaths
from manyseed.orchestrator.plans.plan import identity_of
from manyseed.orchestrator.submissions.profiles import own_profile
from manyseed.orchestrator.submissions.scheduler import Array, Job, Scheduler, scheduler_of
from manyseed.orchestrator.submissions.taskstate import ELSEWHERE, OVER, UNSEEN, TaskState
from manyseed.orchestrator.tasks.attempts import UNREADABLE, Attempt, attempt_lease, read_attempts
from manyseed.orchestrator.tasks.intent import LOCAL, Intent
from manyseed.orchestrator.tasks.requests import PAUSED, skipped_cells, stop_request
from manyseed.orchestrator.tasks.submissionpaths import PROGRESS, SubmissionPaths
from manyseed.orchestrator.tasks.task import Task
from manyseed.orchestrator.working.node import read_jobs, write_jobs
from manyseed.slurm import available, processes
from manyseed.slurm.local import LocalJob
from manyseed.slurm.states import JobState

_SILENT_SECONDS = 120.0


@dataclass(frozen=True)
class Submission:
    """One submission: its folder, and what it was asked to do."""

    folder: Path
    intent: Intent

    @property
    def number(self) -> int:
        """The submission's number within the sweep."""
        return int(self.folder.name)

    @property
    def n_runs(self) -> int:
        """Runs that it was given."""
        return self.intent.runs

    @property
    def cluster(self) -> str:
        """The name of the cluster's profile, or ``local``."""
        return self.intent.cluster

    @property
    def files(self) -> SubmissionPaths:
        """Its files."""
        return SubmissionPaths(self.folder)

    @property
    def is_paused(self) -> bool:
        """Whether it was asked to stop until somebody resumes it: what waits is held."""
        return stop_request(self.folder) == PAUSED

    @property
    def skipped_cells(self) -> list[int]:
        """The cells that its tasks no longer train."""
        return skipped_cells(self.folder)

    def attempts(self, task: int | None = None) -> list[Attempt]:
        """Return what each attempt, of one task or of all, last reported, oldest first."""
        return read_attempts(self.folder, task, plan=self.intent.plan)

    def is_alive(self) -> bool:
        """Whether a task of this submission trains, or will."""
        return any(task.is_alive for task in self.tasks())

    def tasks(self) -> list[TaskState]:
        """Return the state of every task, by number."""
        return tasks_of([self])[0]

    def ask_to_stop(self) -> None:
        """Let the submission's tasks finish the fits in flight, then end."""
        self.files.stop.touch()

    @cached_property
    def scheduler(self) -> Scheduler:
        """Who knows of its jobs; only where it was submitted to SLURM."""
        profile = own_profile(self.intent)
        return scheduler_of(None if profile is None else profile.slurm_conf)

    @cached_property
    def arrays(self) -> dict[int, Array]:
        """Its arrays, by the number of their first task; empty for a submission to this machine."""
        user = self.intent.user or getpass.getuser()
        return {
            array.first: Array(array.name, self.intent.submitted, user, self.folder)
            for array in self.intent.arrays
        }

    def noted_jobs(self) -> dict[int, Job]:
        """Return the job of every task, as far as its submitter noted them."""
        noted, firsts = read_jobs(self.folder), sorted(self.arrays)
        if noted and min(noted) < min(firsts, default=math.inf):
            raise DamagedFile(self.files.jobs, "names tasks that were not submitted")
        return {
            number: Job(job, self.arrays[firsts[bisect_right(firsts, number) - 1]])
            for number, job in noted.items()
        }

    def jobs(self) -> dict[int, Job]:
        """Return the job of every task that has one.

        Where the submitter died before it noted them, they are looked for by name.
        """
        lost = self.lost_arrays
        found = self.scheduler.states([], lost) if lost else {}
        return self.noted_jobs() | self.named(found)

    def named(self, states: Mapping[str, JobState]) -> dict[int, Job]:
        """Return the jobs of tasks that a scheduler knows by the names of this one's arrays."""
        firsts = {array.name: first for first, array in self.arrays.items()}
        return {
            first + state.index: Job(job, self.arrays[first])
            for job, state in states.items()
            if (first := firsts.get(state.submission)) is not None
        }

    @property
    def lost_arrays(self) -> list[Array]:
        """Its arrays, where some of their jobs may be known to the scheduler alone."""
        is_lost = not self.is_noted and not self.is_being_submitted
        return list(self.arrays.values()) if is_lost else []

    def note_jobs(self, jobs: Mapping[int, str]) -> None:
        """Note the job id of each task."""
        write_jobs(self.folder, jobs)

    @property
    def is_noted(self) -> bool:
        """Whether all its jobs are noted: else its submitter is at it, or died."""
        return self.files.submitted.exists()

    @property
    def is_being_submitted(self) -> bool:
        """Whether its submitter still works on it, as far as can be seen from here."""
        return not self.is_noted and processes.is_alive(self.intent.submitter)

    def local_state(self, attempts: Sequence[Attempt]) -> TaskState:
        """Return the state of the one task of a submission to this machine."""
        state = attempts[-1].state if attempts else "waiting"
        if state not in OVER:
            state = "running" if attempts else "waiting"
            state = state if self._is_alive_locally(attempts) else "killed"
        return TaskState(0, state, tuple(attempts))

    def _is_alive_locally(self, attempts: Sequence[Attempt]) -> bool:
        """Look at processes.

        Of those that cannot be seen from here, another machine's or another container's, only
        their files are: one that reports no end counts as alive while they change.
        """
        job = self.files.local_job
        # without a note of the job it is being submitted, or its submitter died
        first = read_record(job, LocalJob).process if job.exists() else self.intent.submitter
        running = [attempt.process for attempt in attempts if attempt.state == "running"]
        if any(processes.is_alive(name) for name in (first, *running)):
            return True
        is_known = attempts and all(attempt.state != UNREADABLE for attempt in attempts)
        names = running if is_known else [first, *running]
        is_unclear = any(processes.state(name) == "unknown" for name in names)
        return is_unclear and self.changed_lately()

    def changed_lately(self) -> bool:
        """Whether an attempt reported in the last minutes."""
        return _changed_lately(self.files.of_attempts(PROGRESS), self.folder)


def running(submissions: Sequence[Submission]) -> list[Submission]:
    """Return those of which something trains, or will; raises as `tasks_of` does."""
    states = zip(submissions, tasks_of(submissions), strict=True)
    return [one for one, tasks in states if any(task.is_alive for task in tasks)]


def tasks_of(
    submissions: Sequence[Submission],
    *,
    ask: bool = True,
    fresh: bool = False,
    dispensable: Callable[[Scheduler], bool] = lambda scheduler: False,
) -> list[list[TaskState]]:
    """Return the state of every task of several submissions, asking a scheduler once for all.

    Parameters
    ----------
    submissions : sequence of Submission
    ask : bool
        Without, what tasks report must do: the cluster does not answer.
    fresh : bool
        Ask the scheduler however lately it was asked.
    dispensable : callable
        Whether a cluster that does not answer counts as one that is not reached from here.

    Raises
    ------
    UnavailableError
        When a cluster does not answer.
    """
    looks = [_Look(submission) for submission in submissions]
    remote = [look for look in looks if look.submission.cluster != LOCAL] if ask else []
    for scheduler in dict.fromkeys(look.submission.scheduler for look in remote):
        mine = [look for look in remote if look.submission.scheduler is scheduler]
        asked = [job for look in mine for job in look.open_jobs.values()]
        lost = [array for look in mine for array in look.submission.lost_arrays]
        try:
            known = scheduler.states(asked, lost, fresh=fresh)
        except UnavailableError:
            if not dispensable(scheduler):
                raise
            known = None
        for look in mine:
            look.hear(known)
    return [look.states() for look in looks]


class _Look:
    """A submission's files, and what its scheduler says."""

    def __init__(self, submission: Submission) -> None:
        self.submission = submission
        self.known: Mapping[str, JobState] | None = None
        self.is_silent = False
        self.attempts: dict[int, list[Attempt]] = {}
        for attempt in submission.attempts():
            self.attempts.setdefault(attempt.task, []).append(attempt)
        self.jobs = submission.noted_jobs()

    def hear(self, known: Mapping[str, JobState] | None) -> None:
        """Take what the scheduler says: None where it was asked and does not answer."""
        self.known, self.is_silent = known, known is None
        self.jobs |= self.submission.named(known or {})

    @property
    def open_jobs(self) -> dict[int, Job]:
        """The jobs of tasks that did not report their end."""
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
            state = "waiting" if self.submission.is_being_submitted else "gone"
            return TaskState(number, state, attempts, note="never submitted")
        if self.known is None:  # nobody was asked
            state = "running" if last == "running" else "waiting"
            return TaskState(number, state, attempts, job_id, node)
        found = self.known[job.id]
        if not found.is_alive and (ended := self._ended(number)):
            return TaskState(number, ended[-1].state, ended, job_id, ended[-1].node)
        state = _WORDS.get(found.state, found.state)
        if found.state == "pending" and "Held" in found.reason:
            state = "held"
        if found.state == "gone" and (self._is_elsewhere or self._writes(number)):
            return self._elsewhere(number, state)
        if found.state == "gone" and not attempts:
            state = "cancelled" if self._was_cancelled(number) else "gone"
        return TaskState(number, state, attempts, job_id, found.node or node, found.reason)

    def _elsewhere(self, number: int, otherwise: str) -> TaskState:
        """Return the state of a task that only its files show: it runs while they change.

        Whoever goes on with the sweep here lets what waits there never start.
        """
        runs = self._last(number) in ("running", UNREADABLE) and self._writes(number)
        attempts, job = tuple(self.attempts.get(number, ())), self.jobs.get(number)
        job_id, node = job.id if job else "", attempts[-1].node if attempts else ""
        note = ELSEWHERE if self.is_silent or self._is_other_cluster else UNSEEN
        return TaskState(number, "running" if runs else otherwise, attempts, job_id, node, note)

    def _writes(self, number: int) -> bool:
        """Whether a task's last attempt reported in the last minutes: then it is alive."""
        if not (attempts := self.attempts.get(number)):
            return False
        attempt = attempts[-1].folder
        leases = self._leases.get(attempt_lease(attempt.name), ())
        return _changed_lately((attempt / PROGRESS, *leases), self.submission.folder)

    @cached_property
    def _leases(self) -> dict[str, list[Path]]:
        """The files of leases beside the submission, by name."""
        found: dict[str, list[Path]] = {}
        with suppress(OSError):
            for file in self.submission.files.leases.iterdir():
                found.setdefault(file.name.rsplit(".", 2)[0], []).append(file)
        return found

    def _ended(self, number: int) -> tuple[Attempt, ...]:
        """Return a task's attempts where it reported its end since they were read."""
        attempts = self.submission.attempts(number)
        return tuple(attempts) if attempts and attempts[-1].state in OVER else ()

    def _was_cancelled(self, number: int) -> bool:
        """Whether a task that never began was kept from it by what users requested since.

        Accounting may leave out what was cancelled while it waited.
        """
        submission = self.submission
        if submission.files.stop.exists() and not submission.is_paused:
            return True
        skipped = set(submission.skipped_cells)
        return bool(skipped) and Task.read(submission.files.task(number)).cells.keys() <= skipped

    @cached_property
    def _is_elsewhere(self) -> bool:
        """Whether the scheduler that was asked has not the jobs, or may not show them to us."""
        if not available():
            return True
        mine = [job.id for job in self.jobs.values()]
        if any(job in mine and state.state != "gone" for job, state in (self.known or {}).items()):
            return False
        is_ours = self.submission.intent.user in ("", getpass.getuser())
        return self._is_other_cluster or not is_ours

    @cached_property
    def _is_other_cluster(self) -> bool:
        if not available():
            return True
        meant = self.submission.intent.scheduler
        return bool(meant) and self.submission.scheduler.cluster_name != meant


def _changed_lately(files: Iterable[Path], folder: Path) -> bool:
    """Whether one of the files changed in the last minutes, by the clock of their file system."""
    changed = []
    for file in files:
        with suppress(OSError):
            changed.append(file.stat().st_mtime)
    return bool(changed) and file_clock(folder) - max(changed) < _SILENT_SECONDS


_WORDS = {"pending": "waiting", "ended": "killed", "gone": "killed"}


def last_intent(paths: SweepPaths) -> Intent | None:
    """Return what was intended last; None where nothing was submitted."""
    listed = [folder for folder in paths.submissions() if SubmissionPaths(folder).intent.exists()]
    return Intent.read(listed[-1], identity_of(paths)) if listed else None


def submissions(paths: SweepPaths) -> list[Submission]:
    """Return a sweep's submissions, oldest first."""
    plan = identity_of(paths)
    return [
        Submission(folder, Intent.read(folder, plan))
        for folder in paths.submissions()
        if SubmissionPaths(folder).intent.exists()
    ]
