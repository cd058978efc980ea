"""A pool of warm training processes, one pipe each.

They are forked by a nursery or, where that is not safe, started afresh, both as
``python -P -m manyseed.orchestrator.working.process`` with one thread: nothing of the task's own
process is inherited, and the user's modules in the working folder have no effect.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from multiprocessing.connection import Connection, wait
from pathlib import Path
from socket import socketpair
from typing import Any

from manyseed.orchestrator.devices import assigned
from manyseed.orchestrator.working.nursery import CAN_FORK, NURSERY, THREADED, Fork, Nursery
from manyseed.slurm.signals import shielded

_THREADS = ("OMP", "OPENBLAS", "MKL", "NUMEXPR", "NUMBA")
ONE_THREAD = {f"{library}_NUM_THREADS": "1" for library in _THREADS}

_END_SECONDS = 1.0
"""Longest time that a nursery without forks needs to end; it has nothing to save."""


@dataclass(eq=False)
class Worker:
    """One training process; `batch` is its current work, None while it starts or waits.

    `is_alone` tells whether no other may run beside it, and `left` whether it gave its work back.
    """

    index: int
    process: subprocess.Popen[bytes] | Fork
    pipe: Connection
    batch: Any = None
    ready: bool = field(default=False)
    is_alone: bool = False
    left: bool = False

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

    Parameters
    ----------
    arguments : list of str
        The sweep's directory, the task's file, and the name of the attempt.
    log : Path
        File for what the processes print.
    forks : bool
        Whether a nursery may fork them; not if they use GPUs, which do not survive a fork.
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
                env={**os.environ, **ONE_THREAD, **env, "PYTHONSAFEPATH": "1"},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def send(self, worker: Worker, batch: Any) -> None:
        """Give a worker a batch; if the worker just died, `messages` reports it."""
        worker.batch = batch
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
