"""The storm's own ledger of finished runs: what journals and the store hold, read independently."""

from __future__ import annotations

import json
import struct
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import google_crc32c
import numpy as np

from manyseed.orchestrator.paths import SweepPaths
from manyseed.orchestrator.plans.plan import Plan
from manyseed.orchestrator.store.groups import Group, list_groups
from manyseed.orchestrator.store.reader import read_array

MAGIC = b"\x93mseed\x01\n"
HEADER = struct.Struct("<8sBxHIQQIIfIII")
SIZE = HEADER.size + 4
DONE, COPY = 1, 2

Row = tuple[int, int]
"""Number of a group, row."""


class Record(NamedTuple):
    """A record of a journal; it is good if its payload's checksum fits."""

    offset: int
    end: int
    row: Row
    status: int
    source: int
    crc: int
    good: bool


def read_journal(data: bytes) -> list[Record]:
    """Return the complete records of a journal, as described in docs/store.md."""
    found, offset, inside = [], 0, 0
    while offset < len(data):
        fields = _header(data, offset)
        if fields is None:
            start = min(inside, offset + 1)
            following = _search(data, start, offset)
            if following is None:
                break
            offset = inside = following
            continue
        status, group, row, source, crc, length = fields
        inside, end = offset + SIZE, offset + SIZE + length
        payload = data[inside:end]
        if len(payload) == length:
            good = status == COPY or google_crc32c.value(payload) == crc
            found.append(Record(offset, end, (group, row), status, source, crc, good))
        offset = end
    return found


def _header(data: bytes, offset: int) -> tuple[int, int, int, int, int, int] | None:
    head = data[offset : offset + SIZE]
    if len(head) < SIZE or not head.startswith(MAGIC):
        return None
    if google_crc32c.value(head[:-4]) != int.from_bytes(head[-4:], "little"):
        return None
    _, status, _, group, row, source, crc, _, _, *lengths = HEADER.unpack(head[:-4])
    length = sum(lengths) + (source if status == DONE else 0)
    return status, group, row, source, crc, length


def _search(data: bytes, start: int, besides: int) -> int | None:
    at = data.find(MAGIC, start)
    while at >= 0:
        if at != besides and _header(data, at) is not None:
            return at
        at = data.find(MAGIC, at + 1)
    return None


@dataclass
class Lost:
    """A finished run that is lost, or has changed."""

    row: Row
    what: str


