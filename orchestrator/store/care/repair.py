"""What `verify` found is made right again; runs are set back only where nothing else is left.

Small files are made again first (`mending`), test sets from what the caller knows of the data.
Then everything that was found is looked at again, and what is still wrong is taken from journals.
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
"""From a group and a range of repeats to `y_true` and `test_index`, (repeat, sample)."""


@dataclass(frozen=True, slots=True)
class Repair:
    """What was done.

    Attributes
    ----------
    healed : int
        Runs taken from journals.
    dropped : int
        Runs set back to missing.
    splits : int
        Chunks of test sets that were damaged.
    unmade : tuple of str
        What could not be made again, for people: test sets that the caller could not make.
    """

    healed: int
    dropped: int
    splits: int
    unmade: tuple[str, ...] = ()


def require_rest(watch: LeaseWatch, besides: Collection[str] = ()) -> None:
    """Raise `LeaseHeld` if any other lease is alive; waits as long as it takes to know."""
    if alive := watch.wait_until_dead(besides=besides):
        raise LeaseHeld(f"{', '.join(alive)}: somebody is at work; wait for it or cancel it")


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
    """Make right what was found.

    Parameters
    ----------
    groups : iterable of Group
        The groups that the findings are about.
    findings : iterable of Finding
        What `verify` found; each is looked at again.
    folder : JournalFolder
    watch : LeaseWatch
        Of the folder of leases.
    copies : mapping of bool arrays, optional
        By the groups' paths: which runs are identical to the first of their repeat.
    test_sets : callable, optional
        Makes test sets; without it, and where it returns None, workers write them again.
    before_dropping : callable, optional
        Called with the rows that will be set back.

    Raises
    ------
    LeaseHeld
        If somebody works on the sweep.
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
    require_rest(watch)  # whoever began meanwhile may have published what is looked at now
    journals = JournalIndex(folder)
    for path, group in by_path.items():
        left = [*_still_wrong(group, shards[path], journals)]
        wrong = {row for finding in left for row in finding.rows}
        unsound = {row for finding in left if not finding.damaged for row in finding.rows}
        for row in wrong:
            held = row not in unsound and _held(group, row, wrong, journals)
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


def _held(group: Group, row: int, wrong: Collection[int], journals: JournalIndex) -> bool:
    """Whether a journal, or what a copy equals, still holds a row."""
    record = journals.read(group.spec.number, row)
    if record is None or record.header.status == DONE:
        return record is not None
    source = record.header.source
    original = journals.read(group.spec.number, source)
    if original is not None and original.header.status == DONE:
        return True
    return source not in wrong and bool(statuses(group)[source] in (DONE, COPY))


def drop(groups: Mapping[Group, Collection[int]], folder: JournalFolder, watch: LeaseWatch) -> None:
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
    folder: JournalFolder,
    journals: JournalIndex,
    watch: LeaseWatch,
    healed: Mapping[str, set[int]],
    dropped: Mapping[str, set[int]],
) -> None:
    void = {groups[path].spec.number: rows for path, rows in dropped.items() if rows}
    if void:
        require_rest(watch)  # the journals of tasks that begin from here on are not among these
        write_tombstone(folder.path, void, journals.journals)
    for path, group in groups.items():
        length = group.spec.shard_length
        for shard in sorted({row // length for row in healed[path] | dropped[path]}):
            publish(group, shard, journals, watch, distrusted=healed[path], dropped=dropped[path])


def _mend_splits(group: Group, chunk: int, make: TestSets, watch: LeaseWatch) -> str | None:
    """Make test sets again; return what to report where that cannot be done.

    Files that cannot be read, or hold others' test sets, are removed. The rest stays: what is made
    again must equal it.
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
    others = {name for name, _ in differing(known, values, start)}
    bad = [
        file
        for file, name, is_lost in zip(files, values, lost, strict=True)
        if is_lost or name in others
    ]
    for file in bad or (files if impossible_sets(spec, values).any() else []):
        _remove(file)
    where = f"{spec.path}: test sets {start} to {stop - 1}"
    made = make(group, start, stop)
    if made is None:
        return f"{where} can be made again only where their data is"
    try:
        write_splits(group, start, *made, watch)
    except SplitMismatch:
        return f"{where} are not those that this machine's data gives"
    return None


def _remove(file: Path) -> None:
    with unavailable("remove", file):
        file.unlink(missing_ok=True)
        whole.sync(file.parent)


def _count(rows: Mapping[str, set[int]]) -> int:
    return sum(map(len, rows.values()))
