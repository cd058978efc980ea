"""Reading while others write: with patience, status before predictions.

A reader that saw a row's status as done sees its predictions: their files were replaced before.
Reads that fall between two replacements raise, never mislead, and are tried again. A file that
something published needs is damage where it is not there, whoever reads: `Needed`.

`lazy` opens whole groups; what a task needs is here and imports neither xarray nor dask.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from manyseed.orchestrator.disk.placing import unavailable
from manyseed.orchestrator.errors import DamagedShard
from manyseed.orchestrator.paths import METADATA
from manyseed.orchestrator.store.layout.arrays import COPY, DONE, MISSING, PADDING, ArraySpec
from manyseed.orchestrator.store.layout.chunkfile import parse
from manyseed.orchestrator.store.layout.groups import Group, published_shards
from manyseed.orchestrator.store.zarrfiles import encoding
from manyseed.orchestrator.store.zarrfiles.encoding import Array
from manyseed.orchestrator.store.zarrfiles.setsums import require_stored

Integers = NDArray[np.integer[Any]]


@dataclass(frozen=True, slots=True)
class Needed:
    """Whether a file of an array must be there, asked by its number where it is not.

    Those of coordinates must from the group's planning on. ``status`` is put in place after all
    other files of its shard: where it is there, they must be. ``test_index`` comes after
    ``y_true``.
    """

    group: Group
    array: ArraySpec

    def __call__(self, index: int) -> bool:
        """Say so of one file."""
        if self.array.role == "coordinate":
            return True
        last = "test_index" if self.array.role == "split" else "status"
        return self.group.file(self.group.spec.array(last), index).exists()


def statuses(group: Group, journaled: Integers | None = None) -> NDArray[np.uint8]:
    """Return the published status of every row (run,), 255 for padding also where unpublished.

    Parameters
    ----------
    group : Group
    journaled : integer array, optional
        The rows that journals hold, with which a lost ``status`` differs from one that is yet to
        come; without, it is not looked for.

    Raises
    ------
    DamagedShard
        Where ``status``, or what else is needed, is lost or cannot be decoded.
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
    """Refuse a group in which the ``status`` of a shard was lost, as `require_status` does."""
    for shard in sorted(_begun_shards(group) - published_shards(group.folder)):
        if shard < group.shards:
            require_status(group, shard, journaled)


def require_status(group: Group, shard: int, journaled: Sequence[int] | Integers) -> None:
    """Refuse a shard without ``status`` that holds more than rows of journals.

    A first publication that was killed leaves a shard without ``status``, too, but then journals
    hold its rows.

    Parameters
    ----------
    group : Group
    shard : int
    journaled : sequence of int
        Rows that journals hold, of this shard and others.

    Raises
    ------
    DamagedShard
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
    if lost and not path.exists():  # else it came meanwhile
        raise DamagedShard.of(path, "is missing, and runs beside it are in no journal")


def read_array(group: Group, name: str) -> Array:
    """Return a whole array; for those of a number per run.

    Raises
    ------
    DamagedShard
        If a file that is needed is missing, or one cannot be decoded.
    """
    array = group.spec.array(name)
    check_form(group, array)
    stop = group.spec.shape(array, group.rows, group.repeats)[0]
    folder, needed = group.folder / name, Needed(group, array)
    return encoding.patiently(lambda: encoding.read(folder, 0, stop, needed), folder)


def read_numbers(group: Group, journaled: Integers | None = None) -> dict[str, Array]:
    """Return all arrays that hold a number per run, and the coordinates of the others, by name.

    Status comes first, as `statuses` has it; parameters and errors are those of `statuses`.
    """
    found = {"status": statuses(group, journaled)}
    for array in group.spec.arrays:
        if array.role in ("record", "coordinate") and array.name != "status":
            found[array.name] = read_array(group, array.name)
    return found


class StoredArray:
    """A whole array of a group, of which each index reads a part.

    The part is read again where a file is replaced meanwhile.

    Attributes
    ----------
    shape, chunks : tuple of int
        Of the array, as its group was opened; of an inner chunk.
    ndim : int
    dtype : numpy.dtype

    Raises
    ------
    DamagedShard
        As `read_array`; of files when these are read.
    """

    def __init__(self, group: Group, name: str) -> None:
        array = group.spec.array(name)
        check_form(group, array)
        self.shape = group.spec.shape(array, group.rows, group.repeats)
        self.chunks = (group.spec.chunks(array)[0], *self.shape[1:])
        self.ndim, self.dtype = len(self.shape), np.dtype(array.dtype)
        self._folder, self._needed = group.folder / name, Needed(group, array)

    def __getitem__(self, key: tuple[Any, ...]) -> Array:
        """Read what slices and numbers select, one for each of the first dimensions."""
        read = functools.partial(encoding.read_part, self._folder, key, self._needed)
        return encoding.patiently(read, self._folder)


def read_rows(
    group: Group, names: Iterable[str], rows: Sequence[int] | NDArray[np.integer[Any]]
) -> dict[str, Array]:
    """Return some rows of some arrays; only inner chunks that hold them are read.

    Parameters
    ----------
    group : Group
        The group.
    names : iterable of str
        Arrays with the dimension run.
    rows : sequence of int
        Rows, in any order.

    Raises
    ------
    DamagedShard
        As `read_array`.
    """
    found = {}
    for name in sorted(names, key=lambda name: name != "status"):
        array = group.spec.array(name)
        check_form(group, array)
        folder, needed = group.folder / name, Needed(group, array)
        read = functools.partial(encoding.read_rows, folder, rows, needed)
        found[name] = encoding.patiently(read, folder)
    return found


def test_sets(group: Group, repeats: Integers) -> tuple[Array, Array]:
    """Return ``y_true`` and ``test_index`` (repeat, sample), whole.

    Parameters
    ----------
    group : Group
    repeats : integer array
        The repeats that finished runs were tested on.

    Raises
    ------
    DamagedShard
        Where one of these was lost, as it was written before any of its runs was trained, or one
        is not what was stored.
    """
    test_index, y_true = (read_array(group, name) for name in ("test_index", "y_true"))
    lost = [int(repeat) for repeat in np.unique(repeats) if (test_index[repeat] < 0).any()]
    if lost:
        path = group.file(group.spec.array("test_index"), lost[0] // group.spec.split_length)
        raise DamagedShard.of(path, f"holds no test set {lost[0]}, which finished runs have")
    require_stored(group, y_true, test_index)
    return y_true, test_index


def check_form(group: Group, array: ArraySpec) -> None:
    """Refuse an array whose ``zarr.json`` is not that of its group.

    Raises
    ------
    DamagedShard
    """
    form = parse(group.metadata(array))
    shape = group.spec.shape(array, group.rows, group.repeats)
    found = (form.row, form.dtype.str.lstrip("<|"), form.length, form.chunk)
    dtype = np.dtype(array.dtype).newbyteorder("<").str.lstrip("<|")
    wanted = (shape[1:], dtype, group.spec.shards(array)[0], group.spec.chunks(array)[0])
    if found != wanted or form.rows < shape[0]:  # it may have grown since
        path = group.folder / array.name / METADATA
        raise DamagedShard.of(path, "is not that of its group")


def _begun_shards(group: Group) -> set[int]:
    """Return the shards of which at least the file that is put in place first is there."""
    with unavailable("list", folder := group.folder / "label"):
        names = [entry.name.split(".") for entry in os.scandir(folder)]
        return {
            int(name[1]) for name in names if name[0] == "c" and name[1:2] and name[1].isdigit()
        }
