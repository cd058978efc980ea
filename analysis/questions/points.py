"""Test points: how often runs are wrong on each, how often it flips, which labels look wrong.

A point is a row of the source. Its runs are those of one cell on all test sets that have it; if
cells have very many points, those of a dataset and classifier with the same `vary` are taken
together. A point *flips* between two runs of a cell on one test set if they predict different
classes; its mean over points is the churn of these runs.

Its majority is the class that most runs predict. It is known at 95 % where a two-sided sign test
tells it from the class that is second: with more than two classes, the test of the winner against
the runner-up is valid without a correction for having looked (Hung & Fithian 2019, theorem 1). For
a share r of the n runs that predict one of these two, with the continuity correction, that takes
n (2 r - 1) - 1 ≥ z √n, so √n = (z + √(z² + 4 (2 r - 1))) / (2 (2 r - 1)), z = 1.96: six runs if
they agree.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial, reduce
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from manyseed.analysis.questions.quantiles import runs_needed
from manyseed.analysis.tables.rows import IS_CROSSED, REPEAT
from manyseed.analysis.tables.schema import records

if TYPE_CHECKING:  # they import Numba and dask, and answers need neither
    from dask.delayed import Delayed

    from manyseed.analysis.graph.chunks import Member
    from manyseed.analysis.graph.predictions import Predictions
    from manyseed.analysis.options import Options

MOST = 2_000_000  # rows of a table by cell; of more, cells are taken together
PART = 1024  # runs that one task adds up, whatever memory is allowed, so that sums stay the same

TABLE = records()["points"]
COMPARED = ("disagreement", "of_flips")
"""Columns that compare cells: `related` adds them to what is computed of each group."""
SCHEMA = {name: kind for name, kind in TABLE.types.items() if name not in COMPARED}

Rows = Sequence[Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class Sums:
    """What is added up over the runs of some cells.

    `totals`, float64 array (point, 7): runs; runs that are wrong; pairs of runs; pairs that differ;
    sum of the true class's margin; squares around the means of repeats, and their degrees of
    freedom. `classes`, sparse int32 array (point, class): runs that predict each. `truth`: class of
    each point, -1 if unknown, -2 if test sets disagree on it.
    """

    totals: NDArray[np.float64]
    classes: Any
    truth: NDArray[np.int64]

    def __add__(self, other: Sums) -> Sums:
        both = np.where(self.truth == -1, other.truth, self.truth)
        differ = (self.truth >= 0) & (other.truth >= 0) & (self.truth != other.truth)
        return Sums(
            self.totals + other.totals,
            self.classes + other.classes,
            np.where(differ | (other.truth == -2), -2, both),
        )


Sets = Mapping[int, int]


def sets_of(cells: pl.DataFrame, predictions: Sequence[Predictions]) -> Sets:
    """Return the cell by which each cell's rows go: itself, or the first of those with its `vary`.

    `cells`: columns cell and vary. `predictions`: those of all groups.
    """
    vary = dict(cells.select("cell", "vary").iter_rows())
    found: dict[int, int] = {}
    own = [sorted(one.runs["cell"].unique().to_list()) for one in predictions]
    apart = sum(len(held) * _most(one) for held, one in zip(own, predictions, strict=True)) <= MOST
    for held in own:
        first: dict[object, int] = {}
        for cell in held:
            found[cell] = cell if apart else first.setdefault(vary[cell], cell)
    return found


def _most(predictions: Predictions) -> int:
    """Return how many points there are at most."""
    index = predictions.test_index
    repeats = predictions.runs["repeat_index"].n_unique()
    return 0 if index is None else min(repeats * predictions.n_test, int(index.max(initial=-1)) + 1)


def build(predictions: Predictions, options: Options, sets: Sets) -> list[Delayed]:
    """Return a lazy frame of `SCHEMA` of the last snapshot, in a list.

    The list is empty without runs, and where it is unknown which points they were tested on. Copies
    of runs are left out. A task adds up about `PART` runs, and reads as many at once as a block may
    hold; it needs memory for its sums, (point, 7) for each of its sets of cells. It is given the
    test sets of its repeats alone, as all of them may be larger than a worker's memory.
    """
    from dask.delayed import delayed

    distinct = predictions.runs.filter(~pl.col("identical"))
    if distinct.is_empty() or predictions.test_index is None:
        return []
    points = tested(predictions.test_index, distinct["repeat_index"].unique().to_list())
    shared = delayed(points, pure=False, traverse=False)
    repeats = (
        distinct.group_by(REPEAT)
        .agg(pl.len().alias("_n"), pl.col("row").min())
        .sort("row")
        .with_columns(_part=(pl.col("_n").cum_sum() - 1) // PART)
    )
    parts = []
    for own in repeats.partition_by("_part", maintain_order=True):
        runs = distinct.join(own.select(REPEAT), on=REPEAT, how="semi", maintain_order="left")
        task = partial(_sums, _only(predictions, runs), options, sets)
        parts.append(delayed(task, pure=False)(shared))
    total = reduce(delayed(_together, pure=False), parts)
    frame = partial(_frame, predictions.class_names, Counter(sets.values()))
    return [delayed(frame, pure=False)(shared, total)]


def _only(predictions: Predictions, runs: pl.DataFrame) -> Predictions:
    """Return some runs of the predictions, with the test sets from their first repeat to the last.

    Repeats are numbered anew.
    """
    repeat, index = runs["repeat_index"].to_numpy(), predictions.test_index
    own = slice(int(repeat.min()), int(repeat.max()) + 1)
    runs = runs.with_columns(pl.col("repeat_index") - own.start)
    given = replace(predictions, runs=runs, runs_planned=None, y_true=predictions.y_true[own])
    return replace(given, test_index=None if index is None else index[own])


def tested(index: NDArray[np.integer[Any]], repeats: Sequence[int]) -> NDArray[np.int64]:
    """Return the points of some test sets, ascending. `index`: (repeat, sample)."""
    if int(index.max(initial=0)) > _LARGEST:
        return np.unique(index[list(repeats)]).astype(np.int64)
    there = np.zeros(int(index.max(initial=0)) + 1, np.bool_)
    for repeat in repeats:
        there[index[repeat]] = True
    return np.flatnonzero(there)


_LARGEST = 1 << 27  # of row numbers; imported ones may be anything


def _together(a: Mapping[int, Sums], b: Mapping[int, Sums]) -> dict[int, Sums]:
    return {**a, **{cell: a[cell] + one if cell in a else one for cell, one in b.items()}}


def _sums(
    predictions: Predictions, options: Options, sets: Sets, points: NDArray[np.int64]
) -> dict[int, Sums]:
    """Add up the runs of whole repeats, in the order of their rows."""
    from manyseed.analysis.graph.chunks import PART_RUNS, blocks
    from manyseed.analysis.graph.predictions import Sources, read, readers

    position = predictions.positions(options)[-1]
    needs: list[Any] = ["margin"] if predictions.has_margin else []
    held = Sources.of(predictions, needs, options, position).arrays
    sources = Sources({name: held[name] for name in ("label", "margin") if name in held})
    fit = max(1, options.block_bytes // max(sources.run_bytes, 1))
    step = min(PART_RUNS, fit)
    index, last = predictions.test_index, -1
    assert index is not None
    place = np.empty(0, np.intp)
    found: dict[int, Sums] = {}
    for members in blocks(predictions, options, fit, position):
        pieces = [
            (member, slice(start, start + step))
            for member in members
            for start in range(0, member.row.size, step)
        ]
        opened = readers(sources.rows([member.row[runs] for member, runs in pieces]))
        repeat: _RunsOfRepeat | None = None
        for number, (member, runs) in enumerate(pieces):
            if runs.start == 0:
                if member.held_out.repeat_index != last:  # rows are ordered by it
                    last = member.held_out.repeat_index
                    place = np.searchsorted(points, index[last])
                repeat = _RunsOfRepeat(member, place, predictions.n_classes)
            assert repeat is not None
            repeat.add(read(opened, number, member.held_out))
            if runs.stop >= member.row.size:
                key = sets[member.cell]
                found[key] = repeat.added(found.get(key), len(points))
    return found


class _RunsOfRepeat:
    """The runs of one repeat, added piece by piece."""

    def __init__(self, member: Member, place: NDArray[np.intp], n_classes: int) -> None:
        self.held_out, self.place, self.n_classes = member.held_out, place, n_classes
        self.counts = np.zeros((place.size, n_classes), np.int32)
        self.moments = np.tile([np.nan, 0.0, 0.0], (place.size, 1))
        self.is_sound = member.held_out.problem is None

    def add(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Add some runs: their labels, and margins if there are any."""
        from manyseed.analysis.metrics.gram import add_points

        label = arrays["label"]
        self.is_sound = self.is_sound and int(label.max(initial=0)) < self.n_classes
        if self.is_sound:  # else the table of repeats says why not
            margin = arrays.get("margin", np.empty((0, 0), np.float32))
            add_points(label, margin, self.counts, self.moments)

    def added(self, to: Sums | None, n: int) -> Sums:
        """Return the sums of a set of cells with this repeat; there are `n` points in all."""
        from scipy.sparse import coo_array, csr_array

        from manyseed.analysis.metrics.gram import add_repeat

        shape = n, self.n_classes
        if to is None:
            to = Sums(np.zeros((n, 7)), csr_array(shape, dtype=np.int32), np.full(n, -1))
        if not self.is_sound:
            return to
        y_true = self.held_out.y_true.astype(np.int64)
        gaps = self.n_classes == 2
        sign = np.where(y_true == 1, 1.0, -1.0) if gaps else np.ones(y_true.size)
        add_repeat(self.counts, self.moments, sign, y_true, self.place, to.totals)
        point, kind = np.nonzero(self.counts)
        values = self.counts[point, kind], (self.place[point], kind)
        classes = coo_array(values, shape=shape, dtype=np.int32).tocsr()
        before = to.truth[self.place]
        to.truth[self.place] = np.where((before == -1) | (before == y_true), y_true, -2)
        return replace(to, classes=to.classes + classes)


