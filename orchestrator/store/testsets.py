"""Test sets, written by the workers that make them, and their checksums.

A chunk's checksum protects its bits, but a chunk put in the wrong place still decodes. So writers
store a checksum of each test set next to them, in a folder that Zarr readers do not list. Earlier
versions stored none; test sets without a checksum are not checked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import google_crc32c
import numpy as np
from annotated_types import Interval
from numpy.typing import NDArray

from manyseed.orchestrator.disk.lease import Lease, LeaseWatch
from manyseed.orchestrator.disk.placing import place, remove_partial
from manyseed.orchestrator.disk.records import read_record, write_json
from manyseed.orchestrator.errors import DamagedFile, DamagedShard, SplitMismatch, StoreError
from manyseed.orchestrator.paths import SET_SUMS
from manyseed.orchestrator.store import encoding
from manyseed.orchestrator.store.encoding import Array
from manyseed.orchestrator.store.groups import Group

Checksums = dict[str, dict[int, Annotated[int, Interval(ge=0, lt=2**32)]]]
"""The CRC-32C of a test set's stored little-endian bytes, by array and repeat."""


def checksums_file(group: Group) -> Path:
    """Return the file that holds the checksums of a group's test sets."""
    return group.folder / "test_index" / SET_SUMS


def read_checksums(group: Group) -> Checksums:
    """Return the checksums of a group's test sets."""
    try:
        return read_record(checksums_file(group), Checksums)
    except FileNotFoundError:
        return {}
    except DamagedFile as error:
        raise DamagedShard.of(checksums_file(group), error.reason) from None


def add_checksums(
    group: Group, sets: Mapping[str, Array], start: int, before_rename: Callable[[], None]
) -> None:
    """Add the checksums of stored test sets (`sets` and `start` as in `differing`).

    `before_rename` is called before the file appears; an exception from it abandons the file.
    """
    known = read_checksums(group)
    for name, values in sets.items():
        new = {start + number: _checksum(row) for number, row in enumerate(values)}
        known[name] = known.get(name, {}) | new
    write_json(checksums_file(group), known, before_rename=before_rename)


def differing(
    known: Checksums, sets: Mapping[str, Array], start: int = 0
) -> Iterator[tuple[str, int]]:
    """Yield the array name and repeat of each test set that does not match its checksum.

    `sets`, mapping of arrays (repeat, sample): ``y_true`` and ``test_index`` in their stored
    dtypes; repeats whose positions are negative have no test set. `start`: the first repeat in
    `sets`.
    """
    made = sets["test_index"][:, 0] >= 0
    for name, values in sets.items():
        for repeat, checksum in known.get(name, {}).items():
            is_given = 0 <= repeat - start < len(values) and made[repeat - start]
            if is_given and _checksum(values[repeat - start]) != checksum:
                yield name, repeat


