"""Processes that train: a pool with one pipe each, its nursery that forks them, a command's own.

The processes of a pool are forked by a nursery or, where that is not safe, started afresh, both as
``python -P -m manyseed.orchestrator.working.process`` with one thread: nothing of the task's own
process is inherited, and the user's modules in the working folder have no effect.

The nursery imports libraries once. Forks are safe while it has a single thread, so each library is
limited to one, and it is itself started afresh. It runs nothing of a fit: a crash, or a side effect
of users' code, stays in the training process where it happens. The task owns it over a socket, one
JSON object a packet. If the nursery ends, for whatever reason, the kernel kills the processes it
forked; if the task ends, it kills the nursery.
"""

from __future__ import annotations

import gc
import json
import multiprocessing
import os
import signal
import socket
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from concurrent import futures
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from itertools import islice
from multiprocessing.connection import Connection, wait
from pathlib import Path
from socket import socketpair
from typing import Any, TypeVar

from manyseed.orchestrator.devices import assigned
from manyseed.orchestrator.errors import UnavailableError
from manyseed.orchestrator.tasks.attempts import InFlight
from manyseed.slurm import processes
from manyseed.slurm.processes import Process, belong_to_parent, shielded

NURSERY = "nursery"
"""Instead of the number of a training process, in the arguments of `working.process`."""

CAN_FORK = sys.platform == "linux"  # elsewhere the kernel does not kill forks with their parent

THREADED = 75
"""Exit code of a nursery whose libraries have started threads, so that it must not fork."""

LONG_SECONDS = 60.0  # a fit in flight that takes longer is reported

_PACKET = 2**16
_POLL_SECONDS = 0.02


