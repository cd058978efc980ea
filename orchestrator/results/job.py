"""The analysis as a cluster job: submit it, and run it on its node; `jobstate` follows it.

It is a submission of one task, in ``tasks/analyses``, so that it is found, followed and reported
like those that train. Its attempt reports progress, and in the end how `analyze` ended.
"""

from __future__ import annotations

import os
import shutil
import sys
import time
import uuid
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from manyseed.orchestrator.disk.lease import Lease
from manyseed.orchestrator.disk.records import locked
from manyseed.orchestrator.errors import DamagedFile, ManyseedError, UnavailableError, UserError
from manyseed.orchestrator.paths import SweepPaths, open_sweep
from manyseed.orchestrator.plans.plan import identity_of
from manyseed.orchestrator.results.jobstate import last_job
from manyseed.orchestrator.results.own_metrics import modules_folder
from manyseed.orchestrator.results.schedulers import of_slurm
from manyseed.orchestrator.submissions.cluster import (
    SIGNAL_SECONDS,
    intent_for,
    submit_arrays,
    unique_name,
)
from manyseed.orchestrator.submissions.scheduler import scheduler_of
from manyseed.orchestrator.submissions.submission import Submission, tasks_of
from manyseed.orchestrator.tasks.attempts import Attempt
from manyseed.orchestrator.tasks.intent import AnalysisRequest, Intent, SubmissionPaths, TaskArray
from manyseed.orchestrator.working.node import Node
from manyseed.slurm import arrays, processes
from manyseed.slurm.profile import Profile

if TYPE_CHECKING:
    from manyseed.analysis.options import Options

_FUNCTION = "manyseed.orchestrator.results.job:run"
_REPORT_SECONDS = 1.0
_LAST_SECONDS = SIGNAL_SECONDS + 60.0
"""An attempt asked to stop within this time of its walltime is stopped because of the walltime."""


def submit(
    paths: SweepPaths,
    options: Options | None,
    *,
    cluster: str,
    dask: str,
    workers: int | None,
) -> Submission | None:
    """Submit an analysis; return None if one with the same request waits or runs.

    Parameters
    ----------
    paths : SweepPaths
    options : Options, optional
        By default the sweep's conventions.
    cluster : str
        A cluster profile, its file, or auto; the job asks for the resources of its ``cpu`` class.
    dask : str
        What computes within the job.
    workers : int, optional
        Threads or processes there; by default the job's cores.

    Raises
    ------
    UserError
        While an analysis with another request waits or runs, and if SLURM refuses the job.
    UnavailableError
        If the cluster does not answer.
    """
    from manyseed.orchestrator.results.analysing import check
    from manyseed.orchestrator.results.conventions import conventions
    from manyseed.orchestrator.results.record import to_json

    profile = of_slurm(cluster)
    options = options or conventions(paths)
    check(paths, options)
    request = AnalysisRequest(to_json(options), dask, workers)
    paths.analyses.mkdir(parents=True, exist_ok=True)
    with locked(paths.lock, "submitting an analysis") as lease:
        before = last_job(paths)
        if before is not None:
            ((task,),) = tasks_of([before], fresh=True)
            if task.is_alive:
                if before.intent.request == request:
                    return None
                raise UserError(
                    f"an analysis with other options is {task.state}, job {task.job_id}",
                    file=paths.directory,
                    remedy=f"wait for it, or end it with: scancel {task.job_id}",
                )
        number = 1 if before is None else before.number + 1
        return _submit(paths, paths.analysis_job(number), profile, request, lease)


def _submit(
    paths: SweepPaths, folder: Path, profile: Profile, request: AnalysisRequest, lease: Lease
) -> Submission:
    name = unique_name(paths, "analysis")
    lease.check()
    shutil.rmtree(folder, ignore_errors=True)  # left by a submitter that died before its intent
    folder_of_modules = modules_folder(paths)
    intent = intent_for(
        profile,
        identity_of(paths),
        scheduler_of(profile.slurm_conf).cluster_name,
        (TaskArray("cpu", name, first=0, count=1),),
        request=request,
        modules="" if folder_of_modules is None else str(folder_of_modules),
    )
    submission = Submission(folder, intent)
    submission.files.attempts.mkdir(parents=True)
    intent.write(folder)
    arguments = [[str(paths.directory.resolve()), folder.name]]
    submit_arrays(submission, profile, _FUNCTION, lambda _: arguments, lease.check)
    return submission


def run(directory: str, number: str) -> str:
    """Analyse, in a job; return how it ended: finished, or stopped with all of its work left.

    Raises
    ------
    RuntimeError
        If it ended with an error, so that SLURM reports a failure, too.
    """
    from manyseed.orchestrator.results.here import analyze
    from manyseed.orchestrator.results.record import from_json

    paths = open_sweep(Path(directory))
    files = SubmissionPaths(paths.analysis_job(int(number)))
    intent = Intent.read(files.folder)
    request, walltime = intent.request, intent.walltime["cpu"]
    if request is None:
        raise DamagedFile(files.intent, "lacks 'request'")
    attempt = _AnalysisAttempt(files, intent.plan)
    asked: list[bool] = []

    def interrupt() -> None:
        if not asked:  # only once: the cleanup must not be interrupted
            asked.append(True)
            raise KeyboardInterrupt

    processes.on_stop(interrupt)
    try:
        options = from_json(request.options)
        if intent.modules and any(":" in metric for metric in options.metrics):
            sys.path.append(intent.modules)
        analyze(
            paths, options, dask=request.dask, workers=request.workers, progress=attempt.progress
        )
    except BaseException as error:
        # worker processes receive the signal, too, and may end first
        if not processes.received():
            reason, code = _ending(error)
        elif time.time() - attempt.last.started < walltime - _LAST_SECONDS:
            attempt.end("interrupted", "", None)
            return arrays.STOPPED
        else:
            minutes = walltime // 60
            reason = f"the walltime, {minutes:.0f} min, is too short: give more time in the profile"
            code = UnavailableError.exit_code
        attempt.end("broken", reason, code)
        raise RuntimeError(reason) from error
    attempt.end("finished", "", 0)
    return "finished"


def _ending(error: BaseException) -> tuple[str, int]:
    """Return the reason and the exit code for an error."""
    if isinstance(error, ManyseedError):
        return str(error), error.exit_code
    return f"{type(error).__name__}: {error}", UnavailableError.exit_code


class _AnalysisAttempt:
    """Reports the progress and the end of this job."""

    def __init__(self, files: SubmissionPaths, plan: str) -> None:
        node, process = Node.here(), processes.fingerprint(os.getpid())
        started = time.time()
        self.last = Attempt("running", process, node.name, node.job_id, started=started, plan=plan)
        self._folder = files.attempt(0, uuid.uuid4().hex[:8])
        self._folder.mkdir(parents=True)
        self._report(done={"blocks": 0})

    def progress(self, done: int, blocks: int) -> None:
        is_due = time.time() - self.last.updated > _REPORT_SECONDS
        self.last = replace(self.last, done={"blocks": done}, blocks=blocks)
        if is_due:
            self._report()

    def end(self, state: str, reason: str, exit_code: int | None) -> None:
        self._report(state=state, reason=reason, exit_code=exit_code)

    def _report(self, **news: Any) -> None:
        self.last = replace(self.last, **news, updated=time.time())
        self.last.write(self._folder)