def require_stored(group: Group, y_true: Array, test_index: Array) -> None:
    """Check all test sets of a group, (repeat, sample), against their checksums."""
    sets = {"y_true": y_true, "test_index": test_index}
    for name, repeat in differing(read_checksums(group), sets):
        file = group.file(group.spec.array(name), repeat // group.spec.split_length)
        raise DamagedShard.of(file, f"holds another test set {repeat} than was stored")


def _checksum(row: Array) -> int:
    return int(google_crc32c.value(np.ascontiguousarray(row).tobytes()))


Integers = NDArray[np.integer[Any]]


def write_splits(
    group: Group,
    first: int,
    y_true: Integers,
    test_index: Integers,
    watch: LeaseWatch,
    *,
    wait: float | None = None,
) -> None:
    """Store the test sets of consecutive repeats, or check those already stored.

    `first`: the first repeat index. `y_true`, integer array (repeat, sample): true classes.
    `test_index`, integer array (repeat, sample): positions of the test points in the prepared
    dataset. `watch`: watch of the lease folder. `wait`: seconds to wait for another writer.
    Default: twice the lease time.
    """
    _check(group, first, y_true, test_index)
    wait = 2 * watch.seconds if wait is None else wait
    length = group.spec.split_length
    stop = first + len(y_true)
    sets = {
        name: values.astype(group.spec.array(name).dtype)
        for name, values in (("y_true", y_true), ("test_index", test_index))
    }
    known = read_checksums(group)
    for name, repeat in differing(known, sets, first):  # the first is enough
        raise _mismatch(group, repeat, name)
    for chunk in range(first // length, -(-stop // length)):
        low, high = max(first, chunk * length), min(stop, (chunk + 1) * length)
        new = {name: values[low - first : high - first] for name, values in sets.items()}
        has_checksums = all(known.get(name, {}).keys() >= set(range(low, high)) for name in sets)
        if _merged(group, chunk, low, new) is None and has_checksums:
            continue
        lease = Lease(watch, f"g{group.spec.number:05d}-splits")
        lease.take(wait)
        with lease.kept():
            _write(group, chunk, low, new, lease)


def read_splits(group: Group) -> tuple[Integers, Integers]:
    """Return `y_true` and `test_index`, (repeat, sample); the latter is -1 for absent test sets."""
    test_index, y_true = (_read(group, name, 0, group.repeats) for name in ("test_index", "y_true"))
    require_stored(group, y_true, test_index)
    return y_true, test_index


def _check(group: Group, first: int, y_true: Integers, test_index: Integers) -> None:
    spec, shape = group.spec, (len(y_true), group.spec.samples)
    if y_true.shape != shape or test_index.shape != shape:
        raise StoreError(
            f"{spec.path} has {spec.samples} test points, got {y_true.shape}, {test_index.shape}"
        )
    if not 0 <= first < first + len(y_true) <= group.repeats:
        raise StoreError(
            f"{spec.path} has {group.repeats} repeats, got {first} to {first + len(y_true) - 1}"
        )
    if y_true.min() < 0 or y_true.max() >= spec.n_classes or test_index.min() < 0:
        raise StoreError(
            f"{spec.path}: true classes must lie in [0, {spec.n_classes}), positions from 0 up"
        )


def _merged(group: Group, chunk: int, low: int, new: dict[str, Array]) -> dict[str, Array] | None:
    """Return the chunk with the new test sets; None if it already holds them."""
    start = chunk * group.spec.split_length
    exists = {name: group.file(group.spec.array(name), chunk).exists() for name in new}
    stop = start + group.spec.split_length  # clipped to the repeats planned so far
    # test_index first, as it is written last
    merged = {name: _read(group, name, start, stop) for name in ("test_index", "y_true")}
    span = slice(low - start, low - start + len(new["y_true"]))
    present = merged["test_index"][span, 0] >= 0
    for name, values in new.items():
        differs = (merged[name][span] != values).any(axis=1) & present & exists[name]
        if differs.any():
            raise _mismatch(group, low + int(differs.argmax()), name)
        merged[name][span] = values
    if not exists["y_true"]:  # lost: other repeats' test sets must be made again, too
        merged["test_index"][: span.start] = merged["test_index"][span.stop :] = -1
    return None if present.all() and all(exists.values()) else merged


def _write(group: Group, chunk: int, low: int, new: dict[str, Array], lease: Lease) -> None:
    arrays = [array for array in group.spec.arrays if array.role == "split"]
    for array in arrays:
        remove_partial(group.folder / array.name, group.file(array, chunk).name)
    merged = _merged(group, chunk, low, new)
    for array in arrays if merged is not None else ():
        assert merged is not None
        key, encoded = encoding.encode(group.metadata(array), chunk, merged[array.name])
        place(group.folder / array.name / key, encoded, before_rename=lease.check)
    add_checksums(group, new, low, lease.check)


def _mismatch(group: Group, repeat: int, name: str) -> SplitMismatch:
    return SplitMismatch(
        f"{group.spec.path}: the test set of repeat {repeat} differs from the stored one ({name}): "
        "was the dataset changed, or prepared by another version? Fetch it again, or plan a new "
        "sweep"
    )


def _read(group: Group, name: str, start: int, stop: int) -> Array:
    folder = group.folder / name
    return encoding.patiently(lambda: encoding.read(folder, start, stop), folder)


def truth(dataset: str, groups: Sequence[Group]) -> tuple[Integers, Integers]:
    """Return the test sets of a dataset: `y_true` and `test_index` (repeat, sample).

    All groups of a dataset share them, but some groups may have more repeats than others.
    """
    known = []
    for group in groups:
        if group.spec.dataset == dataset:
            y_true, index = read_splits(group)
            n = int((index[:, 0] >= 0).cumprod().sum())
            known.append((y_true[:n], index[:n]))
    return max(known, key=lambda sets: len(sets[0]))
