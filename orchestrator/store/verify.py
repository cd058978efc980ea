"""Every published row is checked, an inner chunk at a time."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass

import google_crc32c
import numpy as np
from numpy.typing import NDArray

from orchestrator.store import encoding
from orchestrator.store.arrays import COPY, CURVES, DONE, MISSING, PADDING, ArraySpec
from orchestrator.store.encoding import Array, Bools
from orchestrator.store.groups import Group, published_shards
from orchestrator.store.reader import read_array
from orchestrator.store.schema import GroupSpec


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that is wrong in a group.

    Attributes
    ----------
    group : str
        Path of the group.
    problem : str
        What is wrong, for people.
    rows : tuple of int
        The rows that it concerns.
    split : int or None
        The chunk of test sets that it concerns.
    damaged : bool
        Whether bytes changed after they were written, so that a journal may hold the true ones.
    """

    group: str
    problem: str
    rows: tuple[int, ...] = ()
    split: int | None = None
    damaged: bool = False


def shards_to_verify(group: Group) -> list[int]:
    """Return the shards that `verify` reads: those that were published, at least in part."""
    return sorted(shard for shard in published_shards(group) if shard < group.shards)


def verify(group: Group, checked: Callable[[int], None] = lambda rows: None) -> Iterator[Finding]:
    """Check the test sets and all published rows of a group.

    Files: present, decodable. Rows: checksum, status, finite numbers, classes in range, labels that
    agree with scores up to ties. One inner chunk is held in memory. A row that is replaced
    meanwhile may be reported: verify again before acting on it.

    Parameters
    ----------
    group : Group
    checked : callable
        Told after each of `shards_to_verify` how many finished rows it holds.
    """
    y_true = yield from _verify_splits(group)
    repeat_index = read_array(group, "repeat_index")
    for shard in shards_to_verify(group):
        checked((yield from _verify_shard(group, shard, y_true, repeat_index)))


def row_checksums(group: Group, start: int, stop: int) -> tuple[NDArray[np.uint32], Bools]:
    """Return the checksum of each row's stored bytes, and which rows cannot be decoded."""
    parts, damaged = _predictions(group, start, stop)
    return _checksums(parts), damaged


Parts = dict[str, Array]


