"""One file of a Zarr array: inner chunks, each with its CRC-32C, and the index of a shard.

zarr-python reads and writes the same bytes (the tests compare both ways). It is not used because
its event loop and copies take 2 to 6 times the CPU time for the same files, and 2 to 4 times with
zarrs, its pipeline in Rust (``benchmarks/bench_codec.py``). In addition, this module writes a shard
one inner chunk at a time, and training processes need not import zarr. A file is opened once for
everything that is read from it, so that replacing it meanwhile has no effect.

`WriteBehind` writes a shard's predictions in a thread while the next ones are read: reading and
checking keep one core busy, compressing and copying to the page cache another, and the disk works
in parallel.
"""

from __future__ import annotations

import contextlib
import functools
import json
import math
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import google_crc32c
import numpy as np
from numpy.typing import NDArray

from manyseed.orchestrator.errors import StoreError

if TYPE_CHECKING:
    from numcodecs.blosc import Blosc


_ABSENT = 2**64 - 1
_CRC_BYTES = 4
_SHUFFLE = {"noshuffle": 0, "shuffle": 1, "bitshuffle": 2}
_KNOWN = (["bytes", "crc32c"], ["bytes", "blosc", "crc32c"])


@dataclass(frozen=True, eq=False)
class Format:
    """The format of an array's files, as described by its ``zarr.json``."""

    rows: int  # length of the array
    row: tuple[int, ...]  # shape of one row
    dtype: np.dtype[Any]  # little-endian
    fill: float | int  # the value of elements that were never written
    length: int  # rows per file
    chunk: int  # rows per inner chunk; a divisor of `length`
    sharded: bool  # whether a file ends with an index of inner chunks; if not, it is a single chunk
    blosc: Blosc | None  # the compressor

    def name(self, index: int) -> str:
        """Return the name of the `index`-th file along the first dimension."""
        return file_name(index, 1 + len(self.row))

    def empty(self, n: int) -> NDArray[Any]:
        """Return `n` uninitialised rows."""
        return np.empty((n, *self.row), dtype=self.dtype)


def _blosc(**options: Any) -> Blosc:
    import numcodecs.blosc  # most commands read no compressed array

    numcodecs.blosc.use_threads = False  # one thread per process, as zarr has it
    return numcodecs.blosc.Blosc(**options)


def file_name(index: int, n_dims: int) -> str:
    """Return the name of the `index`-th file along the first of `n_dims` dimensions."""
    return ".".join(["c", str(index), *["0"] * (n_dims - 1)])


@functools.lru_cache(maxsize=1024)
def parse(metadata: bytes) -> Format:
    """Read an array's ``zarr.json``."""
    document = json.loads(metadata)
    shape, codecs = document["shape"], document["codecs"]
    outer = inner = document["chunk_grid"]["configuration"]["chunk_shape"]
    if sharded := codecs[0]["name"] == "sharding_indexed":
        options = codecs[0]["configuration"]
        inner, codecs = options["chunk_shape"], options["codecs"]
    lengths = (*shape, *outer, *inner)
    if not shape or any(type(length) is not int or length < 0 for length in lengths):
        raise StoreError("the lengths of an array are not whole numbers: was it made by manyseed?")
    names = [codec["name"] for codec in codecs]
    if names not in _KNOWN or document["chunk_key_encoding"]["configuration"]["separator"] != ".":
        raise StoreError(f"an array is stored by {', '.join(names)}: was it made by manyseed?")
    blosc = None
    if "blosc" in names:
        options = dict(codecs[1]["configuration"])
        options.pop("typesize", None)  # follows from the dtype
        blosc = _blosc(**{**options, "shuffle": _SHUFFLE[options["shuffle"]]})
    dtype = np.dtype(document["data_type"]).newbyteorder("<")
    if dtype.kind not in "biuf":
        raise StoreError(f"an array holds {dtype}, not numbers: was it made by manyseed?")
    fill = document["fill_value"]
    return Format(
        rows=shape[0],
        row=tuple(shape[1:]),
        dtype=dtype,
        fill=float(fill) if dtype.kind == "f" else int(fill),
        length=outer[0],
        chunk=inner[0],
        sharded=sharded,
        blosc=blosc,
    )