@dataclass
class Ledger:
    """Runs that were seen finished, with the checksum of their predictions.

    Attributes
    ----------
    finished : dict
        By row: its checksum; None of a copy that is not published.
    fits : Counter
        Records of all trainings seen, by row.
    destroyed : Counter
        How often a row's predictions were destroyed, in the store and in journals.
    names : dict
        Identity of each planned row: cell id, repeat, run.
    addresses : dict
        How commands name each row.
    """

    paths: SweepPaths
    finished: dict[Row, int | None] = field(default_factory=dict)
    fits: Counter[Row] = field(default_factory=Counter)
    destroyed: Counter[Row] = field(default_factory=Counter)
    names: dict[Row, tuple[str, int, int]] = field(default_factory=dict)
    addresses: dict[Row, str] = field(default_factory=dict)
    _records: dict[str, tuple[tuple[int, int], list[Record]]] = field(default_factory=dict)
    _counted: dict[str, set[int]] = field(default_factory=dict)

    def read_plan(self) -> list[str]:
        """Read which run each row is; return what changed its meaning."""
        plan = Plan.read(self.paths)
        ids = dict(plan.all_cells.select("cell", "cell_id").iter_rows())
        rows = plan.rows.select("group", "row", "cell", "repeat", "run").rows()
        now = {(group, row): (ids[cell], repeat, run) for group, row, cell, repeat, run in rows}
        self.addresses = {(group, row): f"{c}:{p}:{r}" for group, row, c, p, r in rows}
        changed = [
            f"row {row} was {name} and is {now.get(row)}"
            for row, name in self.names.items()
            if now.get(row) != name
        ]
        if len(set(now.values())) != len(now):
            changed.append("a run is planned twice")
        self.names = now
        return changed

    def journaled(self, *, good: bool = True) -> dict[Row, list[tuple[str, Record]]]:
        """Return the good, or damaged, records of each row that are not void, with journals."""
        folder = self.paths.journals
        void: list[tuple[set[Row], set[str]]] = []
        for stone in sorted(folder.glob("*.tombstone")):
            try:
                value = json.loads(stone.read_bytes())
            except (OSError, ValueError):
                continue
            rows = {(int(group), row) for group, rows in value["rows"].items() for row in rows}
            void.append((rows, set(value["journals"])))
        found: dict[Row, list[tuple[str, Record]]] = {}
        for journal in sorted(folder.glob("*.journal")):
            for record in self._read(journal):
                dead = any(record.row in rows and journal.name in names for rows, names in void)
                if not dead and record.good is good:
                    found.setdefault(record.row, []).append((journal.name, record))
        return found

    def _read(self, journal: Path) -> list[Record]:
        try:
            now = journal.stat()
            stamp = (now.st_size, now.st_mtime_ns)
            before = self._records.get(journal.name)
            if before is None or before[0] != stamp:
                before = stamp, read_journal(journal.read_bytes())
                self._records[journal.name] = before
        except OSError:  # removed
            return []
        counted = self._counted.setdefault(journal.name, set())
        for record in before[1]:
            if record.good and record.status == DONE and record.offset not in counted:
                counted.add(record.offset)
                self.fits[record.row] += 1
        return before[1]

    def present(self) -> dict[Row, set[int | None]]:
        """Return the checksums of each existing run: journals first, as these may be removed."""
        records = self.journaled()
        found: dict[Row, set[int | None]] = {}
        for group in self.groups():
            status, crc = read_array(group, "status"), read_array(group, "crc")
            for row in np.flatnonzero((status == DONE) | (status == COPY)).tolist():
                found[group.spec.number, row] = {int(crc[row])}
        for row, here in records.items():
            done = {record.crc for _, record in here if record.status == DONE}
            if done:
                found.setdefault(row, set()).update(done)
        for row, here in records.items():
            sources = {(row[0], record.source) for _, record in here if record.status == COPY}
            if row not in found and any(source in found for source in sources):
                found[row] = {None}
        return found

    def groups(self) -> list[Group]:
        return list_groups(self.paths.store) if self.paths.store.exists() else []

    def look(self) -> list[Lost]:
        """Record what is finished; return what was finished before and is lost or has changed."""
        wrong = self._look()
        for _ in range(3):  # a journal may be removed between our two reads
            if not wrong:
                break
            time.sleep(0.3)
            wrong = self._look()
        for one in wrong:  # reported once
            self.finished.pop(one.row, None)
        return wrong

    def _look(self) -> list[Lost]:
        now, wrong = self.present(), []
        for row, crc in self.finished.items():
            if row not in now:
                wrong.append(Lost(row, "lost"))
            elif crc is not None and now[row] - {crc, None}:
                wrong.append(Lost(row, f"wrong: checksum {crc:08x} is {now[row]}"))
        for row, crcs in now.items():
            known = crcs - {None}
            if len(known) > 1 and not any(one.row == row for one in wrong):
                wrong.append(Lost(row, f"two results: {crcs}"))
            if self.finished.get(row) is None:
                self.finished[row] = next(iter(known), None)
        return wrong

    def forget(self, rows: set[Row]) -> None:
        """Record what was destroyed in the store and in journals."""
        for row in rows:
            self.finished.pop(row, None)
            self.destroyed[row] += 1

    @property
    def trained_again(self) -> int:
        """Fits beyond one for each run and one for each time that it was destroyed."""
        return sum(max(0, n - 1 - self.destroyed[row]) for row, n in self.fits.items())

    def name(self, row: Row) -> str:
        return f"group {row[0]} row {row[1]} = {self.names.get(row)}"