def _verify_splits(group: Group) -> Generator[Finding, None, Array]:
    """Return true classes (repeat, sample); -1 where there are none."""
    spec, length = group.spec, group.spec.split_length
    y_true = np.full((group.repeats, spec.samples), -1, dtype=np.int32)
    for chunk in range(-(-group.repeats // length)):
        start, stop = chunk * length, min((chunk + 1) * length, group.repeats)
        values, damaged = {}, False
        present = [group.file(spec.array(n), chunk).exists() for n in ("y_true", "test_index")]
        for name in ("y_true", "test_index"):
            array = spec.array(name)
            values[name] = np.full((stop - start, spec.samples), array.fill_value, array.dtype)
            folder = group.folder / name
            bad = encoding.read_undamaged(folder, start, stop, length, into=values[name])
            damaged |= bool(bad.any())
        if damaged or present == [False, True]:
            problem = f"test sets {start} to {stop - 1} cannot be decoded"
            yield Finding(spec.path, problem, split=chunk, damaged=True)
            continue
        made = values["test_index"][:, 0] >= 0
        wrong = made & (
            (values["y_true"] >= spec.n_classes).any(axis=1)
            | (values["test_index"] < 0).any(axis=1)
            | (np.diff(np.sort(values["test_index"], axis=1)) == 0).any(axis=1)
        )
        for repeat in start + np.flatnonzero(wrong):
            problem = f"test set {repeat} has classes or positions that cannot be"
            yield Finding(spec.path, problem, split=chunk)
        y_true[start:stop][made & ~wrong] = values["y_true"][made & ~wrong]
    return y_true


def _verify_shard(
    group: Group, shard: int, y_true: Array, repeat_index: Array
) -> Generator[Finding, None, int]:
    """Return how many rows are finished; any row may be where that cannot be told."""
    spec, (start, stop) = group.spec, group.span(shard)
    padding = repeat_index[start:stop] < 0
    records: Parts = {}
    for array in spec.arrays:
        if array.role == "record":
            records[array.name], damaged = _read(group, array, shard, start, stop)
            if damaged.any():
                problem = f"shard {shard}: {array.name} cannot be decoded"
                rows = tuple((start + np.flatnonzero(~padding)).tolist())
                yield Finding(spec.path, problem, rows, damaged=True)
                return len(rows)
    status = records["status"]
    finished = np.isin(status, (DONE, COPY)) & ~padding
    wrong = (status != PADDING) if padding.any() else np.zeros_like(padding)
    wrong = np.where(padding, wrong, ~np.isin(status, (MISSING, DONE, COPY)))
    yield from _findings(spec, start, wrong, "status disagrees with the plan")
    seconds = records["fit_seconds"]
    wrong = finished & (status == DONE) & ~(np.isfinite(seconds) & (seconds >= 0))
    yield from _findings(spec, start, wrong, "fit_seconds is no duration")
    for first in range(start, stop, spec.chunk_length):
        part = slice(first - start, first - start + spec.chunk_length)
        if not finished[part].any():
            continue
        repeats = repeat_index[first : first + spec.chunk_length]
        truth = y_true[np.where(repeats < 0, 0, repeats)]
        yield from _verify_chunk(group, first, finished[part], records["crc"][part], truth)
    return int(finished.sum())


def _verify_chunk(
    group: Group, first: int, finished: Bools, crc: Array, y_true: Array
) -> Iterator[Finding]:
    spec = group.spec
    parts, damaged = _predictions(group, first, first + spec.chunk_length)
    yield from _findings(spec, first, damaged & finished, "predictions cannot be decoded", True)
    good = finished & ~damaged
    wrong = good & (_checksums(parts) != crc)
    yield from _findings(spec, first, wrong, "predictions differ from their checksum", True)
    good &= ~wrong
    yield from _findings(
        spec, first, good & (y_true[:, 0] < 0), "the test set of this run is not stored"
    )
    for problem, bad in _wrong_values(spec, parts, y_true):
        yield from _findings(spec, first, good & bad, problem)


def _wrong_values(spec: GroupSpec, parts: Parts, y_true: Array) -> Iterator[tuple[str, Bools]]:
    label = parts["label"]
    yield "a label is no class", _any(label >= spec.n_classes)
    if "confidence" in parts:
        confidence = parts["confidence"]
        if spec.probability == "none":
            impossible = ~np.isnan(confidence)
        else:
            impossible = ~((confidence >= 0) & (confidence <= 1))
        yield "a confidence is no probability", _any(impossible)
    for name in CURVES if spec.curves else ():
        most = np.inf if name.endswith("loss") else 1
        impossible = ~(np.isnan(parts[name]) | (parts[name] >= 0) & (parts[name] <= most))
        yield f"{name} is impossible", _any(impossible)
    if spec.score_name is None:
        return
    values = parts[spec.score_name]
    yield f"{spec.score_name} is not finite", _any(~np.isfinite(values))
    yield "labels disagree with scores", _any(_disagrees(spec, label, values, y_true))


def _disagrees(spec: GroupSpec, label: Array, values: Array, y_true: Array) -> Bools:
    """Return where a label cannot follow from the scores; rounding makes ties, which may."""
    if spec.scores == "all":
        index = np.minimum(label, spec.n_classes - 1)[..., None].astype(np.intp)
        chosen = np.take_along_axis(values, index, axis=-1)[..., 0]
        return np.asarray(chosen < values.max(axis=-1))
    if spec.n_classes == 2:
        return np.asarray((values > 0) & (label == 0) | (values < 0) & (label == 1))
    truth = y_true[:, None, :]
    wrong = (values > 0) & (label != truth) | (values < 0) & (label == truth)
    return np.asarray(wrong & (truth >= 0))


def _predictions(group: Group, start: int, stop: int) -> tuple[Parts, Bools]:
    """Read the predictions of rows of one shard, in the order of the checksum."""
    parts: Parts = {}
    damaged = np.zeros(stop - start, dtype=np.bool_)
    for array in group.spec.arrays:
        if array.role == "prediction":
            shard = start // group.spec.shard_length
            parts[array.name], bad = _read(group, array, shard, start, stop)
            damaged |= bad
    return parts, damaged


def _read(group: Group, array: ArraySpec, shard: int, start: int, stop: int) -> tuple[Array, Bools]:
    values = encoding.filled(group.spec, array, stop - start)
    if not group.file(array, shard).exists():
        return values, np.ones(stop - start, dtype=np.bool_)
    step = group.spec.chunks(array)[0]
    return values, encoding.read_undamaged(
        group.folder / array.name, start, stop, step, into=values
    )


def _checksums(parts: Parts) -> NDArray[np.uint32]:
    contiguous = [np.ascontiguousarray(part) for part in parts.values()]
    crcs = np.zeros(len(contiguous[0]), dtype=np.uint32)
    for row in range(len(crcs)):
        crc = 0
        for part in contiguous:
            crc = google_crc32c.extend(crc, part[row].tobytes())
        crcs[row] = crc
    return crcs


def _any(mask: Array) -> Bools:
    return np.asarray(mask.reshape(len(mask), -1).any(axis=1))


def _findings(
    spec: GroupSpec, first: int, wrong: Bools, problem: str, damaged: bool = False
) -> Iterator[Finding]:
    if wrong.any():
        rows = tuple((first + np.flatnonzero(wrong)).tolist())
        yield Finding(spec.path, problem, rows, damaged=damaged)
