"""Lazy graphs over blocks of whole repeats.

Runs of a repeat lie side by side in the store, so a block is a few chunks' rows, at most
`Options.block_bytes` of predictions and `BLOCK_RUNS` runs: one task loads its repeats and computes
every metric of them, one after the other. A repeat of more than `PART_RUNS` runs is cut; each part
is loaded by itself, and pairs of runs are computed two parts at a time.

Memory of a task, beside one chunk of each array that it reads from: for the one repeat at hand
its predictions, about 40 bytes for each of its K·N_test margins (of
`Options.max_references` runs at most), 100 for each of its K² pairs (of `PART_RUNS` runs at most,
where they aren't listed), and 2·B·N_test for the resamples of each test set (8·R·N_test for R
bootstrap samples, where α̂'s interval is asked for), and ten arrays of one run's probabilities in
float64. While the pairs of a repeat that was cut are computed, its labels are kept too, and 0.7 MB
for each part. Each snapshot has blocks of its own, so that no task loads more where several are
analysed; with a reference of another snapshot, both count as a run's predictions.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import polars as pl
from dask.delayed import Delayed, delayed

from manyseed.analysis.graph.blocks import InputCheck, Member, rows_of, take
from manyseed.analysis.graph.predictions import TRAIN_ACCURACY, Predictions, computed
from manyseed.analysis.graph.reading import Rows, Sources, read, readers
from manyseed.analysis.metrics.metric import HeldOut, Metric, Need, Part
from manyseed.analysis.options import Options
from manyseed.analysis.refused import Refused
from manyseed.analysis.tables.schema import Block, GroupColumns

PART_RUNS = 256  # of a repeat that is cut
BLOCK_RUNS = 1024  # of small repeats together: neighbours share few chunks, each read twice
FEWEST_BLOCKS = 16  # where that leaves blocks of `PART_RUNS`, so that there is work for all


def build(predictions: Predictions, options: Options, layout: GroupColumns) -> list[Delayed]:
    """Return one lazy `Block` for each block of repeats; nothing is read yet."""
    metrics = computed(predictions, options)
    needs = [metric.needs for metric in metrics]
    result = []
    for position in predictions.positions(options):
        sources = Sources.of(predictions, needs, options, position)
        fit = max(1, options.block_bytes // max(sources.run_bytes, 1))
        part_runs = min(PART_RUNS, fit)
        for members in blocks(predictions, options, fit, position):
            if members[0].row.size > part_runs:
                result.append(_cut(members[0], sources, metrics, options, layout, part_runs))
            else:
                rows = sources.rows([member.row for member in members])
                whole = partial(_compute_block, members, rows, metrics, options, layout)
                result.append(delayed(whole, pure=False)())
    return result


def blocks(
    predictions: Predictions, options: Options, fit: int, position: int
) -> Iterator[tuple[Member, ...]]:
    """Cut the repeats of one snapshot, given by its place, into blocks, in the order of the rows.

    Parameters
    ----------
    predictions : Predictions
    options : Options
    fit : int
        The most runs that a block may hold; a repeat that has to be cut is alone in its own.
    position : int
        Of the snapshot.
    """
    enough = max(PART_RUNS, min(BLOCK_RUNS, predictions.runs.height // FEWEST_BLOCKS))
    max_runs, part_runs = min(enough, fit), min(PART_RUNS, fit)
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
    # of the final model alone
    known = position == len(predictions.trained) - 1 and TRAIN_ACCURACY in predictions.runs.columns
    repeats = (
        predictions.runs.sort("run_index")
        .group_by("cell", "repeat_index", maintain_order=True)
        .agg("row", "run_index", "identical", *([TRAIN_ACCURACY] if known else []))
        .sort(pl.col("row").list.min())
    )
    block: list[Member] = []
    n_runs = 0
    for repeat in repeats.iter_rows(named=True):
        member = Member(
            cell=repeat["cell"],
            epoch=predictions.trained[position],
            held_out=held_out[repeat["repeat_index"]],
            run_index=np.asarray(repeat["run_index"], dtype=np.int64),
            identical=np.asarray(repeat["identical"], dtype=np.bool_),
            row=np.asarray(repeat["row"], dtype=np.int64),
            train_accuracy=np.asarray(repeat[TRAIN_ACCURACY], dtype=np.float64) if known else None,
        )
        n_own = member.row.size
        if block and (n_runs + n_own > max_runs or n_own > part_runs):
            yield tuple(block)
            block, n_runs = [], 0
        block.append(member)
        n_runs += n_own
        if n_own > part_runs:
            yield tuple(block)
            block, n_runs = [], 0
    if block:
        yield tuple(block)


def single_repeat(
    predictions: Predictions,
    cell: int,
    repeat_index: int,
    needs: Sequence[Need],
    options: Options,
) -> Part:
    """Read all runs of one repeat, at the last of the snapshots.

    Parameters
    ----------
    predictions : Predictions
    cell, repeat_index : int
    needs : sequence of str
        What is to be read.
    options : Options

    Raises
    ------
    Refused
        Where it has no finished runs, or what is needed was not kept.
    """
    where = f"cell {cell}, repeat {repeat_index}"
    wanted = (pl.col("cell") == cell) & (pl.col("repeat_index") == repeat_index)
    only = replace(predictions, runs=predictions.runs.filter(wanted))
    position = only.positions(options)[-1]
    for members in blocks(only, options, 1, position):
        member = members[0]
        sources = Sources.of(only, needs, options, position)
        part, check = Stored.of(member, slice(0, member.row.size), sources).load()
        problem = check.problem(member.held_out)
        if problem is not None:
            raise Refused("repeat_index", repeat_index, f"{where}: {problem}")
        return part
    raise Refused("repeat_index", repeat_index, f"{where} has no finished runs")


def _compute_block(
    members: Sequence[Member],
    rows: Mapping[str, Rows],
    metrics: Sequence[Metric],
    options: Options,
    layout: GroupColumns,
) -> Block:
    """Compute every metric of every repeat of a block."""
    # Resamples drawn for a test set serve all repeats of the block, and go when it is done.
    held_out = {m.held_out.repeat_index: replace(m.held_out) for m in members}
    opened, results = readers(rows), []
    for number, listed in enumerate(members):
        member = replace(listed, held_out=held_out[listed.held_out.repeat_index])
        arrays = read(opened, number, member.held_out)
        part, check = take(member, slice(0, member.row.size), arrays)
        finished = []
        for metric in metrics:
            shared = metric.share(part.held_out, [metric.gather(part, options)], options)
            computed_part = metric.chunk(part, part, shared, options)
            finished.append(metric.finish(part.held_out, [computed_part], options))
        results.append(rows_of(member, metrics, options, finished, check))
    return layout.block(results)


@dataclass(frozen=True, slots=True)
class Stored:
    """A part of a repeat that is yet to be read, by the task that needs it."""

    member: Member
    runs: slice
    rows: Mapping[str, Rows]

    @classmethod
    def of(cls, member: Member, runs: slice, sources: Sources) -> Stored:
        """Say what to read."""
        return cls(member, runs, sources.rows([member.row[runs]]))

    def load(self) -> tuple[Part, InputCheck]:
        """Read it in this thread."""
        own = replace(self.member, held_out=replace(self.member.held_out))
        return take(own, self.runs, read(readers(self.rows), 0, own.held_out))

    def part(self) -> Part:
        """Read it in this thread, unchecked."""
        return self.load()[0]


def _cut(
    member: Member,
    sources: Sources,
    metrics: Sequence[Metric],
    options: Options,
    layout: GroupColumns,
    max_runs: int,
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
    labels = sources.only("label")
    kept = [delayed(Stored.of(member, part, labels).part, pure=False)() for part in runs]
    tiles = {}
    for metric in metrics:
        if metric.pairwise:
            tiles[metric.name] = _rows_of_tiles(metric, kept, options)
    finish = partial(_finish, member, metrics, options, layout)
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


def _gather(stored: Stored, metrics: Sequence[Metric], options: Options) -> dict[str, object]:
    part = stored.part()
    return {metric.name: metric.gather(part, options) for metric in metrics}


def _share(
    held_out: HeldOut,
    metrics: Sequence[Metric],
    options: Options,
    gathered: Sequence[Mapping[str, Any]],
) -> dict[str, object]:
    return {
        metric.name: metric.share(held_out, [part[metric.name] for part in gathered], options)
        for metric in metrics
    }


def _chunk(
    stored: Stored, metrics: Sequence[Metric], options: Options, shared: Mapping[str, Any]
) -> tuple[InputCheck, dict[str, object]]:
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
    layout: GroupColumns,
    chunked: Sequence[tuple[InputCheck, Mapping[str, Any]]],
    tiles: Mapping[str, Sequence[Any]],
) -> Block:
    finished = []
    for metric in metrics:
        partials = tiles.get(metric.name) or [part[metric.name] for _, part in chunked]
        finished.append(metric.finish(member.held_out, partials, options))
    check = InputCheck.of([check for check, _ in chunked])
    return layout.block([rows_of(member, metrics, options, finished, check)])
