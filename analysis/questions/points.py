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

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial, reduce
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from manyseed.analysis.counts import counted
from manyseed.analysis.questions.crossed import flips_by_source
from manyseed.analysis.questions.quantiles import poisson_above, runs_needed
from manyseed.analysis.questions.question import NAMES, Answer, first_ones, place, shortest
from manyseed.analysis.tables.rows import IS_CROSSED, REPEAT
from manyseed.analysis.tables.schema import records

if TYPE_CHECKING:  # they import Numba and dask, and answers need neither
    from dask.delayed import Delayed

    from manyseed.analysis.graph.chunks import Member
    from manyseed.analysis.graph.predictions import Predictions
    from manyseed.analysis.options import Options

MOST = 2_000_000  # rows of a table by cell; of more, cells are taken together
PART = 1024  # runs that one task adds up, whatever memory is allowed, so that sums stay the same

NEARLY = float(np.float32(0.95))  # share of a classifier's runs, as exact as the table's
OFTEN = 1 / 3  # share of pairs of runs
LISTED = 10
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


# ---- what the table says


_MOST_FREQUENT = pl.col("majority").drop_nulls().mode().sort().first()


def by_point(points: pl.LazyFrame) -> pl.DataFrame:
    """Return a row for each dataset, classifier and point: means over cells, and the most flips.

    `points`: the table, with the columns dataset, classifier and vary.
    """
    names = points.select(pl.col("dataset").unique()).collect()["dataset"]
    key, weight = ["dataset", "classifier", "index"], pl.col("n_runs")
    rows = (
        one.group_by(pl.col("dataset", "classifier").cast(pl.String), "index").agg(
            pl.col("truth").first(),
            _MOST_FREQUENT,
            n_runs=weight.sum(),
            wrong=(pl.col("wrong") * weight).sum() / weight.sum(),
            flips=pl.col("flips").max(),
            margin=pl.col("margin").mean(),
            known=(pl.col("runs_needed") <= weight).fill_null(value=False).all(),
        )
        # of all data sets at once, this takes several times the memory of the table
        for one in ([points.filter(pl.col("dataset") == name) for name in names] or [points])
    )
    return pl.concat([one.collect() for one in rows]).sort(key)


def answer(points: pl.LazyFrame, labels: pl.DataFrame, limit: int = LISTED) -> list[Answer]:
    """Say which points flip, what part of that each source is, and which nearly all runs miss.

    `points`: as in `by_point`, which returned `labels`. `limit`: points that are listed of each.
    """
    wrong = *wrong_labels(labels, limit), *often_wrong(labels, limit)
    return [*_flipping(labels, limit), *flips_by_source(points), *wrong]


def _flipping(labels: pl.DataFrame, limit: int) -> Iterator[Answer]:
    found = (
        labels.drop_nulls("flips")
        .group_by("dataset", "classifier", maintain_order=True)
        .agg(
            pl.len().alias("points"),
            (pl.col("flips") > 0).sum().alias("flipping"),
            (pl.col("flips") >= OFTEN).sum().alias("often"),
            (~pl.col("known")).sum().alias("unknown"),
        )
        .filter(pl.col("flipping") > 0)
        .sort("flipping", descending=True, maintain_order=True)
    )
    if found.is_empty():
        return
    of = [
        f"{row['flipping']:,} of {row['points']:,} of {row['classifier']} on {row['dataset']}"
        for row in found.iter_rows(named=True)
    ]
    several = labels.drop_nulls("flips").filter(pl.col("flips") > 0)
    rows = several.sort(["flips", "margin"], descending=[True, False]).head(limit)
    evidence = " ".join(
        f"{row['classifier']} on {row['dataset']}: "
        f"{counted(row['flipping'], 'point')} change{'s' if row['flipping'] == 1 else ''} class "
        f"between runs, {row['often']:,} of them in a third of the pairs of runs or more; for "
        f"{row['points'] - row['unknown']:,} of {row['points']:,} points the majority of runs is "
        "known (95 %)."
        for row in found.head(limit).iter_rows(named=True)
    )
    yield Answer(
        first_ones(of, lambda names: f"Points that change class between runs: {names}."),
        details=_listed(rows, "flips", several.height),
        rows=rows.to_dicts(),
        evidence=evidence,
        figures=("points",),
    )


