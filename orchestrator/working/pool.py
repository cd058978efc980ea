"""A pool of warm training processes, one pipe each.

Every process is started afresh as ``python -P -m manyseed.orchestrator.working.process`` with one
thread: nothing is inherited by a fork, and the user's modules in the working folder have no effect.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from pathlib import Path
from socket import socketpair
from typing import Any

from manyseed.orchestrator.devices import assigned
from manyseed.slurm.signals import shielded

_THREADS = ("OMP", "OPENBLAS", "MKL", "NUMEXPR", "NUMBA")
ONE_THREAD = {f"{library}_NUM_THREADS": "1" for library in _THREADS}


@dataclass(eq=False)
class Worker:
    """One training process; `batch` is its current work, None while it starts or waits."""

    index: int
    process: subprocess.Popen[bytes]
    pipe: Connection
    batch: Any = None
    ready: bool = field(default=False)

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
    """Start, feed and end training processes."""

    def __init__(self, arguments: list[str], log: Path) -> None:
        self._arguments, self._log = arguments, log
        self.workers: list[Worker] = []
        self._started = 0

    def start(self) -> Worker:
        """Start one more process."""
        ours, theirs = socketpair()
        with self._log.open("a") as log, shielded():
            process = subprocess.Popen(
                [
                    *(sys.executable, "-P", "-m", "manyseed.orchestrator.working.process"),
                    *(*self._arguments, str(self._started), str(theirs.fileno())),
                ],
                pass_fds=[theirs.fileno()],
                env={**os.environ, **ONE_THREAD, **assigned(self._started), "PYTHONSAFEPATH": "1"},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        theirs.close()
        worker = Worker(self._started, process, Connection(ours.detach()))
        self._started += 1
        self.workers.append(worker)
        return worker

    def send(self, worker: Worker, batch: Any) -> None:
        """Give a worker a batch; if the worker just died, `messages` reports it."""
        worker.batch = batch
        with suppress(OSError):
            worker.pipe.send(batch)

    def messages(self, timeout: float) -> Iterator[Message]:
        """Yield the workers' messages within `timeout` seconds, including ends of processes."""
        by_pipe = {worker.pipe: worker for worker in self.workers}
        for pipe in wait(list(by_pipe), timeout):
            worker = by_pipe[pipe]  # type: ignore[index]
            try:
                yield Message(worker, worker.pipe.recv())
            except (EOFError, OSError):
                worker.process.wait()
                worker.pipe.close()
                self.workers.remove(worker)
                yield Message(worker, None)

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
                worker.process.kill()
                worker.process.wait()
            worker.pipe.close()
        self.workers.clear()
