"""What SLURM says of a sweep's jobs: asked once for all of them, and again only after a while."""

from __future__ import annotations

import math
import time
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

from manyseed.orchestrator.errors import UnavailableError
from manyseed.orchestrator.tasks.submissionpaths import SubmissionPaths
from manyseed.slurm import ClusterError, available, commands, states
from manyseed.slurm.states import JobState

ASK_SECONDS = 15.0
"""The scheduler is asked again after so long: at most nine commands per minute, two per look and
one for the cluster's name."""

_NEVER = -math.inf


@dataclass(frozen=True, slots=True)
class Array:
    """The tasks of a submission that are submitted under one name; its jobs are noted later."""

    name: str
    submitted: float
    user: str
    folder: Path

    @property
    def logs(self) -> Path:
        """The folder of what its jobs print."""
        return SubmissionPaths(self.folder).submitit


@dataclass(frozen=True, slots=True)
class Job:
    """A job of a submission."""

    id: str
    array: Array


class Scheduler:
    """One SLURM cluster, as this process sees it.

    Parameters
    ----------
    conf : Path, optional
        Its configuration file, where the profile names one.
    """

    def __init__(self, conf: Path | None) -> None:
        self._conf = conf
        self._known: dict[str, JobState] = {}
        self._wanted: dict[str, Job] = {}
        self._sought: set[Array] = set()
        self._asked = _NEVER
        self._silence: UnavailableError | None = None

    def states(
        self, jobs: Iterable[Job], lost: Collection[Array] = (), *, fresh: bool = False
    ) -> dict[str, JobState]:
        """Return the state of jobs, those that are not known (any more) as ``gone``.

        Parameters
        ----------
        jobs : iterable of Job
        lost : collection of Array
            Arrays whose jobs were never noted: those found are returned, too.
        fresh : bool
            Ask, however lately somebody asked.

        Raises
        ------
        UnavailableError
            When the cluster does not answer.
        """
        wanted = {job.id: job for job in jobs}
        if not wanted and not lost:
            return {}
        is_known = wanted.keys() <= self._known.keys() and self._sought.issuperset(lost)
        late = time.monotonic() - self._asked > ASK_SECONDS
        if self._silence and not (fresh or late):
            raise self._silence
        if fresh or late or not is_known:
            alive = {k: job for k, job in self._wanted.items() if self._known[k].is_alive}
            self._ask(alive | wanted, set(lost))
        names = {array.name for array in lost}
        found = {job for job, state in self._known.items() if state.submission in names}
        return {job: self._known[job] for job in found | wanted.keys()}

    def _ask(self, jobs: dict[str, Job], lost: set[Array]) -> None:
        self._asked = time.monotonic()
        try:
            answers = self._answers(jobs, lost)
        except UnavailableError as error:
            self._silence = error
            raise
        self._known |= answers
        arrays = {array.name: array for array in lost}
        found = {
            name: Job(name, arrays[state.submission])
            for name, state in answers.items()
            if name not in jobs
        }
        self._wanted, self._sought, self._silence = jobs | found, lost, None

    def _answers(self, jobs: dict[str, Job], lost: set[Array]) -> dict[str, JobState]:
        if not available():  # another machine's, or another cluster's
            return {name: JobState(name, "", "gone") for name in jobs}
        arrays = {job.array for job in jobs.values()} | lost
        with self.active():
            found = states.ask(
                jobs,
                min(array.submitted for array in arrays),
                names={array.name for array in lost},
                users={array.user for array in arrays},
            )
        logs = {array.name: array.logs for array in arrays}
        answers = {}
        for job, state in found.items():
            name = jobs[job].array.name if job in jobs else state.submission
            # another cluster's, or an older, job may have the same id
            is_ours = state.submission in ("", name)
            state = state if is_ours else JobState(job, "", "gone")
            answers[job] = states.named_for_memory(state, logs[name])
        return answers

    @contextmanager
    def active(self) -> Iterator[None]:
        """Let SLURM's commands speak to this cluster; its refusals become the command's error.

        Raises
        ------
        UnavailableError
        """
        try:
            with commands.speaking_to(self._conf):
                yield
        except ClusterError as error:
            raise UnavailableError(str(error)) from None

    @contextmanager
    def changing(self) -> Iterator[None]:
        """As `active`, for changes to jobs: what was known of them no longer counts."""
        with self.active():
            yield
        self._asked = _NEVER

    @cached_property
    def cluster_name(self) -> str:
        """The name of the cluster that is reached here, which may not be the one that was meant."""
        from manyseed.slurm.discover import configuration

        with self.active():
            return configuration().get("ClusterName", "")


@cache
def scheduler_of(conf: Path | None) -> Scheduler:
    """Return a cluster; one object for all who ask."""
    return Scheduler(conf)
