"""Lazy graphs over blocks of whole repeats.

Runs of a repeat lie side by side in the store, so a block is a few slices of neighbouring rows that
holds at most `Options.block_bytes` of predictions and `BLOCK_RUNS` runs: one task loads it and
computes every metric of its repeats, one after the other. A repeat that is larger is loaded alone
and its runs are computed in several tasks against what was prepared once (for α̂, the sorted
reference).

Memory of a task, beside the chunks of the arrays it reads from: the predictions of its block (of
its repeat, where that is larger), and for the one repeat at hand about 40 bytes for each of its
K·N_test margins, 60 for each of its K² pairs, and 2·B·N_test for the resamples of each test set.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from typing import Any

import dask.array as da
import numpy as np
import polars as pl
from dask.delayed import Delayed, delayed
from numpy.typing import NDArray

from analysis.metric import Finished, HeldOut, Metric, Repeat
from analysis.metrics import computed
from analysis.options import Options
from analysis.predictions import Predictions
from analysis.summaries import summarise
from analysis.tables import Block

BLOCK_RUNS = 256  # at most, so that small test sets make several tasks too
ROW_GAP = 32  # rows of no use that may be read to keep one slice (unfinished runs)

Rows = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Member:
    """A repeat of a block: its key, and where its runs lie among the rows that were read."""

    cell: int
    held_out: HeldOut
    run_index: Rows
    identical: NDArray[np.bool_]
    position: Rows


@dataclass(frozen=True, slots=True)
class Plan:
    """The repeats of a block and the slices of rows to read for them."""

    members: tuple[Member, ...]
    slices: tuple[slice, ...]


def build(predictions: Predictions, options: Options) -> list[Delayed]:
    """Return one lazy `Block` for each block of repeats; nothing is read yet."""
    metrics = computed(predictions, options)
    label = predictions.labels_at(options.epoch)
    needs_margin = any(metric.needs == "margin" for metric in metrics)
    margin = predictions.margins_at(options.epoch) if needs_margin else None
    run_bytes = predictions.n_test * (
        label.dtype.itemsize + (margin.dtype.itemsize if margin is not None else 0)
    )
    max_runs = max(1, min(BLOCK_RUNS, options.block_bytes // max(run_bytes, 1)))
    result = []
    for plan in plans(predictions, options, max_runs):
        labels = [label[rows] for rows in plan.slices]
        margins = [margin[rows] for rows in plan.slices] if margin is not None else []
        if plan.members[0].run_index.size > max_runs:
            result.append(_split(plan.members[0], labels, margins, metrics, options, max_runs))
        else:
            whole = partial(_compute_block, plan, metrics, options)
            result.append(delayed(whole, pure=False)(*labels, *margins))
    return result


def plans(predictions: Predictions, options: Options, max_runs: int) -> Iterator[Plan]:
    """Cut the repeats into blocks of at most `max_runs` runs, in the order of the rows."""
    held_out = {
        int(index): HeldOut(
            y_true=predictions.y_true[index],
            n_classes=predictions.n_classes,
            seed=predictions.seed,
            dataset_id=predictions.dataset_id,
            repeat_index=int(index),
            resamples=options.resamples,
        )
        for index in predictions.runs["repeat_index"].unique().sort()
    }
    repeats = (
        predictions.runs.sort("run_index")
        .group_by("cell", "repeat_index", maintain_order=True)
        .agg("row", "run_index", "identical")
        .sort(pl.col("row").list.min())
    )
    block: list[dict[str, Any]] = []
    n_runs = 0
    for repeat in repeats.iter_rows(named=True):
        size = len(repeat["row"])
        if block and n_runs + size > max_runs:
            yield _plan(block, held_out)
            block, n_runs = [], 0
        block.append(repeat)
        n_runs += size
    if block:
        yield _plan(block, held_out)


def _plan(repeats: Sequence[dict[str, Any]], held_out: dict[int, HeldOut]) -> Plan:
    rows = np.sort(np.concatenate([np.asarray(r["row"], dtype=np.int64) for r in repeats]))
    runs_of_rows = np.split(rows, np.flatnonzero(np.diff(rows) > ROW_GAP) + 1)
    slices = tuple(slice(int(part[0]), int(part[-1]) + 1) for part in runs_of_rows)
    read = np.concatenate([np.arange(part.start, part.stop) for part in slices])
    members = tuple(
        Member(
            cell=r["cell"],
            held_out=held_out[r["repeat_index"]],
            run_index=np.asarray(r["run_index"], dtype=np.int64),
            identical=np.asarray(r["identical"], dtype=np.bool_),
            position=np.searchsorted(read, np.asarray(r["row"], dtype=np.int64)),
        )
        for r in repeats
    )
    return Plan(members, slices)


def _join(parts: Sequence[NDArray[Any]]) -> NDArray[Any]:
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


def _repeat(
    member: Member, held_out: HeldOut, label: NDArray[Any], margin: NDArray[Any] | None
) -> Repeat:
    if margin is not None:
        # float16 sorts slowly, and float32 holds the same values.
        wide = np.promote_types(margin.dtype, np.float32)
        margin = margin[member.position].astype(wide, copy=False)
    return Repeat(held_out=held_out, label=label[member.position], margin=margin)


def _compute_block(
    plan: Plan, metrics: Sequence[Metric], options: Options, *arrays: NDArray[Any]
) -> Block:
    """Compute every metric of every repeat of a block."""
    n_slices = len(plan.slices)
    label = _join(arrays[:n_slices])
    margin = _join(arrays[n_slices:]) if len(arrays) > n_slices else None
    # Resamples drawn for a test set serve all repeats of the block, and go when it is done.
    held_out = {m.held_out.repeat_index: replace(m.held_out) for m in plan.members}
    results = []
    for member in plan.members:
        repeat = _repeat(member, held_out[member.held_out.repeat_index], label, margin)
        finished = []
        for metric in metrics:
            partial_result = metric.chunk(repeat, metric.prepare(repeat), 0, repeat.n_runs, options)
            finished.append(metric.finish(repeat, metric.combine([partial_result]), options))
        results.append(_columns(member, metrics, options, finished))
    return Block(
        runs=_concatenate([block.runs for block in results]),
        pairs=_concatenate([block.pairs for block in results]),
        repeats=_concatenate([block.repeats for block in results]),
    )


def _split(
    member: Member,
    labels: Sequence[da.Array],
    margins: Sequence[da.Array],
    metrics: Sequence[Metric],
    options: Options,
    max_runs: int,
) -> Delayed:
    """Compute the metrics of one large repeat in several tasks."""
    repeat = delayed(partial(_load, member, len(labels)), pure=False)(*labels, *margins)
    edges = [*range(0, member.run_index.size, max_runs), member.run_index.size]
    finished = []
    for metric in metrics:
        prepared = delayed(metric.prepare, pure=False)(repeat)
        chunk = delayed(metric.chunk, pure=False)
        partials = [
            chunk(repeat, prepared, start, stop, options) for start, stop in pairwise(edges)
        ]
        finished.append(delayed(partial(_finish, metric, options), pure=False)(repeat, *partials))
    block: Delayed = delayed(partial(_collect, member, metrics, options), pure=False)(*finished)
    return block


def _load(member: Member, n_slices: int, *arrays: NDArray[Any]) -> Repeat:
    margins = arrays[n_slices:]
    return _repeat(
        member,
        replace(member.held_out),
        _join(arrays[:n_slices]),
        _join(margins) if margins else None,
    )


def _finish(metric: Metric, options: Options, repeat: Repeat, *partials: NDArray[Any]) -> Finished:
    return metric.finish(repeat, metric.combine(partials), options)


def _collect(
    member: Member, metrics: Sequence[Metric], options: Options, *finished: Finished
) -> Block:
    return _columns(member, metrics, options, finished)


def _columns(
    member: Member, metrics: Sequence[Metric], options: Options, finished: Sequence[Finished]
) -> Block:
    """Give the values of one repeat their keys, and summarise them."""
    n_runs = member.run_index.size
    copies = int(np.count_nonzero(member.identical))
    repeats: dict[str, Any] = {
        "n_runs": n_runs,
        "n_distinct": max(n_runs - copies, 1),
        "n_test": member.held_out.y_true.size,
    }
    runs: dict[str, NDArray[Any]] = {"run_index": member.run_index, "identical": member.identical}
    i, j = np.triu_indices(n_runs if n_runs <= options.max_pair_runs else 0, k=1)
    pairs: dict[str, NDArray[Any]] = {"run_i": member.run_index[i], "run_j": member.run_index[j]}
    for metric, values in zip(metrics, finished, strict=True):
        for column in metric.runs:
            runs[column.name] = values.runs[column.name]
        for column in metric.pairs:
            pairs[column.name] = values.pairs[column.name][: i.size]
        for columns, of in ((metric.runs, values.runs), (metric.pairs, values.pairs)):
            for column in columns:
                summary = summarise(of[column.name], column.summaries)
                repeats |= {f"{column.name}_{name}": value for name, value in summary.items()}
        repeats |= values.repeat
    return Block(
        runs=_keyed(member, runs, n_runs),
        pairs=_keyed(member, pairs, i.size),
        repeats=_keyed(member, {name: np.asarray([v]) for name, v in repeats.items()}, 1),
    )


def _keyed(member: Member, columns: dict[str, NDArray[Any]], size: int) -> dict[str, NDArray[Any]]:
    return {
        "cell": np.full(size, member.cell, dtype=np.int64),
        "repeat_index": np.full(size, member.held_out.repeat_index, dtype=np.int64),
        **columns,
    }


def _concatenate(tables: Sequence[Any]) -> dict[str, NDArray[Any]]:
    return {name: np.concatenate([table[name] for table in tables]) for name in tables[0]}
