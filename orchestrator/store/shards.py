"""Publishing: moving rows from journals to the store, one shard at a time.

Rows may still be missing; publishing again adds them. No publisher, however late, reverts a
published row:

1. Take the shard's lease; remove temporary files of earlier holders. A holder that wakes up then
   finds its temporary file gone or, if it writes another, its lease lost.
2. Merge the published rows with those in all journals.
3. Replace the files, predictions first, ``status`` last, checking the lease before every rename.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from manyseed.orchestrator.disk.lease import Lease, LeaseWatch
from manyseed.orchestrator.disk.placing import remove_partial, replacing
from manyseed.orchestrator.errors import DamagedShard, LeaseLost, StoreError
from manyseed.orchestrator.store import encoding
from manyseed.orchestrator.store.arrays import COPY, DONE, MISSING, NO_RECIPE, PADDING, ArraySpec
from manyseed.orchestrator.store.chunkfile import WriteBehind, parse, write_behind
from manyseed.orchestrator.store.encoding import Array, Bools
from manyseed.orchestrator.store.groups import Group, list_groups
from manyseed.orchestrator.store.index import JournalFolder, JournalIndex, Place
from manyseed.orchestrator.store.journal import LENGTHS, Header
from manyseed.orchestrator.store.reader import (
    Shard,
    finished_rows,
    read_array,
    read_rows,
    require_status,
    statuses,
)

Origin = Place | int  # a journal record, or a published row of the group


@dataclass(frozen=True, slots=True)
class RowSource:
    """Where a row's values are."""

    status: int  # `DONE` or `COPY`
    origin: Origin  # the record of the row, or the origin of the row that it copies
    recipe: int = NO_RECIPE  # a copy's own recipe; `NO_RECIPE` if the origin's applies


_NUMBERS = {"crc": "uint32", "clipped": "uint32", "recipe": "uint16", "fit_seconds": "float32"}


class DamagedRecord(Exception):
    """A record to be published is damaged; the index no longer lists it."""


class RowSources:
    """Finds and reads a group's rows in journals and published shards."""

    def __init__(self, group: Group, journals: JournalIndex) -> None:
        self._group, self._journals = group, journals
        self._sizes = group.spec.part_bytes
        self._arrays = group.spec.of_role("prediction")

    def find(
        self, wanted: Iterable[int], span: tuple[int, int], unusable: set[int]
    ) -> tuple[dict[int, RowSource], list[int]]:
        """Return the sources of rows, and the copies that have to wait for their originals.

        Payloads are not checked before they are read.

        `wanted`: the rows. `span`: a range of rows, start and stop, that contains them. `unusable`:
        published rows that must not be copied from.
        """
        sources: dict[int, RowSource] = {}
        copies: dict[int, Header] = {}
        records = self._journals.records(self._group.spec.number, *span)
        for row in wanted:
            best = self._best(records.get(row, []))
            if isinstance(best, Header):
                copies[row] = best
            elif best is not None:
                sources[row] = RowSource(DONE, best)
        waiting = []
        originals = self._originals({header.source for header in copies.values()}, unusable)
        for row, header in copies.items():
            original = originals[header.source]
            if original is None:
                waiting.append(row)
            else:
                sources[row] = RowSource(COPY, original, header.recipe)
        return sources, waiting

    def _originals(self, rows: set[int], unusable: set[int]) -> dict[int, Origin | None]:
        """Return the origins of rows that others copy; None for those not finished."""
        if not rows:
            return {}
        originals: dict[int, Origin | None] = {}
        records = self._journals.records(self._group.spec.number, min(rows), max(rows) + 1)
        for row in rows:
            best = self._best(records.get(row, []))
            if isinstance(best, Place):
                originals[row] = best
            elif row in unusable:
                originals[row] = None
            else:
                finished = self._published("status", row) in (DONE, COPY)
                originals[row] = row if finished else None
        return originals

    def _best(self, places: list[Place]) -> Place | Header | None:
        """Return the first good record of a row: its place, or its header if it is a copy."""
        for place in places:
            if not place.is_copy:
                return place
            if (header := self._journals.header(place)) is not None:
                return header
        return None

    def fill(
        self, origins: Sequence[Origin], at: Sequence[int], parts: Sequence[Array]
    ) -> dict[str, Array]:
        """Read predictions into rows of arrays; return the numbers stored with them.

        `origins`: what to read. `at`: the row of `parts` that each origin fills. `parts`: one per
        prediction array, little-endian.

        Returns dict of arrays (len(origins),): ``crc``, ``clipped``, ``recipe`` and
        ``fit_seconds``, which is NaN for published rows.
        """
        numbers: dict[str, Array] = {
            name: np.zeros(len(origins), dtype=dtype) for name, dtype in _NUMBERS.items()
        }
        places = [origin for origin in origins if isinstance(origin, Place)]
        journaled = [n for n, origin in enumerate(origins) if isinstance(origin, Place)]
        fields, good = self._journals.fill(places, [at[n] for n in journaled], parts)
        sizes = np.stack([fields[name] for name in LENGTHS], axis=1)
        if (misshapen := good & (sizes != self._sizes).any(axis=1)).any():
            n = int(misshapen.argmax())
            raise StoreError(
                f"{places[n].journal} holds a row of {tuple(sizes[n].tolist())} bytes for "
                f"{self._group.spec.path}, which has {self._sizes}: was it written for another "
                "sweep?"
            )
        if not good.all():
            raise DamagedRecord
        for name, values in numbers.items():
            values[journaled] = fields[name]
        for n, origin in enumerate(origins):
            if not isinstance(origin, Place):
                self._copy(origin, n, at[n], parts, numbers)
        return numbers

    def _copy(
        self, row: int, n: int, at: int, parts: Sequence[Array], numbers: dict[str, Array]
    ) -> None:
        """Read a published row."""
        for array, values in zip(self._arrays, parts, strict=True):
            values[at] = self._published(array.name, row).reshape(-1)
        for name in numbers:
            if name == "fit_seconds":
                numbers[name][n] = math.nan
            elif name != "clipped" or self._group.spec.has_clipped:
                numbers[name][n] = self._published(name, row)

    def _published(self, name: str, row: int) -> Any:
        return read_rows(self._group, (name,), [row])[name][0]


