"""Encoding the files of arrays, and reading arrays from their files."""

from __future__ import annotations

import contextlib
import functools
import io
import os
import stat
import time
import zlib
from collections import deque
from collections.abc import Callable, Generator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import google_crc32c
import numpy as np
from numpy.typing import NDArray

from manyseed.orchestrator.errors import DamagedShard, ManyseedError, StoreUnavailable
from manyseed.orchestrator.store.arrays import ArraySpec
from manyseed.orchestrator.store.chunkfile import ChunkReader, ChunkWriter, Format, parse
from manyseed.orchestrator.store.groups import Group, array_description
from manyseed.orchestrator.store.schema import GroupSpec

ATTEMPTS = 8
_AHEAD_FILES, _AHEAD_BYTES = 4, 2**23  # read ahead while one file is decoded
Array = NDArray[Any]
Bools = NDArray[np.bool_]
T = TypeVar("T")
Need = Callable[[int], bool]
"""Whether the file with an index must exist; only called for absent files."""


def nothing_needed(_index: int) -> bool:
    """Treat every absent file as never written."""
    return False


def encode(metadata: bytes, index: int, data: Array) -> tuple[str, bytes]:
    """Return the name and content of the `index`-th file along the first dimension.

    Every inner chunk that `data` reaches is written, even if it holds only fill values. Otherwise
    chunks would move when they are filled, and a reader with the index of the previous file could
    find a valid chunk of other runs at the old offset.

    `metadata`: the array's ``zarr.json``. `index`: number of the shard or chunk. `data`: its rows,
    as many as fit or fewer; inner chunks after them take no space.
    """
    form, buffer = parse(metadata), io.BytesIO()
    writer = ChunkWriter(form, buffer)
    writer.add(data)
    writer.finish()
    return form.name(index), buffer.getvalue()


_REPLICA = b"\x93mseed\x03\n"
_REPLICA_HEAD = len(_REPLICA) + 4


def encode_records(spec: GroupSpec, records: Mapping[str, Array]) -> bytes:
    """Return the content of `Group.replica`: the magic, the body's CRC-32C, and the body (zlib).

    The body is the little-endian values of all rows of each record array, in the arrays' order.
    """
    values = (records[array.name].astype(_little(array)) for array in spec.of_role("record"))
    body = zlib.compress(b"".join(value.tobytes() for value in values), 1)
    return _head(body) + body


def decode_records(spec: GroupSpec, content: bytes) -> dict[str, Array]:
    """Return what `encode_records` encoded; empty if that cannot be told."""
    head, body = content[:_REPLICA_HEAD], content[_REPLICA_HEAD:]
    if head != _head(body):
        return {}
    row = np.dtype([(array.name, _little(array)) for array in spec.of_role("record")])
    with contextlib.suppress(zlib.error, ValueError):
        values = zlib.decompressobj().decompress(body, spec.shard_length * row.itemsize + 1)
        parts, at = {}, 0
        for array in spec.of_role("record"):
            parts[array.name] = np.frombuffer(values, _little(array), spec.shard_length, at)
            at += parts[array.name].nbytes
        if at == len(values):
            return parts
    return {}


def _head(body: bytes) -> bytes:
    return _REPLICA + int(google_crc32c.value(body)).to_bytes(4, "little")


def _little(array: ArraySpec) -> np.dtype[Any]:
    return np.dtype(array.dtype).newbyteorder("<")


