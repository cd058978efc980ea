"""Which rows the journals of a folder hold.

A refresh reads only headers, and only of what was appended since; payloads are checked when they
are read, and a record that fails then no longer counts. Several records of one row are ordered by
journal name and place: everybody prefers the same one.
"""

from __future__ import annotations

import contextlib
import itertools
import operator
import os
from array import array
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, NamedTuple

import numpy as np
from numpy.typing import NDArray

from orchestrator.store.arrays import COPY
from orchestrator.store.errors import StoreUnavailable
from orchestrator.store.files import unavailable
from orchestrator.store.journal import SUFFIX
from orchestrator.store.records import (
    HEADER_SIZE,
    MAGIC,
    Record,
    parse_header,
    parse_payload,
)
from orchestrator.store.tombstones import SUFFIX as TOMBSTONE_SUFFIX
from orchestrator.store.tombstones import Tombstone, read_tombstone

_SEARCH_BYTES = 2**20


class Place(NamedTuple):
    """Where a record is; in this order the first is preferred."""

    journal: str
    offset: int
    is_copy: bool = False


@dataclass(slots=True)
class _Journal:
    """How far a journal has been scanned.

    `inside` is where the payload of the last record begins.
    """

    name: str
    scanned: int = 0
    inside: int = 0
    size: int = 0
    modified: int = 0
    damaged: int = 0
    gone: bool = False


