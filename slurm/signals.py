"""Signals that ask a job to end soon: its walltime nears, it is preempted, or it is cancelled.

And those that end a command, and what it started: Ctrl-C, or a terminal that is closed.
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
"""What SLURM sends before the walltime, and before preemption where the site enables it."""

_STOPS = (signal.SIGTERM, signal.SIGINT, CHECKPOINT)
_ENDS = (signal.SIGHUP, signal.SIGINT, signal.SIGTERM)
_received: set[int] = set()
_callbacks: list[Callable[[], None]] = []


def on_stop(callback: Callable[[], None]) -> None:
    """Call back whenever this process is asked to end soon; at once when it already was.

    Listens to SIGTERM, SIGINT and SIGUSR2, in the main thread. A callback runs between two
    instructions of that thread: it must only note the request.
    """
    _callbacks.append(callback)
    for number in _STOPS:
        signal.signal(number, _handle)
    if _received:
        callback()


def received() -> frozenset[int]:
    """Return the numbers of the signals that came since this process listens."""
    return frozenset(_received)


@contextmanager
def shielded() -> Iterator[None]:
    """Within this block, new processes are started deaf to the signals that ask a job to end.

    SLURM sends them to every process of a job; the one that listens decides what the others
    still finish.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _STOPS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def deferred() -> Iterator[None]:
    """Within this block, what ends a command waits until the block's end.

    Other threads than the main one are reached by no signal.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[int] = []
    before = {number: signal.getsignal(number) for number in _ENDS}
    for number in _ENDS:
        signal.signal(number, lambda got, frame: came.append(got))
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        if came:
            signal.raise_signal(came[0])


def belong_to_parent() -> None:
    """Let the parent alone decide when this process ends; end it where the parent is killed.

    A process whose task was killed would go on training what is about to be trained again.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(1, signal.SIGKILL)
        if os.getppid() == 1:
            os.kill(os.getpid(), signal.SIGKILL)


def _handle(number: int, frame: FrameType | None) -> None:
    del frame
    _received.add(number)
    for callback in _callbacks:
        callback()
