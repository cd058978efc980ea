"""An error of the machine as a task reports it: a full shared disk is no fault of the node."""

from __future__ import annotations

import errno
import os
from contextlib import suppress
from pathlib import Path

from manyseed.jobs.run import GpuFull
from manyseed.orchestrator.errors import StoreUnavailable
from manyseed.orchestrator.paths import SweepPaths
from manyseed.orchestrator.working.messages import Fault

_FULL = (errno.ENOSPC, errno.EDQUOT)
_LEAST_BYTES = 2**20


def fault(error: BaseException, reason: str, details: str, paths: SweepPaths) -> Fault:
    """Return the fault for an error; that of a full disk is the same on every node."""
    if not _is_sweeps_disk_full(error, paths.directory):
        return Fault(reason, details, is_crowded=isinstance(error, GpuFull))
    told = f"the disk of {paths.directory} is full ({reason.splitlines()[0]})"
    return Fault(told, details, is_of_task=True)


def _is_sweeps_disk_full(error: BaseException | None, directory: Path) -> bool:
    """Return whether an error, or one that it came from, is of the disk that nodes share."""
    is_of_store = False
    while error is not None:
        is_of_store |= isinstance(error, StoreUnavailable)
        if isinstance(error, OSError) and error.errno in _FULL:
            if isinstance(error.filename, str | os.PathLike):
                return Path(error.filename).resolve().is_relative_to(directory.resolve())
            return is_of_store or _free_bytes(directory) < _LEAST_BYTES
        error = error.__cause__ or error.__context__
    return False


def _free_bytes(directory: Path) -> float:
    with suppress(OSError):
        disk = os.statvfs(directory)
        return disk.f_bavail * disk.f_frsize
    return float("inf")