_STEP_BYTES = 2**22  # of rows that are written while the next are read
_TAKES = 3  # attempts to publish when the lease is lost meanwhile


@dataclass(frozen=True, slots=True)
class Publication:
    """The state of a shard after publishing."""

    added: int  # number of newly published rows
    finished: int  # number of published rows
    waiting: tuple[int, ...]  # rows of copies whose source is not finished yet


def publish(
    group: Group,
    shard: int,
    journals: JournalIndex,
    watch: LeaseWatch,
    *,
    wait: float = 0.0,
    distrusted: Collection[int] = (),
    dropped: Collection[int] = (),
    refresh: bool = True,
) -> Publication:
    """Publish a shard, holding its lease; raises LeaseHeld while another process publishes it.

    `shard`: number of the shard. `journals`: all journals that can hold rows of the shard. `watch`:
    watch of the lease folder. `wait`: seconds to wait for another process that publishes the shard.
    `distrusted`: published rows to replace from journals that hold them. `dropped`: rows to reset
    to missing; their records must be void (`tombstones`). `refresh`: look for new journal records
    first; unnecessary if nobody writes any.
    """
    lease = Lease(watch, lease_name(group, shard))
    for _ in range(_TAKES):
        lease.take(wait)
        try:
            with lease.kept():
                if refresh:
                    journals.refresh()
                return _Merge(group, shard, journals, lease, distrusted, dropped).run()
        except LeaseLost as error:  # others may have published since: merge again
            lost = error
    raise lost


def lease_name(group: Group, shard: int) -> str:
    """Return the name of the lease for publishing a shard."""
    return f"g{group.spec.number:05d}-s{shard:06d}"


