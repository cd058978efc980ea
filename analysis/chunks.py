"""Lazy graphs over blocks of whole repeats.

Runs of a repeat lie side by side in the store, so a block is a few slices of neighbouring rows that
holds at most `Options.block_bytes` of predictions and `BLOCK_RUNS` runs: one task loads it and
computes every metric of its repeats, one after the other. A repeat that is larger is cut into parts
of that size; each is loaded by itself, and pairs of runs are computed two parts at a time.

Memory of a task, beside the chunks of the arrays it reads from: the predictions of its block, and
for the one repeat at hand about 40 bytes for each of its K·N_test margins (of
`Options.max_references` runs at most), 100 for each of its K² pairs (of `BLOCK_RUNS` runs at most,
where they aren't listed), and 2·B·N_test for the resamples of each test set. While the pairs of a
repeat that was cut are computed, its labels are kept too, and 0.7 MB for each part.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from typing import Any

import dask.array as da
import numpy as np
import polars as pl
from dask.base import compute as dask_compute
from dask.base import optimize as dask_optimize
from dask.delayed import Delayed, delayed
from numpy.typing import NDArray

from analysis.blocks import Arrays, Check, Member, Rows, concatenate, rows_of, take
from analysis.metric import HeldOut, Metric, Need, Part
from analysis.metrics import computed
from analysis.options import Options
from analysis.predictions import Predictions
from analysis.tables import Block

BLOCK_RUNS = 256  # at most, so that small test sets make several tasks too
ROW_GAP = 32  # rows of no use that may be read to keep one slice (unfinished runs)


@dataclass(frozen=True, slots=True)
class Plan:
    """The repeats of a block and the slices of rows to read for them."""

    members: tuple[Member, ...]
    slices: tuple[slice, ...]


@dataclass(frozen=True, slots=True)
class Sources:
    """The lazy arrays that the metrics need, (run, sample) or (run, sample, class), by name."""

    arrays: dict[str, da.Array]

    @classmethod
    def of(cls, predictions: Predictions, needs: Sequence[Need], options: Options) -> Sources:
        """Find the arrays behind what is needed."""
        arrays = {"label": predictions.labels_at(options.epoch)}
        for need in needs:
            name = predictions.source(need)
            if name is not None and name not in arrays:
                arrays[name] = predictions.array_at(name, options.epoch)
        if options.reference_epoch is not None and "margin" in arrays:
            arrays["reference_margin"] = predictions.array_at("margin", options.reference_epoch)
        return cls(arrays)

    @property
    def run_bytes(self) -> int:
        """Bytes of one run."""
        return sum(int(np.prod(a.shape[1:])) * a.dtype.itemsize for a in self.arrays.values())

    def read(self, slices: Sequence[slice]) -> list[da.Array]:
        """Return the lazy slices of rows, array after array."""
        return [array[rows] for array in self.arrays.values() for rows in slices]


def _join(names: Sequence[str], slices: Sequence[slice], parts: Sequence[NDArray[Any]]) -> Arrays:
    """Put together by name what `Sources.read` had read."""
    joined = {}
    for index, name in enumerate(names):
        own = parts[index * len(slices) : (index + 1) * len(slices)]
        joined[name] = own[0] if len(slices) == 1 else np.concatenate(own)
    return joined


def build(predictions: Predictions, options: Options) -> list[Delayed]:
    """Return one lazy `Block` for each block of repeats; nothing is read yet."""
    metrics = computed(predictions, options)
    sources = Sources.of(predictions, [metric.needs for metric in metrics], options)
    max_runs = max(1, min(BLOCK_RUNS, options.block_bytes // max(sources.run_bytes, 1)))
    result = []
    for plan in plans(predictions, options, max_runs):
        if plan.members[0].run_index.size > max_runs:
            result.append(_cut(plan.members[0], sources, metrics, options, max_runs))
        else:
            whole = partial(_compute_block, plan, tuple(sources.arrays), metrics, options)
            result.append(delayed(whole, pure=False)(*sources.read(plan.slices)))
    return result


def plans(predictions: Predictions, options: Options, max_runs: int) -> Iterator[Plan]:
    """Cut the repeats into blocks of at most `max_runs` runs, in the order of the rows."""
    y_true = predictions.true_class
    held_out = {
        int(index): HeldOut(
            y_true=y_true[index],
            n_classes=predictions.n_classes,
            probability=predictions.probability,
            seed=predictions.seed,
            dataset_id=predictions.dataset_id,
            repeat_index=int(index),
            resamples=options.resamples,
            problem=predictions.truth_problem(int(index)),
        )
        for index in predictions.runs["repeat_index"].unique().sort()
    }
    repeats = (
        predictions.runs.sort("run_index")
        .group_by("cell", "repeat_index", maintain_order=True)
        .agg("row", "run_index", "identical")
        .sort(pl.col("row").list.min())
    )
    block: list[Member] = []
    n_runs = 0
    for repeat in repeats.iter_rows(named=True):
        member = Member(
            cell=repeat["cell"],
            held_out=held_out[repeat["repeat_index"]],
            run_index=np.asarray(repeat["run_index"], dtype=np.int64),
            identical=np.asarray(repeat["identical"], dtype=np.bool_),
            row=np.asarray(repeat["row"], dtype=np.int64),
        )
        if block and n_runs + member.row.size > max_runs:
            yield _plan(block)
            block, n_runs = [], 0
        block.append(member)
        n_runs += member.row.size
    if block:
        yield _plan(block)


def single_repeat(
    predictions: Predictions,
    cell: int,
    repeat_index: int,
    needs: Sequence[Need],
    options: Options,
) -> Part:
    """Read all runs of one repeat.

    Raises
    ------
    ValueError
        Where it has no finished runs, or what is needed was not kept.
    """
    wanted = (pl.col("cell") == cell) & (pl.col("repeat_index") == repeat_index)
    only = replace(predictions, runs=predictions.runs.filter(wanted))
    for plan in plans(only, options, 1):
        member = plan.members[0]
        sources = Sources.of(only, needs, options)
        read = dask_compute(*sources.read(plan.slices))
        arrays = _join(tuple(sources.arrays), plan.slices, read)
        part, check = take(member, slice(0, member.row.size), plan.slices, arrays)
        problem = check.problem(member.held_out)
        if problem is not None:
            raise ValueError(f"cell {cell}, repeat {repeat_index}: {problem}")
        return part
    raise ValueError(f"cell {cell}, repeat {repeat_index} has no finished runs")


def _plan(members: Sequence[Member]) -> Plan:
    return Plan(tuple(members), _slices(np.concatenate([member.row for member in members])))


def _slices(rows: Rows) -> tuple[slice, ...]:
    """Return slices that hold the rows, and few others between them."""
    rows = np.sort(rows)
    neighbours = np.split(rows, np.flatnonzero(np.diff(rows) > ROW_GAP) + 1)
    return tuple(slice(int(part[0]), int(part[-1]) + 1) for part in neighbours)


def _compute_block(
    plan: Plan,
    names: Sequence[str],
    metrics: Sequence[Metric],
    options: Options,
    *arrays: NDArray[Any],
) -> Block:
    """Compute every metric of every repeat of a block."""
    joined = _join(names, plan.slices, arrays)
    # Resamples drawn for a test set serve all repeats of the block, and go when it is done.
    held_out = {m.held_out.repeat_index: replace(m.held_out) for m in plan.members}
    results = []
    for listed in plan.members:
        member = replace(listed, held_out=held_out[listed.held_out.repeat_index])
        part, check = take(member, slice(0, member.row.size), plan.slices, joined)
        finished = []
        for metric in metrics:
            shared = metric.share(part.held_out, [metric.gather(part, options)], options)
            computed_part = metric.chunk(part, part, shared, options)
            finished.append(metric.finish(part.held_out, [computed_part], options))
        results.append(rows_of(member, metrics, options, finished, check))
    return concatenate(results)


@dataclass(frozen=True, slots=True)
class Stored:
    """A part of a repeat that is yet to be read, by the task that needs it."""

    member: Member
    runs: slice
    slices: tuple[slice, ...]
    names: tuple[str, ...]
    arrays: tuple[da.Array, ...]

    @classmethod
    def of(cls, member: Member, runs: slice, sources: Sources) -> Stored:
        """Say what to read; the graphs are cut down to it."""
        slices = _slices(member.row[runs])
        arrays = dask_optimize(*sources.read(slices))
        return cls(member, runs, slices, tuple(sources.arrays), arrays)

    def load(self) -> tuple[Part, Check]:
        """Read it in this thread."""
        own = replace(self.member, held_out=replace(self.member.held_out))
        read = dask_compute(*self.arrays, scheduler="synchronous")
        return take(own, self.runs, self.slices, _join(self.names, self.slices, read))

    def part(self) -> Part:
        """Read it in this thread, unchecked."""
        return self.load()[0]


def _cut(
    member: Member, sources: Sources, metrics: Sequence[Metric], options: Options, max_runs: int
) -> Delayed:
    """Compute the metrics of one large repeat part by part.

    A part is read once for what the others must know of it, and again to be computed, so that it
    need not be kept in between. Pairs of parts need no more than their labels, which are kept.
    """
    alone = [metric for metric in metrics if not metric.pairwise]
    edges = pairwise([*range(0, member.row.size, max_runs), member.row.size])
    runs = [slice(start, stop) for start, stop in edges]
    stored = [Stored.of(member, part, sources) for part in runs]
    gathered = [delayed(partial(_gather, part, alone, options), pure=False)() for part in stored]
    shared = delayed(partial(_share, member.held_out, alone, options), pure=False)(gathered)
    chunked = [
        delayed(partial(_chunk, part, alone, options), pure=False)(shared) for part in stored
    ]
    labels = Sources({"label": sources.arrays["label"]})
    kept = [delayed(Stored.of(member, part, labels).part, pure=False)() for part in runs]
    tiles = {}
    for metric in metrics:
        if metric.pairwise:
            tiles[metric.name] = _rows_of_tiles(metric, kept, options)
    finish = partial(_finish, member, metrics, options)
    block: Delayed = delayed(finish, pure=False)(chunked, tiles)
    return block


def _rows_of_tiles(metric: Metric, kept: Sequence[Delayed], options: Options) -> list[Delayed]:
    """Compute each part with itself and all later ones, adding up as it goes."""
    tile = delayed(partial(_tile, metric, options), pure=False)
    rows = []
    for index, own in enumerate(kept):
        row: Any = None
        for other in kept[index:]:
            row = tile(row, own, other)
        rows.append(row)
    return rows


def _gather(stored: Stored, metrics: Sequence[Metric], options: Options) -> dict[str, Any]:
    part = stored.part()
    return {metric.name: metric.gather(part, options) for metric in metrics}


def _share(
    held_out: HeldOut,
    metrics: Sequence[Metric],
    options: Options,
    gathered: Sequence[Mapping[str, Any]],
) -> dict[str, Any]:
    return {
        metric.name: metric.share(held_out, [part[metric.name] for part in gathered], options)
        for metric in metrics
    }


def _chunk(
    stored: Stored, metrics: Sequence[Metric], options: Options, shared: Mapping[str, Any]
) -> tuple[Check, dict[str, Any]]:
    part, check = stored.load()
    return check, {
        metric.name: metric.chunk(part, part, shared[metric.name], options) for metric in metrics
    }


def _tile(metric: Metric, options: Options, before: Any, own: Part, other: Part) -> Any:
    # Every task is given its own copy of what it was sent, so parts are told apart by their place.
    same = own if other.start == own.start else other
    found = metric.chunk(own, same, None, options)
    return found if before is None else before + found


def _finish(
    member: Member,
    metrics: Sequence[Metric],
    options: Options,
    chunked: Sequence[tuple[Check, Mapping[str, Any]]],
    tiles: Mapping[str, Sequence[Any]],
) -> Block:
    finished = []
    for metric in metrics:
        partials = tiles.get(metric.name) or [part[metric.name] for _, part in chunked]
        finished.append(metric.finish(member.held_out, partials, options))
    check = Check.of([check for check, _ in chunked])
    return rows_of(member, metrics, options, finished, check)
