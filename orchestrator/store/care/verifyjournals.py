"""Finished runs that only journals hold, checked as published ones are."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from manyseed.orchestrator.errors import DamagedShard
from manyseed.orchestrator.store.care.verify import Finding, wrong_values
from manyseed.orchestrator.store.journals.index import JournalIndex
from manyseed.orchestrator.store.journals.payloads import Place
from manyseed.orchestrator.store.layout.arrays import COPY, DONE
from manyseed.orchestrator.store.layout.groups import Group
from manyseed.orchestrator.store.publishing.splits import read_splits
from manyseed.orchestrator.store.reading.reader import read_array, statuses
from manyseed.orchestrator.store.zarrfiles import encoding
from manyseed.orchestrator.store.zarrfiles.encoding import Array


def verify_journals(
    group: Group, journals: JournalIndex, checked: Callable[[int], None] = lambda rows: None
) -> Iterator[Finding]:
    """Check the finished runs of a group that are not published: the first good record of each.

    Rows: checksum, lengths, and what `verify` asks of values. As many runs as an inner chunk holds
    are in memory. What does not read is read once more, by an index of its own.

    Parameters
    ----------
    group : Group
    journals : JournalIndex
        As of now; rows that are published later are not looked for.
    checked : callable
        Called with how many finished runs were checked.
    """
    spec = group.spec
    held = journals.rows(spec.number)
    if not len(held[held < group.rows]):
        return
    try:
        published = np.isin(statuses(group), (DONE, COPY))
        repeats = read_array(group, "repeat_index")
        y_true, test_index = read_splits(group)
    except DamagedShard:  # which `verify` reports, and a repair mends before
        return
    held = held[held < group.rows]
    rows = held[~published[held]]
    trained = np.intersect1d(rows, journals.fits(spec.number)[0])
    truth = np.where(test_index < 0, -1, y_true.astype(np.int32))
    for first in range(0, len(trained), spec.chunk_length):
        some = trained[first : first + spec.chunk_length]
        yield from _verify_rows(group, journals, some, truth[repeats[some]])
        checked(len(some))
    checked(len(_equal(group, journals, np.setdiff1d(rows, trained), trained, published)))


def _verify_rows(
    group: Group, journals: JournalIndex, rows: Array, y_true: Array
) -> Iterator[Finding]:
    spec = group.spec
    parts = {
        array.name: encoding.filled(spec, array, len(rows))
        for array in spec.arrays
        if array.role == "prediction"
    }
    good, alien = _read(journals, spec.number, rows, list(parts.values()), spec.part_bytes)
    if not good.all():
        again = journals.again()
        good, alien = _read(again, spec.number, rows, list(parts.values()), spec.part_bytes)
    for problem, wrong in (
        ("records in journals cannot be read", ~good),
        ("records in journals are of another shape", alien),
    ):
        if wrong.any():
            yield Finding(spec.path, problem, tuple(rows[wrong].tolist()), damaged=True)
    good &= ~alien
    for problem, wrong in wrong_values(spec, parts, y_true):
        if (wrong & good).any():
            yield Finding(spec.path, f"in journals: {problem}", tuple(rows[wrong & good].tolist()))


def _read(
    journals: JournalIndex, number: int, rows: Array, parts: list[Array], sizes: tuple[int, ...]
) -> tuple[Array, Array]:
    """Read rows from journals; return which were read, and which are not of the group's shape."""
    flat = [part.reshape(len(part), -1) for part in parts]
    good = np.zeros(len(rows), dtype=np.bool_)
    alien = np.zeros(len(rows), dtype=np.bool_)
    left = {int(row): n for n, row in enumerate(rows)}
    while left:
        found = journals.records(number, min(left), max(left) + 1)
        places: dict[int, Place] = {}
        for row in left:
            trained = [place for place in found.get(row, []) if not place.is_copy]
            if trained:
                places[row] = trained[0]
        if not places:
            break
        at = [left[row] for row in places]
        fields, sound = journals.fill(list(places.values()), at, flat)
        names = ("label", "score", "confidence", "source")
        lengths = np.stack([fields[name] for name in names], axis=1)
        good[at], alien[at] = sound, sound & (lengths != sizes).any(axis=1)
        # what was not sound no longer counts: the next record of the row is tried
        left = {
            row: left[row] for row, fine in zip(places, sound.tolist(), strict=True) if not fine
        }
    return good, alien


def _equal(
    group: Group, journals: JournalIndex, rows: Array, trained: Array, published: Array
) -> list[int]:
    """Return which of these copies equal a run that is finished; the others wait."""
    known = set(trained.tolist())
    known |= set(np.flatnonzero(published).tolist())
    ready = []
    found = journals.records(group.spec.number, 0, group.rows) if len(rows) else {}
    for row in rows.tolist():
        for place in found.get(row, []):
            header = journals.header(place)
            if header is not None and header.source in known:
                ready.append(row)
                break
    return ready