def wrong_labels(labels: pl.DataFrame, limit: int = LISTED) -> Iterator[Answer]:
    """Name the points that nearly every run of every classifier gets wrong, the surest first.

    They are named only if there are more of them than classifiers that err independently of each
    other have in common (p below 5 %, over all datasets together). Where classes overlap there are,
    without any wrong label.

    `labels`: a row per dataset, classifier and point.
    """
    labels, chance = _telling(labels)
    ranked = suspects(labels)
    datasets = ranked["dataset"].unique(maintain_order=True).to_list()
    short, rows, evidence, but = list[str](), list[pl.DataFrame](), list[str](), ""
    n_wrong = 0
    for dataset in datasets:
        own = ranked.filter(dataset=dataset)
        wrong = own.filter(pl.col("wrong_least") >= NEARLY)
        of = labels.filter(dataset=dataset)
        shares = of.group_by("classifier").agg((pl.col("wrong") >= NEARLY).mean())["wrong"]
        expected = own.height * math.prod(shares.to_list())
        if wrong.is_empty() or poisson_above(wrong.height, expected) * len(datasets) > 0.05:
            continue
        n = f"{wrong.height:,} of {own.height:,} tested points of {dataset}"
        n += " is" if wrong.height == 1 else " are"
        short.append(f"{wrong.height:,}{'' if short else ' points'} of {dataset}")
        rows.append(wrong.head(limit))
        n_wrong += wrong.height
        evidence.append(
            f"{n} wrong in at least {NEARLY:.0%} of the runs of each of "
            f"{of['classifier'].n_unique():,} classifiers; if these erred independently of each "
            f"other, about {expected:.2g} would be. By class: {_by_class(wrong, own)}."
        )
        if left := chance.get(dataset):
            but = f" but {' and '.join(left)}"
            evidence.append(_not_counted(left))
    if not short:
        return
    found = pl.concat(rows)
    every = f"{n} wrong in nearly every run of every classifier"
    headline = shortest([f"{every}{but}: hard, or wrongly labelled.", f"{every}{but}."])
    if len(short) > 1:
        headline = first_ones(short, "Hard or wrongly labelled, as nearly all runs err: {}.".format)
    elif found.height == 1:
        named = place(found.row(0, named=True))
        headline = shortest([f"{headline.partition('hard')[0]}{named}.", headline])
    yield Answer(
        headline,
        details=_listed(found, "wrong", n_wrong),
        rows=found.to_dicts(),
        evidence=" ".join(evidence),
        cannot_tell="Where classes overlap, such points need no wrong label: look at them."
        + _counted_from(found),
        figures=("points",),
    )


def _by_class(some: pl.DataFrame, every: pl.DataFrame) -> str:
    """Say how many of some points have each label, out of all that have it; the most first."""
    n = dict(every["truth"].drop_nulls().value_counts().iter_rows())
    of = some["truth"].drop_nulls().value_counts().sort("count", "truth", descending=[True, False])
    return first_ones([f"{name} {k:,} of {n[name]:,}" for name, k in of.iter_rows()], "{}".format)


def _telling(labels: pl.DataFrame) -> tuple[pl.DataFrame, dict[str, list[str]]]:
    """Return the rows of classifiers that tell classes apart, and by dataset which do not.

    A classifier at chance is right on some points by luck, whatever their labels. It is one if its
    mean share of right runs over k classes is not above 1/k by 1.96 standard errors, as if points
    were independent. Where no classifier of a dataset is better, all are kept.
    """
    key, p, k = ["dataset", "classifier"], 1 - pl.col("wrong"), pl.len()
    known = labels.drop_nulls("truth").group_by(*key, "truth")
    of_class = known.agg(pl.col("wrong").mean(), n=pl.len())
    noise = (p * (1 - p) / pl.col("n")).sum().sqrt() / k
    at_chance = of_class.group_by(key).agg(poor=p.mean() - 1.96 * noise <= 1 / k)
    marked = at_chance.with_columns(poor=pl.col("poor") & ~pl.col("poor").all().over("dataset"))
    left = marked.filter("poor").sort(key).group_by("dataset").agg("classifier")
    told = labels.join(marked.filter("poor"), on=key, how="anti", maintain_order="left")
    return told, dict(left.iter_rows())


def _not_counted(classifiers: Sequence[str]) -> str:
    are = "is" if len(classifiers) == 1 else "are"
    return f"{' and '.join(classifiers)} {are} not counted, as right no more often than by chance."


def _counted_from(rows: pl.DataFrame) -> str:
    """Say how rows are counted, unless points have names."""
    return "" if {*NAMES} & {*rows.columns} else " Rows count from 0, without the header."


