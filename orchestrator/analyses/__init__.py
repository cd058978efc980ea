"""An analysis, from journals to answers: in this process, on workers, or as a job."""

from __future__ import annotations

from dataclasses import dataclass

from manyseed.orchestrator.errors import UnavailableError
from manyseed.orchestrator.paths import SweepPaths
from manyseed.orchestrator.plans.plan import identity_of
from manyseed.orchestrator.submissions.submission import OVER, Submission, tasks_of
from manyseed.orchestrator.tasks.intent import Intent, SubmissionPaths


def last_job(paths: SweepPaths) -> Submission | None:
    """Return the analysis that was submitted last."""
    jobs = [job for job in paths.analysis_jobs() if SubmissionPaths(job).intent.exists()]
    return Submission(jobs[-1], Intent.read(jobs[-1], identity_of(paths))) if jobs else None


@dataclass(frozen=True, slots=True)
class AnalysisJob:
    """The state of an analysis that is a job.

    `cluster` and `job`: the cluster's name, and the job's id there. `state`: as in `TaskState`.
    `done` and `blocks`: finished and total pieces of its work; 0 before they are known.
    `submitted`: seconds since the epoch. `reason`: why it is not finished, or waits. `exit_code`:
    exit code of `analyze`; None before its end. `log`: path of the log file.
    """

    cluster: str
    job: str
    state: str
    done: int
    blocks: int
    submitted: float
    reason: str
    exit_code: int | None
    log: str


def look(paths: SweepPaths) -> AnalysisJob | None:
    """Return the state of the analysis that was submitted last; None if none was.

    The state is what SLURM says now or, if SLURM does not answer, what the job has reported.
    """
    if (job := last_job(paths)) is None:
        return None
    try:
        ((task,),) = tasks_of([job])
    except UnavailableError:
        ((task,),) = tasks_of([job], ask=False)
    attempt, over = task.last, task.state in OVER
    return AnalysisJob(
        cluster=job.cluster,
        job=task.job_id,
        state=task.state,
        done=task.done,
        blocks=attempt.blocks,
        submitted=job.intent.submitted,
        reason=attempt.reason if over else task.note,
        exit_code=attempt.exit_code if over else None,
        log=str(job.files.printed_errors(job.job_name(0, task.job_id))),
    )
