"""Writing finished runs to a journal, one file per worker process and attempt.

It runs in training processes, so it imports neither zarr nor anything else slow.
"""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path

from manyseed.jobs import whole
from manyseed.orchestrator.disk.placing import unavailable
from manyseed.orchestrator.errors import LeaseLost
from manyseed.orchestrator.paths import JOURNAL
from manyseed.orchestrator.store.journals import records
from manyseed.orchestrator.store.journals.records import RowBytes

SYNC_SECONDS = 30.0


class JournalWriter:
    """Appends records to a new file.

    Parameters
    ----------
    path : Path
        A name never used before, with the suffix ``.journal``: names order records and distinguish
        attempts.
    plan : str
        Identity of the plan that numbers the rows; empty if unknown.

    Raises
    ------
    StoreUnavailable
        If the file exists or the file system refuses.
    """

    def __init__(self, path: Path, plan: str = "") -> None:
        if path.suffix != JOURNAL:
            raise ValueError(f"the name of a journal must end in {JOURNAL}, got {path.name!r}")
        self.path = path
        self._preamble = records.preamble(plan) if plan else b""
        self._end = 0
        self._synced = 0
        self._last_sync = time.monotonic()
        with unavailable("create", path):
            path.parent.mkdir(parents=True, exist_ok=True)
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
            self._file: int | None = os.open(path, flags, 0o666)
            whole.sync(path.parent)

    def append(
        self, group: int, row: int, values: RowBytes, *, recipe: int, fit_seconds: float
    ) -> None:
        """Append the run of a group's row; it counts as finished once synced.

        Raises
        ------
        StoreUnavailable
            If the file system refuses, for example because the disk is full. No part of the record
            remains, and further records can be appended.
        """
        self._write(records.done(group, row, recipe, fit_seconds, values))

    def append_copy(self, group: int, row: int, source: int) -> None:
        """Append a run that is a copy of the row `source` of its group, including the recipe."""
        self._write(records.copy(group, row, source))

    def _write(self, data: bytes) -> None:
        if not self._end:
            data = self._preamble + data
        file, view, end = self._open_file(), memoryview(data), self._end
        with unavailable("append to", self.path):
            try:
                while view:
                    written = os.pwrite(file, view, end)
                    view, end = view[written:], end + written
            except BaseException:
                # what cannot be truncated now is overwritten by the next record
                with contextlib.suppress(OSError):
                    os.ftruncate(file, self._end)
                raise
        self._end = end

    @property
    def unsynced(self) -> int:
        """Number of bytes that a power cut would lose."""
        return self._end - self._synced

    def sync(self) -> None:
        """Make everything appended so far durable.

        Raises
        ------
        LeaseLost
            If others removed the file, taking this process for dead.
        """
        self._last_sync = time.monotonic()
        if self.unsynced:
            with unavailable("sync", self.path):
                os.fsync(self._open_file())
                if os.fstat(self._open_file()).st_nlink == 0:
                    raise LeaseLost(f"{self.path} was removed: this process was taken for dead")
            self._synced = self._end

    def sync_if_due(self, every: float = SYNC_SECONDS) -> bool:
        """Sync if the last sync was at least `every` seconds ago; return whether it was."""
        if time.monotonic() - self._last_sync < every:
            return False
        self.sync()
        return True

    def close(self) -> None:
        """Sync and close."""
        if self._file is not None:
            try:
                self.sync()
            finally:
                os.close(self._file)
                self._file = None

    def __enter__(self) -> JournalWriter:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _open_file(self) -> int:
        if self._file is None:
            raise ValueError(f"{self.path} is closed")
        return self._file
