"""All file names in the folder of a submission: a training, or an analysis that runs as a job."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

PROGRESS, FAILURES, LOG = "progress.json", "failures.jsonl", "log.txt"
"""The files in an attempt's folder: its progress, its failed runs, and printed output."""

RESERVE = "reserve"
"""A file that an attempt removes at its end, so that its last report fits on a full disk."""


@dataclass(frozen=True, slots=True)
class SubmissionPaths:
    """The files of one submission: a training, or an analysis that runs as a job."""

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
        """Return the file of a task."""
        return self.folder / f"task-{number:04d}.json"

    def tasks(self) -> list[Path]:
        """Return the files of all tasks, by number."""
        return sorted(self.folder.glob("task-*.json"))

    @property
    def local_job(self) -> Path:
        """Its only job, if it was submitted to this machine."""
        return self.folder / "job.json"

    @property
    def jobs(self) -> Path:
        """The job ids of its tasks, by number."""
        return self.folder / "jobs.json"

    @property
    def submitted(self) -> Path:
        """Exists once all its jobs are recorded."""
        return self.folder / "submitted"

    @property
    def stop(self) -> Path:
        """While it exists, tasks finish their fits in flight and end."""
        return self.folder / "stop"

    @property
    def skip(self) -> Path:
        """Cells that its tasks no longer train."""
        return self.folder / "skip.json"

    @property
    def submitit(self) -> Path:
        """The scripts and the output of its jobs."""
        return self.folder / "submitit"

    def printed(self, job_id: str = "*") -> list[Path]:
        """Return the files with the output of one job, or of all."""
        return sorted(self.submitit.glob(f"{job_id}_0_log.*"))

    def printed_output(self, job_id: str) -> Path:
        """Return the file with a job's standard output."""
        return self.submitit / f"{job_id}_0_log.out"

    def printed_errors(self, job_id: str) -> Path:
        """Return the file with a job's standard error."""
        return self.submitit / f"{job_id}_0_log.err"

    @property
    def leases(self) -> Path:
        """The leases of attempts, shared with the sweep's other submissions."""
        return self.folder.parent / "leases"

    @property
    def attempts(self) -> Path:
        """The attempts of its tasks, one folder each."""
        return self.folder / "lives"

    def attempt(self, task: int, name: str) -> Path:
        """Return the folder of one attempt of a task."""
        return self.attempts / f"{task:04d}-{name}"

    def of_attempts(self, name: str, task: int | None = None) -> list[Path]:
        """Return the files with this name, such as `PROGRESS`, of one task's attempts or all."""
        which = "*" if task is None else f"{task:04d}-*"
        return sorted(self.attempts.glob(f"{which}/{name}"))

    def lost_reports(self, task: int | None = None) -> list[Path]:
        """Return the missing progress reports of attempts, of one task or all.

        An attempt with a log must have one: it reports before its first process can print.
        """
        logs = self.of_attempts(LOG, task)
        return [log.parent / PROGRESS for log in logs if not (log.parent / PROGRESS).exists()]
