"""Restoring damaged files of a shard from the rest of it, while nobody publishes.

Record arrays follow from predictions, journals and the plan: checksums from chunks whose own
checksums match, statuses from matching checksums, fit times and recipes from journals. Whatever
none of these holds is written as unknown.

Labels follow from scores, or from the logit gap of two classes; a row's checksum, which covers
both, tells whether they are the stored ones.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from manyseed.jobs.training.prediction import gaps, labels
from manyseed.orchestrator.disk.lease import Lease, LeaseWatch
from manyseed.orchestrator.disk.placing import remove_partial, replacing
from manyseed.orchestrator.store.care.verify import (
    checksums,
    read_predictions,
    row_checksums,
    wrong_seconds,
    wrong_status,
)
from manyseed.orchestrator.store.journals.index import JournalIndex
from manyseed.orchestrator.store.journals.records import Header
from manyseed.orchestrator.store.layout.arrays import COPY, DONE, MISSING, NO_RECIPE, PADDING
from manyseed.orchestrator.store.layout.groups import Group
from manyseed.orchestrator.store.publishing.shards import lease_name
from manyseed.orchestrator.store.reading.reader import read_array, read_rows
from manyseed.orchestrator.store.zarrfiles import encoding
from manyseed.orchestrator.store.zarrfiles.encoding import Array, Bools

_LARGEST = float(np.finfo(np.float16).max)


def mend_records(
    group: Group, shard: int, copies: Bools | None, journals: JournalIndex, watch: LeaseWatch
) -> tuple[str, ...]:
    """Restore the damaged record arrays of a shard; return the names of those rewritten.

    `copies` (run,) tells which runs of the group are identical to the first of their repeat; None
    if unknown.
    """
    lease = Lease(watch, lease_name(group, shard))
    lease.take()
    with lease.kept():
        records = _Records(group, shard, journals)
        before = {name: values.copy() for name, values in records.values.items()}
        records.mend(None if copies is None else copies[slice(*group.span(shard))])
        changed = {
            name: values
            for name, values in records.values.items()
            if name in records.lost
            or not np.array_equal(before[name], values, equal_nan=values.dtype.kind == "f")
        }
        if changed:
            _replace(group, shard, changed, lease)
    return tuple(changed)


def mend_labels(group: Group, shard: int, watch: LeaseWatch) -> int:
    """Restore the damaged labels of a shard from its scores; return the number of restored rows.

    Labels are only written if they match the row's checksum, so ties from rounding do no harm.
    Records must have been mended before.
    """
    spec = group.spec
    if spec.scores != "all" and not (spec.scores == "margin" and spec.n_classes == 2):
        return 0  # with more classes, the margin does not tell which one was predicted
    lease = Lease(watch, lease_name(group, shard))
    lease.take()
    with lease.kept():
        array, (start, stop) = spec.array("label"), group.span(shard)
        label = encoding.filled(spec, array, stop - start)
        crc = read_rows(group, ("crc",), range(start, stop))["crc"]
        mended = 0
        for first in range(start, stop, spec.chunk_length):
            at = slice(first - start, first - start + spec.chunk_length)
            parts, damaged = read_predictions(group, first, first + spec.chunk_length)
            others = np.logical_or.reduce([bad for name, bad in damaged.items() if name != "label"])
            label[at] = parts["label"]
            wrong = damaged["label"] | (checksums(parts) != crc[at])
            values = parts[spec.score_name or ""]
            values = gaps(values) if spec.scores == "all" else values
            parts["label"] = labels(values, spec.n_classes).astype(array.dtype)
            wrong &= (crc[at] != 0) & ~others & (checksums(parts) == crc[at])
            label[at][wrong] = parts["label"][wrong]
            mended += int(wrong.sum())
        if mended:
            _replace(group, shard, {"label": label}, lease)
    return mended


def _replace(group: Group, shard: int, values: Mapping[str, Array], lease: Lease) -> None:
    """Replace the files of some of a shard's arrays, given by name."""
    arrays = [group.spec.array(name) for name in values]
    paths = [group.file(array, shard) for array in arrays]
    for path in paths:
        remove_partial(path.parent, path.name)
    with replacing(paths, lease.check) as partials:
        for array, partial in zip(arrays, partials, strict=True):
            content = encoding.encode(group.metadata(array), shard, values[array.name])[1]
            partial.write_bytes(content)


