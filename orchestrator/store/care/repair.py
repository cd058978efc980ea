"""Repairing what `verify` finds; runs are reset to missing only as a last resort.

First, damaged files are restored (`mending`), and test sets are made again by a function of the
caller. Then everything found is checked again; rows that are still wrong are taken from journals.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from manyseed.jobs import whole
from manyseed.orchestrator.disk.lease import LeaseWatch
from manyseed.orchestrator.disk.placing import unavailable
from manyseed.orchestrator.errors import DamagedShard, LeaseHeld, SplitMismatch
from manyseed.orchestrator.store.care.mending import mend_labels, mend_records
from manyseed.orchestrator.store.care.verify import Finding, impossible_sets, verify
from manyseed.orchestrator.store.care.verifyjournals import verify_journals
from manyseed.orchestrator.store.journals.index import JournalFolder, JournalIndex
from manyseed.orchestrator.store.journals.tombstones import write_tombstone
from manyseed.orchestrator.store.layout.arrays import COPY, DONE
from manyseed.orchestrator.store.layout.groups import Group
from manyseed.orchestrator.store.publishing.shards import publish
from manyseed.orchestrator.store.publishing.splits import Integers, write_splits
from manyseed.orchestrator.store.reading.reader import statuses
from manyseed.orchestrator.store.zarrfiles import encoding
from manyseed.orchestrator.store.zarrfiles.encoding import Bools
from manyseed.orchestrator.store.zarrfiles.setsums import checksums_file, differing, read_checksums

TestSets = Callable[[Group, int, int], tuple[Integers, Integers] | None]
"""Makes `y_true` and `test_index`, (repeat, sample), of a group and a range of repeats."""


@dataclass(frozen=True, slots=True)
class Repair:
    """The result of a repair.

    Attributes
    ----------
    healed : int
        Number of runs taken from journals.
    dropped : int
        Number of runs reset to missing.
    splits : int
        Number of damaged chunks of test sets.
    unmade : tuple of str
        Messages about test sets that could not be made again.
    """

    healed: int
    dropped: int
    splits: int
    unmade: tuple[str, ...] = ()


def require_rest(watch: LeaseWatch, besides: Collection[str] = ()) -> None:
    """Raise `LeaseHeld` if any other lease is alive; waits until this is certain."""
    if alive := watch.wait_until_dead(besides=besides):
        raise LeaseHeld(f"{', '.join(alive)}: another process is at work; wait for it or cancel it")


def repair(
    groups: Iterable[Group],
    findings: Iterable[Finding],
    folder: JournalFolder,
    watch: LeaseWatch,
    *,
    copies: Mapping[str, Bools] | None = None,
    test_sets: TestSets = lambda group, start, stop: None,
    before_dropping: Callable[[Mapping[Group, Collection[int]]], None] = lambda rows: None,
) -> Repair:
    """Repair what was found.

    Parameters
    ----------
    groups : iterable of Group
        The groups of the findings.
    findings : iterable of Finding
        The findings of `verify`; each is checked again.
    folder : JournalFolder
    watch : LeaseWatch
        Watch of the lease folder.
    copies : mapping of bool arrays, optional
        Which runs are identical to the first of their repeat, by group path.
    test_sets : callable, optional
        Makes test sets again. Without it, or if it returns None, workers write them later.
    before_dropping : callable, optional
        Called with the rows that will be reset to missing.

    Raises
    ------
    LeaseHeld
        If another process works on the sweep.
    """
    require_rest(watch)
    by_path = {group.spec.path: group for group in groups}
    findings, copies = list(findings), copies or {}
    chunks = sorted({(f.group, f.split) for f in findings if f.split is not None})
    unmade = [_mend_splits(by_path[path], chunk, test_sets, watch) for path, chunk in chunks]

    shards: dict[str, set[int]] = {path: set() for path in by_path}
    for finding in findings:
        length = by_path[finding.group].spec.shard_length
        shards[finding.group] |= {row // length for row in finding.rows}
        if finding.shard is not None:
            shards[finding.group].add(finding.shard)
    journals = JournalIndex(folder)
    for path, numbers in shards.items():
        for shard in sorted(numbers):
            mend_records(by_path[path], shard, copies.get(path), journals, watch)
            mend_labels(by_path[path], shard, watch)

    healed: dict[str, set[int]] = {path: set() for path in by_path}
    dropped: dict[str, set[int]] = {path: set() for path in by_path}
    require_rest(watch)  # a process that started meanwhile may have published these rows
    journals = JournalIndex(folder)
    for path, group in by_path.items():
        remaining = [*_still_wrong(group, shards[path], journals)]
        wrong = {row for finding in remaining for row in finding.rows}
        unsound = {row for finding in remaining if not finding.damaged for row in finding.rows}
        for row in wrong:
            held = row not in unsound and _is_held(group, row, wrong, journals)
            (healed if held else dropped)[path].add(row)
    if any(dropped.values()):
        before_dropping({by_path[path]: rows for path, rows in dropped.items() if rows})
    _republish(by_path, folder, journals, watch, healed, dropped)
    return Repair(_count(healed), _count(dropped), len(chunks), tuple(filter(None, unmade)))


def _still_wrong(group: Group, shards: set[int], journals: JournalIndex) -> Iterable[Finding]:
    if shards:
        yield from verify(group, shards=shards)
        length = group.spec.shard_length
        for finding in verify_journals(group, journals):
            if {row // length for row in finding.rows} & shards:
                yield finding


def _is_held(group: Group, row: int, wrong: Collection[int], journals: JournalIndex) -> bool:
    """Whether a journal, or the source of a copy, still holds a row."""
    record = journals.read(group.spec.number, row)
    if record is None or record.header.status == DONE:
        return record is not None
    source = record.header.source
    original = journals.read(group.spec.number, source)
    if original is not None and original.header.status == DONE:
        return True
    return source not in wrong and bool(statuses(group)[source] in (DONE, COPY))


def drop(groups: Mapping[Group, Collection[int]], folder: JournalFolder, watch: LeaseWatch) -> None:
    """Reset rows of groups to missing, whatever they hold.

    Raises
    ------
    LeaseHeld
        If another process works on the sweep.
    """
    require_rest(watch)
    by_path = {group.spec.path: group for group in groups}
    dropped = {group.spec.path: set(rows) for group, rows in groups.items()}
    healed: dict[str, set[int]] = {path: set() for path in by_path}
    _republish(by_path, folder, JournalIndex(folder), watch, healed, dropped)


def _republish(
    groups: Mapping[str, Group],
    folder: JournalFolder,
    journals: JournalIndex,
    watch: LeaseWatch,
    healed: Mapping[str, set[int]],
    dropped: Mapping[str, set[int]],
) -> None:
    void = {groups[path].spec.number: rows for path, rows in dropped.items() if rows}
    if void:
        require_rest(watch)  # journals of tasks that start from now on are not among these
        write_tombstone(folder.path, void, journals.journals)
    for path, group in groups.items():
        length = group.spec.shard_length
        for shard in sorted({row // length for row in healed[path] | dropped[path]}):
            publish(group, shard, journals, watch, distrusted=healed[path], dropped=dropped[path])


def _mend_splits(group: Group, chunk: int, make: TestSets, watch: LeaseWatch) -> str | None:
    """Make test sets again; return a message if that is impossible.

    Files that are unreadable or hold wrong test sets are removed. The others are kept, and the new
    test sets must equal them.
    """
    spec, length = group.spec, group.spec.split_length
    start, stop = chunk * length, min((chunk + 1) * length, group.repeats)
    arrays = [spec.array(name) for name in ("y_true", "test_index")]
    values = {array.name: encoding.filled(spec, array, stop - start) for array in arrays}
    files = [group.file(array, chunk) for array in arrays]
    try:
        known = read_checksums(group)
    except DamagedShard:
        _remove(checksums_file(group))
        known = {}
    lost = [
        encoding.read_undamaged(file.parent, start, stop, length, into).any()
        for file, into in zip(files, values.values(), strict=True)
    ]
    wrong = {name for name, _ in differing(known, values, start)}
    bad = [
        file
        for file, name, is_lost in zip(files, values, lost, strict=True)
        if is_lost or name in wrong
    ]
    for file in bad or (files if impossible_sets(spec, values).any() else []):
        _remove(file)
    where = f"{spec.path}: test sets {start} to {stop - 1}"
    made = make(group, start, stop)
    if made is None:
        return f"{where} can only be made again on a machine that has their data"
    try:
        write_splits(group, start, *made, watch)
    except SplitMismatch:
        return f"{where} differ from those made from this machine's data"
    return None


def _remove(file: Path) -> None:
    with unavailable("remove", file):
        file.unlink(missing_ok=True)
        whole.sync(file.parent)


def _count(rows: Mapping[str, set[int]]) -> int:
    return sum(map(len, rows.values()))
