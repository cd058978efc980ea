"""Which process it was, and whether it is alive: the one identity of a process, also on disk.

A process is its number and its start, within one process namespace of one boot of one host. Where
any of these differs from here nothing is known of it, and also of a process that this user may
not see (``hidepid``): then only what it writes shows whether it is alive.
"""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

State = Literal["alive", "dead", "unknown"]
"""Dead is certain: nothing that was thought dead so ever writes again."""

_PROC = Path("/proc/self")
_UNKNOWN = "-"
_ENDED = -1
_UNSEEN = 0


@dataclass(frozen=True, slots=True)
class Process:
    """A process.

    Attributes
    ----------
    host : str
        The host's name.
    boot, namespace : str
        Of the kernel, and of process numbers; ``-`` where that is unknown.
    pid : int
        Process number.
    started : int
        Its start, on Linux in clock ticks since boot; 0 where that could not be seen, -1 where it
        had ended.
    """

    host: str
    boot: str
    namespace: str
    pid: int
    started: int

    @classmethod
    def of(cls, pid: int) -> Process:
        """Return a process of this machine by its number."""
        return cls(*_here(), pid, _started(pid))

    @classmethod
    def current(cls) -> Process:
        """Return this process."""
        return cls.of(os.getpid())

    @classmethod
    def parse(cls, fingerprint: str) -> Process:
        """Read what `str` made, also of versions that wrote no namespace.

        Raises
        ------
        ValueError
            Where it is no fingerprint.
        """
        fields = fingerprint.split()
        if not 3 <= len(fields) <= 5:
            raise ValueError(f"{fingerprint!r} names no process")
        # versions before wrote no namespace, and no start of what had ended
        host, boot, pid, started, namespace = fields + [str(_ENDED), _UNKNOWN][len(fields) - 3 :]
        return cls(host, boot, namespace, int(pid), int(started))

    def __str__(self) -> str:
        return f"{self.host} {self.boot} {self.pid} {self.started} {self.namespace}"

    def state(self) -> State:
        """Return whether the process is alive, dead, or unknown."""
        host, boot, namespace = _here()
        if (self.host, self.boot) != (host, boot) or boot == _UNKNOWN or self.pid <= 0:
            return "unknown"
        if self.namespace == _UNKNOWN:  # an older version's: as sure as its words are
            is_it = self.started == _started(self.pid) > 0
            return "alive" if is_it else "unknown"
        if self.namespace != namespace:
            return "unknown"
        now = _started(self.pid)
        if _ENDED in (now, self.started):
            return "dead"
        if _UNSEEN in (now, self.started):
            return "unknown"
        return "alive" if now == self.started else "dead"


def fingerprint(pid: int) -> str:
    """Name a process of this machine so that no other one, of another start, has the same name."""
    return str(Process.of(pid))


def state(fingerprint: str) -> State:
    """Return whether a process is alive, by its fingerprint; unknown for other text."""
    try:
        return Process.parse(fingerprint).state()
    except ValueError:
        return "unknown"


def is_alive(fingerprint: str) -> bool:
    """Whether a process is certainly alive, on this machine."""
    return state(fingerprint) == "alive"


def _here() -> tuple[str, str, str]:
    """Return the host's name, the boot and the namespace of this process."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        namespace = str(Path("/proc/self/ns/pid").readlink())
    except OSError:
        boot, namespace = ("", "") if _PROC.exists() else (f"{_boot_time():.0f}", "all")
    return socket.gethostname(), boot or _UNKNOWN, namespace or _UNKNOWN


def _started(pid: int) -> int:
    """Return when a process started; `_ENDED`, or `_UNSEEN` where it is hidden."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        if not _is_there(pid):
            return _ENDED
        return _UNSEEN if _PROC.exists() else _started_elsewhere(pid)
    fields = stat[stat.rindex(b")") + 2 :].split()  # after the name, which may hold anything
    return _ENDED if fields[0] in (b"Z", b"X") else int(fields[19])


def _boot_time() -> float:
    import psutil

    return float(psutil.boot_time())


def _started_elsewhere(pid: int) -> int:
    """Do as `_started` where the system has no ``/proc``, such as macOS; in 1/100 s since 1970."""
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


def _is_there(pid: int) -> bool:
    """Ask the kernel, which knows also what `/proc` hides from this user."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):
        pass
    return True
