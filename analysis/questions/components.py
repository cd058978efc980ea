"""The cells of a sweep by what varies in them, and the variances estimated from their repeats.

Of two intervals the wider counts. One assumes that runs differ equally on every test set: χ² for a
variance, `difference_limits` for a covariance, t with the jackknife over runs for the rest. The
other is the t interval over repeats, which also holds if test sets, or what is held fixed on each,
matter. With two repeats it is extremely wide: it is used only if they differ by more than the
jackknife expects, and the first counts both repeats as one. Quantities that cannot be negative have
intervals on the scale of the logarithm, which is less skewed.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any, Literal

import numpy as np
import polars as pl
from numpy.typing import NDArray

from manyseed.analysis.axes import AXES
from manyseed.analysis.questions import intervals
from manyseed.analysis.questions.drawn import ON_ROWS
from manyseed.analysis.questions.effects import UNPERTURBED
from manyseed.analysis.questions.intervals import matrix
from manyseed.analysis.questions.quantiles import chi2_quantile, f_quantile, t_quantile
from manyseed.analysis.tables.rows import IS_CROSSED, Tables

_ROUNDING = 1e-15  # equal values below 1 may seem to differ by this much

Real = NDArray[np.float64]
Kind = Literal["variance", "positive", "covariance", "other"]
Limits = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Estimates:
    """An unbiased estimate from each repeat.

    `own`, float array (repeat,). `left_out`, tuple of float arrays (run,), one per repeat: the
    estimate without each run.
    """

    own: Real
    left_out: tuple[Real, ...]

    @property
    def freedom(self) -> Real:
        """Runs of each repeat minus one."""
        return np.array([values.size - 1.0 for values in self.left_out])

    @property
    def weights(self) -> Real:
        """Weight of each repeat: its share of the degrees of freedom."""
        result: Real = self.freedom / self.freedom.sum()
        return result

    @property
    def value(self) -> float:
        """Mean over repeats."""
        return float(self.weights @ self.own)

    @property
    def within(self) -> float:
        """Variance of `value` by the jackknife over runs."""
        each = [(1 - 1 / one.size) * np.square(one - one.mean()).sum() for one in self.left_out]
        return float(self.weights**2 @ np.array(each))

    @property
    def between(self) -> float:
        """Variance of `value` from the differences between repeats; 0 with one repeat."""
        return intervals.between(self.own, self.freedom)

    @property
    def unequal(self) -> float:
        """Standard deviation over repeats of the log variance, beyond that of normal values."""
        return intervals.unequal(self.own, self.freedom)

    @property
    def still(self) -> int:
        """Number of repeats whose runs are all equal."""
        return intervals.still(self.own)

    def plus(self, other: Estimates, times: float = 1.0) -> Estimates:
        """Return self + times · other, estimated from the same runs."""
        pairs = zip(self.left_out, other.left_out, strict=True)
        left_out = tuple(first + times * second for first, second in pairs)
        return Estimates(self.own + times * other.own, left_out)

    def limits(self, confidence: float, kind: Kind, scale: Limits | None = None) -> Limits:
        """Return the confidence interval.

        `scale`, (float, float) or None: for a covariance: the mean squares of the sum and the
        difference of the standardized sides, times the product of their standard deviations.
        """
        n = self.own.size
        share = 1 / 2 if n == 2 else 1.0
        value, freedom, within = self.value, share * float(self.freedom.sum()), self.within / share
        tail = (1 - confidence) / 2
        if kind == "variance":
            low, high = (freedom * value / chi2_quantile(freedom, p) for p in (1 - tail, tail))
        elif scale is not None:
            plus, minus = (mean / 4 for mean in scale)
            low, high = difference_limits(plus, freedom, minus, freedom, confidence)
        else:
            low, high = around(value, t_quantile(freedom, 1 - tail) * within**0.5, kind)
        if n > 2 or (n > 1 and self.between > self.within):
            ends = around(value, t_quantile(n - 1, 1 - tail) * self.between**0.5, kind)
            low, high = min(low, ends[0]), max(high, ends[1])
        if kind == "variance":
            ends = intervals.of_variance(self.own, self.freedom, confidence)
            low, high = min(low, ends[0]), max(high, ends[1])
        return float(low), float(high)


def around(value: float, half: float, kind: Kind) -> Limits:
    """Return a value ± half; on the scale of the logarithm if it cannot be negative."""
    if kind in ("variance", "positive") and value > 0:
        with np.errstate(over="ignore"):
            return float(value * np.exp(-half / value)), float(value * np.exp(half / value))
    return value - half, value + half


def covariances(one: Sequence[Real], two: Sequence[Real]) -> tuple[Estimates, Limits]:
    """Estimate the covariance between two cells over runs that share streams.

    `one` and `two`, sequence of float arrays (run,): one per repeat, of three runs or more each, in
    the same order. Returns the `scale` of `Estimates.limits`. Equal sides give
    the variance.
    """
    own, left_out = [], []
    for x, y in zip(one, two, strict=True):
        products = (x - x.mean()) * (y - y.mean())
        n = x.size
        own.append(products.sum() / (n - 1))
        left_out.append((products.sum() - n / (n - 1) * products) / (n - 2))
    freedom = np.array([x.size - 1.0 for x in one])

    def pooled(values: Sequence[Real]) -> float:
        each = np.array([x.var(ddof=1) for x in values])
        return float(freedom @ each / freedom.sum())

    scales = pooled(one) ** 0.5, pooled(two) ** 0.5
    if min(scales) <= _ROUNDING:
        return Estimates(np.array(own), tuple(left_out)), (0.0, 0.0)
    product = scales[0] * scales[1]
    plus, minus = (
        product
        * pooled([x / scales[0] + sign * y / scales[1] for x, y in zip(one, two, strict=True)])
        for sign in (1, -1)
    )
    return Estimates(np.array(own), tuple(left_out)), (plus, minus)


def difference_limits(
    one: float, freedom_1: float, two: float, freedom_2: float, confidence: float
) -> Limits:
    """Return the interval of the difference between two expected mean squares.

    Modified large-sample limits of Ting, Burdick, Graybill, Jeyaratnam and Lu (1990), which are
    exact if either is 0, and may be negative.

    `one` and `two`: independent multiples of χ² with the degrees of freedom below; not both 0.
    """
    tail, value = (1 - confidence) / 2, one - two

    def side(p: float) -> float:
        first = 1 - freedom_1 / chi2_quantile(freedom_1, p)
        second = freedom_2 / chi2_quantile(freedom_2, 1 - p) - 1
        ratio = f_quantile(freedom_1, freedom_2, p)
        both = ((ratio - 1) ** 2 - (first * ratio) ** 2 - second**2) / ratio
        squares = (first * one) ** 2 + (second * two) ** 2 + both * one * two
        return float(max(squares, 0.0) ** 0.5)

    return value - side(1 - tail), value + side(tail)


CONSISTENCY = ("ec_local", "ec_global")
FEWEST = 3  # runs needed: a covariance without one of them takes two

Runs = Mapping[int, tuple[NDArray[Any], Real]]
"""By repeat index: ascending run indices, and a value per run."""


@dataclass(frozen=True, slots=True)
class CellResults:
    """A cell, the sources that vary in it, and the results of its runs.

    `sources`: those of `vary`, and, unless they are crossed, subsample and axes of schemes.
    `errors`: by repeat index: run indices, followed by what `inconsistency` returns. `pairs`,
    mapping of str to mapping of int to float array (run, run): by column and repeat index.
    """

    cell: int
    sources: frozenset[str]
    accuracy: Runs
    errors: Mapping[int, tuple[NDArray[Any], float, Real]]
    pairs: Mapping[str, Mapping[int, Real]] = field(repr=False)


Term = tuple[float, CellResults, CellResults]
"""A coefficient and the two cells whose covariance over runs it multiplies."""


def contexts(tables: Tables, *, crossed: bool = False) -> dict[tuple[Any, ...], list[CellResults]]:
    """Return cells by the values of `CONTEXT`, all that describes them except `vary`.

    `tables`: with the columns of `AXES` in the repeats. `crossed`: whether to return the cells
    whose sources are crossed, or the others.
    """
    known = tables.repeats.filter(pl.col("n_runs") > 1, crossed == IS_CROSSED)
    fraction = pl.col("train_fraction").cast(pl.String)
    described = known.with_columns(fraction).select("cell", *AXES).unique("cell").sort("cell")
    runs = tables.runs.select("cell", "repeat_index", "run_index", "accuracy")
    of_runs = _by_cell(runs.sort("cell", "repeat_index", "run_index"))
    names = [name for name in CONSISTENCY if name in tables.pairs.columns]
    pairs = tables.pairs.select("cell", "repeat_index", "run_i", "run_j", *names)
    of_pairs = _by_cell(pairs.sort("cell", "repeat_index", "run_i", "run_j"))
    found: dict[tuple[Any, ...], list[CellResults]] = {}
    for row in described.iter_rows(named=True):
        one = _read(row, of_runs.get(row["cell"]), of_pairs.get(row["cell"]), names)
        found.setdefault(tuple(row[name] for name in CONTEXT), []).append(one)
    return found


CONTEXT = tuple(name for name in AXES if name != "vary")
"""The axes in which cells of a context agree."""


def _by_cell(frame: pl.DataFrame) -> dict[int, pl.DataFrame]:
    return {int(own["cell"][0]): own for own in frame.partition_by("cell", maintain_order=True)}


def _read(
    row: Mapping[str, Any],
    runs: pl.DataFrame | None,
    pairs: pl.DataFrame | None,
    names: Sequence[str],
) -> CellResults:
    drawn = [axis for axis, level in UNPERTURBED.items() if row[axis] != level]
    sources = {"subsample" if axis == "train_fraction" else axis for axis in drawn}
    accuracy, errors = {}, {}
    of_pairs: dict[str, dict[int, Real]] = {name: {} for name in names}
    for own in [] if runs is None else runs.drop_nulls().partition_by("repeat_index"):
        values = own["accuracy"].to_numpy()
        accuracy[int(own["repeat_index"][0])] = (own["run_index"].to_numpy(), values)
    for own in [] if pairs is None else pairs.partition_by("repeat_index"):
        repeat = int(own["repeat_index"][0])
        i, j = own["run_i"].to_numpy(), own["run_j"].to_numpy()
        for name in names:
            of_pairs[name][repeat] = matrix(i, j, own[name].fill_null(np.nan).to_numpy())
        if "ec_global" in names and repeat in accuracy:
            index, values = accuracy[repeat]
            both = of_pairs["ec_global"][repeat]
            if (
                both.shape[0] == index.size
                and not np.isnan(both[~np.eye(index.size, dtype=bool)]).any()
            ):
                errors[repeat] = (index, *inconsistency(1 - values, both))
    return CellResults(
        int(row["cell"]),
        # a cross holds fixed what is not crossed
        frozenset(
            row["vary"].split("*") if "*" in row["vary"] else sources | {*row["vary"].split("+")}
        ),
        accuracy,
        errors,
        of_pairs,
    )


def inconsistency(wrong: Real, both: Real) -> tuple[float, Real]:
    """Return the variance between runs of being wrong, averaged over points; also without each run.

    The unbiased estimate E[e] - E[e_i e_j], i ≠ j.
    """
    n = wrong.size
    by_run = np.nansum(both, axis=1)
    total = by_run.sum() / 2
    whole = wrong.mean() - total / (n * (n - 1) / 2)
    if n < FEWEST:
        return float(whole), np.full(n, np.nan)
    without = (wrong.sum() - wrong) / (n - 1) - (total - by_run) / ((n - 1) * (n - 2) / 2)
    return float(whole), without


def ordered(sources: frozenset[str]) -> list[str]:
    """Return sources in the order of reports."""
    first = ["init", "batch", "train", "subsample"]
    return [*(s for s in first if s in sources), *sorted(sources.difference(first))]


def sharing(own: Sequence[CellResults], full: CellResults) -> dict[str, list[Term]]:
    """Return the terms of the own part of each source, where cells of a context determine it.

    Noise on data is drawn row by row: one stream falls on other rows where these change, so that
    there it has no part by itself, however much it does.
    """
    everything = frozenset().union(*(one.sources for one in own))
    if len(everything) < 2:
        return {}
    others = [one for one in own if one is not full]
    found: dict[str, list[Term]] = {}
    for one, other in [*((one, full) for one in others), *combinations(others, 2)]:
        shared = one.sources & other.sources
        if len(shared) == 1 and one.sources | other.sources == everything:
            found.setdefault(next(iter(shared)), [(1.0, one, other)])
    for one in others if full.sources == everything else []:
        lacks = everything - one.sources
        if len(lacks) == 1:
            found.setdefault(next(iter(lacks)), [(1.0, full, full), (-1.0, one, one)])
    return {source: terms for source, terms in found.items() if has_own(source, everything)}


def has_own(source: str, sources: Collection[str]) -> bool:
    """Return whether a source has a part by itself, where these vary."""
    return source not in ON_ROWS or not {"train", "subsample"} & {*sources}


def combined(terms: Sequence[Term]) -> tuple[Estimates, tuple[float, float]] | None:
    """Estimate a sum of covariances over the runs that all its cells have.

    Returns (Estimates, (float, float)) or None: the second is the scale of the first term
    (`components.covariances`); None without runs.
    """
    accuracy = {one.cell: one.accuracy for _, *both in terms for one in both}
    shared = _shared(list(accuracy.values()))
    if not shared:
        return None
    values = {cell: [sides[k] for sides in shared] for k, cell in enumerate(accuracy)}
    (_, one, other), *rest = terms
    found, scale = covariances(values[one.cell], values[other.cell])
    for times, one, other in rest:
        found = found.plus(covariances(values[one.cell], values[other.cell])[0], times)
    return found, scale


def _shared(sides: Sequence[Runs]) -> list[tuple[Real, ...]]:
    """Return the values of the runs that all sides have, repeat by repeat."""
    found = []
    for repeat in sorted(set.intersection(*(set(side) for side in sides))):
        index = sides[0][repeat][0]
        for side in sides[1:]:
            index = np.intersect1d(index, side[repeat][0])
        if index.size >= FEWEST:
            found.append(tuple(side[repeat][1][np.isin(side[repeat][0], index)] for side in sides))
    return found


def errors(cells: Sequence[CellResults]) -> list[Estimates] | None:
    """Return the estimates of each cell from the repeats in which all have the same runs."""
    repeats = [
        repeat
        for repeat in sorted(set.intersection(*(set(one.errors) for one in cells)))
        if cells[0].errors[repeat][0].size >= FEWEST
        and all(np.array_equal(one.errors[repeat][0], cells[0].errors[repeat][0]) for one in cells)
    ]
    if not repeats:
        return None
    return [
        Estimates(
            np.array([one.errors[repeat][1] for repeat in repeats]),
            tuple(one.errors[repeat][2] for repeat in repeats),
        )
        for one in cells
    ]
