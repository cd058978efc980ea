"""Write-behind: a thread writes a shard's predictions while the next ones are read.

Reading and checking keep one core busy, compressing and copying to the page cache another, and the
disk works beside both.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO

from numpy.typing import NDArray

from orchestrator.store.chunkfile import ChunkWriter, Format

_BEHIND_BYTES = 2**22


class WriteBehind:
    """Writes new files, one of each array, some rows at a time. A context manager.

    Leaving the block without an exception completes the files; none is synced.

    Parameters
    ----------
    forms : sequence of Format
        How the files are made.
    paths : sequence of Path
        Where; there must be no such files.
    rows : int
        The most rows that are written at a time; memory holds them twice.
    """

    def __init__(self, forms: Sequence[Format], paths: Sequence[Path], rows: int) -> None:
        self._forms, self._paths = forms, paths
        self._buffers = [[form.empty(rows) for form in forms] for _ in range(2)]
        self._written: Future[None] | None = None

    def __enter__(self) -> WriteBehind:
        with contextlib.ExitStack() as stack:
            files = [stack.enter_context(path.open("xb", buffering=0)) for path in self._paths]
            self._files = [_File(form, file) for form, file in zip(self._forms, files, strict=True)]
            self._thread = stack.enter_context(ThreadPoolExecutor(1))
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        with self._stack:
            if error is None:
                self._wait()
                for file in self._files:
                    file.writer.finish()

    def buffers(self, rows: int) -> list[NDArray[Any]]:
        """Return arrays for the next rows; what they hold is undefined."""
        return [buffer[:rows] for buffer in self._buffers[0]]

    def write(self, parts: Sequence[NDArray[Any]]) -> None:
        """Write what was put into `buffers`.

        Raises
        ------
        OSError
            If the file system refused these rows or those before.
        """
        self._wait()
        self._written = self._thread.submit(self._write, parts)
        self._buffers.reverse()

    def _wait(self) -> None:
        if self._written is not None:
            self._written.result()

    def _write(self, parts: Sequence[NDArray[Any]]) -> None:
        for file, rows in zip(self._files, parts, strict=True):
            file.write(rows)


class _File:
    """One of the files, and how much of it the disk was told of."""

    def __init__(self, form: Format, file: BinaryIO) -> None:
        self.writer, self._file, self._told = ChunkWriter(form, file), file.fileno(), 0

    def write(self, rows: NDArray[Any]) -> None:
        self.writer.add(rows)
        if (new := self.writer.written - self._told) >= _BEHIND_BYTES:
            # Linux then begins to write what is not yet on disk; fsync has less to wait for.
            os.posix_fadvise(self._file, self._told, new, os.POSIX_FADV_DONTNEED)
            self._told = self.writer.written
