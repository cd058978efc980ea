"""Compaction: publish all finished runs, read them back, then remove their journals."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from manyseed.jobs import whole
from manyseed.orchestrator.disk.lease import LeaseWatch, remove_dead_leases
from manyseed.orchestrator.disk.placing import remove_partial, unavailable
from manyseed.orchestrator.errors import DamagedShard, LeaseHeld, LeaseLost
from manyseed.orchestrator.paths import TOMBSTONE
from manyseed.orchestrator.store.arrays import COPY, DONE, MISSING
from manyseed.orchestrator.store.groups import Group, list_groups
from manyseed.orchestrator.store.index import JournalFolder, JournalIndex, read_tombstone
from manyseed.orchestrator.store.ledger import settle
from manyseed.orchestrator.store.metadata import consolidate
from manyseed.orchestrator.store.reader import Shard, statuses
from manyseed.orchestrator.store.repair import require_rest
from manyseed.orchestrator.store.shards import publish

_ATTEMPTS = 2


@dataclass(frozen=True, slots=True)
class Compaction:
    """The result of a compaction."""

    published: int  # number of newly published rows
    journals: int  # number of removed journals
    kept: tuple[str, ...]  # journals kept because they hold copies whose source is not finished
    partial: int  # number of removed temporary files
    damaged: tuple[str, ...] = ()
    """Journals kept because some of their records are unreadable and may not be published."""
    foreign: tuple[str, ...] = ()
    """Journals kept untouched because their rows belong to another sweep."""


def compact(
    store: Path,
    folder: JournalFolder,
    watch: LeaseWatch,
    *,
    besides: Collection[str] = (),
    progress: Callable[[int, int], None] = lambda done, of: None,
) -> Compaction:
    """Publish all journals, read the rows back, remove journals and leftovers, write metadata.

    `watch`: watch of the lease folder. `besides`: names of leases that the caller holds.
    `progress`: called before the first shard and after each, with the number of shards done and the
    number of shards with rows in journals.
    """
    require_rest(watch, besides)
    groups, published = list_groups(store), 0
    for _ in range(_ATTEMPTS):
        journals = JournalIndex(folder)
        sizes = {name: journals.size(name) for name in journals.journals}
        shards = [(group, shard) for group in groups for shard in _shards(group, journals)]
        progress(0, len(shards))
        for done, (group, shard) in enumerate(shards, 1):
            # `_remove_journals` keeps journals that change nevertheless
            published += publish(group, shard, journals, watch, refresh=False).added
            _read_back(group, shard, journals, watch)
            progress(done, len(shards))
        if not (doubtful := journals.doubtful()):
            break  # otherwise the reads may have gone wrong: start over once
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
    """Publish rows from journals, even while others write these; return how many rows were added.

    Shards that another process is publishing are skipped. Journals are kept.
    """
    journals, added = JournalIndex(folder), 0
    for group in list_groups(store):
        held = journals.rows(group.spec.number)
        held = held[held < group.rows]
        unpublished = held[statuses(group)[held] == MISSING]
        for shard in np.unique(unpublished // group.spec.shard_length).tolist():
            with suppress(LeaseHeld, LeaseLost):
                # refreshes the journals under the lease, as rows may have been dropped since
                added += publish(group, shard, journals, watch).added
    return added


def _still_needed(
    groups: list[Group], doubtful: dict[str, list[tuple[int, int]] | None]
) -> set[str]:
    """Return the journals whose unreadable records may be unpublished rows."""
    if not doubtful:
        return set()
    missing = {group.spec.number: np.flatnonzero(statuses(group) == MISSING) for group in groups}
    any_missing = any(map(len, missing.values()))
    return {
        name
        for name, rows in doubtful.items()
        if (
            any_missing
            if rows is None
            else any(row in missing.get(number, ()) for number, row in rows)
        )
    }


def _shards(group: Group, journals: JournalIndex) -> list[int]:
    rows = journals.rows(group.spec.number)
    return [int(shard) for shard in np.unique(rows[rows < group.rows] // group.spec.shard_length)]


def _read_back(group: Group, shard: int, journals: JournalIndex, watch: LeaseWatch) -> None:
    """Publish rows that do not read back once more; raise if they still do not."""
    if wrong := set(_wrong_rows(group, shard, journals)):
        publish(group, shard, journals, watch, distrusted=wrong)
        if wrong := set(_wrong_rows(group, shard, journals)):
            raise DamagedShard(
                f"{group.folder}, shard {shard}: {len(wrong)} rows do not read back as written; "
                "journals are kept: check the file system, then verify --repair"
            )


def _wrong_rows(group: Group, shard: int, journals: JournalIndex) -> list[int]:
    """Return published rows in journals that do not match their checksum."""
    if not group.file(group.spec.array("status"), shard).exists():
        return []
    stored = Shard(group, shard)
    held = np.isin(np.arange(stored.start, stored.stop), journals.rows(group.spec.number))
    # if a record is lost, any row may have been published
    wrong = held if stored.lost else stored.unlike(held & stored.finished())
    return (stored.start + np.flatnonzero(wrong)).tolist()


def _unpublished(store: Path, journals: JournalIndex) -> set[str]:
    """Return the journals with unpublished rows, which are copies that have to wait."""
    kept = set()
    groups = {group.spec.number: group for group in list_groups(store)}
    for number in journals.groups():
        held = journals.rows(number)
        finished = np.zeros(held.max() + 1, dtype=np.bool_)
        if number in groups:
            published = np.isin(statuses(groups[number]), (DONE, COPY))[: len(finished)]
            finished[: len(published)] = published
        for row in held[~finished[held]].tolist():
            kept |= {place.journal for place in journals.records(number, row, row + 1)[row]}
    return kept


def _remove_journals(
    groups: list[Group], journals: JournalIndex, sizes: dict[str, int], kept: set[str]
) -> int:
    """Remove journals not written to since, and tombstones whose journals are all gone."""
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