@contextmanager
def replacing_shard(
    group: Group,
    shard: int,
    numbers: Mapping[str, Array],
    rows: int,
    before_rename: Callable[[], None] | None = None,
) -> Iterator[WriteBehind]:
    """Let the block write a shard's predictions, then put all its files in place, `status` last.

    Memory holds twice the rows that are written at a time.

    `shard`: number of the shard. `numbers`: values of the shard's record arrays by name, read when
    the block ends. `rows`: maximum number of rows written at a time. `before_rename`: see
    `disk.placing.replacing`, which also lists the errors.
    """
    predictions, records = group.spec.of_role("prediction"), group.spec.of_role("record")
    forms = [parse(group.metadata(array)) for array in predictions]
    with replacing(shard_files(group, shard), before_rename) as partials:
        with write_behind(forms, partials[: len(forms)], rows) as files:
            yield files
        *others, copy, status = partials[len(forms) :]
        copy.write_bytes(encoding.encode_records(group.spec, numbers))
        for array, partial in zip(records, [*others, status], strict=True):
            metadata = group.metadata(array)
            partial.write_bytes(encoding.encode(metadata, shard, numbers[array.name])[1])


def shard_files(group: Group, shard: int) -> list[Path]:
    """Return the files of a shard in the order in which they are replaced.

    The records' copy comes before ``status``: what that calls finished, the copy holds, too.
    """
    files = [group.file(array, shard) for array in group.spec.of_role("prediction", "record")]
    return [*files[:-1], group.replica(shard), files[-1]]


class _Damage(Exception):
    """Published rows of the shard cannot be decoded."""

    def __init__(self, rows: Bools) -> None:
        self.rows = rows


