"""An analysis from journals to answers: in this process, on its workers, or as a cluster job.

Only one runs at a time: two would mix their tables. A job is a submission of one task, in
``tasks/analyses``, so that it is found, followed and reported like those that train.
Its attempt reports progress, and in the end how `analyze` ended. A search for hparams that is a
job is the same, in ``tasks/searches``; `submit_chain` puts one before the training and the other
after it.
"""

from __future__ import annotations

import math
import os
import shutil
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from manyseed.analysis.graph.chunks import ReportProgress
from manyseed.analysis.options import Options
from manyseed.orchestrator.analyses import last_job, look
from manyseed.orchestrator.computing import analysis
from manyseed.orchestrator.computing.conventions import conventions, modules_folder
from manyseed.orchestrator.computing.tables import Results
from manyseed.orchestrator.computing.workers import (
    LOCAL,
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
from manyseed.orchestrator.plans.plan import Plan, identity_of
from manyseed.orchestrator.plans.searches import searches
from manyseed.orchestrator.results.answers import summary
from manyseed.orchestrator.submissions import cluster, submitting
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
    ALIVE,
    Submission,
    running,
    submissions,
    tasks_of,
)
from manyseed.orchestrator.tasks.attempts import Attempt
from manyseed.orchestrator.tasks.intent import AnalysisRequest, Intent, SubmissionPaths, TaskArray
from manyseed.orchestrator.tuning import searched, tune
from manyseed.orchestrator.upkeep import publish_finished
from manyseed.orchestrator.working.node import Node
from manyseed.slurm import (
    arrays,
    local,
    processes,
)
from manyseed.slurm.commands import NO_CLUSTER
from manyseed.slurm.discover import Cluster
from manyseed.slurm.profile import Profile

if TYPE_CHECKING:
    from distributed import Client

    from manyseed.orchestrator.analyses import Chain


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
_SEARCH = "manyseed.orchestrator.analyses.execution:search"
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
    page, too. `after_training`: wait for all jobs that train; replaces an analysis that has
    not begun, and one with a page that would miss them.
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
            asked = before.intent.request
            # one that began when its training was killed would miss what is trained now
            misses = task.is_alive and training and asked is not None and asked.page
            waits = task.state in ("waiting", "held")
            if after_training and task.job_id and (waits or misses):
                replaced = task.job_id
            elif task.is_alive:
                if asked == request:
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
    folder_of_modules = modules_folder(paths)
    modules = "" if folder_of_modules is None else str(folder_of_modules)
    hook = profile.resources("cpu").on_end if request.page else None
    more = [*filter(None, [hook])]
    kind = "cpu", "analysis", _RUN
    return _submit_job(
        paths, folder, profile, kind, more, lease, after, request=request, modules=modules
    )


def _submit_job(
    paths: SweepPaths,
    folder: Path,
    profile: Profile,
    kind: tuple[str, str, str],
    more: list[str],
    lease: Lease,
    after: Sequence[str] = (),
    **intended: Any,
) -> Submission:
    """Submit one job; `kind`: its resource class, the kind in its name, and what it calls."""
    resource, what, function = kind
    name = unique_name(paths, what)
    lease.check()
    shutil.rmtree(folder, ignore_errors=True)  # left by a submitter that died before its intent
    intent = intent_for(
        profile,
        identity_of(paths),
        scheduler_of(profile.reached).cluster_name,
        (TaskArray(resource, name, first=0, count=1),),
        **intended,
    )
    submission = Submission(folder, intent)
    submission.files.attempts.mkdir(parents=True)
    intent.write(folder)
    arguments = [[str(paths.directory.resolve()), folder.name, *more]]
    submit_arrays(submission, profile, function, lambda _: arguments, lease.check, after=after)
    return submission


def submit_chain(
    paths: SweepPaths,
    request: submitting.Request,
    chain: Chain,
    report: Callable[[str], None],
) -> Submission | None:
    """Submit missing runs to a cluster, with the jobs that come before and after them.

    `report`: called with a sentence for each job.
    """
    from manyseed.orchestrator.computing.tables import from_json, to_json

    profile = request.profile
    assert profile is not None
    if isinstance(chain, AnalysisRequest):
        then = chain
    else:
        options = conventions(paths) if isinstance(chain, bool) else chain
        then = AnalysisRequest(to_json(options), LOCAL[0], None, page=True)
    require_chains(profile)
    search = partial(_submit_search, paths, profile, then, report)
    submission = submitting.submit(paths, replace(request, search=search, then=then), report)
    if submission is None and then is chain and _is_through(paths):
        return None
    submit(
        *(paths, from_json(then.options)),
        cluster=str(profile.path),
        dask=then.dask,
        workers=then.workers,
        page=True,
        after_training=True,
    )
    if (job := look(paths)) is not None:
        when = " when the training has ended" if running(submissions(paths)) else ""
        report(f"Job {job.job} analyses the sweep and writes its page{when}.")
    return submission


