"""Lazy graphs over blocks of whole repeats.

The runs of a repeat are adjacent in the store, so a block reads rows of a few chunks: at most
`Options.block_bytes` of predictions and `BLOCK_RUNS` runs. One task loads its repeats one after the
other and computes all their metrics. A repeat of more than `PART_RUNS` runs is split; each part is
loaded by itself, and pairs of runs are computed two parts at a time.

Besides one chunk of each array that it reads, a task needs memory for the current repeat's
predictions, about 40 bytes for each of its K·N_test margins (of at most `Options.max_references`
runs), 100 bytes for each of its K² pairs (of at most `PART_RUNS` runs, unless they are listed),
2·B·N_test bytes for the resamples of each test set (8·R·N_test for R bootstrap samples, if α̂ gets
an interval), and ten float64 arrays of one run's probabilities. While the pairs of a split repeat
are computed, its labels are kept too, and 0.7 MB for each part. Each snapshot has its own blocks,
so that several snapshots need no more memory; with a reference from another snapshot, both count
as a run's predictions.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from manyseed.analysis import Refused
from manyseed.analysis.graph.predictions import (
    TRAIN_ACCURACY,
    Predictions,
    Rows,
    Sources,
    computed,
    read,
    readers,
    unavailable,
)
from manyseed.analysis.metrics.gram import above
from manyseed.analysis.metrics.metric import Finished, HeldOut, Metric, Need, Part, summarise
from manyseed.analysis.metrics.registry import schema
from manyseed.analysis.options import Options, is_own
from manyseed.analysis.tables.rows import RUN, Tables
from manyseed.analysis.tables.schema import Block, GroupColumns, RepeatRows, combine

if TYPE_CHECKING:  # importing dask is slow, and not all that is here needs it
    from dask.delayed import Delayed


Places = NDArray[np.int64]
Arrays = Mapping[str, NDArray[Any]]


@dataclass(frozen=True, slots=True)
class Member:
    """A repeat at one snapshot: its key, and the rows where its runs are stored."""

    cell: int
    epoch: int
    held_out: HeldOut
    run_index: Places
    identical: NDArray[np.bool_]
    row: Places
    train_accuracy: NDArray[np.float64] | None = None

    def first(self, runs: int) -> Member:
        """Return the repeat with its first `runs` runs only."""
        return replace(
            self,
            run_index=self.run_index[:runs],
            identical=self.identical[:runs],
            row=self.row[:runs],
        )


@dataclass(frozen=True, slots=True)
class InputCheck:
    """Findings about the predictions of a repeat, or of a part of it."""

    largest: int  # the largest label
    undefined: int  # runs with a NaN margin or score

    @classmethod
    def of(cls, checks: Sequence[InputCheck]) -> InputCheck:
        """Combine the checks of a repeat's parts."""
        return cls(max(c.largest for c in checks), sum(c.undefined for c in checks))

    def problem(self, held_out: HeldOut) -> str | None:
        """Return why a repeat can't be analysed, None if it can."""
        if held_out.problem is not None or self.largest < held_out.n_classes:
            return held_out.problem
        return f"a label is {self.largest}, and there are {held_out.n_classes} classes"


def take(member: Member, runs: slice, arrays: Arrays) -> tuple[Part, InputCheck]:
    """Return some runs of a repeat, and the check of their predictions.

    Invalid labels become class 0, so that metrics can run; their values for such a repeat are not
    used.
    """
    values, label = dict(arrays), arrays["label"]
    largest = int(label.max(initial=0))
    if largest >= member.held_out.n_classes:
        values["label"] = np.where(label < member.held_out.n_classes, label, 0).astype(label.dtype)
    if member.train_accuracy is not None:
        values["train_accuracy"] = member.train_accuracy[runs]
    part = Part(held_out=member.held_out, start=runs.start, n_repeat=member.row.size, **values)
    return part, InputCheck(largest, _undefined(part))


def _undefined(part: Part) -> int:
    values = part.score if part.margin is None else part.margin
    if values is None:
        return 0
    # A sum is NaN if a term is, or if opposite infinities meet: only then look at single values.
    axes = tuple(range(1, values.ndim))
    with np.errstate(invalid="ignore", over="ignore"):
        suspect = np.isnan(values.sum(axis=axes))
    return int(np.isnan(values[suspect]).any(axis=axes).sum())


