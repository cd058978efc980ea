"""The states of a sweep's jobs, queried for all jobs at once and not too often."""

from __future__ import annotations

import math
import time
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

from manyseed.orchestrator.errors import UnavailableError, UserError
from manyseed.orchestrator.tasks.intent import SubmissionPaths
from manyseed.slurm import ClusterError, ClusterUnavailable, available, commands, states
from manyseed.slurm.batch import system_of
from manyseed.slurm.commands import NO_CLUSTER
from manyseed.slurm.profile import Template
from manyseed.slurm.states import JobState

ASK_SECONDS = 15.0
"""Time between two queries: at most nine commands per minute, two per query and one for the
cluster's name."""

_NEVER = -math.inf


@dataclass(frozen=True, slots=True)
class Array:
    """The tasks of a submission that share one job name; their jobs are recorded later."""

    name: str
    submitted: float
    user: str
    folder: Path

    @property
    def logs(self) -> Path:
        """The folder of its jobs' output."""
        return SubmissionPaths(self.folder).submitit


@dataclass(frozen=True, slots=True)
class Job:
    """A job of a submission."""

    id: str
    array: Array


class Scheduler:
    """One cluster, as this process sees it.

    `reached`: as in `slurm.profile.Profile`.
    """

    def __init__(self, reached: Path | Template | None) -> None:
        self.is_slurm = not isinstance(reached, Template)
        self._conf = reached if not isinstance(reached, Template) else None
        self.system = system_of(reached)
        self._known: dict[str, JobState] = {}
        self._wanted: dict[str, Job] = {}
        self._sought: set[Array] = set()
        self._asked = _NEVER
        self._silence: UnavailableError | None = None

    def states(
        self, jobs: Iterable[Job], lost: Collection[Array] = (), *, fresh: bool = False
    ) -> dict[str, JobState]:
        """Return the states of jobs; ``gone`` for those that it does not know, or no longer.

        `lost`: arrays whose jobs were never recorded; any that are found are returned, too.
        `fresh`: query the scheduler however recently it was queried, and look up each job that it
        does not list.
        """
        wanted = {job.id: job for job in jobs}
        if not wanted and not lost:
            return {}
        is_known = wanted.keys() <= self._known.keys() and self._sought.issuperset(lost)
        is_due = fresh or time.monotonic() - self._asked > ASK_SECONDS
        if self._silence and not is_due:
            raise self._silence
        if is_due or not is_known:
            alive = {k: job for k, job in self._wanted.items() if self._known[k].is_alive}
            self._ask(alive | wanted, set(lost), certain=fresh)
        names = {array.name for array in lost}
        found = {job for job, state in self._known.items() if state.submission in names}
        return {job: self._known[job] for job in found | wanted.keys()}

    def _ask(self, jobs: dict[str, Job], lost: set[Array], *, certain: bool) -> None:
        self._asked = time.monotonic()
        try:
            answers = self._answers(jobs, lost, certain=certain)
        except UnavailableError as error:
            # it may have taken its time: the next look must not wait as long again
            self._silence, self._asked = error, time.monotonic()
            raise
        self._known |= answers
        arrays = {array.name: array for array in lost}
        found = {
            name: Job(name, arrays[state.submission])
            for name, state in answers.items()
            if name not in jobs
        }
        self._wanted, self._sought, self._silence = jobs | found, lost, None

    def _answers(
        self, jobs: dict[str, Job], lost: set[Array], *, certain: bool
    ) -> dict[str, JobState]:
        arrays = {job.array for job in jobs.values()} | lost
        found = {name: JobState(name, "", "gone") for name in jobs}
        if self.is_here:  # else the jobs belong to another machine or cluster
            with self.active():
                found = self.system.states(
                    jobs,
                    min(array.submitted for array in arrays),
                    {array.name: array.logs for array in lost},
                    {array.user for array in arrays},
                    certain,
                )
        logs = {array.name: array.logs for array in arrays}
        answers = {}
        for job, state in found.items():
            name = jobs[job].array.name if job in jobs else state.submission
            # an older job, or one of another cluster, may have the same id
            is_ours = state.submission in ("", name)
            state = state if is_ours else JobState(job, "", "gone")
            answers[job] = states.named_for_memory(state, logs[name])
        return answers

    def memory(self, jobs: Iterable[Job]) -> dict[str, int]:
        """Return the most bytes that SLURM's accounting counted of each job that it knows."""
        wanted = {job.id: job.array for job in jobs}
        if not wanted or not self.is_slurm or not self.is_here:
            return {}
        with suppress(UnavailableError), self.active():
            since = min(array.submitted for array in wanted.values())
            return states.memory({job: array.name for job, array in wanted.items()}, since)
        return {}

    @property
    def is_here(self) -> bool:
        """Whether this machine has the commands of its scheduler."""
        return available() if self.is_slurm else available(self.system.program)

    def require_slurm(self, key: str, what: str, remedy: str) -> None:
        """Refuse what only SLURM can do."""
        if not self.is_slurm:
            raise UserError(f"{what}: that takes SLURM", key=key, remedy=remedy)

    @contextmanager
    def active(self) -> Iterator[None]:
        """Let commands talk to this cluster; turn its errors into `UnavailableError`."""
        try:
            with commands.speaking_to(self._conf):
                yield
        except ClusterUnavailable as error:
            ping = ", and scontrol ping tells when it answers" * self.is_slurm
            later = f"\n  try again later: jobs go on meanwhile{ping}" * error.may_answer
            raise UnavailableError(f"{error}{later}") from None
        except ClusterError as error:
            raise UnavailableError(str(error)) from None

    @contextmanager
    def changing(self) -> Iterator[None]:
        """Like `active`, but for changes to jobs: their known states become stale."""
        with self.active():
            yield
        self._asked = _NEVER

    @cached_property
    def cluster_name(self) -> str:
        """The name of the cluster that is reached from here, perhaps not the intended one."""
        from manyseed.slurm.discover import configuration

        if not self.is_slurm:
            return NO_CLUSTER
        with self.active():
            return configuration().get("ClusterName", "")


@cache
def scheduler_of(reached: Path | Template | None) -> Scheduler:
    """Return the only `Scheduler` of a cluster in this process."""
    return Scheduler(reached)
