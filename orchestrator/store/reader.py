"""Reading while others write: with retries, and status before predictions.

A reader that has seen a row's status as done finds its predictions, as their files were replaced
before. Reads that fall between two replacements raise an error, never return wrong data, and are
retried. A missing file that published data need counts as damage for every reader (`Need`).

`lazy` opens whole groups; this module serves tasks and imports neither xarray nor dask.
"""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import google_crc32c
import numpy as np
from numpy.typing import NDArray

from manyseed.orchestrator.disk.placing import read_plain, unavailable
from manyseed.orchestrator.errors import DamagedFile, DamagedShard
from manyseed.orchestrator.paths import METADATA
from manyseed.orchestrator.store import encoding
from manyseed.orchestrator.store.arrays import COPY, DONE, MISSING, PADDING, ArraySpec
from manyseed.orchestrator.store.chunkfile import parse
from manyseed.orchestrator.store.encoding import Array, Bools
from manyseed.orchestrator.store.groups import Group, published_shards
from manyseed.orchestrator.store.testsets import require_stored

Integers = NDArray[np.integer[Any]]


@dataclass(frozen=True, slots=True)
class Need:
    """Whether an absent file of an array, given by its index, must exist.

    Files of coordinates must exist once the group is planned. ``status`` is put in place after all
    other files of its shard, so if it exists, they must too; likewise ``test_index`` after
    ``y_true``.
    """

    group: Group
    array: ArraySpec

    def __call__(self, index: int) -> bool:
        """Return whether the file must exist."""
        if self.array.role == "coordinate":
            return True
        last = "test_index" if self.array.role == "split" else "status"
        return self.group.file(self.group.spec.array(last), index).exists()


def statuses(group: Group, journaled: Integers | None = None) -> NDArray[np.uint8]:
    """Return the published status of every row (run,); padding is 255 even if unpublished.

    `journaled`: rows that journals hold. They distinguish a lost ``status`` from one not yet
    published; without them, a lost one is not detected.
    """
    if journaled is not None:
        require_statuses(group, journaled)
    status = read_array(group, "status")
    padding = read_array(group, "cell") < 0
    return np.where(
        padding, np.uint8(PADDING), np.where(status == PADDING, MISSING, status)
    ).astype(np.uint8)


def finished_rows(status: NDArray[np.uint8]) -> NDArray[np.intp]:
    """Return the rows whose predictions are published, from `statuses`."""
    return np.flatnonzero(np.isin(status, (DONE, COPY)))


def require_statuses(group: Group, journaled: Integers) -> None:
    """Refuse a group in which a shard has lost its ``status``, like `require_status`."""
    for shard in sorted(_begun_shards(group) - published_shards(group.folder)):
        if shard < group.shards:
            require_status(group, shard, journaled)


def require_status(group: Group, shard: int, journaled: Sequence[int] | Integers) -> None:
    """Refuse a shard without ``status`` that holds rows not in any journal.

    A first publication that was killed also leaves a shard without ``status``, but then journals
    hold its rows. `journaled` are the rows that journals hold, of this shard and others.
    """
    if not group.file(group.spec.array("label"), shard).exists():
        return  # nothing was published
    start, stop = group.span(shard)
    held = np.asarray(journaled, dtype=np.int64)
    held = held[(held >= start) & (held < stop)]
    if group.file(group.spec.array("crc"), shard).exists():
        folder = group.folder / "crc"
        crc = encoding.patiently(lambda: encoding.read(folder, start, stop), folder)
        lost = not np.isin(start + np.flatnonzero(crc), held).all()
    else:
        lost = len(held) == 0
    path = group.file(group.spec.array("status"), shard)
    if lost and not path.exists():  # it may have appeared meanwhile
        raise DamagedShard.of(path, "is missing, and no journal holds all runs of its shard")


def read_array(group: Group, name: str) -> Array:
    """Return a whole array; meant for those with a number per run."""
    array = group.spec.array(name)
    check_form(group, array)
    stop = group.spec.shape(array, group.rows, group.repeats)[0]
    folder, needed = group.folder / name, Need(group, array)
    return encoding.patiently(lambda: encoding.read(folder, 0, stop, needed), folder)


