"""The identity of a process, also on disk, whether it is alive, and the signals that end it.

A process is identified by its number and start time within one process namespace of one boot of one
host. Nothing is known about a process if any of the latter differs from here, or if this user may
not see it (``hidepid``); then only what it writes shows whether it is alive.

Signals ask a job to end before its walltime ends, or when it is preempted or cancelled, and end a
command, with the processes it started, on Ctrl-C or when its terminal is closed.
"""

from __future__ import annotations

import atexit
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Literal, NoReturn

State = Literal["alive", "dead", "unknown"]
"""``dead`` is certain: such a process never writes again."""

_PROC = Path("/proc/self")
_UNKNOWN = "-"
_ENDED = -1
_UNSEEN = 0


@dataclass(frozen=True, slots=True)
class Process:
    """A process."""

    host: str  # host name
    boot: str
    namespace: str  # boot id of the kernel and process namespace; ``-`` if unknown
    pid: int  # process number
    started: int
    """Start time, on Linux in clock ticks since boot; 0 if hidden, -1 if the process had ended."""

    @classmethod
    def of(cls, pid: int) -> Process:
        """Return the process of this machine with a number."""
        return cls(*_here(), pid, _started(pid))

    @classmethod
    def current(cls) -> Process:
        """Return this process."""
        return cls.of(os.getpid())

    @classmethod
    def parse(cls, fingerprint: str) -> Process:
        """Parse the `str` of a process, even if an earlier version wrote it."""
        fields = fingerprint.split()
        if not 3 <= len(fields) <= 5:
            raise ValueError(f"{fingerprint!r} does not identify a process")
        # earlier versions wrote no namespace, and no start time of ended processes
        host, boot, pid, started, namespace = fields + [str(_ENDED), _UNKNOWN][len(fields) - 3 :]
        return cls(host, boot, namespace, int(pid), int(started))

    def __str__(self) -> str:
        return f"{self.host} {self.boot} {self.pid} {self.started} {self.namespace}"

    def state(self) -> State:
        """Return whether the process is alive, dead, or unknown."""
        host, boot, namespace = _here()
        if (self.host, self.boot) != (host, boot) or boot == _UNKNOWN or self.pid <= 0:
            return "unknown"
        if self.namespace == _UNKNOWN:  # of an earlier version
            return "alive" if self.started == _started(self.pid) > 0 else "unknown"
        if self.namespace != namespace:
            return "unknown"
        now = _started(self.pid)
        if _ENDED in (now, self.started):
            return "dead"
        if _UNSEEN in (now, self.started):
            return "unknown"
        return "alive" if now == self.started else "dead"


def user_name() -> str:
    """Return the user's name for SLURM, or their number if the machine knows no name for it."""
    import getpass

    try:
        return getpass.getuser()
    except (KeyError, OSError):  # in containers, and where directory services do not answer
        return str(os.getuid())


def fingerprint(pid: int) -> str:
    """Return text that identifies a process of this machine, including its start time."""
    return str(Process.of(pid))


def state(fingerprint: str) -> State:
    """Return the state of a process given by its fingerprint; ``unknown`` for other text."""
    try:
        return Process.parse(fingerprint).state()
    except ValueError:
        return "unknown"


def is_alive(fingerprint: str) -> bool:
    """Whether a process, given by its fingerprint, is certainly alive on this machine."""
    return state(fingerprint) == "alive"


def _here() -> tuple[str, str, str]:
    """Return the host name, boot id and process namespace of this process."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        namespace = str(Path("/proc/self/ns/pid").readlink())
    except OSError:
        boot, namespace = ("", "") if _PROC.exists() else (f"{_boot_time():.0f}", "all")
    return socket.gethostname(), boot or _UNKNOWN, namespace or _UNKNOWN


def _started(pid: int) -> int:
    """Return the start time of a process, `_ENDED`, or `_UNSEEN` if it is hidden."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        if not _exists(pid):
            return _ENDED
        return _UNSEEN if _PROC.exists() else _started_without_proc(pid)
    fields = stat[stat.rindex(b")") + 2 :].split()  # after the name, which may contain anything
    return _ENDED if fields[0] in (b"Z", b"X") else int(fields[19])


def _boot_time() -> float:
    import psutil

    return float(psutil.boot_time())


def _started_without_proc(pid: int) -> int:
    """Do the same as `_started` on systems without ``/proc`` (macOS), in 1/100 s since 1970."""
    import psutil

    try:
        process = psutil.Process(pid)
        if process.status() == psutil.STATUS_ZOMBIE:
            return _ENDED
        return round(float(process.create_time()) * 100)
    except psutil.NoSuchProcess:
        return _ENDED
    except psutil.Error:
        return _UNSEEN


def _exists(pid: int) -> bool:
    """Ask the kernel, which also knows processes that ``/proc`` hides from this user."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):
        pass
    return True


CHECKPOINT = signal.SIGUSR2
"""SLURM sends it before the walltime ends, and before preemption if the site enables that."""

JOB_NAME = "MANYSEED_JOB_NAME"
"""Variable with which a job of a profile's commands knows its own name, that of its logs."""

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


def leave(code: int) -> NoReturn:
    """End this process without taking apart all modules, which takes longer than some fits."""
    with suppress(Exception):
        atexit._run_exitfuncs()
    with suppress(Exception):
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(code)


def belong_to_parent(parent: int | None = None) -> None:
    """Let only the parent decide when this process ends, and kill it if the parent is killed.

    Otherwise the process of a killed task would go on with runs that are about to be retrained.

    `parent`: the parent's number, where known: another one may have adopted this process already.
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
