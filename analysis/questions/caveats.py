"""What makes results doubtful: missing runs, runs made in several ways, rejected resamples.

Are runs missing at random: if slow or bad runs fail, the rest looks too good. Do runs made in
several ways differ by more than chance: a test within test sets. Where does no trimming make
resamples acceptable, and which runs are the likely cause.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from manyseed.analysis.alphahat import worst
from manyseed.analysis.counts import signed, some
from manyseed.analysis.options import SORTED, Options
from manyseed.analysis.questions.intervals import holm
from manyseed.analysis.questions.quantiles import (
    average_ranks,
    normal_above,
    normal_quantile,
    t_quantile,
)
from manyseed.analysis.tables.rows import REPEAT, VARIES

SIGNIFICANT = 0.05  # probability of any warning for a sweep whose runs are missing at random

FEWEST = 8  # repeats or runs below which a correlation says nothing

Floats = NDArray[np.float64]


class Correlation(NamedTuple):
    """A rank correlation within strata, -1 to 1, and its two-sided p; 0 and 1 if unknown."""

    value: float = 0.0
    p: float = 1.0


def missing_notes(runs: pl.DataFrame, repeats: pl.DataFrame) -> list[str]:
    """Say where runs are missing and whether that is correlated with accuracy.

    Each dataset and classifier is tested for two signs. Either repeats with fewer finished runs
    differ in accuracy within a cell (after removing the test set's mean over cells). Or slow
    repeats have fewer finished runs within a cell, and slow runs differ in accuracy within a
    repeat. Cells are not compared with each other: a slow or bad one may lack runs for that reason
    alone. All tests are stratified rank correlations, corrected together (Holm 1979), so that
    `SIGNIFICANT` is the rate of sweeps warned about by chance.

    `runs` and `repeats`: the tables with `dataset` and `classifier` joined; `fit_seconds` of runs
    is used if present. Returns sentences; none if nothing is missing.
    """
    key = ["dataset", "classifier"]
    short = repeats.filter(pl.col("coverage") < 1)
    if short.is_empty():
        return []
    finished = float(repeats["coverage"].drop_nulls().to_numpy().mean())
    result = [
        f"{short.height:,} of {repeats.height:,} repeats lack runs (on average, {finished:.1%} are "
        "finished): their means, ranges and quantiles cover the finished runs alone."
    ]
    tests: list[tuple[float, str]] = []
    for group in short.select(key).unique().sort(key).iter_rows():
        in_group = dict(zip(key, group, strict=True))
        tests += _signs(" × ".join(group), runs.filter(**in_group), repeats.filter(**in_group))
    corrected = holm(np.array([p for p, _ in tests]))
    return result + [text for (_, text), p in zip(tests, corrected, strict=True) if p < SIGNIFICANT]


def _signs(name: str, runs: pl.DataFrame, repeats: pl.DataFrame) -> Iterator[tuple[float, str]]:
    """Yield p and the sentence of each test of one group."""
    known = repeats.drop_nulls(["coverage", "accuracy_mean"]).with_columns(
        accuracy=pl.col("accuracy_mean") - pl.col("accuracy_mean").mean().over("repeat_index")
        if repeats["cell"].n_unique() > 1
        else pl.col("accuracy_mean")
    )
    with_coverage = correlation(known, "coverage", "accuracy", ("cell",))
    yield (
        with_coverage.p,
        f"{name}: runs are not missing at random. Within a cell, accuracy varies with coverage "
        f"(rank correlation {signed(with_coverage.value, 2)}), so comparisons of its cells may be "
        "biased.",
    )
    if "fit_seconds" not in runs.columns:
        return
    timed = runs.drop_nulls(["fit_seconds", "accuracy"])
    seconds = timed.group_by("cell", "repeat_index").agg(pl.col("fit_seconds").mean())
    slow = correlation(
        known.join(seconds, on=["cell", "repeat_index"]), "coverage", "fit_seconds", ("cell",)
    )
    with_time = correlation(timed, "fit_seconds", "accuracy", ("cell", "repeat_index"))
    more = "more" if slow.value < 0 else "fewer"
    yield (
        max(slow.p, with_time.p),
        f"{name}: runs are not missing at random. Within a cell, {more} runs are missing where "
        f"fits take longer (rank correlation of coverage with fit time {signed(slow.value, 2)}), "
        "and "
        f"within a repeat, accuracy varies with fit time ({signed(with_time.value, 2)}), so its "
        "mean "
        "accuracy is biased.",
    )


def correlation(frame: pl.DataFrame, one: str, other: str, strata: Sequence[str]) -> Correlation:
    """Return the rank correlation of two columns within strata.

    Ranks are taken within each stratum. The sum of their products is compared with its mean and
    variance over all permutations within strata (as van Elteren 1960 does for two samples).

    `one` and `other`: columns of numbers, without nulls. `strata`: columns; empty for a single
    stratum.
    """
    parts = frame.partition_by(strata) if strata else [frame]
    total = variance = scale = 0.0
    n = 0
    for part in parts:
        if part.height < 2:
            continue
        a, b = (_ranks(part[name].to_numpy()) for name in (one, other))
        total += float(a @ b)
        variance += float(a @ a) * float(b @ b) / (part.height - 1)
        scale += math.sqrt(float(a @ a) * float(b @ b))
        n += part.height
    if n < FEWEST or variance == 0:
        return Correlation()
    return Correlation(total / scale, float(2 * normal_above(abs(total) / math.sqrt(variance))))


def _ranks(values: Floats) -> Floats:
    ranks: Floats = average_ranks(values)
    centred: Floats = ranks - ranks.mean()
    return centred


DRAWS = 1_999  # permutations of each test
_MOST = 10_000  # runs tested of one classifier on one dataset
_LEAST = 20  # arrangements below which no difference can reach 5 %
_GROUP = ["dataset", "classifier"]
_SET = ["cell", "repeat_index"]
_SEED = 20_260_101


def recipes_compared(runs: pl.DataFrame) -> pl.DataFrame:
    """Compare the accuracies of runs of several recipes, by dataset and classifier.

    Only runs of one cell on one test set are compared. Under the hypothesis that recipes do not
    matter, their recipes could be exchanged, so the test permutes accuracies within these sets; its
    statistic is the sum of squares that recipes explain. It assumes no distribution.

    `runs`: columns dataset, classifier, cell, repeat_index, recipe, accuracy and identical, at one
    snapshot.

    Returns a row for each dataset and classifier with several recipes: ``recipes`` and ``sets``,
    how many there are; ``shared``, how many sets have runs of several recipes; ``moved``, the
    difference between the highest and the lowest mean accuracy of a recipe, adjusted for sets;
    ``p``, and ``p_holm`` for all rows together. The last three are null if nothing can be told.
    """
    known = runs.filter(~pl.col("identical") & pl.col("accuracy").is_not_null())
    rows = []
    for names, group in known.group_by(_GROUP, maintain_order=True):
        if (n := group["recipe"].n_unique()) < 2:
            continue
        kinds = group.group_by(_SET, maintain_order=True).agg(n=pl.col("recipe").n_unique())
        shared = kinds.filter(pl.col("n") > 1).select(_SET)
        moved, p = _tested(group.join(shared, on=_SET, how="semi", maintain_order="left"))
        rows.append((*names, n, kinds.height, shared.height, moved, p))
    schema = {
        **dict.fromkeys(_GROUP, pl.String()),
        **dict.fromkeys(("recipes", "sets", "shared"), pl.Int64()),
        **dict.fromkeys(("moved", "p"), pl.Float64()),
    }
    found = pl.DataFrame(rows, schema=schema, orient="row")
    corrected = holm(found["p"].fill_null(float("nan")).to_numpy())
    return found.with_columns(p_holm=pl.Series(corrected, dtype=pl.Float64).fill_nan(None))


def _tested(runs: pl.DataFrame) -> tuple[float | None, float | None]:
    """Return `moved` and `p` of runs in sets with several recipes each."""
    numbers = runs.select(
        place=pl.struct(_SET).rank("dense") - 1, recipe=pl.col("recipe").rank("dense") - 1
    )
    place, recipe = (numbers[name].to_numpy().astype(np.int64) for name in numbers.columns)
    order = np.argsort(place, kind="stable")[:_MOST]
    place, recipe = place[order], recipe[order]
    if not len(order) or _arrangements(place, recipe) < math.log(_LEAST):
        return None, None
    y = _centred(runs["accuracy"].to_numpy()[order].astype(np.float64), place)
    design = np.stack([recipe == one for one in range(1, recipe.max() + 1)], axis=1)
    columns = np.stack([_centred(c, place) for c in design.T.astype(np.float64)], axis=1)
    means = np.append(0.0, np.linalg.lstsq(columns, y, rcond=None)[0])
    left, sizes, _ = np.linalg.svd(columns, full_matrices=False)
    basis = left[:, sizes > 1e-9 * max(sizes.max(), 1.0)]
    explained = float(((basis.T @ y) ** 2).sum())
    random, beyond = np.random.default_rng(_SEED), 0
    for _ in range(DRAWS):
        shuffled = y[np.lexsort((random.random(len(y)), place))]
        beyond += float(((basis.T @ shuffled) ** 2).sum()) >= explained * (1 - 1e-9) - 1e-15
    return float(means.max() - means.min()), (1 + beyond) / (1 + DRAWS)


def _centred(values: Floats, place: NDArray[np.int64]) -> Floats:
    """Return values without the mean of their set."""
    counts = np.bincount(place)
    means = np.bincount(place, weights=values) / np.maximum(counts, 1)
    return np.asarray(values - means[place])


def _arrangements(place: NDArray[np.int64], recipe: NDArray[np.int64]) -> float:
    """Return the logarithm of the number of ways to exchange recipes within sets."""
    of_set = np.bincount(place)
    of_both = np.unique(np.stack([place, recipe]), axis=1, return_counts=True)[1]
    return sum(map(math.lgamma, of_set + 1.0)) - sum(map(math.lgamma, of_both + 1.0))


GUESSED = 0.025  # each of two tests not saying it of a classifier that guesses, as intervals' ends


def guessing(repeats: pl.DataFrame, most: pl.DataFrame) -> pl.DataFrame:
    """Return the cells whose accuracy is not told to be above that of the most frequent class.

    Both of two one-sided tests must leave it open, at `GUESSED` each: whether the mean over test
    sets is within the error of as many points as one test set has; and, with several test sets, a
    t test of their differences.

    `repeats`: the table with `dataset` and `classifier` joined. `most`: columns dataset,
    classifier, repeat_index and share, of the most frequent class among a test set's points.

    Returns columns dataset, classifier, cell, `accuracy` and `share` (means over test sets),
    `sets` and `points` (of the smallest test set).
    """
    names = [*_GROUP, "repeat_index"]
    known = repeats.filter(pl.col("accuracy_mean").is_not_null())
    known = known.with_columns(pl.col(*_GROUP).cast(pl.String)).join(
        most.filter(pl.col("share") < 1), on=names, how="inner", maintain_order="left"
    )
    above = pl.col("accuracy_mean") - pl.col("share")
    cells = known.group_by(*_GROUP, "cell", maintain_order=True).agg(
        accuracy=pl.col("accuracy_mean").mean(),
        share=pl.col("share").mean(),
        sets=pl.len(),
        points=pl.col("n_test").min(),
        above=above.mean(),
        error=(above.std() / pl.len().sqrt()).fill_null(float("inf")),
    )
    quantile = [float(t_quantile(max(n - 1, 1), 1 - GUESSED)) for n in cells["sets"]]
    chance = pl.col("share") * (1 - pl.col("share")) / pl.col("points")
    is_open = (pl.col("above") <= normal_quantile(1 - GUESSED) * chance.sqrt()) & (
        pl.col("above") <= pl.Series(quantile, dtype=pl.Float64) * pl.col("error")
    )
    return cells.filter(is_open).select(*_GROUP, "cell", "accuracy", "share", "sets", "points")


SUSPECT = "alpha_hat_suspect"
INFEASIBLE = "alpha_hat_infeasible_max"

_LISTED = 5


def concerned(repeats: pl.LazyFrame, runs: pl.LazyFrame, options: Options) -> pl.DataFrame:
    """Return the repeats with infeasible resamples, or with suspects left out to avoid them.

    `repeats` and `runs`: the tables with `dataset` and `classifier` joined. `options`: those that
    the tables were computed with.

    Returns columns dataset, classifier, cell, repeat_index, `infeasible` (whether resamples are)
    and `suspects` (list of run indices). Empty for tables of an earlier version.
    """
    key = ["dataset", "classifier", *REPEAT]
    if SUSPECT not in runs.collect_schema():
        return repeats.head(0).select(key).collect()
    found = runs.filter(pl.col(SUSPECT)).group_by(REPEAT).agg(suspects=pl.col("run_index").sort())
    infeasible = (pl.col(INFEASIBLE) > 0).fill_null(False)
    return (
        repeats.filter(VARIES)
        .select(*key, infeasible=infeasible)
        .join(found, on=REPEAT, how="left")
        .filter("infeasible" if options.alpha_reference not in SORTED else _ANY)
        .with_columns(pl.col("suspects").fill_null([]))
        .sort(key)
        .collect()
    )


_ANY = pl.col("infeasible") | pl.col("suspects").is_not_null()


def suspect_notes(repeats: pl.LazyFrame, runs: pl.LazyFrame, options: Options) -> list[str]:
    """Say for each group where resamples are infeasible and which runs are the likely cause.

    Parameters are those of `concerned`.
    """
    found = concerned(repeats, runs, options)
    parts = found.partition_by("dataset", "classifier", maintain_order=True)
    return [_note(part, options) for part in parts]


def _note(part: pl.DataFrame, options: Options) -> str:
    dataset, classifier = part.row(0)[:2]
    named = [
        (cell, repeat, run)
        for cell, repeat, runs in part.select(*REPEAT, "suspects").iter_rows()
        for run in runs
    ]
    trimmed = options.alpha_reference == "others-trimmed"
    n_infeasible, n = int(part["infeasible"].sum()), part.height
    words = [f"{dataset} × {classifier}:"]
    if n_infeasible:
        where = "one repeat" if n_infeasible == 1 else f"{n_infeasible:,} repeats"
        words.append(
            f"in {where}, the test rejects some resamples at every trimming level; each of these "
            f"counts as α̂ = {worst(options.alpha_mode):g}."
        )
    if named and trimmed:
        left = "Left" if n_infeasible else "left"
        words.append(f"{left} out of references, because others fail against them: {_some(named)}.")
    elif named:
        words.append(
            f"Without {_some(named)}, no resample is rejected at every level. With "
            "alpha_reference = others-trimmed all runs are compared with the rest."
        )
    if options.alpha_reference not in SORTED:
        words.append(
            "The reference is an average of models; alpha_reference = others shows which runs are "
            "the likely cause."
        )
    elif n_unexplained := part.filter(pl.col("suspects").list.len() == 0).height:
        where = "There" if n_unexplained == n else f"In {n_unexplained:,} of these repeats"
        words.append(f"{where}, no majority of the runs agrees, so no run is named as the cause.")
    return " ".join(words)


def _some(named: list[tuple[int, int, int]]) -> str:
    listed = [f"run {run} (cell {cell}, repeat {repeat})" for cell, repeat, run in named]
    return some(listed, _LISTED)