def read_numbers(group: Group, journaled: Integers | None = None) -> dict[str, Array]:
    """Return all records and coordinates of a group by name.

    ``status`` comes first, from `statuses`, which also describes parameters and errors.
    """
    numbers = {"status": statuses(group, journaled)}
    for array in group.spec.arrays:
        if array.role in ("record", "coordinate") and array.name != "status":
            numbers[array.name] = read_array(group, array.name)
    return numbers


Parts = dict[str, Array]
"""Arrays (run, ...) by name."""


class Shard:
    """A shard as it is stored: its records, also their copy, and predictions chunk by chunk.

    All that check, repair or add to a shard see it by this.
    """

    def __init__(self, group: Group, number: int) -> None:
        self.group, self.spec, self.number = group, group.spec, number
        self.start, self.stop = group.span(number)
        arrays = self.spec.of_role("record")
        # status first: the other files were replaced before it
        read = {array.name: self._read(array, self.start, self.stop) for array in arrays[::-1]}
        self.records: Parts = {array.name: read[array.name][0] for array in arrays}
        """Holds fill values where they cannot be decoded."""
        self.lost = {name for name, (_, damaged) in read.items() if damaged.any()}
        """Names of the records that cannot be decoded."""

    @functools.cached_property
    def padding(self) -> Bools:
        """Which rows are no runs."""
        rows = np.arange(self.start, self.stop)
        return np.asarray(read_rows(self.group, ("cell",), rows)["cell"] < 0)

    @functools.cached_property
    def replica(self) -> Parts | None:
        """The records' copy; empty if it cannot be read, None if there is none."""
        try:
            return encoding.decode_records(self.spec, read_plain(self.group.replica(self.number)))
        except FileNotFoundError:
            return None
        except DamagedFile:
            return {}

    def finished(self) -> Bools:
        """Return which rows are published, by their status."""
        return np.isin(self.records["status"], (DONE, COPY)) & ~self.padding

    def copied(self, crc: Array | None = None, at: slice = slice(None)) -> Bools:
        """Return which rows `at` the records' copy calls finished, of this checksum if given."""
        if not self.replica:
            return np.zeros_like(self.padding[at])
        same = True if crc is None else self.replica["crc"][at] == crc
        return np.isin(self.replica["status"][at], (DONE, COPY)) & ~self.padding[at] & same

    def differing(self) -> Iterator[tuple[str, Bools]]:
        """Yield each record, and where it differs from a copy that has the same checksum."""
        same = self.copied(self.records["crc"])
        for name, theirs in (self.replica or {}).items():
            ours, both_nan = self.records[name], np.isnan(self.records[name]) & np.isnan(theirs)
            yield name, same & (ours != theirs) & ~both_nan

    def chunks(self) -> Iterator[tuple[int, int, slice]]:
        """Yield the first row of each inner chunk and its end, and its rows within the shard."""
        for first in range(self.start, self.stop, step := self.spec.chunk_length):
            yield first, first + step, slice(first - self.start, first - self.start + step)

    def predictions(self, first: int, stop: int) -> tuple[Parts, Parts]:
        """Read the predictions of some rows, in the order of the checksum.

        Returns arrays (run, ...) by name, with fill values for rows that cannot be decoded, and
        bool arrays (run,): which rows these are.
        """
        read = {a.name: self._read(a, first, stop) for a in self.spec.of_role("prediction")}
        return {n: part for n, (part, _) in read.items()}, {n: bad for n, (_, bad) in read.items()}

    def checksums(self, rows: Bools) -> tuple[NDArray[np.uint32], Bools]:
        """Return the checksums of the stored bytes of some rows, and which cannot be decoded."""
        found, lost = np.zeros(len(rows), dtype=np.uint32), np.zeros_like(rows)
        for first, stop, at in self.chunks():
            if rows[at].any():
                parts, damaged = self.predictions(first, stop)
                lost[at] = np.logical_or.reduce([*damaged.values()])
                found[at] = np.where(lost[at], 0, checksums(parts))
        return found, lost

    def unlike(self, rows: Bools) -> Bools:
        """Return which of these rows do not match their checksum or cannot be decoded."""
        found, lost = self.checksums(rows)
        return np.asarray(rows & (lost | (found != self.records["crc"])))

    def _read(self, array: ArraySpec, start: int, stop: int) -> tuple[Array, Bools]:
        values = encoding.filled(self.spec, array, stop - start)
        return values, encoding.read_file(self.group, array, start, stop, values)