def rows_of(
    member: Member,
    metrics: Sequence[Metric],
    options: Options,
    finished: Sequence[Finished],
    check: InputCheck,
) -> RepeatRows:
    """Add keys to the values of one repeat, and summarise them.

    A repeat that can't be analysed has only its row in the table of repeats, which says why.
    `finished` holds the values of each of `metrics`.
    """
    n_runs = member.run_index.size
    problem = check.problem(member.held_out)
    repeats: dict[str, object] = {
        "n_runs": n_runs,
        "n_distinct": max(n_runs - int(np.count_nonzero(member.identical)), 1),
        "n_test": member.held_out.n_test,
        "n_undefined": check.undefined,
        "problem": problem or "",
    }
    if problem is not None:
        member = member.first(0)
        finished, n_runs = [_no_values(metric) for metric in metrics], 0
    runs: dict[str, NDArray[Any]] = {"run_index": member.run_index, "identical": member.identical}
    i, j = above(n_runs if n_runs <= options.max_pair_runs else 0)
    pairs: dict[str, NDArray[Any]] = {"run_i": member.run_index[i], "run_j": member.run_index[j]}
    failures: dict[str, str] = {}
    for metric, values in zip(metrics, finished, strict=True):
        runs |= {column.name: values.runs[column.name] for column in metric.runs}
        pairs |= {column.name: values.pairs.get(column.name, _EMPTY) for column in metric.pairs}
        for column in (*metric.runs, *metric.pairs):
            if column.name in values.spreads:
                summary = values.spreads[column.name].summary(column.summaries)
            else:
                table = values.runs if column in metric.runs else values.pairs
                summary = summarise(table[column.name], column.summaries)
            repeats |= {f"{column.name}_{name}": value for name, value in summary.items()}
        repeats |= values.repeat
        if values.failure is not None:
            failures[metric.name] = values.failure
    return RepeatRows(
        failures=failures,
        runs=_keyed(member, runs, n_runs),
        pairs=_keyed(member, pairs, i.size),
        repeats=_keyed(member, {name: np.asarray([v]) for name, v in repeats.items()}, 1),
    )


_EMPTY = np.empty(0)


def _no_values(metric: Metric) -> Finished:
    return Finished(
        runs={column.name: _EMPTY for column in metric.runs},
        pairs={column.name: _EMPTY for column in metric.pairs},
        repeat={column.name: np.asarray(np.nan) for column in metric.repeat},
    )


def _keyed(member: Member, columns: dict[str, NDArray[Any]], size: int) -> dict[str, NDArray[Any]]:
    return {
        "cell": np.full(size, member.cell, dtype=np.int64),
        "epoch": np.full(size, member.epoch, dtype=np.int64),
        "repeat_index": np.full(size, member.held_out.repeat_index, dtype=np.int64),
        **columns,
    }


PART_RUNS = 256  # in a part of a split repeat
BLOCK_RUNS = 1024  # in a block of small repeats: adjacent blocks share few chunks, each read twice
FEWEST_BLOCKS = 16  # so that all workers have some, unless blocks become smaller than `PART_RUNS`


