"""Who holds a lease: enough to tell, on the same machine, that the process is gone."""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Owner:
    """A process.

    Attributes
    ----------
    host : str
        For people.
    machine : str
        Boot id and process-number namespace: equal where process numbers can be compared.
    pid, started : int
        Process number, and its start in clock ticks since boot.
    """

    host: str
    machine: str
    pid: int
    started: int

    @classmethod
    def current(cls) -> Owner:
        """Return this process."""
        pid = os.getpid()
        return cls(socket.gethostname(), _machine(), pid, _started(pid) or 0)

    def is_gone(self) -> bool:
        """Return whether the process has certainly ended; False where that cannot be told."""
        if not self.machine or self.machine != _machine():
            return False
        return _started(self.pid) != self.started


def _machine() -> str:
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot} {Path('/proc/self/ns/pid').readlink()}"
    except OSError:
        return ""


def _started(pid: int) -> int | None:
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return None
    fields = stat[stat.rindex(b")") + 2 :].split()  # after the name, which may hold anything
    return None if fields[0] in (b"Z", b"X") else int(fields[19])
