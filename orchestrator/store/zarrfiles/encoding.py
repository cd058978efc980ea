"""Arrays of the store, read from their files, and to the bytes of one file."""

from __future__ import annotations

import contextlib
import functools
import io
import os
import stat
import time
from collections import deque
from collections.abc import Callable, Generator, Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from manyseed.orchestrator.errors import DamagedShard, ManyseedError, StoreUnavailable
from manyseed.orchestrator.store.layout.arrays import ArraySpec
from manyseed.orchestrator.store.layout.chunkfile import ChunkReader, ChunkWriter, Format, parse
from manyseed.orchestrator.store.layout.groups import Group, array_description
from manyseed.orchestrator.store.layout.schema import GroupSpec

ATTEMPTS = 8
_AHEAD_FILES, _AHEAD_BYTES = 4, 2**23  # of those that come next while one is decoded
Array = NDArray[Any]
Bools = NDArray[np.bool_]
T = TypeVar("T")
Needed = Callable[[int], bool]
"""Whether the file of a number must be there; asked only where it is not."""


def nothing_needed(index: int) -> bool:
    """Take any file that is absent for one that was never written."""
    del index
    return False


def encode(metadata: bytes, index: int, data: Array) -> tuple[str, bytes]:
    """Return the name and the bytes of the `index`-th file along the first dimension.

    Every inner chunk that `data` reaches is written, also one of fill values alone. Were those left
    out, chunks would move when they are filled, and a reader that has the index of the file before
    would find a whole chunk of other runs at the old place, checksum and all.

    Parameters
    ----------
    metadata : bytes
        The array's ``zarr.json``.
    index : int
        Number of the shard or chunk.
    data : array
        Its content, shape as the shard's or shorter; inner chunks after it take no space.
    """
    form, buffer = parse(metadata), io.BytesIO()
    writer = ChunkWriter(form, buffer)
    writer.add(data)
    writer.finish()
    return form.name(index), buffer.getvalue()


def read(folder: Path, start: int, stop: int, needed: Needed = nothing_needed) -> Array:
    """Read rows of an array; files that are absent and not needed read as the fill value.

    Parameters
    ----------
    folder : Path
        The array's.
    start, stop : int
        Rows; those beyond its end are left out.
    needed : Needed
        Which files must be there.

    Raises
    ------
    ValueError
        If a checksum does not fit.
    DamagedShard
        If a file that is needed is not there.
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
                    raise DamagedShard.of(path, "is missing, and what is published needs it")
                part[...] = form.fill
            else:
                ChunkReader(form, file).read(low - first, high - first, part)
    return values


def _opened(folder: Path, form: Format, start: int, stop: int) -> Generator[tuple[int, int | None]]:
    """Open the files of rows, in their order, some of them ahead; yield their first rows, too."""
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
    """Open a file, and let the disk begin with so many bytes; None where it does not exist."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)  # a pipe must not block
    except FileNotFoundError:
        return None
    if not stat.S_ISREG(os.fstat(file).st_mode):
        os.close(file)
        raise ValueError(f"{path.name} is no plain file")
    if ahead and hasattr(os, "posix_fadvise"):
        os.posix_fadvise(file, 0, ahead, os.POSIX_FADV_WILLNEED)
    return file


def _close(file: int | None) -> None:
    if file is not None:
        os.close(file)


def read_part(folder: Path, key: tuple[Any, ...], needed: Needed = nothing_needed) -> Array:
    """Read what a basic index selects: a slice or a number for each dimension; else as `read`."""
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
    needed: Needed = nothing_needed,
) -> Array:
    """Read some rows of an array; only inner chunks that hold them are read. Else as `read`."""
    form, wanted = _form(folder), np.asarray(rows, dtype=np.int64)
    found = form.empty(len(wanted))
    order = np.argsort(wanted, kind="stable")
    edges = np.flatnonzero(np.diff(wanted[order] // form.chunk)) + 1
    for here in np.split(order, edges) if len(wanted) else ():
        first, last = int(wanted[here[0]]), int(wanted[here[-1]])
        found[here] = read(folder, first, last + 1, needed)[wanted[here] - first]
    return found


def patiently(read: Callable[[], T], folder: Path) -> T:
    """Read what may be replaced meanwhile: an index of the old file, a chunk of the new one.

    The array's folder is for messages.

    Raises
    ------
    DamagedShard
        If what is read is wrong again and again.
    StoreUnavailable
        If the machine cannot read it: that says nothing about what is there.
    """
    for attempt in range(ATTEMPTS):
        try:
            return read()
        except MemoryError as error:
            raise StoreUnavailable(f"cannot read {folder}: not enough memory") from error
        except Exception as error:  # those of damaged bytes are of many kinds
            failure = error
            time.sleep(0.01 * attempt)
    if isinstance(failure, ManyseedError):
        raise failure
    if isinstance(failure, OSError):
        raise StoreUnavailable(f"cannot read {folder}: {failure}") from failure
    raise DamagedShard.of(folder, f"cannot be decoded ({failure})") from failure


def read_undamaged(folder: Path, start: int, stop: int, step: int, into: Array) -> Bools:
    """Read rows into an array, chunk by chunk; return which rows could not be decoded.

    Parameters
    ----------
    folder : Path
        The array's.
    start, stop : int
        Rows.
    step : int
        Rows of a chunk.
    into : array (stop - start, …)

    Returns
    -------
    bool array (stop - start,)
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
    """Read rows of one shard of a published array; return which cannot be decoded: all, if absent.

    A file that a published row needs is damage where it is absent, not a file of fill values.

    Parameters
    ----------
    group : Group
    array : ArraySpec
    start, stop : int
        Rows, of one shard.
    into : array (stop - start, …)

    Returns
    -------
    bool array (stop - start,)
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
