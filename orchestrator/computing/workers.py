"""Who computes an analysis: threads or processes here, SLURM jobs, or a dask cluster elsewhere.

With SLURM jobs, dask's scheduler runs in the calling process and speaks TLS with keys made for this
analysis: whoever reaches a scheduler can run any code as its user, and a cluster's network is
shared. dask-jobqueue is not used: it calls sbatch once per worker, where one job array is enough;
it has its own options beside the profile's; and nothing requeues its workers.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import re
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from manyseed.jobs.packages import install
from manyseed.orchestrator.disk.records import read_json
from manyseed.orchestrator.errors import (
    UnavailableError,
    UserError,
    require_one_of,
)
from manyseed.orchestrator.paths import WORKER_KEYS
from manyseed.orchestrator.submissions.cluster import (
    passing,
    refusal,
    require,
    submit_jobs,
)
from manyseed.orchestrator.submissions.profiles import AUTO, choose, the_one
from manyseed.orchestrator.submissions.scheduler import ASK_SECONDS, scheduler_of
from manyseed.orchestrator.submissions.submission import (
    Submission,
)
from manyseed.orchestrator.tasks.intent import LOCAL as THIS_MACHINE
from manyseed.orchestrator.working.node import Node
from manyseed.slurm import (
    ClusterError,
    Refused,
    arrays,
    available,
    commands,
    processes,
)
from manyseed.slurm.profile import Profile

if TYPE_CHECKING:
    from distributed import Client

SLURM = "slurm"
LOCAL = ("threads", "processes")
ADDRESSES = ("tcp://", "tls://", "ws://", "wss://", "ucx://")
ANSWER_SECONDS = 10

Workers = int | tuple[int, int]
"""How many threads, processes or jobs; of jobs also the fewest and the most, as work demands."""


def read_workers(text: str | None) -> Workers | None:
    """Read a number of workers, or a range of them: ``10``, ``2:20``."""
    if text is None:
        return None
    numbers = re.fullmatch(r"([0-9]{1,9})(?::([0-9]{1,9}))?", text)
    low = int(numbers[1]) if numbers else 0
    high = int(numbers[2] or low) if numbers else 0
    if not 1 <= low <= high:
        remedy = "write a number from 1, or the fewest and the most jobs: 2:20"
        raise UserError("is no number of workers", key="--workers", value=text, remedy=remedy)
    return low if low == high else (low, high)


@contextmanager
def scheduler(
    dask: str | Client,
    *,
    folder: Path,
    cluster: str | None = None,
    workers: Workers | None = None,
    report: Callable[[str], None] = lambda text: None,
) -> Iterator[Any]:
    """Yield a scheduler for `analysis.graph.chunks.compute`.

    `dask`: one of `LOCAL`; `SLURM`; or a dask client, or the address of a scheduler, whose workers
    must see the sweep directory under the same path. `folder`: for the files of SLURM jobs, on the
    file system that the nodes share. `cluster`: with `SLURM`: the cluster whose jobs are the
    workers, as in `orchestrator.submissions.profiles.choose`; by default ``auto``. Without it, only
    ``local``. `workers`: with `SLURM`, number of jobs. `report`: called with the state of the jobs.
    """
    if isinstance(workers, tuple) and dask != SLURM:
        remedy = 'give one number, or dask = "slurm"'
        shown = ":".join(map(str, workers))
        raise UserError("only jobs come and go", key="workers", value=shown, remedy=remedy)
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
        require_workers(profile)
        with slurm_workers(folder, profile, workers or WORKERS, report) as client:
            yield client
    elif dask.startswith(ADDRESSES):
        with _connected(dask) as client:
            report(f"dask's pages: {client.dashboard_link}")
            yield client
    else:
        known = (*LOCAL, SLURM, "tcp://HOST:PORT")
        require_one_of(dask, known, "not a way to compute", key="--dask")


def require_workers(profile: Profile) -> None:
    """Refuse a profile whose jobs cannot be workers of dask."""
    remedy = "submit the analysis as a job: leave --dask out"
    scheduler_of(profile.reached).require_slurm("--dask", "no job works for dask", remedy)


def of_slurm(cluster: str) -> Profile:
    """Return the profile of a cluster, to submit an analysis to it."""
    # a job may submit jobs, too
    profile = the_one() if cluster == AUTO else choose(cluster)
    if (profile is None or profile.template is None) and not available():
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

_WORK = "manyseed.orchestrator.computing.workers:work"
_CONNECT_SECONDS = 60.0
_LOOK_SECONDS = 1.0
_SIGNAL_SECONDS = 60
_SHOWN_LINES = 8
_PAGES = "127.0.0.1:0"  # dask's pages are plain HTTP: for this machine only
_KEYS = ("tls_ca_file", "tls_worker_cert", "tls_worker_key")


@contextmanager
def slurm_workers(
    parent: Path, profile: Profile, n: Workers, report: Callable[[str], None]
) -> Iterator[Any]:
    """Yield a dask client whose workers are `n` SLURM jobs; the jobs end with the block.

    Of a range, the most are submitted as an array of which the fewest may run at first: its limit
    follows dask's own target, and idle workers above it end.

    Work begins when the first worker connects. Each has the cores of the profile's ``cpu`` class. A
    worker whose walltime ends hands over what it holds, and its job is requeued.

    `parent`: a folder that the nodes share; a temporary folder in it holds the jobs' files. `n`:
    number of jobs, one worker each. `report`: called with the state of the jobs, whenever it
    changes.
    """
    least, most = n if isinstance(n, tuple) else (n, n)
    from distributed import Client, KilledWorker, Scheduler, SpecCluster

    security = _security()
    name = f"manyseed-workers-{uuid.uuid4().hex[:8]}"
    watch = None
    options = {"security": security, "dashboard": False, "dashboard_address": _PAGES, "port": 0}
    require(profile, "cpu", parent / name, _SIGNAL_SECONDS)
    parent.mkdir(parents=True, exist_ok=True)
    with passing(profile, "cpu", parent / name, name, most) as jobs:
        try:
            with (
                SpecCluster(
                    scheduler={"cls": Scheduler, "options": options},
                    security=security,
                    silence_logs=logging.CRITICAL,  # `_Following` reports problems
                ) as cluster,
                Client(cluster, set_as_default=False) as client,
            ):
                arguments = [_arguments(cluster.scheduler_address, jobs.folder, security)] * most
                submit_jobs(
                    *(jobs, profile, _WORK, lambda _: arguments),
                    signal_seconds=_SIGNAL_SECONDS,
                    parallelism=None if least == most else least,
                )
                with _Following(cluster, client, jobs, profile, report, least) as watch:
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
    """Lets jobs start as work demands; closes the client if no worker comes, or all are over."""

    def __init__(
        self,
        cluster: Any,
        client: Any,
        submission: Submission,
        profile: Profile,
        report: Callable[[str], None],
        least: int,
    ) -> None:
        self.problem = ""
        self._least = self._wanted = least
        self._cluster, self._client, self._report = cluster, client, report
        self._files, self._jobs = submission.files, submission.noted_jobs().values()
        self._slurm = scheduler_of(profile.reached)
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
        scaled = began
        n_jobs = len(self._jobs)
        while not self._ended.wait(_LOOK_SECONDS):
            now = time.monotonic()
            if self._least < n_jobs and now >= scaled + ASK_SECONDS:
                scaled = now
                self._scale(n_jobs)
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

    def _scale(self, most: int) -> None:
        """Let as many jobs run as dask wants for what waits; end idle workers above that."""
        scheduler = self._cluster.scheduler
        wanted = min(most, max(self._least, scheduler.adaptive_target()))
        if wanted != self._wanted:
            with suppress(UnavailableError), self._slurm.changing():  # tried again
                commands.set_parallelism([job.id for job in self._jobs], wanted)
                self._wanted = wanted
        if len(scheduler.workers) > wanted and (idle := list(scheduler.idle)):
            surplus = idle[: len(scheduler.workers) - wanted]
            self._cluster.sync(scheduler.retire_workers, surplus, close_workers=True, remove=True)

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