class _Records:
    """The record arrays of a shard, and the names of lost ones."""

    def __init__(self, group: Group, shard: int, journals: JournalIndex) -> None:
        self.group, self.spec, self.journals = group, group.spec, journals
        self.start, self.stop = group.span(shard)
        self.padding = read_array(group, "cell")[self.start : self.stop] < 0
        self.values: dict[str, Array] = {}
        self.lost: set[str] = set()
        for array in self.spec.arrays:
            if array.role == "record":
                values = encoding.filled(self.spec, array, self.stop - self.start)
                if encoding.read_file(group, array, self.start, self.stop, values).any():
                    self.lost.add(array.name)
                    values[...] = array.fill_value
                self.values[array.name] = values

    def mend(self, copies: Bools | None) -> None:
        status, crc = self.values["status"], self.values["crc"]
        unclear = wrong_status(status, self.padding)
        if "status" in self.lost:
            unclear[:] = True
        unclear &= ~self.padding
        status[self.padding] = PADDING
        finished = np.where(unclear, self._written(), np.isin(status, (DONE, COPY)))
        if "crc" in self.lost and finished.any():
            crc[finished] = self._checksums()[finished]
        if unclear.any():
            status[unclear] = np.where(finished, self._kinds(copies), MISSING)[unclear]
        seconds = self.values["fit_seconds"]
        seconds[wrong_seconds(seconds, status)] = math.nan
        self._recall(np.flatnonzero(finished))
        if "clipped" in self.lost:
            self._count_clipped(finished)

    def _written(self) -> Bools:
        """Return which rows were published, judging by the other records."""
        written = (self.values["crc"] != 0) | (self.values["recipe"] != NO_RECIPE)
        return np.asarray((written | ~np.isnan(self.values["fit_seconds"])) & ~self.padding)

    def _kinds(self, copies: Bools | None) -> Array:
        """Return `DONE` for trained runs, which have a time, and `COPY` for others."""
        trained = ~np.isnan(self.values["fit_seconds"])
        if copies is not None:
            trained |= ~copies
        elif "fit_seconds" in self.lost:
            trained[:] = True
        return np.where(trained, DONE, COPY)

    def _checksums(self) -> Array:
        """Compute the checksums of the stored predictions; 0 if they cannot be decoded."""
        values = np.zeros(self.stop - self.start, dtype=np.uint32)
        for first in range(self.start, self.stop, self.spec.chunk_length):
            crcs, damaged = row_checksums(self.group, first, first + self.spec.chunk_length)
            at = slice(first - self.start, first - self.start + self.spec.chunk_length)
            values[at] = np.where(damaged, 0, crcs)
        return values

    def _recall(self, rows: Array) -> None:
        """Restore lost fit times and recipes of rows from journals."""
        wanted = self.lost & {"fit_seconds", "recipe"}
        if not wanted:
            return
        places = self.journals.records(self.spec.number, self.start, self.stop)
        for row in rows.tolist():
            for place in places.get(self.start + row, []):
                header = self.journals.header(place)
                if header is not None and self._is_of(header, row):
                    if "fit_seconds" in wanted:
                        self.values["fit_seconds"][row] = header.fit_seconds
                    if "recipe" in wanted:
                        self.values["recipe"][row] = self._recipe_of(header, row)
                    break

    def _recipe_of(self, header: Header, row: int) -> int:
        """Return the recipe of a record, or of its source for a copy without its own."""
        if header.status != COPY or header.recipe != NO_RECIPE:
            return header.recipe
        source = header.source
        for place in self.journals.records(self.spec.number, source, source + 1).get(source, []):
            original = self.journals.header(place)
            if original is not None and original.crc == self.values["crc"][row]:
                return original.recipe
        return NO_RECIPE

    def _is_of(self, header: Header, row: int) -> bool:
        """Whether a record is the one published as a row."""
        status, crc = self.values["status"][row], self.values["crc"][row]
        return bool(header.status == status and (status == COPY or header.crc == crc))

    def _count_clipped(self, finished: Bools) -> None:
        """Count values at the limits of float16; only clipping puts them there."""
        array = self.spec.array(self.spec.score_name or "")
        for first in range(self.start, self.stop, self.spec.chunk_length):
            values = encoding.filled(self.spec, array, self.spec.chunk_length)
            stop = first + self.spec.chunk_length
            encoding.read_file(self.group, array, first, stop, values)
            at = slice(first - self.start, stop - self.start)
            counts = (np.abs(values) >= _LARGEST).reshape(len(values), -1).sum(axis=1)
            self.values["clipped"][at] = np.where(finished[at], counts, 0)
