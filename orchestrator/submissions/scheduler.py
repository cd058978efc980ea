"""What SLURM says of a sweep's jobs: asked once for all of them, and again only after a while."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from orchestrator.errors import UnavailableError
from slurm import ClusterError, ClusterUnavailable, available, states
from slurm.states import JobState

ASK_SECONDS = float(os.environ.get("MANYSEED_ASK_SECONDS", "12"))
"""The scheduler is asked again after so long: at most ten commands a minute, as two are one look"""


_NEVER = -math.inf


@dataclass(frozen=True, slots=True)
class Job:
    """A job of a submission: its id, its array's name, when and where it was submitted."""

    id: str
    name: str
    submitted: float
    folder: Path

    @property
    def logs(self) -> Path:
        """The folder of what it prints."""
        return self.folder / "submitit"


class Scheduler:
    """One SLURM cluster, as this process sees it.

    Parameters
    ----------
    conf : str, optional
        Its configuration file, where the profile names one.
    """

    def __init__(self, conf: str | None) -> None:
        self._conf = conf
        self._known: dict[str, JobState] = {}
        self._wanted: dict[str, Job] = {}
        self._asked = _NEVER

    def states(self, jobs: Iterable[Job], *, fresh: bool = False) -> dict[str, JobState]:
        """Return the state of jobs, those that are not known (any more) as ``gone``.

        Parameters
        ----------
        jobs : iterable of Job
        fresh : bool
            Ask, however lately somebody asked.

        Raises
        ------
        UnavailableError
            When the cluster does not answer.
        """
        wanted = {job.id: job for job in jobs}
        late = time.monotonic() - self._asked > ASK_SECONDS
        if wanted and (fresh or late or not wanted.keys() <= self._known.keys()):
            alive = {k: job for k, job in self._wanted.items() if self._known[k].is_alive}
            asked = alive | wanted
            self._known |= self._ask(asked)
            self._wanted, self._asked = asked, time.monotonic()
        return {name: self._known[name] for name in wanted}

    def _ask(self, jobs: dict[str, Job]) -> dict[str, JobState]:
        if not available():  # another machine's, or another cluster's
            return {name: JobState(name, "", "gone") for name in jobs}
        since = min(job.submitted for job in jobs.values())
        with self.active():
            found = states.ask(jobs, since)
        return {
            # another cluster's, or an older, job may have the same id
            name: states.named_for_memory(state, jobs[name].logs)
            if state.name.rpartition(".")[0] in ("", jobs[name].name)
            else JobState(name, "", "gone")
            for name, state in found.items()
        }

    def find(self, name: str, since: float) -> dict[int, str]:
        """Return the job ids of an array by their place in it, looked for by its name."""
        with self.active():
            return {state.index: job for job, state in states.find(name, since).items()}

    @contextmanager
    def active(self) -> Iterator[None]:
        """Let SLURM's commands speak to this cluster; its refusals become the command's error.

        Raises
        ------
        UnavailableError
        """
        before = os.environ.get("SLURM_CONF")
        if self._conf is not None:
            os.environ["SLURM_CONF"] = self._conf
        try:
            yield
        except (ClusterError, ClusterUnavailable) as error:
            raise UnavailableError(str(error)) from None
        finally:
            if self._conf is not None:
                os.environ.pop("SLURM_CONF")
                if before is not None:
                    os.environ["SLURM_CONF"] = before

    @contextmanager
    def changing(self) -> Iterator[None]:
        """As `active`, for changes to jobs: what was known of them no longer counts."""
        with self.active():
            yield
        self._asked = _NEVER

    def is_cluster(self, name: str) -> bool:
        """Whether this is the cluster of that name, and not another one that is reached here."""
        from slurm.discover import configuration

        if not available():
            return False
        with self.active():
            return configuration().get("ClusterName") == name


@cache
def scheduler_of(conf: str | None) -> Scheduler:
    """Return a cluster; one object for all who ask."""
    return Scheduler(conf)
