"""Creating and extending groups, which only planning does; workers never write these files.

A group's own ``zarr.json`` is placed last and holds the number of rows, so an interrupted creation
or extension has no effect; planning again completes it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from manyseed.orchestrator.disk.placing import place
from manyseed.orchestrator.errors import GroupMismatch
from manyseed.orchestrator.paths import METADATA
from manyseed.orchestrator.store.layout.arrays import FLAGS, LATER_FLAGS, ArraySpec
from manyseed.orchestrator.store.layout.groups import Group, find_group, open_group
from manyseed.orchestrator.store.layout.schema import COORDINATE_ROWS, GroupSpec
from manyseed.orchestrator.store.zarrfiles import encoding
from manyseed.orchestrator.store.zarrfiles.metadata import (
    array_metadata,
    group_description,
    group_metadata,
    history_with,
)

Integers = NDArray[np.integer[Any]]


@dataclass(frozen=True, slots=True)
class Flags:
    """A column of few distinct words, as positions in `meanings`."""

    codes: Integers
    meanings: tuple[str, ...]

    def __post_init__(self) -> None:
        for word in self.meanings:
            if not word or word.split() != [word]:
                raise ValueError(f"{word!r} cannot be a flag's meaning: it is empty or has blanks")
        if len(self.codes) and not 0 <= self.codes.min() <= self.codes.max() < len(self.meanings):
            raise ValueError(f"codes must lie in [0, {len(self.meanings)})")

    @classmethod
    def of(cls, words: Iterable[str]) -> Flags:
        """Encode words, numbered in order of appearance."""
        numbers: dict[str, int] = {}
        codes = [numbers.setdefault(word, len(numbers)) for word in words]
        return cls(np.array(codes, dtype=np.int16), tuple(numbers))

    def renumbered(self, meanings: list[str]) -> Integers:
        """Return codes for the list `meanings`, to which missing words are appended."""
        numbers = {word: number for number, word in enumerate(meanings)}
        for word in self.meanings:
            if numbers.setdefault(word, len(numbers)) == len(meanings):
                meanings.append(word)
        table = np.array([numbers[word] for word in self.meanings], dtype=np.int16)
        return table[self.codes] if len(self.codes) else self.codes


@dataclass(frozen=True, slots=True)
class GroupRows:
    """Coordinates of new rows of a group, in arrays of equal length.

    Attributes
    ----------
    cell : integer array
        Row of the plan's table of cells.
    repeat_index, run_index : integer array
        Which test set, and which run of the repeat.
    train_fraction : float64 array
        Share of training samples, or their number if above 1.
    flags : mapping of str to Flags
        Schemes, hparams and vary, one for each name in `arrays.FLAGS`, and those in
        `arrays.LATER_FLAGS` that the group has.
    """

    cell: Integers
    repeat_index: Integers
    run_index: Integers
    train_fraction: NDArray[np.float64]
    flags: Mapping[str, Flags]

    def __post_init__(self) -> None:
        if missing := set(FLAGS) ^ (set(self.flags) - set(LATER_FLAGS)):
            raise ValueError(f"flags must be exactly {', '.join(FLAGS)}; differs in {missing}")
        columns = [self.repeat_index, self.run_index, self.train_fraction]
        lengths = {len(column) for column in (*columns, *(f.codes for f in self.flags.values()))}
        if lengths != {len(self)}:
            raise ValueError(f"{len(self)} cells, but columns of length {sorted(lengths)}")
        if len(self) and min(self.cell.min(), self.repeat_index.min(), self.run_index.min()) < 0:
            raise ValueError("cells, repeats and runs are counted from 0")

    def __len__(self) -> int:
        return len(self.cell)


def create_group(store: Path, spec: GroupSpec, rows: GroupRows, repeats: int) -> Group:
    """Create a group with its first rows, or return the existing one if it has the same rows.

    Parameters
    ----------
    store : Path
        Folder of the store; created if necessary.
    spec : GroupSpec
    rows : GroupRows
        Its runs, in order; the rest of the last shard becomes padding.
    repeats : int
        Number of test sets.

    Raises
    ------
    GroupMismatch
        If the group exists and differs.
    """
    if (group := find_group(store, spec.path)) is not None:
        if group.spec != spec:
            raise GroupMismatch(f"{spec.path} exists with another layout: {group.spec!r}")
        return extend_group(group, rows, repeats, start=0)
    # overwrites what an interrupted creation left
    for parent in (store, (store / spec.path).parent):
        if not (parent / METADATA).exists():
            place(parent / METADATA, group_metadata({}))
    _write(Group(store, spec, 0, repeats), rows, history_with("created", []))
    return open_group(store, spec.path)


def extend_group(group: Group, rows: GroupRows, repeats: int, *, start: int) -> Group:
    """Append rows at a shard boundary, and repeats; do nothing if they were appended before.

    Parameters
    ----------
    group : Group
        As opened.
    rows : GroupRows
        The new runs.
    repeats : int
        The new number of test sets.
    start : int
        Position of the first new row: `group.rows` before this extension.

    Raises
    ------
    GroupMismatch
        If rows cannot be appended at `start`, or there are other rows.
    """
    if start < group.rows:
        _check_same(group, rows, start)
        if repeats <= group.repeats:
            return group
        rows, start = _no_rows(), group.rows
    if start != group.rows:
        raise GroupMismatch(
            f"{group.spec.path} has {group.rows} rows; rows cannot be appended at {start}"
        )
    if repeats < group.repeats:
        raise GroupMismatch(f"{group.spec.path} has {group.repeats} repeats, not {repeats}")
    history = json.loads((group.folder / METADATA).read_bytes())["attributes"]["history"]
    drop_consolidated(group.store)
    _write(
        Group(group.store, group.spec, group.rows, repeats),
        rows,
        history_with("extended", history.splitlines()),
    )
    return open_group(group.store, group.spec.path)


def drop_consolidated(store: Path) -> None:
    """Remove consolidated metadata, which would hide appended rows."""
    for pattern in (METADATA, f"*/{METADATA}", f"*/*/{METADATA}"):
        for file in store.glob(pattern):
            document = json.loads(file.read_bytes())
            if document.pop("consolidated_metadata", None) is not None:
                place(file, json.dumps(document, indent=2).encode())


def _write(group: Group, rows: GroupRows, history: str) -> None:
    spec, total = group.spec, group.rows + group.spec.padded(len(rows))
    if len(rows) and rows.repeat_index.max() >= group.repeats:
        raise GroupMismatch(f"a row of repeat {rows.repeat_index.max()} of {group.repeats}")
    for array in sorted(spec.arrays, key=lambda array: array.role != "coordinate"):
        values = meanings = None
        if array.role == "coordinate":
            values, meanings = _column(group, array, rows)
        metadata = array_metadata(spec, array, total, group.repeats, meanings)
        if values is not None:
            _place_coordinate(group, array, metadata, values)
        place(group.folder / array.name / METADATA, metadata)
    grown = Group(group.store, spec, total, group.repeats)
    place(group.folder / METADATA, group_description(grown, history))


def _column(
    group: Group, array: ArraySpec, rows: GroupRows
) -> tuple[NDArray[Any], Sequence[str] | None]:
    """Return the new values of a coordinate, padded, and the meanings of codes."""
    meanings: list[str] | None = None
    if array.name == "epoch":
        return np.array(group.spec.epochs, dtype=array.dtype), None
    if array.name == "trained_epoch":
        return np.arange(1, group.spec.epochs[-1] + 1, dtype=array.dtype), None
    for coordinate in group.spec.coordinates:
        if coordinate.name == array.name:
            return np.array(coordinate.values, dtype=array.dtype), None
    if array.name in group.spec.flags:
        meanings = []
        if group.rows:
            meanings = json.loads(group.metadata(array))["attributes"]["flag_meanings"].split()
        values = rows.flags[array.name].renumbered(meanings)
    else:
        values = getattr(rows, array.name)
    column = encoding.filled(group.spec, array, group.spec.padded(len(rows)))
    limits = np.iinfo(column.dtype) if column.dtype.kind == "i" else None
    if limits is not None and len(values) and values.max() > limits.max:
        raise ValueError(f"{array.name} {values.max()} exceeds {limits.max}")
    column[: len(rows)] = values
    return column, meanings


def _place_coordinate(
    group: Group, array: ArraySpec, metadata: bytes, values: NDArray[Any]
) -> None:
    start = group.rows if array.dims == ("run",) else 0
    first = start // COORDINATE_ROWS
    if start % COORDINATE_ROWS:
        before = encoding.read(group.folder / array.name, first * COORDINATE_ROWS, start)
        values = np.concatenate([before, values])
    for index in range(-(-len(values) // COORDINATE_ROWS)):
        part = values[index * COORDINATE_ROWS : (index + 1) * COORDINATE_ROWS]
        key, encoded = encoding.encode(metadata, first + index, part)
        place(group.folder / array.name / key, encoded)


def wrong_coordinates(group: Group, parts: Iterable[GroupRows], *, mend: bool) -> list[str]:
    """Compare the coordinates with the plan, and rewrite wrong or unreadable ones if `mend`.

    Parameters
    ----------
    group : Group
    parts : iterable of GroupRows
        The planned rows, one item per part of the plan.
    mend : bool

    Returns
    -------
    list of str
        Names of the arrays that were wrong, sorted.
    """
    spec, planned = group.spec, list(parts)
    wrong = []
    for array in spec.arrays:
        if array.role != "coordinate":
            continue
        columns = planned if array.dims == ("run",) else [_no_rows()]
        values = np.concatenate([_column(group, array, rows)[0] for rows in columns])
        metadata, folder = group.metadata(array), group.folder / array.name
        for index in range(-(-len(values) // COORDINATE_ROWS)):
            start = index * COORDINATE_ROWS
            part = values[start : start + COORDINATE_ROWS]
            stored = np.empty_like(part)
            damaged = encoding.read_undamaged(folder, start, start + len(part), len(part), stored)
            same = np.array_equal(part, stored, equal_nan=part.dtype.kind == "f")
            if damaged.any() or not same or not group.file(array, index).exists():
                wrong.append(array.name)
                if mend:
                    key, encoded = encoding.encode(metadata, index, part)
                    place(folder / key, encoded)
    return sorted(set(wrong))


def _check_same(group: Group, rows: GroupRows, start: int) -> None:
    """Refuse rows that differ from those already stored at `start`."""
    span = group.spec.padded(len(rows))
    for array in group.spec.arrays:
        if array.role != "coordinate" or array.dims != ("run",):
            continue
        expected, _ = _column(Group(group.store, group.spec, group.rows, 0), array, rows)
        stored = encoding.read(group.folder / array.name, start, start + span)
        if not np.array_equal(expected, stored, equal_nan=array.dtype == "float64"):
            raise GroupMismatch(
                f"{group.spec.path} holds other rows from {start} on ({array.name} differs); "
                "existing rows cannot be changed: plan into a new sweep"
            )


def _no_rows() -> GroupRows:
    none = np.zeros(0, dtype=np.int64)
    return GroupRows(
        none, none, none, none.astype(np.float64), {name: Flags(none, ()) for name in FLAGS}
    )