class Fork:
    """A training process that a nursery has forked or will fork; used like a `subprocess.Popen`."""

    def __init__(self, nursery: Nursery, index: int) -> None:
        self._nursery, self.index = nursery, index
        self.fingerprint: str | None = None  # set when it is known that the process has begun
        self.returncode: int | None = None

    @property
    def pid(self) -> int | None:
        """Its number; None if it has not begun yet."""
        return None if self.fingerprint is None else Process.parse(self.fingerprint).pid

    def kill(self) -> None:
        """Kill the process; if it has not begun yet, the nursery, as nothing has that trains."""
        self._nursery.kill(self)

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the end of the process; return its exit code."""
        until = None if timeout is None else time.monotonic() + timeout
        while self.returncode is None:
            left = None if until is None else max(0.0, until - time.monotonic())
            if not wait([self._nursery.fileno()], left):
                raise subprocess.TimeoutExpired(NURSERY, timeout or 0.0)
            self._nursery.receive()
        return self.returncode


class Nursery:
    """The task's side of a nursery.

    `start`: starts it with the descriptor of a socket.
    """

    def __init__(self, start: Callable[[int], subprocess.Popen[bytes]]) -> None:
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = start(theirs.fileno())
        self._forks: dict[int, Fork] = {}
        self.returncode: int | None = None  # set when the nursery has ended

    def fileno(self) -> int:
        """Return the descriptor that is readable when `receive` has something to do."""
        return self._socket.fileno()

    @property
    def pid(self) -> int:
        """The number of its process."""
        return self._process.pid

    def fork(self, index: int, descriptor: int, env: Mapping[str, str]) -> Fork:
        """Have a training process forked, as soon as the libraries are imported.

        `index`: its number within the task. `descriptor`: its end of a pipe. `env`: further
        environment variables.
        """
        self._forks[index] = fork = Fork(self, index)
        packet = json.dumps({"fork": index, "env": dict(env)}).encode()
        with suppress(OSError):  # it has ended: `receive` will find out
            socket.send_fds(self._socket, [packet], [descriptor])
        return fork

    def kill(self, fork: Fork) -> None:
        """Kill a fork."""
        if fork.fingerprint is None:
            self._process.kill()
        elif fork.returncode is None:
            with suppress(OSError):
                self._socket.send(json.dumps({"kill": fork.index}).encode())

    def receive(self) -> None:
        """Note which forks have begun and ended; wait for it, if there is nothing to be read."""
        try:
            packet = self._socket.recv(_PACKET)
        except ConnectionResetError:  # reported once, before what had been sent
            packet = self._socket.recv(_PACKET)
        if not packet:
            self.end(0.0)
            return
        news = json.loads(packet)
        if "begun" in news:
            self._forks[news["begun"]].fingerprint = news["process"]
        else:
            self._forks.pop(news["ended"]).returncode = news["code"]

    def end(self, timeout: float) -> None:
        """End the nursery, and with it all its forks; kill them after `timeout` seconds."""
        if self.returncode is not None:
            return
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_WR)
        try:
            self._process.wait(timeout)
        except subprocess.TimeoutExpired:
            self._process.kill()
        self.returncode = self._process.wait()
        self._socket.close()
        for fork in self._forks.values():
            fork.returncode = self.returncode
            if fork.fingerprint is not None:
                while processes.is_alive(fork.fingerprint):  # the kernel is about to kill it
                    time.sleep(_POLL_SECONDS)
                fork.returncode = -signal.SIGKILL
        self._forks.clear()


def serve(descriptor: int, libraries: Iterable[str], train: Callable[[int, int], int]) -> int:
    """Be a nursery: import libraries, then fork training processes until the socket closes.

    `descriptor`: this end of the socket. `libraries`: modules to import. `train`: called in each
    fork with the number of the process and the descriptor of its pipe. Returns the exit code, of
    the nursery or of a fork.
    """
    belong_to_parent()
    for name in libraries:
        with suppress(Exception):  # the fit that needs it tells what is wrong
            import_module(name)
    if len([*Path("/proc/self/task").iterdir()]) > 1:
        return THREADED
    gc.collect()
    gc.freeze()  # else each fork would copy the memory of all that was imported
    woken, waker = socket.socketpair()
    waker.setblocking(False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(waker.fileno(), warn_on_full_buffer=False)
    task, me = socket.socket(fileno=descriptor), os.getpid()
    forks: dict[int, int] = {}
    while True:
        ready = wait([task, woken])
        if woken in ready:
            woken.recv(_PACKET)
            _reap(forks, task)
        if task not in ready:
            continue
        packet, descriptors, _, _ = socket.recv_fds(task, _PACKET, 1, socket.MSG_CMSG_CLOEXEC)
        if not packet:
            return 0
        asked: dict[str, Any] = json.loads(packet)
        if (index := asked.get("kill")) is not None:
            for pid in [pid for pid, each in forks.items() if each == index]:
                os.kill(pid, signal.SIGKILL)
            continue
        sys.stdout.flush()
        sys.stderr.flush()
        try:
            pid = os.fork()
        except OSError:
            traceback.print_exc()
            os.close(descriptors[0])
            task.send(json.dumps({"ended": asked["fork"], "code": 1}).encode())
            continue
        if pid:
            os.close(descriptors[0])
            forks[pid] = asked["fork"]
            begun = {"begun": asked["fork"], "process": processes.fingerprint(pid)}
            task.send(json.dumps(begun).encode())
            continue
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for inherited in (task, woken, waker):
            inherited.close()
        belong_to_parent(me)
        _forget_random_state()
        os.environ.update(asked["env"])
        return train(asked["fork"], descriptors[0])


def _reap(forks: dict[int, int], task: socket.socket) -> None:
    """Tell the task which forks have ended, and how."""
    while forks:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if not pid:
            return
        if pid in forks:
            news = {"ended": forks.pop(pid), "code": os.waitstatus_to_exitcode(status)}
            task.send(json.dumps(news).encode())


def _forget_random_state() -> None:
    """Seed NumPy's global generator anew, as in a process that starts afresh; users' code may draw.

    Python's own does so by itself, and PyTorch starts from a constant.
    """
    if (numpy_random := sys.modules.get("numpy.random")) is not None:
        numpy_random.seed()


_THREADS = ("OMP", "OPENBLAS", "MKL", "NUMEXPR", "NUMBA")
ONE_THREAD = {f"{library}_NUM_THREADS": "1" for library in _THREADS}

_KEEPS_MEMORY = {"MALLOC_MMAP_THRESHOLD_": str(2**25), "MALLOC_TRIM_THRESHOLD_": str(2**30)}
"""Lets glibc keep the memory of a step for the next one: new memory costs a page fault per page."""

_END_SECONDS = 1.0  # longest time that a nursery without forks needs to end; it has nothing to save


@dataclass(eq=False)
class Worker:
    """One training process; `batch` is its current work, None while it starts or waits.

    `is_alone` tells whether no other may run beside it, and `left` whether it gave its work back.
    `begun`: how many runs of the batch are known to have begun, the last of them at `since`.
    """

    index: int
    process: subprocess.Popen[bytes] | Fork
    pipe: Connection
    batch: Any = None
    ready: bool = field(default=False)
    is_alone: bool = False
    left: bool = False
    begun: int = 0
    since: float = 0.0

    @property
    def is_idle(self) -> bool:
        """Whether it waits for work."""
        return self.ready and self.batch is None


@dataclass(frozen=True, slots=True)
class Message:
    """A message of a worker; `value` is None if its process has ended."""

    worker: Worker
    value: Any


class Pool:
    """Start, feed and end training processes.

    `arguments`: the sweep's directory, the task's file, and the name of the attempt. `log`: file
    for what the processes print. `forks`: whether a nursery may fork them; not if they use GPUs,
    which do not survive a fork.
    """

    def __init__(self, arguments: list[str], log: Path, *, forks: bool = False) -> None:
        self._arguments, self._log = arguments, log
        self._forks = forks and CAN_FORK
        self._nursery: Nursery | None = None
        self.workers: list[Worker] = []
        self._started = 0

    def start(self) -> Worker:
        """Start one more process."""
        ours, theirs = socketpair()
        index, env = self._started, assigned(self._started)
        with theirs:
            if self._forks and self._nursery is None:
                self._nursery = Nursery(partial(self._start, NURSERY, {}))
            process: subprocess.Popen[bytes] | Fork
            if self._nursery:
                process = self._nursery.fork(index, theirs.fileno(), env)
            else:
                process = self._start(str(index), env, theirs.fileno())
        worker = Worker(index, process, Connection(ours.detach()))
        self._started += 1
        self.workers.append(worker)
        return worker

    def _start(
        self, index: str, env: Mapping[str, str], descriptor: int
    ) -> subprocess.Popen[bytes]:
        with self._log.open("a") as log, shielded():
            return subprocess.Popen(
                [
                    *(sys.executable, "-P", "-m", "manyseed.orchestrator.working.process"),
                    *(*self._arguments, index, str(descriptor)),
                ],
                pass_fds=[descriptor],
                env={**_KEEPS_MEMORY, **os.environ, **ONE_THREAD, **env, "PYTHONSAFEPATH": "1"},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def send(self, worker: Worker, batch: Any) -> None:
        """Give a worker a batch; if the worker just died, `messages` reports it."""
        worker.batch, worker.begun, worker.since = batch, 1, time.time()
        with suppress(OSError):
            worker.pipe.send(batch)

    def messages(self, timeout: float) -> Iterator[Message]:
        """Yield the workers' messages within `timeout` seconds, including ends of processes."""
        by_pipe: dict[Any, Worker] = {worker.pipe: worker for worker in self.workers}
        nursery = self._nursery
        news = [nursery.fileno()] if nursery else []
        ready = wait([*by_pipe, *news], timeout)
        if nursery and nursery.fileno() in ready:
            nursery.receive()
        for pipe in ready:
            if worker := by_pipe.get(pipe):
                try:
                    yield Message(worker, worker.pipe.recv())
                except (EOFError, OSError):
                    worker.process.wait()
                    if not self._is_bereaved(worker):
                        self._remove(worker)
                        yield Message(worker, None)
        if nursery and nursery.returncode is not None:
            yield from self._lose(nursery.returncode)

    def _is_bereaved(self, worker: Worker) -> bool:
        """Return whether a worker's nursery ended before it forked the worker."""
        is_unborn = isinstance(worker.process, Fork) and worker.process.fingerprint is None
        return is_unborn and self._nursery is not None and self._nursery.returncode is not None

    def _lose(self, code: int) -> Iterator[Message]:
        """Remove the workers that a nursery did not come to fork, as one that died with a code."""
        lost = [worker for worker in self.workers if self._is_bereaved(worker)]
        for worker in lost:
            self._remove(worker)
        self._nursery = None
        if code == THREADED:
            self._forks = False
        elif lost:
            yield Message(lost[0], None)

    def _remove(self, worker: Worker) -> None:
        worker.pipe.close()
        self.workers.remove(worker)

    @property
    def pids(self) -> list[int]:
        """The numbers of its processes, the nursery's included."""
        mine = [self._nursery.pid] if self._nursery else []
        return mine + [pid for worker in self.workers if (pid := worker.process.pid) is not None]

    def long_in_flight(
        self, finished: Callable[[int], Collection[int]], usual: Mapping[int, float]
    ) -> tuple[InFlight, ...]:
        """Return the runs that have been in training for at least a minute.

        `finished`: returns the finished rows of a group. `usual`: by group, how long fits took.
        """
        now, found = time.time(), []
        for worker in self.workers:
            batch = worker.batch
            if batch is None or now - worker.since < LONG_SECONDS:
                continue
            if len(batch.runs) > 1:
                rows = finished(batch.group)
                ended = [n for n, (row, _) in enumerate(batch.runs, 1) if row in rows]
                begun = min(max(ended, default=0) + 1, len(batch.runs))
                if begun > worker.begun:
                    worker.begun, worker.since = begun, now
                    continue
            run = batch.runs[worker.begun - 1][1]
            took = usual.get(batch.group, 0.0)
            found.append(InFlight(batch.cell, batch.repeat, run, worker.since, took))
        return tuple(found)

    @property
    def is_training(self) -> bool:
        """Whether a fit is in flight."""
        return any(worker.batch is not None for worker in self.workers)

    def end_fits(self) -> None:
        """Kill the processes that train, and those that are still starting."""
        for worker in self.workers:
            if not worker.is_idle:
                worker.batch = None
                worker.process.kill()

    def dismiss(self, timeout: float) -> None:
        """Let all processes finish their batches within `timeout` seconds in all; kill the rest."""
        for worker in self.workers:
            with suppress(OSError):
                worker.pipe.send(None)
        until = time.monotonic() + timeout
        for worker in self.workers:
            try:
                worker.process.wait(max(0.0, until - time.monotonic()))
            except subprocess.TimeoutExpired:
                if self._nursery:
                    self._nursery.end(0.0)  # which kills its forks
                else:
                    worker.process.kill()
                worker.process.wait()
            worker.pipe.close()
        self.workers.clear()
        if self._nursery:
            self._nursery.end(max(_END_SECONDS, until - time.monotonic()))
            self._nursery = None