def _is_through(paths: SweepPaths) -> bool:
    """Return whether the analysis waits, runs or has succeeded."""
    job = look(paths)
    return job is not None and (job.state in ALIVE or job.exit_code == 0)


def _submit_search(
    paths: SweepPaths,
    profile: Profile,
    then: AnalysisRequest,
    report: Callable[[str], None],
    limits: Cluster,
    lease: Lease,
) -> list[str]:
    """Submit the searches that the plan needs, unless they wait or run; return their job."""
    before = last_job(paths, paths.search_jobs())
    if before is not None:
        ((task,),) = tasks_of([before], fresh=True)
        if task.is_alive and before.scheduler is not scheduler_of(profile.reached):
            raise UserError(
                f"a search is {task.state} on {before.cluster}, job {task.job_id}",
                file=paths.directory,
                remedy=f"wait for it, or end it with: scancel {task.job_id}",
            )
        if task.is_alive:
            return [task.job_id.partition("_")[0]]
    todo = searches(paths, Plan.read(paths).cells)
    for_gpu = profile.cpu is None or any(one.device == "gpu" for one in todo)
    resource = "gpu" if for_gpu and profile.gpu is not None else "cpu"
    shape = cluster.shapes(profile, [resource], limits, 0)[resource]
    folder = paths.search_job(1 if before is None else before.number + 1)
    require(profile, resource, folder)
    more = [cluster.workers(profile.resources(resource), shape), resource]
    folder.parent.mkdir(parents=True, exist_ok=True)
    kind = resource, "search", _SEARCH
    search = _submit_job(paths, folder, profile, kind, more, lease, request=then)
    (job,) = search.jobs().values()
    fits = sum(one.n_fits for one in todo)
    most = "" if all(math.isinf(one.seconds) for one in todo) else "at most "
    report(f"Job {job.id} searches for hparams in {most}{fits:,} fits; the tasks wait for it.")
    return [job.id.partition("_")[0]]


def search(directory: str, number: str, workers: str, resource: str) -> str:
    """Search for hparams, in a job; return as `run` does."""
    paths = open_sweep(Path(directory))
    files = SubmissionPaths(paths.search_job(int(number)))

    def work(_: Intent, attempt: _JobAttempt) -> None:
        tune(paths, workers=Node.here().processes(workers), report=attempt.progress)

    return _attempted(files, resource, work, kept=lambda: searched(paths))


def run(directory: str, number: str, on_end: str = "") -> str:
    """Analyse, in a job; return how it ended: finished, or stopped with all of its work left.

    `on_end`: a command of the shell, called when it has ended for good.
    """
    from manyseed.orchestrator.computing.tables import from_json
    from manyseed.orchestrator.grids.loading import read_sweep_file
    from manyseed.orchestrator.results.page import report

    paths = open_sweep(Path(directory))
    files = SubmissionPaths(paths.analysis_job(int(number)))

    def work(intent: Intent, attempt: _JobAttempt) -> None:
        if (request := intent.request) is None:
            raise DamagedFile(files.intent, "lacks 'request'")
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

    return _attempted(files, "cpu", work, ended=partial(_call, on_end, paths))


def _attempted(
    files: SubmissionPaths,
    resource: str,
    work: Callable[[Intent, _JobAttempt], None],
    *,
    ended: Callable[[str, str], None] = lambda state, reason: None,
    kept: Callable[[], object] = lambda: None,
) -> str:
    """Do the work of a job, and report how it ended.

    `ended`: called with state and reason when it has ended for good. `kept`: differs from before
    when another attempt could go on from what this one did, so that a walltime may pass.
    """
    intent, before = Intent.read(files.folder), kept()
    walltime = intent.walltime[resource]
    attempt = _JobAttempt(files, intent.plan)
    asked: list[bool] = []

    def interrupt() -> None:
        if not asked:  # only once: the cleanup must not be interrupted
            asked.append(True)
            raise KeyboardInterrupt

    processes.on_stop(interrupt)
    try:
        work(intent, attempt)
    except BaseException as error:
        # worker processes receive the signal, too, and may end first
        if not processes.received():
            reason, code = _ending(error)
        elif intent.scheduler == NO_CLUSTER:
            reason, code = "its scheduler ended the job", UnavailableError.exit_code
        elif time.time() - attempt.last.started < walltime - _LAST_SECONDS or kept() != before:
            attempt.end("interrupted", "", None)
            return arrays.STOPPED
        else:
            minutes = walltime // 60
            reason = (
                f"the walltime, {minutes:.0f} min, of which the last {SIGNAL_SECONDS} s are "
                "for ending in order, is too short: give more time in the profile"
            )
            code = UnavailableError.exit_code
        attempt.end("broken", reason, code)
        ended("broken", reason)
        raise RuntimeError(reason) from error
    attempt.end("finished", "", 0)
    ended("finished", "")
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


class _JobAttempt:
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
