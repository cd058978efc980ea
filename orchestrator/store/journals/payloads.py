"""Reading many journal records into rows of arrays."""

from __future__ import annotations

import contextlib
import itertools
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from manyseed.orchestrator.disk.placing import unavailable
from manyseed.orchestrator.store.journals.records import (
    HEADER_SIZE,
    Header,
    checksum,
    parse_header,
    parse_headers,
)

_MOST_BUFFERS = 1024  # the maximum of one system call on Linux
_CACHED_BYTES = 2**20  # checked while they are in the CPU's cache


class Place(NamedTuple):
    """The place of a record; the first in this order is preferred."""

    journal: str
    offset: int
    is_copy: bool = False


def read_header(folder: Path, place: Place) -> Header | None:
    """Return the header of a record; None if it is damaged or its journal is gone."""
    with unavailable("read", path := folder / place.journal), _opened(path) as file:
        return None if file is None else parse_header(os.pread(file, HEADER_SIZE, place.offset))


def read_payloads(
    folder: Path, places: Sequence[Place], at: Sequence[int], parts: Sequence[NDArray[Any]]
) -> tuple[NDArray[np.void], NDArray[np.bool_]]:
    """Read records into rows of arrays, file by file.

    Parameters
    ----------
    folder : Path
        Folder of the journals.
    places : sequence of Place
        Places of the records.
    at : sequence of int
        The row of `parts` that each payload fills.
    parts : sequence of 2-D arrays
        Contiguous; a payload is split into one row of each, in this order.

    Returns
    -------
    fields : structured array (len(places),)
        The headers, as `records.parse_headers` returns them.
    good : bool array (len(places),)
        False if there is no record or its checksum does not match. A payload that is not as long
        as a row is good, but its row of `parts` is meaningless.
    """
    heads = np.zeros((len(places), HEADER_SIZE), dtype=np.uint8)
    checksums = np.zeros(len(places), dtype=np.uint32)
    payloads = [[part[row] for part in parts] for row in at]
    length = sum(part.nbytes // len(part) for part in parts)
    order = sorted(range(len(places)), key=places.__getitem__)
    for journal, group in itertools.groupby(order, key=lambda n: places[n].journal):
        numbers = list(group)
        with unavailable("read", path := folder / journal), _opened(path) as file:
            if file is None:
                continue
            offsets = np.array([places[n].offset for n in numbers])
            for part in _adjacent(offsets, HEADER_SIZE + length, 1 + len(parts)):
                here = [[heads[n], *payloads[n]] for n in numbers[part]]
                _read_all(file, int(offsets[part][0]), here)
                checksums[numbers[part]] = [checksum(payloads[n]) for n in numbers[part]]
    fields, good = parse_headers(heads)
    lengths = fields["label"] + fields["score"] + fields["confidence"] + fields["source"]
    good &= (checksums == fields["crc"]) | (lengths != length)
    return fields, good


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[int | None]:
    """Open a file that may have been removed."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        yield None
        return
    try:
        yield file
    finally:
        os.close(file)


def _adjacent(offsets: NDArray[np.int64], size: int, buffers: int) -> Iterator[slice]:
    """Split ascending offsets into runs of adjacent records that one system call can read."""
    most = max(1, min(_MOST_BUFFERS // buffers, _CACHED_BYTES // size))
    starts = [0, *(np.flatnonzero(np.diff(offsets) != size) + 1).tolist(), len(offsets)]
    for start, stop in itertools.pairwise(starts):
        for first in range(start, stop, most):
            yield slice(first, min(first + most, stop))


def _read_all(file: int, offset: int, records: list[list[Any]]) -> None:
    """Read adjacent records into buffers; records beyond the end of the file are left unchanged."""
    size = sum(part.nbytes for part in records[0])
    while records:
        n = os.preadv(file, [part for record in records for part in record], offset)
        if (whole := n // size) == 0:
            return
        records, offset = records[whole:], offset + whole * size