def build(predictions: Predictions, options: Options, layout: GroupColumns) -> list[Delayed]:
    """Return one lazy `Block` for each block of repeats; nothing is read yet."""
    from dask.delayed import delayed

    metrics = computed(predictions, options)
    needs = [metric.needs for metric in metrics]
    result = []
    for position in predictions.positions(options):
        sources = Sources.of(predictions, needs, options, position)
        fit = max(1, options.block_bytes // max(sources.run_bytes, 1))
        part_runs = min(PART_RUNS, fit)
        for members in blocks(predictions, options, fit, position):
            if members[0].row.size > part_runs:
                result.append(_split(members[0], sources, metrics, options, layout, part_runs))
            else:
                rows = sources.rows([member.row for member in members])
                whole = partial(_compute_block, members, rows, metrics, options, layout)
                result.append(delayed(whole, pure=False)())
    return result


def blocks(
    predictions: Predictions, options: Options, fit: int, position: int
) -> Iterator[tuple[Member, ...]]:
    """Group the repeats of the snapshot at `position` into blocks, in the order of their rows.

    `fit` is the most runs that fit into memory; a repeat that must be split has its own block.
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
    is_last = position == len(predictions.trained) - 1  # training accuracy is the final model's
    known = is_last and TRAIN_ACCURACY in predictions.runs.columns
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
    predictions: Predictions, cell: int, repeat_index: int, needs: Sequence[Need], options: Options
) -> Part:
    """Read the arrays for `needs` of all runs of one repeat, at the last of the snapshots."""
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
    # copies, so that the resamples of a test set serve the whole block and are freed after it
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
    """A part of a repeat that its task has yet to read."""

    member: Member
    runs: slice
    rows: Mapping[str, Rows]

    @classmethod
    def of(cls, member: Member, runs: slice, sources: Sources) -> Stored:
        """Plan the reading of some runs of a repeat."""
        return cls(member, runs, sources.rows([member.row[runs]]))

    def load(self) -> tuple[Part, InputCheck]:
        """Read it in this thread."""
        member = replace(self.member, held_out=replace(self.member.held_out))
        return take(member, self.runs, read(readers(self.rows), 0, member.held_out))

    def part(self) -> Part:
        """Read it in this thread, unchecked."""
        return self.load()[0]


def _split(
    member: Member,
    sources: Sources,
    metrics: Sequence[Metric],
    options: Options,
    layout: GroupColumns,
    max_runs: int,
) -> Delayed:
    """Compute the metrics of one large repeat part by part.

    A part is read once to gather what the others must know of it, and again to compute it, so that
    it need not be kept in between. Pairs of parts need only labels, which are kept.
    """
    from dask.delayed import delayed

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
    tiles = {m.name: _rows_of_tiles(m, kept, options) for m in metrics if m.pairwise}
    finish = partial(_finish, member, metrics, options, layout)
    block: Delayed = delayed(finish, pure=False)(chunked, tiles)
    return block


def _rows_of_tiles(metric: Metric, kept: Sequence[Delayed], options: Options) -> list[Delayed]:
    """For each part, compute and add up its tiles with itself and all later parts."""
    from dask.delayed import delayed

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
    # A task may get copies of its arguments, so compare positions, not objects.
    tile = metric.chunk(own, own if other.start == own.start else other, None, options)
    return tile if before is None else before + tile


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


ReportProgress = Callable[[int, int], None]
"""Called with (blocks done, all blocks) before the first block and after each."""


@dataclass(frozen=True, slots=True)
class GroupAnalysis:
    """The lazy analysis of one group: its blocks, and how to combine them into tables."""

    predictions: Predictions
    options: Options
    layout: GroupColumns
    blocks: tuple[Delayed, ...]

    def _probe(self) -> str | None:
        if "alpha_hat" in unavailable(self.predictions, self.options):
            return None
        if not self.predictions.has_margin and not is_own(self.options.probe):
            return None
        return self.predictions.probe(self.options)

    def combine(self, blocks: Sequence[Block]) -> Tables:
        """Make tables of computed blocks, in any order."""
        return combine(blocks, self.layout, self._probe(), self.predictions.runs_planned)


def analyze_group(predictions: Predictions, options: Options | None = None) -> GroupAnalysis:
    """Plan the analysis of one group; nothing is read or computed yet."""
    options = options if options is not None else Options()
    types = predictions.runs.schema
    keys = {name: types[name] for name in RUN}
    layout = GroupColumns(keys, schema(options.metrics))
    return GroupAnalysis(predictions, options, layout, tuple(build(predictions, options, layout)))


def compute(
    groups: Sequence[GroupAnalysis],
    *,
    scheduler: Any = "threads",
    workers: int | None = None,
    progress: ReportProgress | None = None,
) -> list[Tables]:
    """Compute groups together and return the tables of each.

    `scheduler`: one of dask's local schedulers ("threads", "processes", "synchronous"), or a
    client. `workers`: threads or processes of a local scheduler; None for dask's default.
    """
    blocks = [block for group in groups for block in group.blocks]
    results = compute_all(blocks, scheduler=scheduler, workers=workers, progress=progress)
    tables, start = [], 0
    for group in groups:
        stop = start + len(group.blocks)
        tables.append(group.combine(results[start:stop]))
        start = stop
    return tables


def compute_all(
    tasks: Sequence[Delayed],
    *,
    scheduler: Any = "threads",
    workers: int | None = None,
    progress: ReportProgress | None = None,
) -> list[Any]:
    """Compute tasks and return their results; other parameters are those of `compute`."""
    report = progress or (lambda done, total: None)
    report(0, len(tasks))
    if isinstance(scheduler, str):
        return _compute_locally(tasks, scheduler, workers, report)
    return _compute_on_client(tasks, scheduler, report)


def _compute_locally(
    tasks: Sequence[Delayed], scheduler: str, workers: int | None, report: ReportProgress
) -> list[Any]:
    from dask.base import compute, named_schedulers
    from dask.callbacks import Callback

    waiting = {task.key for task in tasks}

    def count(key: Any, *_: object) -> None:
        if key in waiting:
            waiting.discard(key)
            report(len(tasks) - len(waiting), len(tasks))

    get = named_schedulers[scheduler]  # by its name, dask imports all of distributed first
    with Callback(posttask=count):
        return list(compute(*tasks, scheduler=get, num_workers=workers))


def _compute_on_client(tasks: Sequence[Delayed], client: Any, report: ReportProgress) -> list[Any]:
    from distributed import as_completed

    with warnings.catch_warnings():  # not for those who cannot change it
        warnings.filterwarnings("ignore", "Sending large graph")
        futures = client.compute(list(tasks))
    results: dict[str, object] = {}
    completed = as_completed(futures, loop=client.loop, with_results=True)
    for done, (future, result) in enumerate(completed, start=1):
        results[future.key] = result
        future.release()  # so that a worker that dies later cannot lose it
        report(done, len(tasks))
    return [results[future.key] for future in futures]