def often_wrong(labels: pl.DataFrame, limit: int = LISTED) -> Iterator[Answer]:
    """Name the points that nearly every run gets wrong where there is a single classifier.

    They are named only if there are more of them than if its runs erred on all points of a class
    alike, as often as they do (p below 5 %, over all datasets together): of few runs, many points
    are wrong in all by chance. Without another classifier, nothing tells whether labels are wrong.
    A point with one run does not count.
    """
    labels, chance = _telling(labels)
    known = suspects(labels.filter(pl.col("n_runs") > 1), several=False)
    datasets = known["dataset"].unique(maintain_order=True).to_list()
    of = dict(labels.select("dataset", "classifier").iter_rows())
    short, rows, evidence = list[str](), list[pl.DataFrame](), list[str]()
    for dataset in datasets:
        every = known.filter(dataset=dataset)
        wrong = every.filter(pl.col("wrong") >= NEARLY)
        n, expected = wrong.height, _wrong_by_chance(every)
        if wrong.is_empty() or poisson_above(n, expected) * len(datasets) > 0.05:
            continue
        rows.append(wrong)
        short.append(f"{f'{n:,}' if short else counted(n, 'point')} of {dataset} ({of[dataset]})")
        are = f"{n:,} of {every.height:,} tested points of {dataset}"
        if every.height < labels.filter(dataset=dataset).height:
            are = are.replace("tested points", "points") + " tested at least twice"
        are += f" {'is' if n == 1 else 'are'} wrong in"
        evidence.append(
            f"{are} at least {NEARLY:.0%} of the runs of {of[dataset]}; if these erred on all "
            f"points of a class alike, about {expected:.2g} would be. "
            f"By class: {_by_class(wrong, every)}."
        )
        if left := chance.get(dataset):
            evidence.append(_not_counted(left))
    if not short:
        return
    found = pl.concat(rows)
    headline = first_ones(short, "Wrong in nearly every run: {}.".format)
    if len(short) == 1:
        text = f"{are} nearly every run of {of[found['dataset'][0]]}: {{}}.".format
        headline = first_ones([place(row) for row in found.iter_rows(named=True)], text)
    n_wrong = found.height
    found = found.group_by("dataset", maintain_order=True).head(limit)
    yield Answer(
        headline,
        details=_listed(found, "wrong", n_wrong),
        rows=found.to_dicts(),
        evidence=" ".join(evidence),
        figures=("points",),
    )


def _wrong_by_chance(points: pl.DataFrame) -> float:
    """Return how many points nearly every run would get wrong if a class had no hard ones.

    `points`: those of a dataset and a single classifier. Runs that differ in accuracy have fewer
    in common than runs of their mean.
    """
    from scipy.stats import binom

    runs = pl.col("n_runs")
    share = (pl.col("wrong") * runs).sum().over("truth") / runs.sum().over("truth")
    n, p = (points.select(one).to_series().to_numpy() for one in (runs, share))
    return float(binom.sf(np.ceil(NEARLY * n - 1e-6) - 1, n, p).sum())


def suspects(labels: pl.DataFrame, *, several: bool = True) -> pl.DataFrame:
    """Return the points that several classifiers predicted, the likeliest wrong label first.

    Or those of datasets that a single one did. Ordered by the share of wrong runs of the classifier
    that is right most often, then by the mean share, then by the mean rank of the true class's
    margin, the lowest first.
    """
    rank = pl.col("margin").rank().over("dataset", "classifier")
    return (
        labels.with_columns(_rank=rank)
        .group_by("dataset", "index", maintain_order=True)
        .agg(
            pl.col("truth", *(name for name in NAMES if name in labels.columns)).first(),
            _MOST_FREQUENT,
            pl.len().alias("classifiers"),
            pl.col("n_runs").sum(),
            pl.col("wrong").mean(),
            pl.col("wrong").min().alias("wrong_least"),
            pl.col("_rank").mean(),
        )
        .filter(pl.col("classifiers") == pl.col("classifiers").max().over("dataset"))
        .filter((pl.col("classifiers") > 1) == several)
        .sort(
            ["dataset", "wrong_least", "wrong", "_rank", "index"],
            descending=[False, True, True, False, False],
            nulls_last=True,
        )
        .drop("_rank")
    )


def _listed(rows: pl.DataFrame, column: str, n: int) -> tuple[str, ...]:
    """List points, and say how to list all `n` of them."""
    lines = (
        f"  {row['dataset']}, {place(row)}: {column} {row[column]:.2f}, labelled "
        f"{row['truth'] or 'variously'}, "
        + (f"mostly predicted {row['majority']}" if row["majority"] else "predicted: a tie")
        for row in rows.iter_rows(named=True)
    )
    more = (f"  {rows.height:,} of {n:,} are listed; all: --limit {n}",)
    return (*lines, *(more if n > rows.height else ()))
