"""An index of the rows in the journals of a folder; payloads, and tombstones of dropped records.

A refresh reads only the headers of new records. Payloads are checked when they are read; a record
that fails then no longer counts. Several records of a row are ordered by journal name and offset,
so that all readers prefer the same one.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import uuid
from array import array
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, BinaryIO, NamedTuple

import numpy as np
from annotated_types import Interval
from numpy.typing import NDArray

from manyseed.orchestrator.disk.placing import open_plain, unavailable
from manyseed.orchestrator.disk.records import read_record, write_json
from manyseed.orchestrator.errors import DamagedFile, StoreUnavailable
from manyseed.orchestrator.paths import JOURNAL, TOMBSTONE
from manyseed.orchestrator.store.arrays import COPY
from manyseed.orchestrator.store.journal import (
    HEADER_SIZE,
    PREAMBLE_SIZE,
    Header,
    Record,
    checksum,
    cut,
    find_header,
    parse_header,
    parse_headers,
    parse_preamble,
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

    `folder`: folder of the journals. `places`: places of the records. `at`: the row of `parts` that
    each payload fills. `parts`: contiguous; a payload is split into one row of each, in this order.

    Returns `fields`, structured array (len(places),): the headers, as `journal.parse_headers`
    returns them. `good`, bool array (len(places),): false if there is no record or its checksum
    does not match. A payload that is not as long as a row is good, but its row of `parts` is
    meaningless.
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


@dataclass(frozen=True, slots=True)
class JournalFolder:
    """A folder of journals, and the plan that numbers their rows."""

    path: Path  # contains ``*.journal`` and ``*.tombstone``; may not exist yet
    plan: str = ""
    """Identity of the plan; empty if unknown. Journals that name another plan do not count, as
    their rows are other runs."""


@dataclass(slots=True)
class _Journal:
    """How far a journal has been scanned; `inside` is where the last record's payload begins."""

    name: str
    scanned: int = 0
    inside: int = 0
    size: int = 0
    modified: int = 0
    damaged: int = 0
    unread: bool = False  # whether it ends with bytes that are not (the start of) a record
    foreign: bool = False  # whether its rows belong to another plan
    gone: bool = False


class _Places(NamedTuple):
    """The valid records, sorted by group, row and order of preference."""

    group: NDArray[np.int64]
    row: NDArray[np.int64]
    journal: NDArray[np.int64]
    offset: NDArray[np.int64]
    copy: NDArray[np.int64]
    seconds: NDArray[np.float32]
    recipe: NDArray[np.int64]

    def of(self, group: int, start: int = 0, stop: int | None = None) -> _Places:
        """Return the records of a group, or of a range of its rows."""
        first, last = np.searchsorted(self.group, [group, group + 1])
        rows = self.row[first:last]
        low = first + np.searchsorted(rows, start)
        high = last if stop is None else first + np.searchsorted(rows, stop)
        return self.take(slice(low, high))

    def take(self, which: slice | NDArray[np.int64]) -> _Places:
        """Return selected records."""
        return _Places._make(column[which] for column in self)


