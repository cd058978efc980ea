"""An analysis, from journals to answers: in this process, on workers, or as a job.

A search for hparams can be a job, too, before the training.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from manyseed.orchestrator.errors import UnavailableError
from manyseed.orchestrator.paths import SweepPaths
from manyseed.orchestrator.plans.plan import identity_of
from manyseed.orchestrator.submissions.submission import OVER, Submission, submissions, tasks_of
from manyseed.orchestrator.tasks.intent import AnalysisRequest, Intent, SubmissionPaths

if TYPE_CHECKING:
    from manyseed.analysis.options import Options
    from manyseed.orchestrator.submissions import submitting

    Chain = bool | Options | AnalysisRequest


def last_job(paths: SweepPaths, folders: Sequence[Path] | None = None) -> Submission | None:
    """Return the job that was submitted last, of these folders or of the analyses."""
    folders = paths.analysis_jobs() if folders is None else folders
    jobs = [job for job in folders if SubmissionPaths(job).intent.exists()]
    return Submission(jobs[-1], Intent.read(jobs[-1], identity_of(paths))) if jobs else None


@dataclass(frozen=True, slots=True)
class AnalysisJob:
    """The state of an analysis, or of a search, that is a job.

    `cluster` and `job`: the cluster's name, and the job's id there. `state`: as in `TaskState`.
    `done` and `blocks`: finished and total pieces of its work; 0 before they are known.
    `submitted`: seconds since the epoch. `reason`: why it is not finished, or waits. `exit_code`:
    that of the command that does the same here; None before its end. `log`: path of the log file.
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


def look(paths: SweepPaths, folders: Sequence[Path] | None = None) -> AnalysisJob | None:
    """Return the state of the job that `last_job` returns; None if there is none.

    Neither is there one if it broke, and there are later results.
    The state is what SLURM says now or, if SLURM does not answer, what the job has reported.
    """
    if (job := last_job(paths, folders)) is None:
        return None
    try:
        ((task,),) = tasks_of([job])
    except UnavailableError:
        ((task,),) = tasks_of([job], ask=False)
    attempt, over = task.last, task.state in OVER
    if task.state == "broken" and folders is None and _written(paths.analysis) > attempt.updated:
        return None
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


def _written(file: Path) -> float:
    return file.stat().st_mtime if file.exists() else 0.0


def chained(
    paths: SweepPaths, request: submitting.Request, chain: bool | Options | None
) -> Chain | None:
    """Return the analysis that follows a training on a cluster: by default that of before.

    True stands for one with the sweep's own options.
    """
    if request.profile is None or request.calibrate:
        return None
    if chain is not None:
        return chain or None
    last = last_job(paths), last_job(paths, paths.search_jobs())
    known = [one.intent for one in (*submissions(paths)[-1:], *filter(None, last))]
    newest = max(known, key=lambda intent: intent.submitted, default=None)
    return newest.request if newest and newest.request and newest.request.page else None


def cancel(paths: SweepPaths, *, now: bool) -> tuple[int, int]:
    """Stop all tasks as `stopping.cancel`, and the search that is a job; its fits are kept.

    A cluster that does not answer keeps neither from being stopped elsewhere.
    """
    from manyseed.orchestrator.submissions import stopping

    counts, untold = (0, 0), list[str]()
    try:
        counts = stopping.cancel(submissions(paths), now=now)
    except UnavailableError as error:
        untold.append(str(error))
    if (search := last_job(paths, paths.search_jobs())) is not None:
        try:
            ((task,),) = tasks_of([search], fresh=True)
            if task.is_alive and task.job_id:
                with search.scheduler.changing():
                    search.scheduler.system.cancel([task.job_id])
        except UnavailableError:
            ((task,),) = tasks_of([search], ask=False)
            if task.is_alive:
                job = f"the search for hparams, job {task.job_id} on {search.cluster},"
                untold.append(f"{job} was not cancelled: repeat this when it answers")
    if untold:
        raise UnavailableError("\n  ".join(untold))
    return counts