def checksums(parts: Parts) -> NDArray[np.uint32]:
    """Return the checksum of each row, given arrays (run, ...) in the order of the checksum."""
    contiguous = [np.ascontiguousarray(part) for part in parts.values()]
    crcs = np.zeros(len(contiguous[0]), dtype=np.uint32)
    for row in range(len(crcs)):
        crc = 0
        for part in contiguous:
            crc = google_crc32c.extend(crc, part[row].tobytes())
        crcs[row] = crc
    return crcs


class StoredArray:
    """An array of a group that reads from disk when it is indexed.

    A part is read again if a file is replaced meanwhile.

    `shape` and `chunks`: shape of the array when its group was opened, and of an inner chunk.
    """

    def __init__(self, group: Group, name: str) -> None:
        array = group.spec.array(name)
        check_form(group, array)
        self.shape = group.spec.shape(array, group.rows, group.repeats)
        self.chunks = (group.spec.chunks(array)[0], *self.shape[1:])
        self.ndim, self.dtype = len(self.shape), np.dtype(array.dtype)
        self._folder, self._needed = group.folder / name, Need(group, array)

    def __getitem__(self, key: tuple[Any, ...]) -> Array:
        """Read what slices or numbers, one for each of the first dimensions, select."""
        read = functools.partial(encoding.read_part, self._folder, key, self._needed)
        return encoding.patiently(read, self._folder)


def read_rows(
    group: Group, names: Iterable[str], rows: Sequence[int] | NDArray[np.integer[Any]]
) -> dict[str, Array]:
    """Return rows, in any order, of arrays with the dimension run.

    Reads only the inner chunks that hold them; raises like `read_array`.
    """
    values = {}
    for name in sorted(names, key=lambda name: name != "status"):
        array = group.spec.array(name)
        check_form(group, array)
        folder, needed = group.folder / name, Need(group, array)
        read = functools.partial(encoding.read_rows, folder, rows, needed)
        values[name] = encoding.patiently(read, folder)
    return values


def test_sets(group: Group, repeats: Integers) -> tuple[Array, Array]:
    """Return all of ``y_true`` and ``test_index``, (repeat, sample).

    `repeats`: the repeats that finished runs were tested on.
    """
    test_index, y_true = (read_array(group, name) for name in ("test_index", "y_true"))
    lost = [int(repeat) for repeat in np.unique(repeats) if (test_index[repeat] < 0).any()]
    if lost:
        path = group.file(group.spec.array("test_index"), lost[0] // group.spec.split_length)
        raise DamagedShard.of(path, f"holds no test set {lost[0]}, which finished runs have")
    require_stored(group, y_true, test_index)
    return y_true, test_index


def check_form(group: Group, array: ArraySpec) -> None:
    """Refuse an array whose ``zarr.json`` does not fit its group."""
    form = parse(group.metadata(array))
    shape = group.spec.shape(array, group.rows, group.repeats)
    stored = (form.row, form.dtype.str.lstrip("<|"), form.length, form.chunk)
    dtype = np.dtype(array.dtype).newbyteorder("<").str.lstrip("<|")
    wanted = (shape[1:], dtype, group.spec.shards(array)[0], group.spec.chunks(array)[0])
    if stored != wanted or form.rows < shape[0]:  # it may have grown since
        path = group.folder / array.name / METADATA
        raise DamagedShard.of(path, "does not fit its group")


def _begun_shards(group: Group) -> set[int]:
    """Return the shards with a ``label`` file, which is put in place first."""
    with unavailable("list", folder := group.folder / "label"):
        found = (re.match(r"c\.([0-9]{1,9})(?:\.|$)", entry.name) for entry in os.scandir(folder))
        return {int(match[1]) for match in found if match}
