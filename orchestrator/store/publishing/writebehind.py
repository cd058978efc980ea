"""Write-behind: a thread writes a shard's predictions while the next ones are read.

Reading and checking keep one core busy, compressing and copying to the page cache another, and the
disk works in parallel.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, BinaryIO

from numpy.typing import NDArray

from manyseed.orchestrator.store.layout.chunkfile import ChunkWriter, Format

_BEHIND_BYTES = 2**22


@contextlib.contextmanager
def write_behind(
    forms: Sequence[Format], paths: Sequence[Path], rows: int
) -> Iterator[WriteBehind]:
    """Let the block write new files, one per array, some rows at a time.

    The files are completed, not synced, when the block ends without an exception.

    Parameters
    ----------
    forms : sequence of Format
        Formats of the files.
    paths : sequence of Path
        The files, which must not exist.
    rows : int
        Maximum number of rows written at a time; memory holds twice as many.

    Raises
    ------
    OSError
        If the file system refuses.
    """
    buffers = [[form.empty(rows) for form in forms] for _ in range(2)]
    with contextlib.ExitStack() as stack:
        opened = [stack.enter_context(path.open("xb", buffering=0)) for path in paths]
        files = [_File(form, file) for form, file in zip(forms, opened, strict=True)]
        writing = WriteBehind(files, buffers, stack.enter_context(ThreadPoolExecutor(1)))
        yield writing
        writing.wait()
        for file in files:
            file.writer.finish()


class WriteBehind:
    """Writes rows to open files; made by `write_behind`."""

    def __init__(
        self, files: list[_File], buffers: list[list[NDArray[Any]]], thread: ThreadPoolExecutor
    ) -> None:
        self._files, self._buffers, self._thread = files, buffers, thread
        self._written: Future[None] | None = None

    def buffers(self, rows: int) -> list[NDArray[Any]]:
        """Return uninitialised arrays for the next rows."""
        return [buffer[:rows] for buffer in self._buffers[0]]

    def write(self, parts: Sequence[NDArray[Any]]) -> None:
        """Write the rows put into `buffers`.

        Raises
        ------
        OSError
            If the file system refused the previous rows.
        """
        self.wait()
        self._written = self._thread.submit(self._write, parts)
        self._buffers.reverse()

    def wait(self) -> None:
        """Wait for pending writes.

        Raises
        ------
        OSError
            If the file system refused them.
        """
        if self._written is not None:
            self._written.result()

    def _write(self, parts: Sequence[NDArray[Any]]) -> None:
        for file, rows in zip(self._files, parts, strict=True):
            file.write(rows)


class _File:
    """An open file, and how much of it the system was asked to write."""

    def __init__(self, form: Format, file: BinaryIO) -> None:
        self.writer, self._file, self._announced = ChunkWriter(form, file), file.fileno(), 0

    def write(self, rows: NDArray[Any]) -> None:
        self.writer.add(rows)
        if (new := self.writer.written - self._announced) >= _BEHIND_BYTES:
            # Linux then starts writing what is not on disk yet, so fsync has less to wait for.
            if hasattr(os, "posix_fadvise"):
                os.posix_fadvise(self._file, self._announced, new, os.POSIX_FADV_DONTNEED)
            self._announced = self.writer.written
