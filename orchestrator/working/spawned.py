"""Worker processes of a command, one thread each, that keep their data between calls."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager

from manyseed.orchestrator.working.pool import ONE_THREAD
from manyseed.slurm.signals import belong_to_parent


@contextmanager
def spawned(workers: int) -> Iterator[ProcessPoolExecutor]:
    """Yield a process pool that starts no further work after an error or Ctrl-C."""
    # a fork of a process that has used polars hangs
    spawn = multiprocessing.get_context("spawn")
    with _one_thread():
        pool = ProcessPoolExecutor(workers, spawn, belong_to_parent)
        try:
            yield pool
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
