"""Worker processes of a command, one thread each, that keep their data between calls."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from typing import TypeVar

from manyseed.orchestrator.errors import UnavailableError
from manyseed.orchestrator.working.pool import ONE_THREAD
from manyseed.slurm.signals import belong_to_parent

Key = TypeVar("Key")
Result = TypeVar("Result")


def spawned(
    calls: Sequence[tuple[Key, Callable[[], Result]]], workers: int, what: str
) -> Iterator[tuple[Key, Result]]:
    """Make calls in worker processes; yield each one's key and result as they arrive.

    After an error or Ctrl-C, no further call begins.

    Parameters
    ----------
    calls : sequence of (key, callable)
        The callables must be picklable.
    workers : int
        Number of processes, at most.
    what : str
        What the processes do, for an error message: "a process of the search".

    Raises
    ------
    UnavailableError
        If a process was killed.
    """
    if not calls:
        return
    # a fork of a process that has used polars hangs
    spawn = multiprocessing.get_context("spawn")
    with _one_thread():
        pool = ProcessPoolExecutor(min(workers, len(calls)), spawn, belong_to_parent)
        try:
            waiting = {pool.submit(call): key for key, call in calls}
            for future in as_completed(waiting):
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
