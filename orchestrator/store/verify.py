"""Checking every published row, and every row of a journal, one inner chunk at a time.

The checksum of an inner chunk protects its bits. Only the checksums of rows, which cover all
arrays, can detect a file that belongs elsewhere, or is older or newer than the others. `compare`
reads a whole shard for that, so readers do it once for each `version` of its files.
"""

from __future__ import annotations

import functools
import hashlib
import time
from collections.abc import Callable, Collection, Generator, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from manyseed.orchestrator.disk.placing import identity, unavailable
from manyseed.orchestrator.errors import DamagedShard
from manyseed.orchestrator.store import encoding
from manyseed.orchestrator.store.arrays import COPY, CURVES, DONE, MISSING, PADDING
from manyseed.orchestrator.store.coordinates import DECLARED, NAN
from manyseed.orchestrator.store.encoding import Array, Bools
from manyseed.orchestrator.store.groups import Group, published_shards
from manyseed.orchestrator.store.index import JournalIndex, Place
from manyseed.orchestrator.store.journal import LENGTHS
from manyseed.orchestrator.store.reader import (
    Parts,
    Shard,
    checksums,
    read_array,
    read_rows,
    statuses,
)
from manyseed.orchestrator.store.schema import GroupSpec
from manyseed.orchestrator.store.testsets import (
    checksums_file,
    differing,
    read_checksums,
    read_splits,
)


@dataclass(frozen=True, slots=True)
class Finding:
    """Something wrong in a group."""

    group: str  # path of the group
    problem: str  # message that says what is wrong
    rows: tuple[int, ...] = ()  # affected rows
    shard: int | None = None  # the shard, if one of its record arrays is affected
    split: int | None = None  # the affected chunk of test sets
    damaged: bool = False
    """Whether bytes changed after they were written, so that a journal may hold the right ones."""


def shards_to_verify(group: Group) -> list[int]:
    """Return the shards that `verify` reads: those published at least in part."""
    begun = published_shards(group.folder) | published_shards(group.folder, "crc")
    return sorted(shard for shard in begun if shard < group.shards)


def verify(
    group: Group,
    checked: Callable[[int], None] = lambda rows: None,
    *,
    shards: Collection[int] | None = None,
    journals: JournalIndex | None = None,
) -> Iterator[Finding]:
    """Check the test sets and all published rows of a group.

    Files must exist and be decodable. Rows must have the right checksum and status, finite numbers,
    classes in range, and labels that agree with scores up to ties. Holds one inner chunk in memory.
    Findings are checked again until no file changes meanwhile, as others may be publishing.

    `checked`: called after each of `shards_to_verify` with its number of finished rows. `shards`:
    check only these. `journals`: rows in these are not reported if an interrupted publication left
    their shard incomplete.
    """
    splits, y_true = _settled(lambda: _verify_splits(group), lambda: _split_stamp(group))
    yield from splits
    reported = {finding.split for finding in splits}
    for shard in shards_to_verify(group) if shards is None else sorted(shards):
        sets = [y_true]

        def look(shard: int = shard, sets: list[Array] = sets) -> _Look[int]:
            findings, finished = _drained(_verify_shard(group, shard, sets[0], journals))
            if findings:
                sets[0] = _verify_splits(group)[1]  # may have been written since
            return findings, finished

        findings, finished = _settled(look, functools.partial(_stamp, group, shard))
        for finding in findings:
            if finding.split is None or finding.split not in reported:
                yield finding
        reported |= {finding.split for finding in findings} - {None}
        checked(finished)


T = TypeVar("T")
_Look = tuple[list[Finding], T]


def _settled(look: Callable[[], _Look[T]], stamp: Callable[[], object]) -> _Look[T]:
    """Repeat a look with findings until they stay the same and no file was replaced meanwhile."""
    findings, value = look()
    for _ in range(encoding.ATTEMPTS):
        if not findings:
            break
        before, last = stamp(), findings
        findings, value = look()
        if findings == last and stamp() == before:
            break
    return findings, value


def _drained(steps: Generator[Finding, None, T]) -> _Look[T]:
    findings = []
    try:
        while True:
            findings.append(next(steps))
    except StopIteration as end:
        return findings, end.value


def _stamp(group: Group, shard: int) -> list[object]:
    """Return a value that changes when a file of a shard or of the test sets is replaced."""
    files = [group.file(array, shard) for array in group.spec.of_role("prediction", "record")]
    return [*map(identity, [*files, group.replica(shard)]), _split_stamp(group)]