class JournalIndex:
    """The records in the journals of a folder.

    `wanted`: whether to read a journal, given its name: a task on a cluster skips the thousands
    that cannot hold its rows. Default: read all.
    """

    def __init__(
        self, journals: JournalFolder, wanted: Callable[[str], bool] | None = None
    ) -> None:
        self._source, self.folder = journals, journals.path
        self._wanted = wanted or (lambda _: True)
        self._journals: list[_Journal] = []
        self._numbers: dict[str, int] = {}
        self._tombstones: dict[str, Tombstone] = {}
        self._bad: set[tuple[int, int]] = set()
        self._group, self._row = array("I"), array("Q")
        self._journal, self._offset = array("I"), array("Q")
        self._copy, self._seconds, self._recipe = array("B"), array("f"), array("H")
        self._made: _Places | None = None
        self.refresh()

    def again(self) -> JournalIndex:
        """Return a fresh index of the same journals, which forgets what failed to read."""
        return JournalIndex(self._source, self._wanted)

    def refresh(self) -> None:
        """Read the records appended since the last refresh."""
        paths = {}
        with unavailable("read", self.folder):
            try:
                entries = sorted(os.scandir(self.folder), key=lambda entry: entry.name)
            except FileNotFoundError:
                entries = []
            for entry in entries:
                if entry.name.endswith(JOURNAL) and self._wanted(entry.name):
                    paths[entry.name] = Path(entry.path)
        tombstones = {entry.name for entry in entries if entry.name.endswith(TOMBSTONE)}
        for name in tombstones - self._tombstones.keys():
            self._read_tombstone(name)
        for name, number in self._numbers.items():
            self._set_gone(self._journals[number], name not in paths)
        for name, path in paths.items():
            self._refresh_journal(name, path)

    def _read_tombstone(self, name: str) -> None:
        # here, as few tasks need it

        self._tombstones[name] = read_tombstone(self.folder / name)
        self._made = None

    def _refresh_journal(self, name: str, path: Path) -> None:
        number = self._numbers.setdefault(name, len(self._journals))
        if number == len(self._journals):
            self._journals.append(_Journal(name))
        journal = self._journals[number]
        try:
            with open_plain(path) as file:
                status = os.fstat(file.fileno())
                if status.st_mtime_ns != journal.modified:
                    # what failed before may not have arrived yet over a network file system
                    self._bad = {key for key in self._bad if key[0] != number}
                    self._made = None
                if status.st_size > journal.scanned:
                    self._scan(file, number, journal, status.st_size)
                journal.size, journal.modified = status.st_size, status.st_mtime_ns
        except FileNotFoundError:
            self._set_gone(journal, True)
        except DamagedFile as error:
            raise StoreUnavailable(f"cannot read {path}: {error.reason}") from error

    def _set_gone(self, journal: _Journal, gone: bool) -> None:
        if journal.gone != gone:
            journal.gone, self._made = gone, None

    def _scan(self, file: BinaryIO, number: int, journal: _Journal, size: int) -> None:
        offset = journal.scanned
        if offset == 0 and (plan := parse_preamble(file.read(PREAMBLE_SIZE))) is not None:
            journal.foreign = self._source.plan not in ("", plan)
            journal.scanned = journal.inside = offset = PREAMBLE_SIZE
        while offset < size and not journal.foreign:
            file.seek(offset)
            content = file.read(HEADER_SIZE)
            header = parse_header(content)
            journal.unread = header is None and len(content) == HEADER_SIZE
            if header is not None and offset + HEADER_SIZE + header.payload <= size:
                self._group.append(header.group)
                self._row.append(header.row)
                self._journal.append(number)
                self._offset.append(offset)
                self._copy.append(header.status == COPY)
                self._seconds.append(header.fit_seconds)
                self._recipe.append(header.recipe)
                self._made = None
                journal.inside = offset + HEADER_SIZE
                offset += HEADER_SIZE + header.payload
                continue
            # The record is damaged or still incomplete. It is damaged if a good header follows,
            # which may lie inside the previous record if that lost bytes.
            following = find_header(file, min(journal.inside, offset + 1), size, besides=offset)
            if following is None:
                break
            journal.damaged += 1
            journal.inside = offset = following
        journal.scanned = offset

    @property
    def journals(self) -> list[str]:
        """Names of the existing journals."""
        return [journal.name for journal in self._journals if not journal.gone]

    @property
    def foreign(self) -> list[str]:
        """Names of journals whose rows belong to another plan, none of which count."""
        return [journal.name for journal in self._journals if journal.foreign and not journal.gone]

    @property
    def damaged(self) -> int:
        """Number of damaged stretches and records found."""
        return sum(journal.damaged for journal in self._journals) + len(self._bad)

    def doubtful(self) -> dict[str, list[tuple[int, int]] | None]:
        """Return journals with unreadable records, and the (group, row) of these if known.

        A fresh index may be able to read them, as a disk or network may have delivered wrong bytes.
        """
        doubtful: dict[str, list[tuple[int, int]] | None] = {}
        records = zip(self._journal, self._offset, self._group, self._row, strict=True)
        for number, offset, group, row in records if self._bad else ():
            if (number, offset) in self._bad:
                rows = doubtful.setdefault(self._journals[number].name, [])
                assert rows is not None
                rows.append((group, row))
        for journal in self._journals:
            if journal.damaged or journal.unread:
                doubtful[journal.name] = None
        existing = set(self.journals)
        return {name: rows for name, rows in doubtful.items() if name in existing}

    def fits(
        self, group: int, besides: Collection[str] = ()
    ) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """Return the row and fit seconds of every trained run's record, except in some journals."""
        table = self._table.of(group)
        excluded = [n for n, journal in enumerate(self._journals) if journal.name in besides]
        keep = (table.copy == 0) & ~np.isin(table.journal, excluded)
        return table.row[keep], table.seconds[keep]

    def recipes(self, group: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the row and recipe of every record of a group."""
        table = self._table.of(group)
        return table.row, table.recipe

    def size(self, journal: str) -> int:
        """Return the size of a journal in bytes at the last refresh."""
        return self._journals[self._numbers[journal]].size

    def groups(self) -> dict[int, int]:
        """Return the number of records by group."""
        numbers, counts = np.unique(self._table.group, return_counts=True)
        return dict(zip(numbers.tolist(), counts.tolist(), strict=True))

    def rows(self, group: int) -> NDArray[np.int64]:
        """Return the distinct rows of a group that journals hold, ascending."""
        rows = self._table.of(group).row  # ascending
        return rows[np.flatnonzero(np.diff(rows, prepend=-1))]

    def records(self, group: int, start: int, stop: int) -> dict[int, list[Place]]:
        """Return the places of records by row for a range of rows, the preferred place first."""
        places: dict[int, list[Place]] = {}
        table = self._table.of(group, start, stop)
        columns = (table.row, table.journal, table.offset, table.copy)
        for row, number, offset, is_copy in zip(*(c.tolist() for c in columns), strict=True):
            place = Place(self._journals[number].name, offset, bool(is_copy))
            places.setdefault(row, []).append(place)
        return places

    def read(self, group: int, row: int) -> Record | None:
        """Return the preferred good record of a row, if any."""
        for place in self.records(group, row, row + 1).get(row, []):
            header = self.header(place)
            if header is None:
                continue
            payload = np.empty((1, header.payload), dtype=np.uint8)
            _, good = self.fill([place], [0], [payload])
            if good.all():
                return Record(header, cut(header, payload.tobytes()))
        return None

    def header(self, place: Place) -> Header | None:
        """Return the header of a record; None if it is damaged, and then it no longer counts."""
        header = read_header(self.folder, place)
        if header is None:
            self._distrust(place)
        return header

    def fill(
        self, places: Sequence[Place], at: Sequence[int], parts: Sequence[NDArray[Any]]
    ) -> tuple[NDArray[np.void], NDArray[np.bool_]]:
        """Read records like `read_payloads`; those that are not good no longer count."""
        fields, good = read_payloads(self.folder, places, at, parts)
        for n in np.flatnonzero(~good).tolist():
            self._distrust(places[n])
        return fields, good

    def _distrust(self, place: Place) -> None:
        self._bad.add((self._numbers[place.journal], place.offset))
        self._made = None

    @property
    def _table(self) -> _Places:
        if self._made is None:
            places = _Places(
                _ints(self._group),
                _ints(self._row),
                _ints(self._journal),
                _ints(self._offset),
                _ints(self._copy),
                np.array(self._seconds, dtype=np.float32),
                _ints(self._recipe),
            )
            places = places.take(self._valid(places))
            names = [journal.name for journal in self._journals]
            rank = np.argsort(np.argsort(np.array(names, dtype=np.str_)))  # order as in `Place`
            order = (places.offset, rank[places.journal], places.row, places.group)
            self._made = places.take(np.lexsort(order))
        return self._made

    def _valid(self, places: _Places) -> NDArray[np.int64]:
        """Return the indices of records that are neither void nor damaged, in existing journals."""
        gone = np.array([journal.gone for journal in self._journals], dtype=np.bool_)
        keep = ~gone[places.journal]
        for number, offset in self._bad:
            keep &= ~((places.journal == number) & (places.offset == offset))
        for stone in self._tombstones.values():
            named = [n for n, one in enumerate(self._journals) if one.name in stone.journals]
            is_named = np.isin(places.journal, named)
            for group, rows in stone.rows.items():
                keep &= ~(is_named & (places.group == group) & np.isin(places.row, list(rows)))
        return np.flatnonzero(keep)


def _ints(column: array[int]) -> NDArray[np.int64]:
    # a copy, as a numpy view would prevent the column from growing
    return np.array(column, dtype=np.int64)


@dataclass(frozen=True, slots=True)
class Tombstone:
    """Rows by group number, and the names of the journals in which they are void."""

    rows: Mapping[int, frozenset[Annotated[int, Interval(ge=0, lt=2**32)]]]
    journals: frozenset[str]


def write_tombstone(
    folder: Path, rows: Mapping[int, Iterable[int]], journals: Iterable[str]
) -> Path:
    """Void the records of rows, given by group number, in some journals of a folder."""
    document = {
        "rows": {str(group): sorted(set(numbers)) for group, numbers in rows.items()},
        "journals": sorted(journals),
    }
    path = folder / f"{uuid.uuid4().hex}{TOMBSTONE}"
    write_json(path, document)
    return path


def read_tombstone(path: Path) -> Tombstone:
    """Read a tombstone; while it is damaged, none of the journals may be used."""
    with unavailable("read", path):
        return read_record(path, Tombstone)
