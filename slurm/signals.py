"""Signals that ask a job to end soon, and signals that end a command.

A job gets them before its walltime ends, or when it is preempted or cancelled; a command, and the
processes it started, on Ctrl-C or when its terminal is closed.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

CHECKPOINT = signal.SIGUSR2
"""SLURM sends it before the walltime ends, and before preemption if the site enables that."""

_STOPS = (signal.SIGTERM, signal.SIGINT, CHECKPOINT)
_ENDS = (signal.SIGHUP, signal.SIGINT, signal.SIGTERM)
_received: set[int] = set()
_callbacks: list[Callable[[], None]] = []


def on_stop(callback: Callable[[], None]) -> None:
    """Call back whenever this process is asked to end soon; at once if it already was.

    Handles SIGTERM, SIGINT and SIGUSR2 in the main thread. A callback interrupts that thread
    anywhere, so it must only record the request.
    """
    _callbacks.append(callback)
    for number in _STOPS:
        signal.signal(number, _handle)
    if _received:
        callback()


def received() -> frozenset[int]:
    """Return the numbers of the signals received since the first `on_stop`."""
    return frozenset(_received)


@contextmanager
def shielded() -> Iterator[None]:
    """Block the signals that ask a job to end in processes started within this block.

    SLURM sends them to every process of a job; the one that listens decides what the others finish.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _STOPS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def deferred() -> Iterator[None]:
    """Delay the signals that end a command until the end of the block.

    Does nothing in other threads than the main one, which receive no signals.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    pending: list[int] = []
    before = {number: signal.getsignal(number) for number in _ENDS}
    for number in _ENDS:
        signal.signal(number, lambda number, frame: pending.append(number))
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        if pending:
            signal.raise_signal(pending[0])


def belong_to_parent(parent: int | None = None) -> None:
    """Let only the parent decide when this process ends, and kill it if the parent is killed.

    Otherwise the process of a killed task would go on with runs that are about to be retrained.

    Parameters
    ----------
    parent : int, optional
        The parent's number, where known: another one may have adopted this process already.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(1, signal.SIGKILL)
        if os.getppid() == 1 if parent is None else os.getppid() != parent:
            os.kill(os.getpid(), signal.SIGKILL)


def _handle(number: int, _frame: FrameType | None) -> None:
    _received.add(number)
    for callback in _callbacks:
        callback()
