"""An analysis from journals to answers: in this process, on its workers, or as a cluster job.

Only one runs at a time: two would mix their tables. A job is a submission of one task, in
``tasks/analyses``, so that it is found, followed and reported like those that train.
Its attempt reports progress, and in the end how `analyze` ended.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from manyseed.analysis.graph.chunks import ReportProgress
from manyseed.analysis.options import Options
from manyseed.orchestrator.analyses import last_job
from manyseed.orchestrator.computing import analysis
from manyseed.orchestrator.computing.conventions import conventions, modules_folder
from manyseed.orchestrator.computing.tables import Results
from manyseed.orchestrator.computing.workers import (
    SLURM,
    Workers,
    of_slurm,
    require_workers,
    scheduler,
)
from manyseed.orchestrator.disk.lease import Lease, LeaseWatch
from manyseed.orchestrator.disk.records import locked
from manyseed.orchestrator.errors import (
    DamagedFile,
    LeaseHeld,
    ManyseedError,
    UnavailableError,
    UserError,
)
from manyseed.orchestrator.paths import SweepPaths, open_sweep
from manyseed.orchestrator.plans.plan import identity_of
from manyseed.orchestrator.results.answers import summary
from manyseed.orchestrator.submissions.cluster import (
    SIGNAL_SECONDS,
    intent_for,
    require,
    require_chains,
    submit_arrays,
    unique_name,
)
from manyseed.orchestrator.submissions.scheduler import scheduler_of
from manyseed.orchestrator.submissions.submission import (
    Submission,
    running,
    submissions,
    tasks_of,
)
from manyseed.orchestrator.tasks.attempts import Attempt
from manyseed.orchestrator.tasks.intent import AnalysisRequest, Intent, SubmissionPaths, TaskArray
from manyseed.orchestrator.upkeep import publish_finished
from manyseed.orchestrator.working.node import Node
from manyseed.slurm import (
    arrays,
    local,
    processes,
)
from manyseed.slurm.commands import NO_CLUSTER
from manyseed.slurm.profile import Profile

if TYPE_CHECKING:
    from distributed import Client


def analyze(
    paths: SweepPaths,
    options: Options | None = None,
    *,
    dask: str | Client = "threads",
    cluster: str | None = None,
    workers: Workers | None = None,
    progress: ReportProgress | None = None,
    report: Callable[[str], None] = lambda text: None,
) -> Results:
    """Publish finished runs and analyse them under a lease; see `Sweep.analyze`.

    `options`: by default the sweep's own (`computing.conventions`). `dask`, `cluster`, `workers`
    and `report`: as in `scheduler`; `workers` defaults to all cores.
    `progress`: as in `analysis.graph.chunks.compute`.
    """
    options = options or conventions(paths)
    computing = scheduler(
        dask, folder=paths.analyses, cluster=cluster, workers=workers, report=report
    )
    with alone(paths) as lease:
        publish_finished(paths)
        with computing as chosen:
            results = analysis.analyze(
                paths,
                options,
                scheduler=chosen,
                workers=workers if isinstance(workers, int) else local.available_cores(),
                progress=progress,
                before_writing=lease.check,
            )
            summary.keep(paths)
            return results


@contextmanager
def alone(paths: SweepPaths) -> Iterator[Lease]:
    """Hold the lease on this sweep's analysis.

    The lease of a process that died on another machine is taken over after the lease time.
    """
    watch = LeaseWatch(paths.analyses)
    lease = Lease(watch, "analysis")
    try:
        if not lease.try_take():
            watch.wait_until_dead()
            lease.take()
    except LeaseHeld as error:
        raise UserError(f"another analysis is running: {error}", file=paths.directory) from None
    with lease.kept():
        yield lease


_RUN = "manyseed.orchestrator.analyses.execution:run"
_REPORT_SECONDS = 1.0
_HOOK_SECONDS = 60.0
_LAST_SECONDS = SIGNAL_SECONDS + 60.0
"""An attempt asked to stop within this time of its walltime is stopped because of the walltime."""


def submit(
    paths: SweepPaths,
    options: Options | None,
    *,
    cluster: str,
    dask: str,
    workers: Workers | None,
    page: bool = False,
    after_training: bool = False,
) -> Submission | None:
    """Submit an analysis; return None if one with the same request waits or runs.

    `options`: by default the sweep's conventions. `cluster`: a cluster profile, its file, or auto;
    the job asks for the resources of its ``cpu`` class. `dask`: what computes within the job.
    `workers`: threads or processes there; by default the job's cores. `page`: whether to write the
    page, too. `after_training`: wait for all jobs that train; an analysis that has not begun is
    replaced.
    """
    from manyseed.orchestrator.computing.analysis import check
    from manyseed.orchestrator.computing.conventions import conventions
    from manyseed.orchestrator.computing.tables import to_json

    profile = of_slurm(cluster)
    if after_training:
        require_chains(profile)
    if dask == SLURM:
        require_workers(profile)
    require(profile, "cpu", paths.analysis_job(1))
    options = options or conventions(paths)
    check(paths, options)
    request = AnalysisRequest(to_json(options), dask, workers, page)
    training = running(submissions(paths)) if after_training else []
    arrays_of = [job.id.partition("_")[0] for one in training for job in one.jobs().values()]
    after = [*dict.fromkeys(arrays_of)]
    with locked(paths.lock, "submitting an analysis") as lease:
        before, replaced = last_job(paths), ""
        if before is not None:
            ((task,),) = tasks_of([before], fresh=True)
            if after_training and task.job_id and task.state in ("waiting", "held"):
                replaced = task.job_id
            elif task.is_alive:
                if before.intent.request == request:
                    return None
                ending = "scancel" if before.scheduler.is_slurm else "your scheduler, job"
                raise UserError(
                    f"an analysis with other options is {task.state}, job {task.job_id}",
                    file=paths.directory,
                    remedy=f"wait for it, or end it with: {ending} {task.job_id}",
                )
        number = 1 if before is None else before.number + 1
        with _holding(paths.analyses):
            submission = _submit(paths, paths.analysis_job(number), profile, request, lease, after)
        if before is not None and replaced:  # once the other is taken
            with before.scheduler.active():
                before.scheduler.system.cancel([replaced])
        return submission


@contextmanager
def _holding(folder: Path) -> Iterator[None]:
    """Make the folder of analyses for the block; if that fails, none stays that is empty."""
    new = [each for each in (folder, folder.parent) if not each.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    try:
        yield
    except BaseException:
        for each in new:
            with suppress(OSError):  # it is in use
                each.rmdir()
        raise


def _submit(
    paths: SweepPaths,
    folder: Path,
    profile: Profile,
    request: AnalysisRequest,
    lease: Lease,
    after: Sequence[str],
) -> Submission:
    name = unique_name(paths, "analysis")
    lease.check()
    shutil.rmtree(folder, ignore_errors=True)  # left by a submitter that died before its intent
    folder_of_modules = modules_folder(paths)
    intent = intent_for(
        profile,
        identity_of(paths),
        scheduler_of(profile.reached).cluster_name,
        (TaskArray("cpu", name, first=0, count=1),),
        request=request,
        modules="" if folder_of_modules is None else str(folder_of_modules),
    )
    submission = Submission(folder, intent)
    submission.files.attempts.mkdir(parents=True)
    intent.write(folder)
    hook = profile.resources("cpu").on_end if request.page else None
    arguments = [[str(paths.directory.resolve()), folder.name, *filter(None, [hook])]]
    submit_arrays(submission, profile, _RUN, lambda _: arguments, lease.check, after=after)
    return submission


def run(directory: str, number: str, on_end: str = "") -> str:
    """Analyse, in a job; return how it ended: finished, or stopped with all of its work left.

    `on_end`: a command of the shell, called when it has ended for good.
    """
    from manyseed.orchestrator.computing.tables import from_json
    from manyseed.orchestrator.grids.loading import read_sweep_file
    from manyseed.orchestrator.results.page import report

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
        cluster = intent.profile if request.dask == SLURM else None
        analyze(
            *(paths, options),
            dask=request.dask,
            cluster=cluster,
            workers=request.workers,
            progress=attempt.progress,
        )
        if request.page:
            name = read_sweep_file(paths.sweep_file).name
            report(paths, name, lambda text: print(text, file=sys.stderr), None)
    except BaseException as error:
        # worker processes receive the signal, too, and may end first
        if not processes.received():
            reason, code = _ending(error)
        elif intent.scheduler == NO_CLUSTER:
            reason, code = "its scheduler ended the job", UnavailableError.exit_code
        elif time.time() - attempt.last.started < walltime - _LAST_SECONDS:
            attempt.end("interrupted", "", None)
            return arrays.STOPPED
        else:
            minutes = walltime // 60
            reason = f"the walltime, {minutes:.0f} min, is too short: give more time in the profile"
            code = UnavailableError.exit_code
        attempt.end("broken", reason, code)
        _call(on_end, paths, "broken", reason)
        raise RuntimeError(reason) from error
    attempt.end("finished", "", 0)
    _call(on_end, paths, "finished", "")
    return "finished"


def _call(command: str, paths: SweepPaths, state: str, reason: str) -> None:
    """Call the command that a profile has for the end; its failure changes nothing."""
    if not command:
        return
    told = {"DIR": paths.directory, "STATE": state, "REASON": reason, "REPORT": paths.report}
    env = {**os.environ, **{f"MANYSEED_{name}": str(value) for name, value in told.items()}}
    try:
        done = subprocess.run(["bash", "-c", command], env=env, timeout=_HOOK_SECONDS, check=False)
        if done.returncode:
            print(f"on-end ended with code {done.returncode}", file=sys.stderr)
    except (OSError, subprocess.SubprocessError) as error:
        print(f"on-end: {error}", file=sys.stderr)


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