def _split_stamp(group: Group) -> list[object]:
    chunks = range(-(-group.repeats // group.spec.split_length))
    arrays = [group.spec.array(name) for name in ("y_true", "test_index")]
    files = [group.file(array, chunk) for array in arrays for chunk in chunks]
    return [*map(identity, [*files, checksums_file(group)])]


def wrong_status(status: Array, padding: Bools) -> Bools:
    """Return which statuses are impossible."""
    return np.where(padding, status != PADDING, ~np.isin(status, (MISSING, DONE, COPY)))


def wrong_seconds(seconds: Array, status: Array) -> Bools:
    """Return which fit times are impossible; NaN means unknown."""
    return np.asarray((status == DONE) & ((seconds < 0) | np.isinf(seconds)))


def impossible_sets(spec: GroupSpec, values: Parts) -> Bools:
    """Return which test sets are impossible, given `y_true` and `test_index` (repeat, sample)."""
    index = values["test_index"]
    return np.asarray(
        (index[:, 0] >= 0)
        & (
            (values["y_true"] >= spec.n_classes).any(axis=1)
            | (index < 0).any(axis=1)
            | (np.diff(np.sort(index, axis=1)) == 0).any(axis=1)
        )
    )


def _verify_splits(group: Group) -> _Look[Array]:
    """Return findings, and the true classes (repeat, sample), -1 where there is no test set."""
    spec, length = group.spec, group.spec.split_length
    y_true = np.full((group.repeats, spec.samples), -1, dtype=np.int32)
    findings = []
    try:
        known, unknown = read_checksums(group), []
    except DamagedShard:
        known, unknown = {}, [checksums_file(group).name]
    for chunk in range(-(-group.repeats // length)):
        start, stop = chunk * length, min((chunk + 1) * length, group.repeats)
        values = {}
        bad = [*unknown]
        for name in ("test_index", "y_true"):  # test_index is written last
            array = spec.array(name)
            values[name] = np.full((stop - start, spec.samples), array.fill_value, array.dtype)
            file, folder = group.file(array, chunk), group.folder / name
            absent = not file.exists()
            if encoding.read_undamaged(folder, start, stop, length, into=values[name]).any() or (
                absent and name == "y_true" and (values["test_index"] >= 0).any()
            ):
                bad.append(name)
        if bad:
            problem = f"test sets {start} to {stop - 1}: {', '.join(bad)} cannot be read"
            findings.append(Finding(spec.path, problem, split=chunk, damaged=True))
            continue
        made, wrong = values["test_index"][:, 0] >= 0, impossible_sets(spec, values)
        for repeat in (start + np.flatnonzero(wrong)).tolist():
            problem = f"test set {repeat} has impossible classes or positions"
            findings.append(Finding(spec.path, problem, split=chunk))
        for name, repeat in differing(known, values, start):
            problem = f"test set {repeat} is not what was stored ({name})"
            findings.append(Finding(spec.path, problem, split=chunk))
            wrong[repeat - start] = True
        y_true[start:stop][made & ~wrong] = values["y_true"][made & ~wrong]
    return findings, y_true


def _verify_shard(
    group: Group, number: int, y_true: Array, journals: JournalIndex | None
) -> Generator[Finding, None, int]:
    """Yield findings; return the number of finished rows, which counts all if this is unknown."""
    spec, shard = group.spec, Shard(group, number)
    start, padding, records, finished = shard.start, shard.padding, shard.records, shard.finished()
    rows = np.arange(start, shard.stop)
    repeat_index = read_rows(group, ("repeat_index",), rows)["repeat_index"]
    if not group.file(spec.array("status"), number).exists():
        # an interrupted first publication is no problem if journals still hold all its rows
        finished = ((records["crc"] != 0) | shard.copied()) & ~padding
        if not _lacking(rows[finished], journals, spec):
            return 0
    elif "status" in shard.lost:
        finished = ~padding
    copy = group.replica(number).relative_to(group.folder)
    if shard.replica == {}:
        problem = f"shard {number}: {copy}, the copy of its records, cannot be read"
        yield Finding(spec.path, problem, shard=number, damaged=True)
    if shard.lost:
        problem = f"shard {number}: {', '.join(sorted(shard.lost))} cannot be decoded"
        some = tuple(rows[finished].tolist())
        yield Finding(spec.path, problem, some, shard=number, damaged=True)
        return len(some)
    wrong = wrong_status(records["status"], padding)
    yield from _findings(spec, start, wrong, "status disagrees with the plan")
    seconds = finished & wrong_seconds(records["fit_seconds"], records["status"])
    yield from _findings(spec, start, seconds, "fit_seconds is not a duration")
    for name, differs in shard.differing():
        differs &= ~wrong & ~seconds
        if journals is None or not _lacking(rows[differs & ~finished], journals, spec):
            differs &= finished  # the others are about to be published, as far as is known
        problem = f"{name} differs from its copy in {copy}"
        yield from _findings(spec, start, differs, problem, True)
    needed = np.unique(repeat_index[finished])
    for repeat in needed[y_true[needed, 0] < 0].tolist():
        problem = f"test set {repeat}, which finished runs need, is not stored"
        yield Finding(spec.path, problem, split=repeat // spec.split_length)
    good = np.zeros_like(finished)
    for first, stop, at in shard.chunks():
        if finished[at].any():
            truth = y_true[np.where(padding[at], 0, repeat_index[at])]
            good[at] = yield from _verify_chunk(shard, first, stop, at, finished[at], truth)
    if (good & shard.copied() & ~shard.copied(records["crc"])).any():
        problem = f"shard {number}: {copy} is not a copy of its records"
        yield Finding(spec.path, problem, shard=number, damaged=True)
    return int(finished.sum())


def _lacking(rows: Array, journals: JournalIndex | None, spec: GroupSpec) -> bool:
    """Whether there are rows among these that no journal holds; without journals, any is."""
    held = () if journals is None or not len(rows) else journals.rows(spec.number)
    return bool(len(np.setdiff1d(rows, held)))


def _verify_chunk(
    shard: Shard, first: int, stop: int, at: slice, finished: Bools, y_true: Array
) -> Generator[Finding, None, Bools]:
    """Yield findings; return which of the finished rows match their checksum."""
    spec = shard.spec
    parts, damaged = shard.predictions(first, stop)
    lost, found = np.logical_or.reduce([*damaged.values()]), checksums(parts)
    problem = f"predictions cannot be decoded: {_files(shard, damaged)}"
    yield from _findings(spec, first, lost & finished, problem, True)
    wrong = finished & ~lost & (found != shard.records["crc"][at])
    replaced = wrong & shard.copied(found, at)
    yield from _findings(spec, first, replaced, "crc differs from its copy, which is right", True)
    problem = f"predictions differ from their checksum: {_files(shard)}"
    yield from _findings(spec, first, wrong & ~replaced, problem, True)
    good: Bools = finished & ~lost & ~wrong
    for problem, bad in wrong_values(spec, parts, y_true):
        yield from _findings(spec, first, good & bad, problem)
    return good


def _files(shard: Shard, damaged: Mapping[str, Bools] | None = None) -> str:
    """Return the files, within the group, of a shard's predictions, or of damaged ones alone."""
    group, arrays = shard.group, shard.spec.of_role("prediction")
    if damaged is not None:
        arrays = [one for one in arrays if damaged[one.name].any()]
    files = (group.file(one, shard.number) for one in arrays)
    return ", ".join(str(file.relative_to(group.folder)) for file in files)


def wrong_values(spec: GroupSpec, parts: Parts, y_true: Array) -> Iterator[tuple[str, Bools]]:
    """Yield each possible problem of predictions, and the rows that have it.

    `parts`, mapping of arrays (run, ...): prediction arrays by name. `y_true`, integer array (run,
    sample): true classes; negative if unknown.
    """
    label = parts["label"]
    yield "a label is not a class", _any(label >= spec.n_classes)
    if "confidence" in parts:
        confidence = parts["confidence"]
        if spec.probability == "none":
            impossible = ~np.isnan(confidence)
        else:
            impossible = ~((confidence >= 0) & (confidence <= 1))
        yield "a confidence is not a probability", _any(impossible)
    for name in CURVES if spec.curves else ():
        most = np.inf if name.endswith("loss") else 1
        impossible = ~(np.isnan(parts[name]) | (parts[name] >= 0) & (parts[name] <= most))
        yield f"{name} is impossible", _any(impossible)
    for array in spec.optional:
        known, values = DECLARED[array.name], parts[array.name]
        possible = (values >= known.least) & (values <= known.most)
        if array.fill == NAN:
            possible |= np.isnan(values)
        yield f"{array.name} is impossible", _any(~possible)
    if spec.score_name is None:
        return
    values = parts[spec.score_name]
    yield f"{spec.score_name} is not finite", _any(~np.isfinite(values))
    yield "labels disagree with scores", _any(_disagrees(spec, label, values, y_true))


def _disagrees(spec: GroupSpec, label: Array, values: Array, y_true: Array) -> Bools:
    """Return which labels cannot follow from the scores, allowing for ties from rounding."""
    if spec.scores == "all":
        index = np.minimum(label, spec.n_classes - 1)[..., None].astype(np.intp)
        chosen = np.take_along_axis(values, index, axis=-1)[..., 0]
        return np.asarray(chosen < values.max(axis=-1))
    if spec.n_classes == 2:
        return np.asarray((values > 0) & (label == 0) | (values < 0) & (label == 1))
    truth = y_true[:, None, :]
    wrong = (values > 0) & (label != truth) | (values < 0) & (label == truth)
    return np.asarray(wrong & (truth >= 0))


def _any(mask: Array) -> Bools:
    return np.asarray(mask.reshape(len(mask), -1).any(axis=1))


def _findings(
    spec: GroupSpec, first: int, wrong: Bools, problem: str, damaged: bool = False
) -> Iterator[Finding]:
    if wrong.any():
        rows = tuple((first + np.flatnonzero(wrong)).tolist())
        yield Finding(spec.path, problem, rows, damaged=damaged)


def version(group: Group, shard: int) -> str:
    """Return a digest that changes whenever a file of a shard is replaced or written to."""
    stamps = []
    for array in group.spec.of_role("prediction", "record"):
        path = group.file(array, shard)
        with unavailable("look at", path):
            try:
                info = path.stat()
            except FileNotFoundError:
                problem = "is missing, though published data need it"
                raise DamagedShard.of(path, problem) from None
        stamps.append((info.st_size, info.st_mtime_ns, info.st_ctime_ns, info.st_ino))
    return hashlib.sha256(repr(stamps).encode()).hexdigest()[:16]


def compare(group: Group, shard: int, copies: Bools) -> None:
    """Check the rows of a published shard against their checksums and possible statuses.

    Holds one inner chunk in memory. Retries, as files may be replaced meanwhile.

    `copies`, bool array (run,): which runs of the shard are planned as identical to the first of
    their repeat.
    """
    for attempt in range(encoding.ATTEMPTS):
        problem = _problem(group, shard, copies)
        if problem is None:
            return
        time.sleep(0.01 * attempt)
    names = [*group.spec.of_role("prediction"), group.spec.array("crc"), group.spec.array("status")]
    files = ", ".join(str(group.file(a, shard).relative_to(group.folder)) for a in names)
    raise DamagedShard.of(group.folder, f"holds in shard {shard} {problem} ({files})")


def _problem(group: Group, number: int, copies: Bools) -> str | None:
    shard = Shard(group, number)
    status, crc = shard.records["status"], shard.records["crc"]
    if shard.lost:
        path = group.file(group.spec.array(min(shard.lost)), number)
        raise DamagedShard.of(path, "cannot be decoded")
    finished, timed = shard.finished(), ~np.isnan(shard.records["fit_seconds"])
    impossible = wrong_status(status, shard.padding)
    # copies have no time; trained runs may have lost theirs in a repair, unless planned as copies
    wrong_kind = np.where(timed, status == COPY, (status == DONE) & copies)
    impossible |= np.where(finished, wrong_kind, crc != 0)
    if impossible.any():
        return f"{int(impossible.sum()):,} rows with an impossible status"
    wrong = int(shard.unlike(finished).sum())
    return f"{wrong:,} runs that differ from their checksums" if wrong else None


def verify_journals(
    group: Group, journals: JournalIndex, checked: Callable[[int], None] = lambda rows: None
) -> Iterator[Finding]:
    """Check the first good record of each finished run of a group that is not published.

    Checks checksums, lengths, and values like `verify`. Holds as many runs in memory as an inner
    chunk. Unreadable records are read once more with a fresh index.

    `journals`: a current index; rows published after its refresh are not detected. `checked`:
    called with the number of finished runs just checked.
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
    parts = {a.name: encoding.filled(spec, a, len(rows)) for a in spec.of_role("prediction")}
    good, misshapen = _read_journal(
        journals, spec.number, rows, list(parts.values()), spec.part_bytes
    )
    if not good.all():
        again = journals.again()
        good, misshapen = _read_journal(
            again, spec.number, rows, list(parts.values()), spec.part_bytes
        )
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


def _read_journal(
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
