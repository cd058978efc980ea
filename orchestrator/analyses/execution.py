"""An analysis from journals to answers: in this process, on its workers, or as a cluster job.

Only one runs at a time: two would mix their tables. A job is a submission of one task, in
``tasks/analyses``, so that it is found, followed and reported like those that train.
Its attempt reports progress, and in the end how `analyze` ended.

Threads or processes here compute, SLURM jobs, or a dask cluster elsewhere. With SLURM jobs, dask's
scheduler runs in the calling process and speaks TLS with keys made for this analysis: whoever
reaches a scheduler can run any code as its user, and a cluster's network is shared. dask-jobqueue
is not used: it calls sbatch once per worker, where one job array is enough; it has its own options
beside the profile's; and nothing requeues its workers.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import shutil
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from manyseed.analysis.graph.chunks import ReportProgress
from manyseed.analysis.options import Options
from manyseed.jobs.packages import install
from manyseed.orchestrator.analyses import last_job
from manyseed.orchestrator.computing import analysis
from manyseed.orchestrator.computing.conventions import conventions, modules_folder
from manyseed.orchestrator.computing.tables import Results
from manyseed.orchestrator.disk.lease import Lease, LeaseWatch
from manyseed.orchestrator.disk.records import locked, read_json
from manyseed.orchestrator.errors import (
    DamagedFile,
    LeaseHeld,
    ManyseedError,
    UnavailableError,
    UserError,
    require_one_of,
)
from manyseed.orchestrator.paths import WORKER_KEYS, SweepPaths, open_sweep
from manyseed.orchestrator.plans.plan import identity_of
from manyseed.orchestrator.results.answers import summary
from manyseed.orchestrator.submissions.cluster import (
    SIGNAL_SECONDS,
    intent_for,
    passing,
    refusal,
    require,
    submit_arrays,
    submit_jobs,
    unique_name,
)
from manyseed.orchestrator.submissions.profiles import AUTO, choose, the_one
from manyseed.orchestrator.submissions.scheduler import ASK_SECONDS, scheduler_of
from manyseed.orchestrator.submissions.submission import (
    Submission,
    running,
    submissions,
    tasks_of,
)
from manyseed.orchestrator.tasks.attempts import Attempt
from manyseed.orchestrator.tasks.intent import LOCAL as THIS_MACHINE
from manyseed.orchestrator.tasks.intent import AnalysisRequest, Intent, SubmissionPaths, TaskArray
from manyseed.orchestrator.upkeep import publish_finished
from manyseed.orchestrator.working.node import Node
from manyseed.slurm import (
    ClusterError,
    Refused,
    arrays,
    available,
    commands,
    local,
    processes,
)
from manyseed.slurm.profile import Profile

if TYPE_CHECKING:
    from distributed import Client

SLURM = "slurm"
LOCAL = ("threads", "processes")
ADDRESSES = ("tcp://", "tls://", "ws://", "wss://", "ucx://")
ANSWER_SECONDS = 10


@contextmanager
def scheduler(
    dask: str | Client,
    *,
    folder: Path,
    cluster: str | None = None,
    workers: int | None = None,
    report: Callable[[str], None] = lambda text: None,
) -> Iterator[Any]:
    """Yield a scheduler for `analysis.graph.chunks.compute`.

    `dask`: one of `LOCAL`; `SLURM`; or a dask client, or the address of a scheduler, whose workers
    must see the sweep directory under the same path. `folder`: for the files of SLURM jobs, on the
    file system that the nodes share. `cluster`: with `SLURM`: the cluster whose jobs are the
    workers, as in `orchestrator.submissions.profiles.choose`; by default ``auto``. Without it, only
    ``local``. `workers`: number of jobs, with `SLURM`. `report`: called with the state of the jobs.
    """
    if cluster not in (None, THIS_MACHINE) and dask != SLURM:
        remedy = 'dask = "slurm", or submit the analysis as a job'
        raise UserError("nothing is computed there", key="cluster", value=cluster, remedy=remedy)
    if not isinstance(dask, str):
        if "distributed" not in sys.modules or not isinstance(dask, _client()):
            what = f"must be text or a distributed.Client, not {type(dask).__name__}"
            raise UserError(what, key="dask")
        report(f"dask's pages: {dask.dashboard_link}")
        yield dask
    elif dask in LOCAL:
        yield dask
    elif dask == SLURM:
        profile = of_slurm(cluster or AUTO)
        with slurm_workers(folder, profile, workers or WORKERS, report) as client:
            yield client
    elif dask.startswith(ADDRESSES):
        with _connected(dask) as client:
            report(f"dask's pages: {client.dashboard_link}")
            yield client
    else:
        known = (*LOCAL, SLURM, "tcp://HOST:PORT")
        require_one_of(dask, known, "not a way to compute", key="--dask")


def of_slurm(cluster: str) -> Profile:
    """Return the profile of a cluster that has SLURM."""
    # a job may submit jobs, too
    profile = the_one() if cluster == AUTO else choose(cluster)
    if not available():
        raise UnavailableError("sbatch is not on PATH: is this a SLURM login node?")
    if profile is None:
        remedy = "name one; make it with: manyseed cluster init"
        raise UserError("no SLURM cluster", key="--cluster", value=cluster, remedy=remedy)
    return profile


def _client() -> type:
    from distributed import Client

    return Client


@contextmanager
def _connected(address: str) -> Iterator[Any]:
    from distributed import Client

    try:
        client = Client(address, timeout=ANSWER_SECONDS, set_as_default=False)
    except (OSError, TimeoutError, ValueError) as error:
        raise UnavailableError(
            f"no dask scheduler answers at {address} ({type(error).__name__}): "
            "start it, or leave --dask out"
        ) from None
    with client:
        yield client


WORKERS = 4  # number of jobs, by default

START_SECONDS = 1800.0  # how long the analysis waits without any worker before it gives up

_WORK = "manyseed.orchestrator.analyses.execution:work"
_CONNECT_SECONDS = 60.0
_LOOK_SECONDS = 1.0
_SIGNAL_SECONDS = 60
_SHOWN_LINES = 8
_PAGES = "127.0.0.1:0"  # dask's pages are plain HTTP: for this machine only
_KEYS = ("tls_ca_file", "tls_worker_cert", "tls_worker_key")


@contextmanager
def slurm_workers(
    parent: Path, profile: Profile, n: int, report: Callable[[str], None]
) -> Iterator[Any]:
    """Yield a dask client whose workers are `n` SLURM jobs; the jobs end with the block.

    Work begins when the first worker connects. Each has the cores of the profile's ``cpu`` class. A
    worker whose walltime ends hands over what it holds, and its job is requeued.

    `parent`: a folder that the nodes share; a temporary folder in it holds the jobs' files. `n`:
    number of jobs, one worker each. `report`: called with the state of the jobs, whenever it
    changes.
    """
    from distributed import Client, KilledWorker, Scheduler, SpecCluster

    security = _security()
    name = f"manyseed-workers-{uuid.uuid4().hex[:8]}"
    watch = None
    options = {"security": security, "dashboard": False, "dashboard_address": _PAGES, "port": 0}
    require(profile, "cpu", parent / name, _SIGNAL_SECONDS)
    parent.mkdir(parents=True, exist_ok=True)
    with passing(profile, "cpu", parent / name, name, n) as jobs:
        try:
            with (
                SpecCluster(
                    scheduler={"cls": Scheduler, "options": options},
                    security=security,
                    silence_logs=logging.CRITICAL,  # `_Following` reports problems
                ) as cluster,
                Client(cluster, set_as_default=False) as client,
            ):
                arguments = [_arguments(cluster.scheduler_address, jobs.folder, security)] * n
                submit_jobs(
                    jobs, profile, _WORK, lambda _: arguments, signal_seconds=_SIGNAL_SECONDS
                )
                with _Following(cluster, client, jobs, profile, report) as watch:
                    yield client
        except (ClusterError, Refused) as error:
            raise refusal(error, profile) from None
        except KilledWorker as error:
            raise UnavailableError(
                f"workers died repeatedly, perhaps for lack of memory: {error}\n"
                f"  ask for more mem in {profile.path}, or for fewer cpus-per-task"
            ) from None
        except Exception:
            if watch is None or not watch.problem:
                raise
            raise UnavailableError(watch.problem) from None


def work(address: str, keys: str, modules: str) -> str:
    """Work in a job until the scheduler ends, or SLURM asks for the node."""
    from distributed.security import Security

    sys.path.append(modules)  # users' metrics
    security = Security(require_encryption=True, **read_json(Path(keys)))
    return asyncio.run(_work(address, security))


async def _work(address: str, security: Any) -> str:
    from distributed import Worker

    loop, stop = asyncio.get_running_loop(), asyncio.Event()

    def note() -> None:
        loop.call_soon_threadsafe(stop.set)

    processes.on_stop(note)
    with TemporaryDirectory(prefix="manyseed-") as folder:
        worker = Worker(
            address,
            nthreads=Node.here().cores,
            memory_limit=0,  # the analysis has its own bound
            local_directory=folder,
            security=security,
            death_timeout=_CONNECT_SECONDS,
            dashboard=False,
            dashboard_address=_PAGES,
        )
        async with worker:
            ended = asyncio.ensure_future(worker.finished())
            stopped = asyncio.ensure_future(stop.wait())
            await asyncio.wait((ended, stopped), return_when=asyncio.FIRST_COMPLETED)
            if not stop.is_set():
                return "finished"
            await worker.close_gracefully()
    return arrays.STOPPED


def _security() -> Any:
    from distributed.security import Security

    try:
        return Security.temporary()
    except ImportError:
        raise UnavailableError(
            f"--dask slurm needs the package cryptography: {install(['cryptography'])}"
        ) from None


def _arguments(address: str, folder: Path, security: Any) -> list[str]:
    """Return a worker's arguments; write its keys to a file that only this user may read."""
    keys = folder / WORKER_KEYS
    descriptor = os.open(keys, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
    with os.fdopen(descriptor, "w") as file:
        json.dump({name: getattr(security, name) for name in _KEYS}, file)
    return [address, str(keys.resolve()), str(Path.cwd())]


class _Following:
    """Closes the client if no worker comes, or all jobs are over."""

    def __init__(
        self,
        cluster: Any,
        client: Any,
        submission: Submission,
        profile: Profile,
        report: Callable[[str], None],
    ) -> None:
        self.problem = ""
        self._cluster, self._client, self._report = cluster, client, report
        self._files, self._jobs = submission.files, submission.noted_jobs().values()
        self._slurm = scheduler_of(profile.slurm_conf)
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="slurm workers", daemon=True)

    def __enter__(self) -> _Following:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _run(self) -> None:
        began, reported, look = time.monotonic(), "", 0.0
        n_jobs = len(self._jobs)
        while not self._ended.wait(_LOOK_SECONDS):
            now = time.monotonic()
            if n := len(self._cluster.scheduler.workers):
                began, text = now, f"{n} of {n_jobs} workers"
            elif now < look:
                continue
            else:
                look, text = now + ASK_SECONDS, self._without(now - began)
            if text != reported:
                self._report(text)
                reported = text
            if self.problem:
                self._client.close()
                return

    def _without(self, seconds: float) -> str:
        """Return the jobs' states while there is no worker; set `problem` if none will come."""
        first = commands.compact_ids([job.id for job in self._jobs])[0]
        try:
            found = self._slurm.states(self._jobs, fresh=True).values()
        except UnavailableError as error:  # submitted jobs may start all the same
            text, alive = str(error), True
        else:
            text = ", ".join(dict.fromkeys(f"{one.state} {one.reason}".strip() for one in found))
            alive = any(one.is_alive for one in found)
        if not alive:
            self.problem = f"all workers' jobs ended ({first}: {text})\n{self._last_words()}"
        elif seconds > START_SECONDS:
            self.problem = (
                f"no worker came within {seconds / 60:.0f} min ({first}: {text})\n"
                "  a single job may wait as long as it takes: leave --dask slurm out"
            )
        return f"jobs {first}: {text}"

    def _last_words(self) -> str:
        logs = [self._files.printed_errors(job.id) for job in self._jobs]
        texts = [log.read_text(errors="replace").strip() for log in logs if log.is_file()]
        lines = next((text for text in texts if text), "they printed nothing").splitlines()
        return "\n".join(lines[-_SHOWN_LINES:])


def analyze(
    paths: SweepPaths,
    options: Options | None = None,
    *,
    dask: str | Client = "threads",
    cluster: str | None = None,
    workers: int | None = None,
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
                workers=workers or local.available_cores(),
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
    workers: int | None,
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
                raise UserError(
                    f"an analysis with other options is {task.state}, job {task.job_id}",
                    file=paths.directory,
                    remedy=f"wait for it, or end it with: scancel {task.job_id}",
                )
        number = 1 if before is None else before.number + 1
        with _holding(paths.analyses):
            submission = _submit(paths, paths.analysis_job(number), profile, request, lease, after)
        if before is not None and replaced:  # once the other is taken
            with before.scheduler.active():
                commands.cancel([replaced])
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
        scheduler_of(profile.slurm_conf).cluster_name,
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
        analyze(
            paths, options, dask=request.dask, workers=request.workers, progress=attempt.progress
        )
        if request.page:
            name = read_sweep_file(paths.sweep_file).name
            report(paths, name, lambda text: print(text, file=sys.stderr), None)
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
