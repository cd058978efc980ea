"""Repairing what `verify` finds; runs are reset to missing only as a last resort.

First, damaged files are restored from the rest of the shard, while nobody publishes, and test sets
are made again by a function of the caller. Then everything found is checked again; rows that are
still wrong are taken from journals.

Record arrays are taken from their copy beside the shard. Rows that it does not hold, as those of
earlier versions, follow from predictions, journals and the plan: checksums from chunks whose own
checksums match, statuses from matching checksums, fit times and recipes from journals. Whatever
none of these holds is written as unknown. Labels follow from scores, or from the logit gap of two
classes; a row's checksum, which covers both, tells whether they are the stored ones.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from manyseed.jobs import whole
from manyseed.jobs.run import gaps, labels
from manyseed.orchestrator.disk.lease import Lease, LeaseWatch
from manyseed.orchestrator.disk.placing import remove_partial, replacing, unavailable
from manyseed.orchestrator.errors import DamagedShard, LeaseHeld, SplitMismatch
from manyseed.orchestrator.store import encoding
from manyseed.orchestrator.store.arrays import COPY, DONE, MISSING, NO_RECIPE, PADDING
from manyseed.orchestrator.store.encoding import Array, Bools
from manyseed.orchestrator.store.groups import Group
from manyseed.orchestrator.store.index import JournalFolder, JournalIndex, write_tombstone
from manyseed.orchestrator.store.journal import Header
from manyseed.orchestrator.store.reader import Shard, checksums, statuses
from manyseed.orchestrator.store.shards import lease_name, publish, shard_files
from manyseed.orchestrator.store.testsets import (
    Integers,
    checksums_file,
    differing,
    read_checksums,
    write_splits,
)
from manyseed.orchestrator.store.verify import (
    Finding,
    impossible_sets,
    shards_to_verify,
    verify,
    verify_journals,
    wrong_seconds,
    wrong_status,
)

_LARGEST = float(np.finfo(np.float16).max)


def mend_records(
    group: Group, shard: int, copies: Bools | None, journals: JournalIndex, watch: LeaseWatch
) -> tuple[str, ...]:
    """Restore the damaged record arrays of a shard; return the names of those rewritten.

    `copies` (run,) tells which runs of the group are identical to the first of their repeat; None
    if unknown.
    """
    lease = Lease(watch, lease_name(group, shard))
    lease.take()
    with lease.kept():
        mending = _Mending(group, shard, journals)
        before = {name: values.copy() for name, values in mending.records.items()}
        mending.mend(None if copies is None else copies[slice(*group.span(shard))])
        records, copy = mending.records, mending.replica
        changed = {
            name: values
            for name, values in records.items()
            if name in mending.lost or not _equal(before[name], values)
        }
        same = copy is None or all(n in copy and _equal(copy[n], records[n]) for n in records)
        renewed = b"" if same else encoding.encode_records(group.spec, records)
        _replace(group, shard, changed, lease, renewed)
    return tuple(changed)


def _equal(some: Array, others: Array) -> bool:
    return np.array_equal(some, others, equal_nan=some.dtype.kind == "f")


def mend_labels(group: Group, shard: int, watch: LeaseWatch) -> int:
    """Restore the damaged labels of a shard from its scores; return the number of restored rows.

    Labels are only written if they match the row's checksum, so ties from rounding do no harm.
    Records must have been mended before.
    """
    spec = group.spec
    if spec.scores != "all" and not (spec.scores == "margin" and spec.n_classes == 2):
        return 0  # with more classes, the margin does not tell which one was predicted
    lease = Lease(watch, lease_name(group, shard))
    lease.take()
    with lease.kept():
        array, stored = spec.array("label"), Shard(group, shard)
        label = encoding.filled(spec, array, stored.stop - stored.start)
        crc, mended = stored.records["crc"], 0
        for first, stop, at in stored.chunks():
            parts, damaged = stored.predictions(first, stop)
            others = np.logical_or.reduce([bad for name, bad in damaged.items() if name != "label"])
            label[at] = parts["label"]
            wrong = damaged["label"] | (checksums(parts) != crc[at])
            values = parts[spec.score_name or ""]
            values = gaps(values) if spec.scores == "all" else values
            parts["label"] = labels(values, spec.n_classes).astype(array.dtype)
            wrong &= (crc[at] != 0) & ~others & (checksums(parts) == crc[at])
            label[at][wrong] = parts["label"][wrong]
            mended += int(wrong.sum())
        if mended:
            _replace(group, shard, {"label": label}, lease)
    return mended


def _replace(
    group: Group, shard: int, values: Mapping[str, Array], lease: Lease, replica: bytes = b""
) -> None:
    """Replace the files of some of a shard's arrays, given by name, after the records' copy."""
    contents = {group.replica(shard): replica} if replica else {}
    for array in map(group.spec.array, values):
        content = encoding.encode(group.metadata(array), shard, values[array.name])[1]
        contents[group.file(array, shard)] = content
    for path in contents:
        remove_partial(path.parent, path.name)
    if contents:
        with replacing([*contents], lease.check) as partials:
            for partial, content in zip(partials, contents.values(), strict=True):
                partial.write_bytes(content)


class _Mending(Shard):
    """A shard whose records are copied back, or else inferred."""

    def __init__(self, group: Group, number: int, journals: JournalIndex) -> None:
        super().__init__(group, number)
        self.journals = journals

    def mend(self, copies: Bools | None) -> None:
        known = self._copy_back()
        status, crc = self.records["status"], self.records["crc"]
        unclear = wrong_status(status, self.padding)
        if "status" in self.lost:
            unclear[:] = True
        unclear &= ~self.padding & ~known
        status[self.padding] = PADDING
        finished = np.where(unclear, self._written(), self.finished())
        left = finished & ~known
        if "crc" in self.lost and left.any():
            crc[left] = self.stored_checksums[left]
        if unclear.any():
            status[unclear] = np.where(finished, self._kinds(copies), MISSING)[unclear]
        seconds = self.records["fit_seconds"]
        seconds[wrong_seconds(seconds, status)] = math.nan
        self._recall(np.flatnonzero(left))
        if "clipped" in self.lost and left.any():
            self._count_clipped(left)

    def _copy_back(self) -> Bools:
        """Take records from their copy; return the rows that it holds.

        Where the two have different checksums, or just one can be read, the predictions tell
        whether the copy is theirs.
        """
        if not self.replica:
            return np.zeros_like(self.padding)
        crc, known = self.records["crc"], self.copied()
        if "crc" in self.lost:
            found = self.stored_checksums[known]
            if found.any() and not (known & self.copied(self.stored_checksums)).any():
                known[:] = False
        elif (known & ~self.copied(crc)).any():
            known = self.copied(crc) | self.copied(self.stored_checksums)
        for name, values in self.records.items():
            values[known] = self.replica[name][known]
        return known

    def _written(self) -> Bools:
        """Return which rows were published, judging by the other records."""
        written = (self.records["crc"] != 0) | (self.records["recipe"] != NO_RECIPE)
        return np.asarray((written | ~np.isnan(self.records["fit_seconds"])) & ~self.padding)

    def _kinds(self, copies: Bools | None) -> Array:
        """Return `DONE` for trained runs, which have a time, and `COPY` for others."""
        trained = ~np.isnan(self.records["fit_seconds"])
        if copies is not None:
            trained |= ~copies
        elif "fit_seconds" in self.lost:
            trained[:] = True
        return np.where(trained, DONE, COPY)

    @functools.cached_property
    def stored_checksums(self) -> Array:
        """The checksums of the stored predictions; 0 if they cannot be decoded."""
        return self.checksums(~self.padding)[0]

    def _recall(self, rows: Array) -> None:
        """Restore lost fit times and recipes of rows from journals."""
        wanted = self.lost & {"fit_seconds", "recipe"}
        if not wanted:
            return
        places = self.journals.records(self.spec.number, self.start, self.stop)
        for row in rows.tolist():
            for place in places.get(self.start + row, []):
                header = self.journals.header(place)
                if header is not None and self._is_of(header, row):
                    if "fit_seconds" in wanted:
                        self.records["fit_seconds"][row] = header.fit_seconds
                    if "recipe" in wanted:
                        self.records["recipe"][row] = self._recipe_of(header, row)
                    break

    def _recipe_of(self, header: Header, row: int) -> int:
        """Return the recipe of a record, or of its source for a copy without its own."""
        if header.status != COPY or header.recipe != NO_RECIPE:
            return header.recipe
        source = header.source
        for place in self.journals.records(self.spec.number, source, source + 1).get(source, []):
            original = self.journals.header(place)
            if original is not None and original.crc == self.records["crc"][row]:
                return original.recipe
        return NO_RECIPE

    def _is_of(self, header: Header, row: int) -> bool:
        """Whether a record is the one published as a row."""
        status, crc = self.records["status"][row], self.records["crc"][row]
        return bool(header.status == status and (status == COPY or header.crc == crc))

    def _count_clipped(self, finished: Bools) -> None:
        """Count values at the limits of float16; only clipping puts them there."""
        array = self.spec.array(self.spec.score_name or "")
        for first, stop, at in self.chunks():
            values = encoding.filled(self.spec, array, stop - first)
            encoding.read_file(self.group, array, first, stop, values)
            counts = (np.abs(values) >= _LARGEST).reshape(len(values), -1).sum(axis=1)
            self.records["clipped"][at][finished[at]] = counts[finished[at]]


TestSets = Callable[[Group, int, int], tuple[Integers, Integers] | None]
"""Makes `y_true` and `test_index`, (repeat, sample), of a group and a range of repeats."""


@dataclass(frozen=True, slots=True)
class Repair:
    """The result of a repair."""

    healed: int  # number of runs taken from journals
    dropped: int  # number of runs reset to missing
    splits: int  # number of damaged chunks of test sets
    unmade: tuple[str, ...] = ()  # messages about test sets that could not be made again


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

    `groups`: the groups of the findings. `findings`: the findings of `verify`; each is checked
    again. `watch`: watch of the lease folder. `copies`: which runs are identical to the first of
    their repeat, by group path. `test_sets`: makes test sets again. Without it, or if it returns
    None, workers write them later. `before_dropping`: called with the rows that will be reset to
    missing.
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
        for shard in sorted(numbers & {*shards_to_verify(by_path[path])}):  # others are in journals
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
    """Reset rows of groups to missing, whatever they hold."""
    require_rest(watch)
    by_path = {group.spec.path: group for group in groups}
    dropped = {group.spec.path: set(rows) for group, rows in groups.items()}
    healed: dict[str, set[int]] = {path: set() for path in by_path}
    _republish(by_path, folder, JournalIndex(folder), watch, healed, dropped)


def free(group: Group, watch: LeaseWatch) -> int:
    """Remove the files of shards without any finished run; return how many bytes they had.

    `status` goes first, as it comes last: what a crash leaves is a shard not yet published.
    """
    require_rest(watch)
    status, freed = statuses(group), 0
    for shard in range(group.shards):
        files = [file for file in reversed(shard_files(group, shard)) if file.exists()]
        if not files or np.isin(status[slice(*group.span(shard))], (DONE, COPY)).any():
            continue
        lease = Lease(watch, lease_name(group, shard))
        lease.take()
        with lease.kept():
            for file in files:
                lease.check()
                freed += file.stat().st_size
                _remove(file)
    return freed


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