class JournalIndex:
    """The records of all journals of a folder.

    Parameters
    ----------
    folder : Path
        Holds ``*.journal`` and ``*.tombstone``; may not exist yet.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._journals: list[_Journal] = []
        self._numbers: dict[str, int] = {}
        self._tombstones: dict[str, Tombstone] = {}
        self._bad: set[tuple[int, int]] = set()
        self._group, self._row = array("I"), array("Q")
        self._journal, self._offset = array("I"), array("Q")
        self._copy, self._seconds = array("B"), array("f")
        self.refresh()

    def refresh(self) -> None:
        """Read what was appended since the last time.

        Raises
        ------
        StoreUnavailable
            If the folder or a journal cannot be read.
        """
        found = {}
        with unavailable("read", self.folder):
            try:
                entries = sorted(os.scandir(self.folder), key=lambda entry: entry.name)
            except FileNotFoundError:
                entries = []
            for entry in entries:
                if entry.name.endswith(SUFFIX):
                    found[entry.name] = Path(entry.path)
        stones = {entry.name for entry in entries if entry.name.endswith(TOMBSTONE_SUFFIX)}
        for name in stones - self._tombstones.keys():
            self._tombstones[name] = read_tombstone(self.folder / name)
        for name, number in self._numbers.items():
            self._journals[number].gone = name not in found
        for name, path in found.items():
            self._refresh_journal(name, path)

    def _refresh_journal(self, name: str, path: Path) -> None:
        number = self._numbers.setdefault(name, len(self._journals))
        if number == len(self._journals):
            self._journals.append(_Journal(name))
        journal = self._journals[number]
        try:
            with path.open("rb", buffering=0) as file:
                status = os.fstat(file.fileno())
                if status.st_mtime_ns != journal.modified:
                    # What failed before may have been on its way through a network file system.
                    self._bad = {key for key in self._bad if key[0] != number}
                if status.st_size > journal.scanned:
                    self._scan(file, number, journal, status.st_size)
                journal.size, journal.modified = status.st_size, status.st_mtime_ns
        except FileNotFoundError:
            journal.gone = True
        except OSError as error:
            raise StoreUnavailable(f"cannot read {path}: {error.strerror}") from error

    def _scan(self, file: BinaryIO, number: int, journal: _Journal, size: int) -> None:
        offset = journal.scanned
        while offset + HEADER_SIZE <= size:
            file.seek(offset)
            header = parse_header(file.read(HEADER_SIZE))
            if header is not None and offset + HEADER_SIZE + header.payload <= size:
                self._group.append(header.group)
                self._row.append(header.row)
                self._journal.append(number)
                self._offset.append(offset)
                self._copy.append(header.status == COPY)
                self._seconds.append(header.fit_seconds)
                journal.inside = offset + HEADER_SIZE
                offset += HEADER_SIZE + header.payload
                continue
            # Damaged, or not yet complete: it is damaged if a good header follows, perhaps inside
            # the last record where that lost bytes.
            following = _find_header(file, min(journal.inside, offset + 1), size, besides=offset)
            if following is None:
                break
            journal.damaged += 1
            journal.inside = offset = following
        journal.scanned = offset

    @property
    def journals(self) -> list[str]:
        """Names of the journals there are."""
        return [journal.name for journal in self._journals if not journal.gone]

    @property
    def damaged(self) -> int:
        """How many damaged stretches and records have been met."""
        return sum(journal.damaged for journal in self._journals) + len(self._bad)

    def fits(
        self, group: int, besides: Collection[str] = ()
    ) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """Return row and fit seconds of every trained run's record, some journals left out."""
        seconds = np.array(self._seconds, dtype=np.float32)
        keep = self._valid() & (_ints(self._group) == group) & (_ints(self._copy) == 0)
        out = [n for n, journal in enumerate(self._journals) if journal.name in besides]
        keep &= ~np.isin(_ints(self._journal), out)
        return _ints(self._row)[keep], seconds[keep]

    def size(self, journal: str) -> int:
        """Return the length of a journal, in bytes, as of the last refresh."""
        return self._journals[self._numbers[journal]].size

    def groups(self) -> dict[int, int]:
        """Return the number of records of each group."""
        return dict(Counter(_ints(self._group)[self._valid()].tolist()))

    def rows(self, group: int) -> NDArray[np.int64]:
        """Return the rows of a group that journals hold, ascending, each once."""
        keep = self._valid() & (_ints(self._group) == group)
        return np.unique(_ints(self._row)[keep])

    def records(self, group: int, start: int, stop: int) -> dict[int, list[Place]]:
        """Return, for each row of a range, the places of its records, preferred first."""
        rows = _ints(self._row)
        keep = self._valid() & (_ints(self._group) == group) & (rows >= start) & (rows < stop)
        found: dict[int, list[Place]] = {}
        for position in np.flatnonzero(keep):
            name = self._journals[self._journal[position]].name
            place = Place(name, self._offset[position], bool(self._copy[position]))
            found.setdefault(int(rows[position]), []).append(place)
        return {row: sorted(places) for row, places in found.items()}

    def read(self, group: int, row: int) -> Record | None:
        """Return the preferred good record of a row; None where there is none."""
        for place in self.records(group, row, row + 1).get(row, []):
            for _, record in self.read_all([place]):
                if record is not None:
                    return record
        return None

    def read_all(
        self, places: Iterable[Place], size: int = 0
    ) -> Iterator[tuple[Place, Record | None]]:
        """Read records in the order of the files, each opened once.

        One whose checksum does not fit no longer counts and yields None.

        Parameters
        ----------
        places : iterable of Place
            Where the records are.
        size : int
            Bytes of most payloads; others take a second look.
        """
        for journal, here in itertools.groupby(sorted(places), key=operator.attrgetter("journal")):
            with unavailable("read", path := self.folder / journal), _opened(path) as file:
                for place in here:
                    record = None if file is None else _read_record(file, place.offset, size)
                    if record is None:
                        self._bad.add((self._numbers[journal], place.offset))
                    yield place, record

    def _valid(self) -> NDArray[np.bool_]:
        """Return which records count: in a journal that exists, not void, not found damaged."""
        journal, offset = _ints(self._journal), _ints(self._offset)
        gone = np.array([journal.gone for journal in self._journals], dtype=np.bool_)
        keep = ~gone[journal] if len(journal) else np.zeros(0, dtype=np.bool_)
        for number, place in self._bad:
            keep &= ~((journal == number) & (offset == place))
        for stone in self._tombstones.values():
            void = [n for n, journal in enumerate(self._journals) if journal.name in stone.journals]
            for group, rows in stone.rows.items():
                keep &= ~(
                    np.isin(journal, void)
                    & (_ints(self._group) == group)
                    & np.isin(_ints(self._row), list(rows))
                )
        return keep


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[int | None]:
    """Open a file that may have been removed."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        yield None
        return
    try:
        yield file
    finally:
        os.close(file)


def _read_record(file: int, offset: int, size: int) -> Record | None:
    data = os.pread(file, HEADER_SIZE + size, offset)
    header = parse_header(data[:HEADER_SIZE])
    if header is None:
        return None
    if header.payload > size:
        data = os.pread(file, HEADER_SIZE + header.payload, offset)
    values = parse_payload(header, data[HEADER_SIZE : HEADER_SIZE + header.payload])
    return None if values is None else Record(header, values)


def _ints(column: array[int]) -> NDArray[np.int64]:
    # A copy: numpy's view would forbid the column to grow.
    return np.array(column, dtype=np.int64)


def _find_header(file: BinaryIO, start: int, size: int, besides: int) -> int | None:
    """Return where the next good header begins, passing over one place."""
    while start + HEADER_SIZE <= size:
        file.seek(start)
        block = file.read(min(_SEARCH_BYTES, size - start))
        position = block.find(MAGIC)
        while position >= 0:
            file.seek(start + position)
            good = parse_header(file.read(HEADER_SIZE)) is not None
            if good and start + position != besides:
                return start + position
            position = block.find(MAGIC, position + 1)
        start += max(1, len(block) - len(MAGIC) + 1)
    return None
