"""Checking finished runs that only journals hold, like published ones."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from manyseed.orchestrator.errors import DamagedShard
from manyseed.orchestrator.store.care.verify import Finding, wrong_values
from manyseed.orchestrator.store.journals.index import JournalIndex
from manyseed.orchestrator.store.journals.payloads import Place
from manyseed.orchestrator.store.journals.records import LENGTHS
from manyseed.orchestrator.store.layout.arrays import COPY, DONE
from manyseed.orchestrator.store.layout.groups import Group
from manyseed.orchestrator.store.publishing.splits import read_splits
from manyseed.orchestrator.store.reading.reader import read_array, statuses
from manyseed.orchestrator.store.zarrfiles import encoding
from manyseed.orchestrator.store.zarrfiles.encoding import Array


def verify_journals(
    group: Group, journals: JournalIndex, checked: Callable[[int], None] = lambda rows: None
) -> Iterator[Finding]:
    """Check the first good record of each finished run of a group that is not published.

    Checks checksums, lengths, and values like `verify`. Holds as many runs in memory as an inner
    chunk. Unreadable records are read once more with a fresh index.

    Parameters
    ----------
    group : Group
    journals : JournalIndex
        A current index; rows published after its refresh are not detected.
    checked : callable
        Called with the number of finished runs just checked.
    """
    spec = group.spec
    held = journals.rows(spec.number)
    if not len(held[held < group.rows]):
        return
    try:
        published = np.isin(statuses(group), (DONE, COPY))
        repeats = read_array(group, "repeat_index")
        y_true, test_index = read_splits(group)
    except DamagedShard:  # `verify` reports it, and a repair fixes it first
        return
    held = held[held < group.rows]
    rows = held[~published[held]]
    trained = np.intersect1d(rows, journals.fits(spec.number)[0])
    truth = np.where(test_index < 0, -1, y_true.astype(np.int32))
    for first in range(0, len(trained), spec.chunk_length):
        chunk = trained[first : first + spec.chunk_length]
        yield from _verify_rows(group, journals, chunk, truth[repeats[chunk]])
        checked(len(chunk))
    finished = {*trained.tolist(), *np.flatnonzero(published).tolist()}
    checked(_count_copies(group, journals, np.setdiff1d(rows, trained), finished))


def _verify_rows(
    group: Group, journals: JournalIndex, rows: Array, y_true: Array
) -> Iterator[Finding]:
    spec = group.spec
    parts = {
        array.name: encoding.filled(spec, array, len(rows))
        for array in spec.arrays
        if array.role == "prediction"
    }
    good, misshapen = _read(journals, spec.number, rows, list(parts.values()), spec.part_bytes)
    if not good.all():
        again = journals.again()
        good, misshapen = _read(again, spec.number, rows, list(parts.values()), spec.part_bytes)
    for problem, wrong in (
        ("records in journals cannot be read", ~good),
        ("records in journals have another shape", misshapen),
    ):
        if wrong.any():
            yield Finding(spec.path, problem, tuple(rows[wrong].tolist()), damaged=True)
    good &= ~misshapen
    for problem, wrong in wrong_values(spec, parts, y_true):
        if (wrong & good).any():
            yield Finding(spec.path, f"in journals: {problem}", tuple(rows[wrong & good].tolist()))


def _read(
    journals: JournalIndex, number: int, rows: Array, parts: list[Array], sizes: tuple[int, ...]
) -> tuple[Array, Array]:
    """Read rows from journals; return which were read, and which do not have the group's shape."""
    flat = [part.reshape(len(part), -1) for part in parts]
    good = np.zeros(len(rows), dtype=np.bool_)
    misshapen = np.zeros(len(rows), dtype=np.bool_)
    left = {int(row): n for n, row in enumerate(rows)}
    while left:
        records = journals.records(number, min(left), max(left) + 1)
        places: dict[int, Place] = {}
        for row in left:
            trained = [place for place in records.get(row, []) if not place.is_copy]
            if trained:
                places[row] = trained[0]
        if not places:
            break
        at = [left[row] for row in places]
        fields, sound = journals.fill(list(places.values()), at, flat)
        lengths = np.stack([fields[name] for name in LENGTHS], axis=1)
        good[at], misshapen[at] = sound, sound & (lengths != sizes).any(axis=1)
        # records that are not sound no longer count, so the row's next one is tried
        left = {
            row: left[row] for row, fine in zip(places, sound.tolist(), strict=True) if not fine
        }
    return good, misshapen


def _count_copies(group: Group, journals: JournalIndex, rows: Array, finished: set[int]) -> int:
    """Count the copies among `rows` whose source is finished; the others have to wait."""
    records = journals.records(group.spec.number, 0, group.rows) if len(rows) else {}

    def is_ready(place: Place) -> bool:
        header = journals.header(place)
        return header is not None and header.source in finished

    return sum(any(map(is_ready, records.get(row, []))) for row in rows.tolist())