def _frame(
    names: Sequence[str],
    members: Mapping[int, int],
    points: NDArray[np.int64],
    found: Mapping[int, Sums],
) -> pl.DataFrame:
    frames = [_of_set(cell, members[cell], points, names, one) for cell, one in found.items()]
    return pl.concat([pl.DataFrame(schema=dict(SCHEMA)), *frames])


def _of_set(
    cell: int, n_cells: int, points: NDArray[np.int64], names: Sequence[str], sums: Sums
) -> pl.DataFrame:
    there = np.flatnonzero(sums.totals[:, 0])
    runs, wrong, pairs, differ, margin, squares, freedom = sums.totals[there].T
    first, first_runs, second_runs = two_most(sums.classes[there])
    truth = sums.truth[there]
    with np.errstate(invalid="ignore", divide="ignore"):
        values = {
            "wrong": wrong / runs,
            "flips": differ / pairs,
            "margin": margin / runs,
            "margin_std": np.sqrt(squares / freedom),
        }
    classes = pl.Series([*names], dtype=pl.String)
    needed = runs_needed(first_runs, second_runs, runs)
    frame = pl.DataFrame(
        {
            "cell": np.full(there.size, cell),
            "n_cells": np.full(there.size, n_cells),
            "index": points[there],
            "truth": classes.gather(np.maximum(truth, 0)),
            "majority": classes.gather(first),
            "n_runs": runs,
            **values,
            "runs_needed": np.minimum(needed, 2.0**32 - 1),
        },
        schema_overrides=dict.fromkeys((*values, "n_runs", "runs_needed"), pl.Float64),
    )
    unknown = pl.Series(truth < 0)
    return frame.with_columns(
        pl.col(pl.Float64).fill_nan(None),
        truth=pl.when(~unknown).then("truth"),
        majority=pl.when(pl.Series(first_runs > second_runs)).then("majority"),
    ).cast(pl.Schema(SCHEMA))


