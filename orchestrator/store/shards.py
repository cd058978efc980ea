"""Publication: what journals hold becomes readable, a whole shard at a time.

Rows may still be missing; publishing again adds them. A published row never goes back, whoever
publishes and however late:

1. Take the shard's lease; remove temporary files of earlier holders. A holder that was suspended
   then finds either its temporary file gone, or, writing another, its lease.
2. Merge what is published with what all journals hold.
3. Replace the files, predictions first, ``status`` last, checking the lease before every rename.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from orchestrator.store import encoding
from orchestrator.store.arrays import COPY, DONE, MISSING, NO_RECIPE, PADDING, ArraySpec
from orchestrator.store.encoding import Array, Bools
from orchestrator.store.errors import DamagedShard, LeaseLost, StoreError, StoreUnavailable
from orchestrator.store.files import place, remove_partial
from orchestrator.store.groups import Group
from orchestrator.store.index import JournalIndex
from orchestrator.store.lease import Lease, LeaseWatch
from orchestrator.store.records import Header
from orchestrator.store.rows import RowBytes

_TAKES = 3  # of a lease that is lost while publishing
_LIGHT_BYTES = 2**26


@dataclass(frozen=True, slots=True)
class Publication:
    """What a shard holds after publication.

    Attributes
    ----------
    added : int
        Rows that were not published before.
    finished : int
        Rows that are published now.
    waiting : tuple of int
        Copies whose source is not finished yet.
    """

    added: int
    finished: int
    waiting: tuple[int, ...]


def publish(
    group: Group,
    shard: int,
    journals: JournalIndex,
    watch: LeaseWatch,
    *,
    wait: float = 0.0,
    distrusted: Collection[int] = (),
    dropped: Collection[int] = (),
) -> Publication:
    """Publish a shard, under its lease.

    Parameters
    ----------
    group : Group
        The group.
    shard : int
        Number of the shard.
    journals : JournalIndex
        All journals of the sweep; refreshed here.
    watch : LeaseWatch
        Of the folder of leases.
    wait : float
        Seconds to wait where another process publishes the same shard.
    distrusted : collection of int
        Published rows to be taken from journals again, where these hold them.
    dropped : collection of int
        Rows to be set back to missing; their records must be void (`tombstones`).

    Raises
    ------
    LeaseHeld
        If somebody else is still publishing.
    LeaseLost
        If this process was suspended for longer than the lease time, three times.
    DamagedShard
        If a published row cannot be read and no journal holds it.
    StoreUnavailable
        If the file system refuses; publish again later.
    """
    lease = Lease(watch, lease_name(group, shard))
    for _ in range(_TAKES):
        lease.take(wait)
        try:
            with lease.kept():
                return _Merge(group, shard, journals, lease, distrusted, dropped).run()
        except LeaseLost as error:  # others may have published meanwhile: merge again
            lost = error
    raise lost


def lease_name(group: Group, shard: int) -> str:
    """Return the name of the lease under which a shard is published."""
    return f"g{group.spec.number:05d}-s{shard:06d}"


@dataclass(frozen=True, slots=True)
class _Source:
    """Where a new row's values are: in a journal's record, or in a published row that it equals."""

    status: int
    recipe: int
    fit_seconds: float
    record: tuple[str, int] | None
    header: Header | None
    published: int | None = None
    values: RowBytes | None = None


class _Damage(Exception):
    """Published rows of the shard that cannot be decoded."""

    def __init__(self, rows: Bools) -> None:
        self.rows = rows


class _Merge:
    """One publication of one shard, its lease held. Masks are over the rows of the shard."""

    def __init__(
        self,
        group: Group,
        shard: int,
        journals: JournalIndex,
        lease: Lease,
        distrusted: Collection[int],
        dropped: Collection[int],
    ) -> None:
        self.group, self.spec, self.shard = group, group.spec, shard
        self.start, self.stop = group.span(shard)
        self.journals, self.lease = journals, lease
        numbers = np.arange(self.start, self.stop)
        cell = group.folder / "cell"
        self.padding = encoding.patiently(
            lambda: encoding.read(cell, self.start, self.stop) < 0, cell
        )
        self.distrusted = np.isin(numbers, list(distrusted))
        self.dropped = np.isin(numbers, list(dropped)) & ~self.padding
        self.damaged = np.zeros(len(numbers), dtype=np.bool_)
        self.records = [array for array in self.spec.arrays if array.role == "record"]
        self.predictions = [array for array in self.spec.arrays if array.role == "prediction"]
        self.part_bytes = self.spec.part_bytes
        self.light = self.spec.shard_length * self.spec.row_bytes <= _LIGHT_BYTES
        self.shapes = {array.name: self.spec.part_shape(array) for array in self.predictions}
        self.originals: dict[tuple[str, int], Any] = {}
        self.published = group.file(self.spec.array("status"), shard).exists()

    def run(self) -> Publication:
        for array in (*self.predictions, *self.records):
            file = self.group.file(array, self.shard)
            remove_partial(file.parent, file.name)
        self.journals.refresh()
        while True:
            try:
                return self._merge()
            except _Damage as damage:
                self.damaged |= damage.rows

    def _merge(self) -> Publication:
        stored, blind = {}, False
        for array in self.records:
            stored[array.name], damaged = self._stored(array)
            blind |= bool(damaged.any())
        before = stored["status"]
        if blind:  # any row may have been published
            before = np.full_like(before, DONE)
        finished = np.isin(before, (DONE, COPY)) & ~self.padding
        lost = finished & (self.damaged | blind)
        unusable = lost | self.dropped
        wanted = ~self.padding & ~self.dropped & (~finished | self.distrusted | lost)
        sources, waiting = self._sources(wanted, unusable)
        replaced = np.isin(np.arange(self.start, self.stop), list(sources))
        if hopeless := np.count_nonzero(lost & ~replaced & ~self.dropped):
            raise DamagedShard(
                f"{self.group.folder}, shard {self.shard}: {hopeless} rows cannot be decoded and "
                "no journal holds them: run verify --repair, then resume"
            )
        status = np.where(finished & ~self.dropped, before, MISSING)
        for row, source in sources.items():
            status[row - self.start] = source.status
        now = np.isin(status, (DONE, COPY))
        status = np.where(self.padding, PADDING, status).astype(before.dtype)
        differs = bool(sources) or blind or not np.array_equal(status, stored["status"])
        if differs and (self.published or now.any()):
            self._place({**stored, "status": status}, sources, finished & ~lost)
        added = int(np.count_nonzero(now & ~finished))
        return Publication(added, int(np.count_nonzero(now)), tuple(waiting))

    def _stored(self, array: ArraySpec) -> tuple[Array, Bools]:
        """Return what is published of an array, and which rows cannot be decoded."""
        values = encoding.filled(self.spec, array, self.stop - self.start)
        if not self.published:
            return values, np.zeros(len(values), dtype=np.bool_)
        if not self.group.file(array, self.shard).exists():
            return values, np.ones(len(values), dtype=np.bool_)
        folder, step = self.group.folder / array.name, self.spec.chunks(array)[0]
        damaged = encoding.read_undamaged(folder, self.start, self.stop, step, into=values)
        return values, damaged

    def _sources(self, wanted: Bools, unusable: Bools) -> tuple[dict[int, _Source], list[int]]:
        """Return where the values of wanted rows are, and the copies that have to wait."""
        sources: dict[int, _Source] = {}
        copies: dict[int, Header] = {}
        found = self.journals.records(self.spec.number, self.start, self.stop)
        for row in (row for row in found if wanted[row - self.start]):
            best = self._record(found[row])
            if best is not None and best[1].status == DONE:
                place, header, values = best
                sources[row] = _Source(
                    DONE, header.recipe, header.fit_seconds, place, header, values=values
                )
            elif best is not None:
                copies[row] = best[1]
        waiting = []
        originals = self._originals({header.source for header in copies.values()}, unusable)
        for row, header in copies.items():
            original = originals[header.source]
            if original is None:
                waiting.append(row)
                continue
            recipe = original.recipe if header.recipe == NO_RECIPE else header.recipe
            sources[row] = replace(original, status=COPY, recipe=recipe, fit_seconds=math.nan)
        return sources, waiting

    def _originals(self, rows: set[int], unusable: Bools) -> dict[int, _Source | None]:
        """Return where the rows that copies equal are."""
        if not rows:
            return {}
        originals: dict[int, _Source | None] = {}
        found = self.journals.records(self.spec.number, min(rows), max(rows) + 1)
        for row in rows:
            best = self._record(found.get(row, []))
            here = self.start <= row < self.stop
            if best is not None and best[1].status == DONE:
                place, header, values = best
                originals[row] = _Source(
                    DONE, header.recipe, header.fit_seconds, place, header, values=values
                )
            elif (here and unusable[row - self.start]) or self._published("status", row) not in (
                DONE,
                COPY,
            ):
                originals[row] = None
            else:
                recipe = int(self._published("recipe", row))
                originals[row] = _Source(DONE, recipe, math.nan, None, None, row)
        return originals

    def _record(
        self, places: list[tuple[str, int]]
    ) -> tuple[tuple[str, int], Header, RowBytes | None] | None:
        """Return the first record that is undamaged and of the group's shape.

        Its values, too, where those of a whole shard do not weigh; else they are read once more.
        """
        for journal, offset in places:
            record = self.journals.read_at(journal, offset)
            if record is None:
                continue
            parts = (record.header.label, record.header.score, record.header.confidence)
            if record.header.status == DONE and parts != self.part_bytes:
                raise StoreError(
                    f"{journal} holds a row of {parts} bytes for {self.spec.path}, which has "
                    f"{self.part_bytes}: was it written for another sweep?"
                )
            return (journal, offset), record.header, record.values if self.light else None
        return None

    def _place(self, stored: dict[str, Array], sources: dict[int, _Source], kept: Bools) -> None:
        """Replace all files, ``status`` last."""
        for array in self.predictions:
            values, damaged = self._stored(array)
            if (damaged & kept).any():
                raise _Damage(damaged)
            values[~kept | self.dropped] = array.fill_value
            for row, source in sources.items():
                values[row - self.start] = self._prediction(array, source)
            self._place_array(array, values)
        for array in self.records:
            values = stored[array.name]
            if array.name != "status":
                values[~kept | self.dropped] = array.fill_value
                for row, source in sources.items():
                    values[row - self.start] = self._number(array.name, source)
            self._place_array(array, values)

    def _place_array(self, array: ArraySpec, values: Array) -> None:
        if array.role == "prediction":  # padding at the shard's end takes no space, now or later
            values = values[: len(self.padding) - int(self.padding[::-1].argmin())]
        key, encoded = encoding.encode(self.group.metadata(array), self.shard, values)
        place(self.group.folder / array.name / key, encoded, before_rename=self.lease.check)

    def _prediction(self, array: ArraySpec, source: _Source) -> Array:
        if source.record is None:
            assert source.published is not None
            return np.asarray(self._published(array.name, source.published))
        values = source.values
        if values is None and (record := self.journals.read_at(*source.record)) is not None:
            values = record.values
        if values is None:
            raise StoreUnavailable(
                f"{self.journals.folder / source.record[0]} changed while it was read: resume"
            )
        part = {"label": values.label, "confidence": values.confidence}
        dtype = np.dtype(array.dtype).newbyteorder("<")
        flat = np.frombuffer(part.get(array.name, values.score), dtype=dtype)
        return flat.reshape(self.shapes[array.name])

    def _number(self, name: str, source: _Source) -> float:
        if name == "recipe":
            return source.recipe
        if name == "fit_seconds":
            return source.fit_seconds
        if source.header is None:
            assert source.published is not None
            return float(self._published(name, source.published))
        return {"crc": source.header.crc, "clipped": source.header.clipped}[name]

    def _published(self, name: str, row: int) -> Any:
        if (name, row) not in self.originals:  # a repeat's copies all equal its first run
            folder = self.group.folder / name
            read = functools.partial(encoding.read, folder, row, row + 1)
            self.originals[name, row] = encoding.patiently(read, folder)[0]
        return self.originals[name, row]