Key = TypeVar("Key")
Result = TypeVar("Result")


def spawned(
    calls: Iterable[tuple[Key, Callable[[], Result]]], workers: int, what: str
) -> Iterator[tuple[Key, Result]]:
    """Make calls in worker processes; yield each one's key and result as they arrive.

    After an error or Ctrl-C, no further call begins.

    `calls`, (key, callable): the callables must be picklable; the next is taken when a process is
    free, after what the one before it returned was yielded. `workers`: number of processes, at
    most. `what`: what the processes do, for an error message: "a process of the
    search".
    """
    coming = iter(calls)
    waiting: dict[futures.Future[Result], Key] = {}
    # a fork of a process that has used polars hangs
    spawn = multiprocessing.get_context("spawn")
    with _one_thread():
        pool = ProcessPoolExecutor(workers, spawn, belong_to_parent)
        try:
            while True:
                for key, call in islice(coming, workers - len(waiting)):
                    waiting[pool.submit(call)] = key
                if not waiting:
                    return
                for future in futures.wait(waiting, return_when=futures.FIRST_COMPLETED).done:
                    yield waiting.pop(future), future.result()
        except BrokenProcessPool:
            raise UnavailableError(
                f"{what} was killed; is there enough memory? "
                "The same command continues where it stopped"
            ) from None
        finally:
            pool.shutdown(cancel_futures=True)


@contextmanager
def _one_thread() -> Iterator[None]:
    """Let child processes use one thread each and import no modules of the working folder."""
    settings = {**ONE_THREAD, "PYTHONSAFEPATH": "1"}
    before = {name: os.environ.get(name) for name in settings}
    os.environ.update(settings)
    try:
        yield
    finally:  # one by one: other threads may read other variables meanwhile
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
