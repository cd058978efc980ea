"""Everything finished is published and read back; then its journals can go."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from manyseed.jobs import whole
from manyseed.orchestrator.disk.lease import LeaseWatch, remove_dead_leases
from manyseed.orchestrator.disk.placing import remove_partial, unavailable
from manyseed.orchestrator.errors import DamagedShard, LeaseHeld, LeaseLost
from manyseed.orchestrator.paths import TOMBSTONE
from manyseed.orchestrator.store.care.repair import require_rest
from manyseed.orchestrator.store.care.retraining import settle
from manyseed.orchestrator.store.care.verify import row_checksums
from manyseed.orchestrator.store.journals.index import JournalFolder, JournalIndex
from manyseed.orchestrator.store.journals.tombstones import read_tombstone
from manyseed.orchestrator.store.layout.arrays import COPY, DONE, MISSING
from manyseed.orchestrator.store.layout.groups import Group, list_groups
from manyseed.orchestrator.store.publishing.shards import publish
from manyseed.orchestrator.store.reading.reader import read_rows, statuses
from manyseed.orchestrator.store.zarrfiles.consolidated import consolidate

_LOOKS = 2


@dataclass(frozen=True, slots=True)
class Compaction:
    """What was done.

    Attributes
    ----------
    published : int
        Rows that only journals had held.
    journals : int
        Journals removed.
    kept : tuple of str
        Journals that hold what cannot be published yet: copies whose source is not finished.
    partial : int
        Temporary files removed.
    damaged : tuple of str
        Journals that are kept because something in them does not read, and what it was, or may
        have been, is not published.
    foreign : tuple of str
        Journals that are kept, and left alone, because their rows are another sweep's.
    """

    published: int
    journals: int
    kept: tuple[str, ...]
    partial: int
    damaged: tuple[str, ...] = ()
    foreign: tuple[str, ...] = ()


def compact(
    store: Path,
    folder: JournalFolder,
    watch: LeaseWatch,
    *,
    besides: Collection[str] = (),
    progress: Callable[[int, int], None] = lambda done, of: None,
) -> Compaction:
    """Publish what journals hold, read it back, remove journals and rubbish, write metadata.

    Parameters
    ----------
    store : Path
        The store.
    folder : JournalFolder
    watch : LeaseWatch
        Of the folder of leases.
    besides : collection of str
        Names of leases that the caller holds.
    progress : callable
        Called before the first shard and after each with (shards done, all shards that hold what
        journals hold).

    Raises
    ------
    LeaseHeld
        If somebody else works on the sweep.
    DamagedShard
        If a row that was published does not read back; its journal stays.
    """
    require_rest(watch, besides)
    groups, published = list_groups(store), 0
    for _ in range(_LOOKS):
        journals = JournalIndex(folder)
        sizes = {name: journals.size(name) for name in journals.journals}
        shards = [(group, one) for group in groups for one in _shards(group, journals)]
        progress(0, len(shards))
        for done, (group, shard) in enumerate(shards, 1):
            # journals that change all the same are kept: `_remove_journals`
            published += publish(group, shard, journals, watch, refresh=False).added
            _read_back(group, shard, journals, watch)
            progress(done, len(shards))
        if not (doubtful := journals.doubtful()):
            break  # else what did not read may have been read wrongly: once more from the start
    damaged = _still_needed(groups, doubtful)
    foreign = journals.foreign
    kept = _unpublished(store, journals)
    require_rest(watch, besides)
    removed = _remove_journals(groups, journals, sizes, kept | damaged | set(foreign))
    partial = sum(remove_partial(Path(place)) for place, _, _ in os.walk(store))
    partial += remove_partial(folder.path)
    consolidate(store, groups)
    if not besides:
        remove_dead_leases(watch)
    return Compaction(
        published,
        removed,
        tuple(sorted(kept)),
        partial,
        damaged=tuple(sorted(damaged)),
        foreign=tuple(foreign),
    )


def publish_free(store: Path, folder: JournalFolder, watch: LeaseWatch) -> int:
    """Publish what journals hold, also while others write them; return how many rows were added.

    Shards that somebody else publishes now are left to them. Journals stay.

    Parameters
    ----------
    store : Path
        The store.
    folder : JournalFolder
    watch : LeaseWatch
        Of the folder of leases.

    Raises
    ------
    DamagedShard
        If a published row cannot be read and no journal holds it.
    StoreUnavailable
        If the file system refuses.
    """
    journals, added = JournalIndex(folder), 0
    for group in list_groups(store):
        held = journals.rows(group.spec.number)
        held = held[held < group.rows]
        fresh = held[statuses(group)[held] == MISSING]
        for shard in np.unique(fresh // group.spec.shard_length).tolist():
            with suppress(LeaseHeld, LeaseLost):
                # looks at the journals again under the lease: rows may have been set back since
                added += publish(group, shard, journals, watch).added
    return added


def _still_needed(
    groups: list[Group], doubtful: dict[str, list[tuple[int, int]] | None]
) -> set[str]:
    """Return the journals that may hold, where they do not read, what is not published."""
    if not doubtful:
        return set()
    found = {group.spec.number: statuses(group) for group in groups}
    complete = all((status != MISSING).all() for status in found.values())
    return {
        name
        for name, rows in doubtful.items()
        if (
            not complete
            if rows is None
            else any(
                number in found and row < len(found[number]) and found[number][row] == MISSING
                for number, row in rows
            )
        )
    }


def _shards(group: Group, journals: JournalIndex) -> list[int]:
    rows = journals.rows(group.spec.number)
    return [int(shard) for shard in np.unique(rows[rows < group.rows] // group.spec.shard_length)]


def _read_back(group: Group, shard: int, journals: JournalIndex, watch: LeaseWatch) -> None:
    """Take rows that do not read back from journals, once; raise if they still do not."""
    if wrong := set(_unequal(group, shard, journals)):
        publish(group, shard, journals, watch, distrusted=wrong)
        if wrong := set(_unequal(group, shard, journals)):
            raise DamagedShard(
                f"{group.folder}, shard {shard}: {len(wrong)} rows do not read back as written; "
                "journals are kept: check the file system, then verify --repair"
            )


def _unequal(group: Group, shard: int, journals: JournalIndex) -> Iterator[int]:
    """Yield published rows whose bytes are not those of their checksum."""
    start, stop = group.span(shard)
    held = journals.rows(group.spec.number)
    for first in range(start, stop, group.spec.chunk_length):
        rows = held[(held >= first) & (held < first + group.spec.chunk_length)]
        if len(rows) == 0:
            continue
        stored = read_rows(group, ("status", "crc"), rows)
        finished = np.isin(stored["status"], (DONE, COPY))
        crcs, damaged = row_checksums(group, first, first + group.spec.chunk_length)
        wrong = damaged[rows - first] | (crcs[rows - first] != stored["crc"])
        yield from rows[wrong & finished].tolist()


def _unpublished(store: Path, journals: JournalIndex) -> set[str]:
    """Return the journals that hold rows which are not published: copies that have to wait."""
    kept = set()
    groups = {group.spec.number: group for group in list_groups(store)}
    for number in journals.groups():
        held = journals.rows(number)
        finished = np.zeros(held.max() + 1, dtype=np.bool_)
        if number in groups:
            found = np.isin(statuses(groups[number]), (DONE, COPY))[: len(finished)]
            finished[: len(found)] = found
        for row in held[~finished[held]].tolist():
            kept |= {place.journal for place in journals.records(number, row, row + 1)[row]}
    return kept


def _remove_journals(
    groups: list[Group], journals: JournalIndex, sizes: dict[str, int], kept: set[str]
) -> int:
    """Remove journals that nobody wrote to since, and tombstones that void nothing any more."""
    folder = journals.folder
    journals.refresh()
    removed = [
        name for name in set(journals.journals) - kept if sizes.get(name) == journals.size(name)
    ]
    settle(groups, journals, removed)
    with unavailable("clean", folder):
        for name in removed:
            (folder / name).unlink(missing_ok=True)
        for file in folder.glob(f"*{TOMBSTONE}"):
            if not any((folder / name).exists() for name in read_tombstone(file).journals):
                file.unlink(missing_ok=True)
        if folder.exists():
            whole.sync(folder)
    return len(removed)
