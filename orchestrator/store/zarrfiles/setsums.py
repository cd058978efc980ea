"""Checksums of test sets, to detect that a test set belongs to another repeat or group.

A chunk's checksum protects its bits, but a chunk put in the wrong place still decodes. So writers
of test sets store a checksum of each next to them, in a folder that Zarr readers do not list.
Earlier versions stored none; test sets without a checksum are not checked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Annotated

import google_crc32c
import numpy as np
from annotated_types import Interval

from manyseed.orchestrator.disk.records import read_record, write_json
from manyseed.orchestrator.errors import DamagedFile, DamagedShard
from manyseed.orchestrator.paths import SET_SUMS
from manyseed.orchestrator.store.layout.groups import Group
from manyseed.orchestrator.store.zarrfiles.encoding import Array

Checksums = dict[str, dict[int, Annotated[int, Interval(ge=0, lt=2**32)]]]
"""The CRC-32C of a test set's stored little-endian bytes, by array and repeat."""


def checksums_file(group: Group) -> Path:
    """Return the file that holds the checksums of a group's test sets."""
    return group.folder / "test_index" / SET_SUMS


def read_checksums(group: Group) -> Checksums:
    """Return the checksums of a group's test sets.

    Raises
    ------
    DamagedShard
    """
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

    Parameters
    ----------
    known : Checksums
    sets : mapping of arrays (repeat, sample)
        ``y_true`` and ``test_index`` in their stored dtypes; repeats whose positions are negative
        have no test set.
    start : int
        The first repeat in `sets`.
    """
    made = sets["test_index"][:, 0] >= 0
    for name, values in sets.items():
        for repeat, checksum in known.get(name, {}).items():
            is_given = 0 <= repeat - start < len(values) and made[repeat - start]
            if is_given and _checksum(values[repeat - start]) != checksum:
                yield name, repeat


def require_stored(group: Group, y_true: Array, test_index: Array) -> None:
    """Check all test sets of a group, (repeat, sample), against their checksums.

    Raises
    ------
    DamagedShard
        If one does not match.
    """
    sets = {"y_true": y_true, "test_index": test_index}
    for name, repeat in differing(read_checksums(group), sets):
        file = group.file(group.spec.array(name), repeat // group.spec.split_length)
        raise DamagedShard.of(file, f"holds another test set {repeat} than was stored")


def _checksum(row: Array) -> int:
    return int(google_crc32c.value(np.ascontiguousarray(row).tobytes()))
