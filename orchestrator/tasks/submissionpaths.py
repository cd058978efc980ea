"""Every file name of a submission's folder: a training's, or an analysis' that is a job."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

PROGRESS, FAILURES, LOG = "progress.json", "failures.jsonl", "log.txt"
"""What an attempt leaves in its folder: its progress, runs that failed, what was printed."""

RESERVE = "reserve"
"""Bytes that an attempt gives back at its end, so that a full disk has room for its last report."""


@dataclass(frozen=True, slots=True)
class SubmissionPaths:
    """The files of one submission: of a training's, or of an analysis' that is a job."""

    folder: Path

    @property
    def intent(self) -> Path:
        """What it was asked to do."""
        return self.folder / "intent.json"

    @property
    def shards(self) -> Path:
        """Which shards each task was given."""
        return self.folder / "shards.json"

    def task(self, number: int) -> Path:
        """Return the work of a task."""
        return self.folder / f"task-{number:04d}.json"

    def tasks(self) -> list[Path]:
        """Return the work of all tasks, by number."""
        return sorted(self.folder.glob("task-*.json"))

    @property
    def local_job(self) -> Path:
        """Its one job, where it was submitted to this machine."""
        return self.folder / "job.json"

    @property
    def jobs(self) -> Path:
        """The job ids of tasks, by number."""
        return self.folder / "jobs.json"

    @property
    def submitted(self) -> Path:
        """There once all its jobs are noted."""
        return self.folder / "submitted"

    @property
    def stop(self) -> Path:
        """While it is there, tasks finish their fits in flight and end."""
        return self.folder / "stop"

    @property
    def skip(self) -> Path:
        """Cells that its tasks no longer train."""
        return self.folder / "skip.json"

    @property
    def submitit(self) -> Path:
        """The scripts of its jobs, and what they printed."""
        return self.folder / "submitit"

    def printed(self, job_id: str = "*") -> list[Path]:
        """Return what a job printed, or all of them did."""
        return sorted(self.submitit.glob(f"{job_id}_0_log.*"))

    def printed_output(self, job_id: str) -> Path:
        """Return what a job printed to its standard output."""
        return self.submitit / f"{job_id}_0_log.out"

    def printed_errors(self, job_id: str) -> Path:
        """Return what a job printed to its standard error."""
        return self.submitit / f"{job_id}_0_log.err"

    @property
    def leases(self) -> Path:
        """The leases of attempts: its own, and those of submissions beside it."""
        return self.folder.parent / "leases"

    @property
    def attempts(self) -> Path:
        """The attempts of its tasks, one folder each."""
        return self.folder / "lives"

    def attempt(self, task: int, name: str) -> Path:
        """Return the folder of one attempt of a task."""
        return self.attempts / f"{task:04d}-{name}"

    def of_attempts(self, name: str, task: int | None = None) -> list[Path]:
        """Return the files of this name, such as `PROGRESS`, of a task's attempts or of all."""
        which = "*" if task is None else f"{task:04d}-*"
        return sorted(self.attempts.glob(f"{which}/{name}"))

    def lost_reports(self, task: int | None = None) -> list[Path]:
        """Return the reports that attempts, of a task or of all, must have made, and that lack.

        An attempt reports before it starts the first process that may print.
        """
        logs = self.of_attempts(LOG, task)
        return [log.parent / PROGRESS for log in logs if not (log.parent / PROGRESS).exists()]