def read(folder: Path, start: int, stop: int, needed: Need = nothing_needed) -> Array:
    """Read rows of an array; absent files that are not needed read as the fill value.

    `folder`: folder of the array. `start` and `stop`: range of rows, clipped to the array.
    `needed`: which files must exist.
    """
    form = _form(folder)
    start, stop = max(0, start), min(stop, form.rows)
    values = form.empty(max(0, stop - start))
    with contextlib.closing(_opened(folder, form, start, stop)) as files:
        for first, file in files:
            low, high = max(start, first), min(stop, first + form.length)
            part = values[low - start : high - start]
            if file is None:
                if needed(first // form.length):
                    path = folder / form.name(first // form.length)
                    raise DamagedShard.of(path, "is missing, though published data need it")
                part[...] = form.fill
            else:
                ChunkReader(form, file).read(low - first, high - first, part)
    return values


def _opened(folder: Path, form: Format, start: int, stop: int) -> Generator[tuple[int, int | None]]:
    """Yield the first row and the open file of each file in order, opening some of them ahead."""
    ahead: deque[tuple[int, int | None]] = deque()
    try:
        for index in range(start // form.length, -(-stop // form.length) if start < stop else 0):
            first = index * form.length
            whole = start <= first and min(first + form.length, form.rows) <= stop
            file = _open(folder / form.name(index), _AHEAD_BYTES if whole else 0)
            ahead.append((first, file))
            if len(ahead) > _AHEAD_FILES:
                yield ahead[0]
                _close(ahead.popleft()[1])
        while ahead:
            yield ahead[0]
            _close(ahead.popleft()[1])
    finally:
        for _, file in ahead:
            _close(file)


def _open(path: Path, ahead: int) -> int | None:
    """Open a file, and prefetch `ahead` bytes; return None if it does not exist."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)  # a pipe must not block
    except FileNotFoundError:
        return None
    if not stat.S_ISREG(os.fstat(file).st_mode):
        os.close(file)
        raise ValueError(f"{path.name} is not a plain file")
    if ahead and hasattr(os, "posix_fadvise"):
        os.posix_fadvise(file, 0, ahead, os.POSIX_FADV_WILLNEED)
    return file


def _close(file: int | None) -> None:
    if file is not None:
        os.close(file)


def read_part(folder: Path, key: tuple[Any, ...], needed: Need = nothing_needed) -> Array:
    """Read what a basic index selects, a slice or number per dimension; otherwise like `read`."""
    rows = range(_form(folder).rows)[key[0]]
    if isinstance(rows, int):
        return np.asarray(read(folder, rows, rows + 1, needed)[(0, *key[1:])])
    if not rows:
        return np.asarray(read(folder, 0, 0)[(slice(None), *key[1:])])
    low, high = min(rows[0], rows[-1]), max(rows[0], rows[-1])
    return np.asarray(read(folder, low, high + 1, needed)[:: rows.step][(slice(None), *key[1:])])


def read_rows(
    folder: Path,
    rows: Sequence[int] | NDArray[np.integer[Any]],
    needed: Need = nothing_needed,
) -> Array:
    """Read rows of an array like `read`, but only the inner chunks that hold them."""
    form, wanted = _form(folder), np.asarray(rows, dtype=np.int64)
    values = form.empty(len(wanted))
    order = np.argsort(wanted, kind="stable")
    edges = np.flatnonzero(np.diff(wanted[order] // form.chunk)) + 1
    for same_chunk in np.split(order, edges) if len(wanted) else ():
        first, last = int(wanted[same_chunk[0]]), int(wanted[same_chunk[-1]])
        values[same_chunk] = read(folder, first, last + 1, needed)[wanted[same_chunk] - first]
    return values


def patiently(read: Callable[[], T], folder: Path) -> T:
    """Call `read`, and retry if it fails, as a file may be replaced while it is read.

    `folder`, the array's, is for messages.
    """
    for attempt in range(ATTEMPTS):
        try:
            return read()
        except MemoryError as error:
            raise StoreUnavailable(f"cannot read {folder}: not enough memory") from error
        except Exception as error:  # damaged bytes raise errors of many types
            failure = error
            time.sleep(0.01 * attempt)
    if isinstance(failure, ManyseedError):
        raise failure
    if isinstance(failure, OSError):
        raise StoreUnavailable(f"cannot read {folder}: {failure}") from failure
    raise DamagedShard.of(folder, f"cannot be decoded ({failure})") from None


def read_undamaged(folder: Path, start: int, stop: int, step: int, into: Array) -> Bools:
    """Read rows of the array in `folder`; return which could not be decoded, (stop - start,).

    Rows go to `into` (stop - start, …), a chunk of `step` rows at a time.
    """
    damaged = np.zeros(stop - start, dtype=np.bool_)
    for first in range(start, stop, step):
        part = slice(first - start, first - start + step)
        try:
            end = min(first + step, stop)
            into[part] = patiently(functools.partial(read, folder, first, end), folder)
        except DamagedShard:
            damaged[part] = True
    return damaged


def read_file(group: Group, array: ArraySpec, start: int, stop: int, into: Array) -> Bools:
    """Read rows of one shard of a published array like `read_undamaged`.

    An absent file counts as damaged, not as fill values.
    """
    if not group.file(array, start // group.spec.shard_length).exists():
        return np.ones(stop - start, dtype=np.bool_)
    step = group.spec.chunks(array)[0]
    return read_undamaged(group.folder / array.name, start, stop, step, into)


def filled(spec: GroupSpec, array: ArraySpec, rows: int) -> Array:
    """Return rows of fill values."""
    return np.full((rows, *spec.part_shape(array)), array.fill_value, dtype=array.dtype)


def _form(folder: Path) -> Format:
    return parse(array_description(folder))