class _Merge:
    """One publication of a shard whose lease is held. Masks cover the rows of the shard."""

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
        self.sources = RowSources(group, journals)
        numbers = np.arange(self.start, self.stop)
        self.padding = read_rows(group, ("cell",), numbers)["cell"] < 0
        self.distrusted = np.isin(numbers, list(distrusted))
        self.dropped = np.isin(numbers, list(dropped)) & ~self.padding
        self.damaged = np.zeros(len(numbers), dtype=np.bool_)
        self.predictions = self.spec.of_role("prediction")
        self.published = group.file(self.spec.array("status"), shard).exists()
        if not self.published:  # a lost file must not be replaced by one with fewer rows
            require_status(group, shard, [*journals.rows(self.spec.number), *distrusted, *dropped])

    def run(self) -> Publication:
        for file in shard_files(self.group, self.shard):
            remove_partial(file.parent, file.name)
        while True:
            try:
                return self._merge()
            except _Damage as damage:
                self.damaged |= damage.rows
            except DamagedRecord:
                continue

    def _merge(self) -> Publication:
        rows, unreadable = len(self.padding), False
        stored = {a.name: encoding.filled(self.spec, a, rows) for a in self.spec.of_role("record")}
        if self.published:
            shard = Shard(self.group, self.shard)
            stored, unreadable = shard.records, bool(shard.lost)
        before = stored["status"]
        if unreadable:  # any row may have been published
            before = np.full_like(before, DONE)
        finished = np.isin(before, (DONE, COPY)) & ~self.padding
        lost = finished & (self.damaged | unreadable)
        unusable = lost | self.dropped
        wanted = ~self.padding & ~self.dropped & (~finished | self.distrusted | lost)
        sources, waiting = self.sources.find(
            (self.start + np.flatnonzero(wanted)).tolist(),
            (self.start, self.stop),
            set((self.start + np.flatnonzero(unusable)).tolist()),
        )
        replaced = np.isin(np.arange(self.start, self.stop), list(sources))
        if n_lost := np.count_nonzero(lost & ~replaced & ~self.dropped):
            raise DamagedShard(
                f"{self.group.folder}, shard {self.shard}: {n_lost} rows cannot be decoded and "
                "no journal holds them: run verify --repair, which says what is left to do"
            )
        status = np.where(finished & ~self.dropped, before, MISSING)
        for row, source in sources.items():
            status[row - self.start] = source.status
        now = np.isin(status, (DONE, COPY))
        status = np.where(self.padding, PADDING, status).astype(before.dtype)
        differs = bool(sources) or unreadable or not np.array_equal(status, stored["status"])
        if differs and (self.published or now.any()):
            kept = finished & ~lost & ~self.dropped
            self._place({**stored, "status": status}, sources, kept)
        added = int(np.count_nonzero(now & ~finished))
        return Publication(added, int(np.count_nonzero(now)), tuple(waiting))

    def _stored(self, array: ArraySpec, start: int, stop: int, into: Array) -> Bools:
        """Read published rows of an array; return which cannot be decoded."""
        if not self.published:
            return np.zeros(len(into), dtype=np.bool_)
        return encoding.read_file(self.group, array, start, stop, into)

    def _place(self, stored: dict[str, Array], sources: dict[int, RowSource], kept: Bools) -> None:
        """Replace all files, and update `stored` with the numbers of new rows."""
        for array in self.spec.of_role("record")[:-1]:  # all but `status`
            stored[array.name][~kept] = array.fill_value
        planned = len(self.padding) - int(self.padding[::-1].argmin())  # the rest takes no space
        step = self.spec.chunk_length  # published rows are decoded one inner chunk at a time
        if not self.published:
            step = min(step, max(1, _STEP_BYTES // self.spec.row_bytes))
        damaged = False
        with replacing_shard(self.group, self.shard, stored, step, self.lease.check) as files:
            for first in range(0, planned, step):
                rows = slice(first, min(first + step, planned))
                parts = files.buffers(rows.stop - rows.start)
                try:
                    self._merge_rows(rows, sources, kept, stored, parts)
                except DamagedRecord:
                    damaged = True
                if not damaged:  # otherwise only check the rest, so as to restart just once
                    files.write(parts)
            if damaged:
                raise DamagedRecord

    def _merge_rows(
        self,
        rows: slice,
        sources: dict[int, RowSource],
        kept: Bools,
        numbers: dict[str, Array],
        parts: list[Array],
    ) -> None:
        """Fill `parts` with some rows of each prediction array."""
        start, stop = self.start + rows.start, self.start + rows.stop
        replaced = [row for row in range(start, stop) if row in sources]
        absent = ~kept[rows]
        absent[[row - start for row in replaced]] = False
        damaged = np.zeros_like(kept)
        for array, values in zip(self.predictions, parts, strict=True):
            damaged[rows] |= self._stored(array, start, stop, values)
            values[absent] = array.fill_value
        if (damaged & kept).any():
            raise _Damage(damaged)
        if replaced:
            flat = [part.reshape(len(part), -1) for part in parts]
            self._fill(replaced, start, sources, flat, numbers)

    def _fill(
        self,
        rows: list[int],
        start: int,
        sources: dict[int, RowSource],
        parts: list[Array],
        numbers: dict[str, Array],
    ) -> None:
        """Read rows from their sources; `start` is the first row of `parts`."""
        first: dict[Origin, int] = {}  # an origin of several rows is read once
        for row in rows:
            first.setdefault(sources[row].origin, row)
        read = self.sources.fill(list(first), [row - start for row in first.values()], parts)
        index = {origin: n for n, origin in enumerate(first)}
        which = [index[sources[row].origin] for row in rows]
        places = np.array(rows) - self.start
        for name, values in read.items():
            if name in numbers:
                numbers[name][places] = values[which]
        for row in rows:
            source = sources[row]
            if source.status == COPY:
                numbers["fit_seconds"][row - self.start] = math.nan
                if source.recipe != NO_RECIPE:
                    numbers["recipe"][row - self.start] = source.recipe
            if (original := first[source.origin]) != row:
                for values in parts:
                    values[row - start] = values[original - start]


def recipes_of(group: Group, journals: JournalIndex) -> dict[int, int]:
    """Return the number of finished runs of a group by recipe."""
    published = finished_rows(statuses(group))
    rows, journaled = journals.recipes(group.spec.number)
    unpublished = journaled[~np.isin(rows, published)]
    recipes = np.concatenate([read_array(group, "recipe")[published], unpublished])
    numbers, counts = np.unique(recipes[recipes != NO_RECIPE], return_counts=True)
    return dict(zip(numbers.tolist(), counts.tolist(), strict=True))


def highest_recipe(store: Path, folder: JournalFolder) -> int:
    """Return the highest recipe number of any finished run, or 0.

    Reads all groups, and the headers of all journals in `folder`.
    """
    journals = JournalIndex(folder)
    numbers = (number for group in list_groups(store) for number in recipes_of(group, journals))
    return max(numbers, default=0)
