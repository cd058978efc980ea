"""What `verify` found is taken from journals again, or set back to missing."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from orchestrator.store.errors import LeaseHeld
from orchestrator.store.files import sync_folder, unavailable
from orchestrator.store.groups import Group
from orchestrator.store.index import JournalIndex
from orchestrator.store.lease import LeaseWatch
from orchestrator.store.shards import publish
from orchestrator.store.tombstones import write_tombstone
from orchestrator.store.verify import Finding


@dataclass(frozen=True, slots=True)
class Repair:
    """What was done: rows taken from journals, rows set back, chunks of test sets removed."""

    healed: int
    dropped: int
    splits: int


def require_rest(watch: LeaseWatch, besides: Collection[str] = ()) -> None:
    """Raise `LeaseHeld` if any other lease is alive; waits as long as it takes to tell."""
    if alive := watch.wait_until_dead(besides=besides):
        raise LeaseHeld(f"{', '.join(alive)}: somebody is at work; wait for it or cancel it")


def repair(
    groups: Iterable[Group], findings: Iterable[Finding], folder: Path, watch: LeaseWatch
) -> Repair:
    """Take damaged rows from journals where these hold them, set the others back to missing.

    Wrong test sets are removed; workers write them again.

    Parameters
    ----------
    groups : iterable of Group
        The groups that the findings are about.
    findings : iterable of Finding
        What `verify` found.
    folder : Path
        The folder of journals.
    watch : LeaseWatch
        Of the folder of leases.

    Raises
    ------
    LeaseHeld
        If somebody works on the sweep.
    """
    require_rest(watch)
    by_path = {group.spec.path: group for group in groups}
    journals = JournalIndex(folder)
    healed: dict[str, set[int]] = {path: set() for path in by_path}
    dropped: dict[str, set[int]] = {path: set() for path in by_path}
    splits = set()
    for finding in findings:
        number = by_path[finding.group].spec.number
        for row in finding.rows:
            in_journal = finding.damaged and journals.read(number, row) is not None
            (healed if in_journal else dropped)[finding.group].add(row)
        if finding.split is not None:
            splits.add((finding.group, finding.split))
    for path, chunk in splits:
        _remove_split(by_path[path], chunk)
    for path, rows in dropped.items():
        healed[path] -= rows
    _republish(by_path, folder, journals, watch, healed, dropped)
    return Repair(_count(healed), _count(dropped), len(splits))


def drop(groups: Mapping[Group, Collection[int]], folder: Path, watch: LeaseWatch) -> None:
    """Set rows of groups back to missing, whatever they hold.

    Raises
    ------
    LeaseHeld
        If somebody works on the sweep.
    """
    require_rest(watch)
    by_path = {group.spec.path: group for group in groups}
    dropped = {group.spec.path: set(rows) for group, rows in groups.items()}
    healed: dict[str, set[int]] = {path: set() for path in by_path}
    _republish(by_path, folder, JournalIndex(folder), watch, healed, dropped)


def _republish(
    groups: Mapping[str, Group],
    folder: Path,
    journals: JournalIndex,
    watch: LeaseWatch,
    healed: Mapping[str, set[int]],
    dropped: Mapping[str, set[int]],
) -> None:
    void = {groups[path].spec.number: rows for path, rows in dropped.items() if rows}
    if void:
        write_tombstone(folder, void)
    for path, group in groups.items():
        length = group.spec.shard_length
        for shard in sorted({row // length for row in healed[path] | dropped[path]}):
            publish(group, shard, journals, watch, distrusted=healed[path], dropped=dropped[path])


def _remove_split(group: Group, chunk: int) -> None:
    for name in ("test_index", "y_true"):
        file = group.file(group.spec.array(name), chunk)
        with unavailable("remove", file):
            file.unlink(missing_ok=True)
            sync_folder(file.parent)


def _count(rows: Mapping[str, set[int]]) -> int:
    return sum(map(len, rows.values()))