def two_most(classes: Any) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Return the class that most runs predict, how many these are, and those of the second.

    `classes`, sparse array (point, class): runs, in rows without duplicates.
    """
    held = classes.tocsr()
    held.sort_indices()
    point = np.repeat(np.arange(held.shape[0]), np.diff(held.indptr))
    order = np.lexsort((held.indices, -held.data.astype(np.int64), point))
    kinds, runs = held.indices[order], held.data[order].astype(np.int64)
    start, several = held.indptr[:-1], np.diff(held.indptr) > 1
    second = np.zeros(held.shape[0], np.int64)
    second[several] = runs[start[several] + 1]
    return kinds[start].astype(np.int64), runs[start], second


def related(table: pl.DataFrame, cells: pl.DataFrame, axes: Sequence[str]) -> pl.DataFrame:
    """Add what compares a cell's points with those of others.

    `disagreement`: share of the pairs of classifiers, all else alike, whose majorities differ.
    `of_flips`: flips over those of the cell, all else alike, in which all sources vary that vary in
    any of these cells; null if there is none.

    `table`: of all groups, columns `SCHEMA`. `cells`: columns cell and `axes`.
    """
    known = cells.join(table.select("cell").unique(), on="cell", how="semi").sort("cell")
    added = table.select("cell", "index", "majority", "flips")
    disagreement = [
        _disagreement(added.filter(pl.col("cell").is_in(own["cell"].to_list())))
        for own in _alike(known, axes, "classifier")
    ]
    whole = dict(w for own in _alike(known.filter(~IS_CROSSED), axes, "vary") for w in _wholes(own))
    of = pl.lit(None, pl.UInt32)
    if whole:
        of = pl.col("cell").replace_strict(whole, default=None, return_dtype=pl.UInt32)
    held = added.select(pl.col("cell").alias("_of"), "index", pl.col("flips").alias("_whole"))
    nothing = pl.DataFrame(
        schema={"cell": pl.UInt32, "index": pl.Int64, "disagreement": pl.Float32}
    )
    share = pl.when(pl.col("_whole") > 0).then(pl.col("flips") / pl.col("_whole"))
    return (
        table.with_columns(_of=of)
        .join(held, on=["_of", "index"], how="left", maintain_order="left")
        .with_columns(of_flips=share.cast(pl.Float32))
        .join(pl.concat([nothing, *disagreement]), on=["cell", "index"], how="left")
        .select(*TABLE.types)
        .sort(TABLE.key)
    )


def _alike(cells: pl.DataFrame, axes: Sequence[str], apart: str) -> Iterator[pl.DataFrame]:
    """Yield cells that agree in all axes but one, of which there are several."""
    others = [axis for axis in axes if axis != apart]
    for own in cells.partition_by(others, maintain_order=True):
        if own[apart].n_unique() > 1:
            yield own


def _disagreement(rows: pl.DataFrame) -> pl.DataFrame:
    n = pl.col("_n")
    known = rows.drop_nulls("majority").with_columns(
        _n=pl.len().over("index"), _same=pl.len().over("index", "majority") - 1
    )
    alike = pl.col("_same").sum().over("index") / (n * (n - 1))
    share = pl.when(n > 1).then(1 - alike).cast(pl.Float32)
    return known.select("cell", "index", disagreement=share)


def _wholes(cells: pl.DataFrame) -> Iterator[tuple[int, int]]:
    """Yield each of some cells with the one in which all sources vary, if there is one."""
    sources = [frozenset(str(vary).split("+")) for vary in cells["vary"]]
    every = frozenset[str]().union(*sources) - {"none"}
    whole = [cell for cell, own in zip(cells["cell"], sources, strict=True) if own == every]
    if whole:
        yield from ((cell, whole[0]) for cell in cells["cell"])