class ChunkWriter:
    """Writes one file, one inner chunk after another.

    `written`: bytes written to the file so far.
    """

    def __init__(self, form: Format, file: BinaryIO) -> None:
        self._form, self._file, self.written = form, file, 0
        self._spans: list[tuple[int, int]] = []
        self._start = self._rows = self._crc = 0  # of the current inner chunk
        self._pending: NDArray[Any] | None = None  # its rows, until they can be compressed

    def add(self, values: NDArray[Any]) -> None:
        """Add the next rows; those of uncompressed arrays are written to the file at once."""
        while len(values):
            part = values[: self._form.chunk - self._rows]
            self._extend(np.ascontiguousarray(part, dtype=self._form.dtype))
            values = values[len(part) :]

    def finish(self) -> None:
        """Fill up the last inner chunk and write the index; chunks never begun take no space."""
        form = self._form
        if self._rows:
            rest = form.empty(form.chunk - self._rows)
            rest[...] = form.fill
            self.add(rest)
        if form.sharded:
            index = np.full((form.length // form.chunk, 2), _ABSENT, dtype="<u8")
            index[: len(self._spans)] = self._spans
            self._write(index.tobytes())
            self._write(_checksum(index))

    def _extend(self, rows: NDArray[Any]) -> None:
        form, first = self._form, self._rows
        self._rows += len(rows)
        whole = self._rows == form.chunk
        if form.blosc is None:
            body: Any = _bytes(rows)
        elif whole and not first:
            body = form.blosc.encode(rows.reshape(-1))
        else:
            if self._pending is None:
                self._pending = form.empty(form.chunk)
            self._pending[first : self._rows] = rows
            # the compressor looks at the size of the values, not at their shape
            body = form.blosc.encode(self._pending.reshape(-1)) if whole else b""
        self._write(body)
        self._crc = google_crc32c.extend(self._crc, body)
        if whole:
            self._write(self._crc.to_bytes(_CRC_BYTES, "little"))
            self._spans.append((self._start, self.written - self._start))
            self._start, self._rows, self._crc = self.written, 0, 0

    def _write(self, data: Any) -> None:
        view = memoryview(data)
        while view:
            written = self._file.write(view)
            view, self.written = view[written:], self.written + written


class ChunkReader:
    """Reads from one open file."""

    def __init__(self, form: Format, descriptor: int) -> None:
        self._form, self._file = form, descriptor
        size = os.fstat(descriptor).st_size
        self._spans: Any = [(0, size)]
        if form.sharded:
            index = np.empty((form.length // form.chunk, 2), dtype="<u8")
            self._fill(_bytes(index), size - index.nbytes - _CRC_BYTES)
            self._spans = index.tolist()

    def read(self, start: int, stop: int, into: NDArray[Any]) -> None:
        """Read rows `start` to `stop` of the file into an array of `stop - start` rows."""
        chunk = self._form.chunk
        for number in range(start // chunk, math.ceil(stop / chunk)):
            low, high = max(start, number * chunk), min(stop, (number + 1) * chunk)
            part = into[low - start : high - start]
            if high - low == chunk and part.flags.c_contiguous:
                self._read_chunk(number, part)
            else:
                whole = self._form.empty(chunk)
                self._read_chunk(number, whole)
                part[...] = whole[low - number * chunk : high - number * chunk]

    def _read_chunk(self, number: int, into: NDArray[Any]) -> None:
        offset, length = self._spans[number]
        if offset == _ABSENT:
            into[...] = self._form.fill
        elif self._form.blosc is None:
            if length != into.nbytes + _CRC_BYTES:
                raise ValueError(f"an inner chunk has {length} bytes for {into.nbytes} of values")
            self._fill(_bytes(into), offset)
        else:
            body = np.empty(max(0, length - _CRC_BYTES), dtype=np.uint8)
            self._fill(_bytes(body), offset)
            self._form.blosc.decode(body, out=into)

    def _fill(self, view: NDArray[np.uint8], offset: int) -> None:
        """Fill a buffer from the file, and verify the checksum that follows."""
        if offset < 0:
            raise ValueError("the file is too short")
        crc = np.empty(_CRC_BYTES, dtype=np.uint8)
        self._read(view, offset)
        self._read(crc, offset + len(view))
        if _checksum(view) != crc.tobytes():
            raise ValueError("a checksum does not match")

    def _read(self, view: NDArray[np.uint8], offset: int) -> None:
        while len(view):
            n = os.preadv(self._file, [view.data], offset)
            if n == 0:
                raise ValueError("the file is too short")
            view, offset = view[n:], offset + n


def _bytes(values: NDArray[Any]) -> NDArray[np.uint8]:
    return values.reshape(-1).view(np.uint8)


def _checksum(data: Any) -> bytes:
    """Return the CRC-32C of bytes or an array; the library does not accept a memoryview."""
    return int(google_crc32c.value(data)).to_bytes(_CRC_BYTES, "little")


_BEHIND_BYTES = 2**22


@contextlib.contextmanager
def write_behind(
    forms: Sequence[Format], paths: Sequence[Path], rows: int
) -> Iterator[WriteBehind]:
    """Let the block write new files, one per array, some rows at a time.

    The files are completed, not synced, when the block ends without an exception.

    `forms`: formats of the files. `paths`: the files, which must not exist. `rows`: maximum number
    of rows written at a time; memory holds twice as many.
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
        """Write the rows put into `buffers`."""
        self.wait()
        self._written = self._thread.submit(self._write, parts)
        self._buffers.reverse()

    def wait(self) -> None:
        """Wait for pending writes."""
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
