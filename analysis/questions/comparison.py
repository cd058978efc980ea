"""Is A better than B, by how much, and what did pairing save: two cells compared.

A difference has two intervals. One is over seeds, for fixed test sets: Student's t with the
variance of the mean difference, estimated for each test set separately, and Satterthwaite's degrees
of freedom (with one test set: those of the paired t-test, or Welch's). Runs of a crossed cell share
values: the variance of their mean is that of `crossed.mean_error`. The other is over seeds and
test sets: each test set is one observation, a cluster of the runs on it. It is never narrower than
the first, even if a few test sets agree by chance.

P(A better than B) is that of Agarwal et al. 2021 (section 4.3): the mean of 1[a > b] + ½ 1[a = b]
over all pairs of a run of A and a run of B on the same test set, then the mean over test sets. Its
interval is the score interval of a Mann-Whitney probability (Newcombe 2006, part 2, method 5, with
the variance of Hanley and McNeil 1982), which stays within 0 and 1 and does not shrink to a point
where all runs of A are better.

What is told may hang on few test points: those without which the same test does not tell it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import polars as pl
from numpy.typing import NDArray

from manyseed.analysis.counts import signed
from manyseed.analysis.options import CONFIDENCE
from manyseed.analysis.questions.crossed import mean_error
from manyseed.analysis.questions.intervals import of_parts, t_quantile
from manyseed.analysis.questions.quantiles import normal_quantile
from manyseed.analysis.questions.question import UNKNOWN, Answer, place

Real = NDArray[np.float64]
Interval = tuple[float, float]
_EDGE = 1e-9


@dataclass(frozen=True, slots=True)
class Side:
    """The runs of one cell on one test set."""

    values: Real  # float array (run,): one or more, without NaN; just one if `fixed`
    fixed: bool = False  # whether nothing varies, so that any further run would have the same value
    crossed: int = 0  # crossed sources, each value of which several of the runs share

    @property
    def mean(self) -> float:
        """Mean of the values."""
        return float(self.values.mean())

    def error(self) -> tuple[float, float]:
        """Return the variance of the mean over seeds and its degrees of freedom, 0 for one run."""
        if self.fixed:
            return 0.0, math.inf
        n = self.values.size
        if n == 1:
            return math.nan, 0.0
        if self.crossed:
            return mean_error(self.values, self.crossed)
        return (0.0 if _alike(self.values) else float(self.values.var(ddof=1)) / n), n - 1.0


def _alike(values: Real) -> bool:
    """Return whether values differ only by rounding."""
    return bool(np.ptp(values) <= 1e-12 * np.abs(values).max())


@dataclass(frozen=True, slots=True)
class Saving:
    """What pairing saved.

    `correlation`: between A and B. `share`: share of the runs (or test sets) saved: 1 - Var(a - b)
    / (Var a + Var b). Negative where pairing costs. `low` and `high`: interval of the share, that
    of the ratio of the variances of a + b and a - b (Pitman 1939): exact for normal values, also if
    A varies more than B.
    """

    correlation: float
    share: float
    low: float
    high: float

    def unpaired(self, n: int) -> float:
        """Return how many unpaired runs are as precise as `n` paired ones; may be infinite."""
        return n / (1 - self.share) if self.share < 1 else math.inf


@dataclass(frozen=True, slots=True)
class Comparison:
    """How A compares with B.

    `mean_a`, `mean_b` and `difference`: means over test sets of the means over runs, and A - B.
    `seeds`: interval of the difference over seeds, for these test sets. `sets`: interval of the
    difference over seeds and test sets. `better`: P(A better than B). `better_seeds` and
    `better_sets`: its intervals, likewise. `runs_a` and `runs_b`: runs compared. `sets_a` and
    `sets_b`: test sets of these runs. `saved_runs` and `saved_sets`: what pairing runs and sharing
    test sets saved; None if not done, or not known. `no_seeds` and `no_sets`: why the interval is
    missing.
    """

    mean_a: float
    mean_b: float
    difference: float
    seeds: Interval | None
    sets: Interval | None
    better: float
    better_seeds: Interval | None
    better_sets: Interval | None
    runs_a: int
    runs_b: int
    sets_a: int
    sets_b: int
    saved_runs: Saving | None = None
    saved_sets: Saving | None = None
    no_seeds: str = ""
    no_sets: str = ""


def compare(
    a: Sequence[Side],
    b: Sequence[Side],
    *,
    paired: bool,
    higher: bool = True,
    independent: bool = True,
    confidence: float = CONFIDENCE,
) -> Comparison:
    """Compare two cells on the same test sets.

    `a` and `b`: one per test set, the same test sets in the same order. `paired`: whether run i of
    A on a test set shares streams with run i of B. Both sides then hold equally many values, in the
    same order, unless one is fixed. `higher`: whether higher values are better. `independent`:
    whether the values of a test set's runs are independent given the test set. They are not if each
    compares its run with the others; then there is no interval over seeds alone. `confidence`: of
    each single interval.
    """
    differences = np.array([x.mean - y.mean for x, y in zip(a, b, strict=True)])
    levels = np.array([_better(x, y, higher) for x, y in zip(a, b, strict=True)])
    n = len(differences)
    result = _summary(a, b, float(differences.mean()), float(levels.mean()))
    if any(side.values.size > 1 and side.error()[1] < 1 for side in (*a, *b)):
        result = replace(result, no_seeds="not all runs of a cross are there")
    elif independent:
        errors = [e for x, y in zip(a, b, strict=True) for e in _errors(x, y, paired)]
        result = _with_seeds(result, errors, n, confidence)
        # all runs agree, but not all test sets: no sample of seeds has this share
        is_mixed = result.no_seeds == _AGREE and 0 < result.better < 1
        if not is_mixed and not any(side.crossed for side in (*a, *b)):
            variance = _of_several([_newcombe(x, y) for x, y in zip(a, b, strict=True)])
            result = replace(result, better_seeds=_score(result.better, variance, _z(confidence)))
    else:
        result = replace(result, no_seeds="it compares runs with each other")
    result = replace(result, saved_runs=_by_runs(a, b, paired, confidence))
    if n < 2:
        return replace(result, no_sets="there is one test set")
    if _alike(differences) and result.seeds is None:
        return replace(result, no_sets="the difference is the same on all test sets")
    half = float(differences.std(ddof=1)) / math.sqrt(n) * t_quantile(confidence, n - 1)
    means_a, means_b = ([np.array([side.mean for side in of])] for of in (a, b))
    return replace(
        result,
        sets=_wider((result.difference - half, result.difference + half), result.seeds),
        better_sets=_wider(_over_sets(levels, confidence), result.better_seeds),
        saved_sets=_saving(means_a, means_b, confidence),
    )


def compare_apart(
    a: Sequence[Side], b: Sequence[Side], *, higher: bool = True, confidence: float = CONFIDENCE
) -> Comparison:
    """Compare two cells with different test sets, independent of each other.

    The only interval is over test sets (Welch's, of their means): for fixed test sets, easier test
    sets cannot be told from a better cell.

    `a` and `b`: one per test set. `higher` and `confidence`: as in `compare`.
    """
    means = [np.array([side.mean for side in of]) for of in (a, b)]
    difference = float(means[0].mean() - means[1].mean())
    better = float(np.mean([[_better(x, y, higher) for y in b] for x in a]))
    result = replace(_summary(a, b, difference, better), no_seeds="test sets differ")
    if min(map(len, means)) < 2:
        return replace(result, no_sets="one side has a single test set")
    limits = of_parts(
        difference,
        [(float(of.var(ddof=1)) / of.size, of.size - 1.0) for of in means],
        confidence,
    )
    variance = _hanley(len(a), len(b))
    return replace(result, sets=limits, better_sets=_score(better, variance, _z(confidence)))


def _summary(a: Sequence[Side], b: Sequence[Side], difference: float, better: float) -> Comparison:
    return Comparison(
        mean_a=float(np.mean([side.mean for side in a])),
        mean_b=float(np.mean([side.mean for side in b])),
        difference=difference,
        seeds=None,
        sets=None,
        better=better,
        better_seeds=None,
        better_sets=None,
        runs_a=sum(side.values.size for side in a),
        runs_b=sum(side.values.size for side in b),
        sets_a=len(a),
        sets_b=len(b),
    )


# ---- the difference


def _errors(x: Side, y: Side, paired: bool) -> list[tuple[float, float]]:
    """Return variances of the mean difference on one test set, with degrees of freedom."""
    if paired and not (x.fixed or y.fixed):
        if x.values.size != y.values.size:
            raise ValueError("paired sides must have equally many runs")
        return [Side(x.values - y.values, crossed=x.crossed).error()]
    return [x.error(), y.error()]


SINGLE = "a test set has a single run"
_AGREE = "all runs agree, which a few may do by chance"
"""Why there may be no interval over seeds."""


def _with_seeds(
    result: Comparison, errors: Sequence[tuple[float, float]], n: int, confidence: float
) -> Comparison:
    if any(freedom < 1 for _, freedom in errors):
        return replace(result, no_seeds=SINGLE)
    unknown = [variance for variance, freedom in errors if freedom < math.inf]
    if unknown and max(unknown) == 0:
        return replace(result, no_seeds=_AGREE)
    parts = [(variance / n**2, freedom) for variance, freedom in errors]
    return replace(result, seeds=of_parts(result.difference, parts, confidence))


def _z(confidence: float) -> float:
    return normal_quantile((1 + confidence) / 2)


# ---- P(A better than B)


def _better(x: Side, y: Side, higher: bool) -> float:
    """Return the share of pairs in which A's run is better; ties count half."""
    a, b = (x.values, y.values) if higher else (y.values, x.values)
    ordered = np.sort(b)
    below, ties = np.searchsorted(ordered, a), np.searchsorted(ordered, a, side="right")
    return float((below + ties).mean() / (2 * ordered.size))


def _newcombe(x: Side, y: Side) -> Callable[[float], float]:
    """Return the variance of one test set's share of pairs, as a function of its expectation."""
    if x.fixed and y.fixed:
        return lambda level: 0.0
    if x.fixed or y.fixed:  # a share of one side's runs: a binomial proportion
        n = (y if x.fixed else x).values.size
        return lambda level: level * (1 - level) / n
    return _hanley(x.values.size, y.values.size)


def _hanley(m: int, n: int) -> Callable[[float], float]:
    more = (m + n) / 2 - 1

    def variance(level: float) -> float:
        shared = (1 - level) / (2 - level) + level / (1 + level)
        return level * (1 - level) * (1 + more * shared) / (m * n)

    return variance


def _of_several(variances: Sequence[Callable[[float], float]]) -> Callable[[float], float]:
    """Return the variance of a mean over test sets, as if all had the same expectation."""
    return lambda level: sum(one(level) for one in variances) / len(variances) ** 2


def _score(level: float, variance: Callable[[float], float], quantile: float) -> Interval:
    """Return the ends of what a score test accepts: (level - p)² = quantile² · variance(p)."""

    def beyond(p: float) -> float:
        return (level - p) ** 2 - quantile**2 * variance(p)

    from scipy.optimize import brentq

    inside = min(max(level, _EDGE), 1 - _EDGE)  # at 0 and 1 both sides are 0
    if beyond(inside) >= 0:
        return level, level
    low = float(brentq(beyond, 0.0, inside)) if level > 0 else 0.0
    high = float(brentq(beyond, inside, 1.0)) if level < 1 else 1.0
    return low, high


def _over_sets(levels: Real, confidence: float) -> Interval:
    """Return the interval of a mean of shares over test sets: a score interval of that many trials.

    The variance p (1 - p) / n is an upper bound for shares; it is scaled to the observed one.
    """
    n, level = levels.size, float(levels.mean())
    largest = level * (1 - level)
    scale = min(float(levels.var(ddof=1)) / largest, 1.0) if largest > 0 else 1.0
    return _score(level, lambda p: scale * p * (1 - p) / n, t_quantile(confidence, n - 1))


def _wider(one: Interval, other: Interval | None) -> Interval:
    """Return the interval that covers both: test sets add uncertainty to that of seeds."""
    return one if other is None else (min(one[0], other[0]), max(one[1], other[1]))


# ---- what pairing saves


def _by_runs(
    a: Sequence[Side], b: Sequence[Side], paired: bool, confidence: float
) -> Saving | None:
    """Return what paired runs save, pooled within test sets."""
    if not paired or any(side.fixed for side in (*a, *b)):
        return None
    both = [(x.values, y.values) for x, y in zip(a, b, strict=True) if x.values.size > 1]
    return _saving([x for x, _ in both], [y for _, y in both], confidence)


def _saving(a: Sequence[Real], b: Sequence[Real], confidence: float) -> Saving | None:
    """Return what pairing values within groups saves; None where nothing varies.

    None with a single degree of freedom, too: any two points correlate by 1 or -1.
    """
    freedom = sum(own.size - 1 for own in a)
    x, y = (
        np.concatenate([own - own.mean() for own in of]) if of else np.zeros(0) for of in (a, b)
    )
    squares = float(x @ x), float(y @ y)
    if freedom < 2 or min(squares) <= 1e-24:
        return None
    scale = 2 * math.sqrt(squares[0] * squares[1])
    correlation = float(np.clip(2 * (x @ y) / scale, -1, 1))
    share = correlation * scale / sum(squares)
    # with s = a + b and d = a - b: (1 + share) / (1 - share) = Var s / Var d
    alike = (squares[0] - squares[1]) ** 2 / (sum(squares) ** 2 * max(1 - share**2, 1e-15))
    quantile = t_quantile(confidence, freedom - 1)
    half = math.acosh(1 + 2 * quantile**2 * max(1 - alike, 0.0) / (freedom - 1)) / 2
    centre = math.atanh(min(max(share, -1 + 1e-15), 1 - 1e-15))
    return Saving(correlation, share, math.tanh(centre - half), math.tanh(centre + half))


# ---- what a verdict hangs on

_LISTED = 10
FEW = 0.05  # share of the points that are tried


@dataclass(frozen=True, slots=True)
class OnTestSet:
    """One side of a comparison on one test set.

    `index`, int64 array (sample,): the points. `right`: yields bool arrays (run, sample), some runs
    at a time, whenever it is called.
    """

    index: NDArray[np.int64]
    right: Callable[[], Iterator[NDArray[np.bool_]]]

    def sums(self) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Return how many points each run gets right, and the share of runs right on each point."""
        parts = [(part.sum(axis=1), part.sum(axis=0)) for part in self.right()]
        of_runs = np.concatenate([runs for runs, _ in parts])
        return of_runs, np.sum([points for _, points in parts], axis=0) / of_runs.size

    def without(self, gone: NDArray[np.int64], counts: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return each run's accuracy without the first 0, 1, … of some points: (gone + 1, run).

        `counts`: how many points each run gets right. NaN where no point is left.
        """
        place = np.searchsorted(self.index, gone)
        place[place == self.index.size] = 0
        there = self.index[place] == gone
        hits = np.concatenate([part[:, place] & there for part in self.right()])
        left = counts[:, None] - np.pad(np.cumsum(hits, axis=1), ((0, 0), (1, 0)))
        size = self.index.size - np.pad(np.cumsum(there), (1, 0))
        return np.where(size > 0, left / np.maximum(size, 1), np.nan).T


@dataclass(frozen=True, slots=True)
class Hanging:
    """The points that a verdict hangs on.

    `index`, `ahead`: these points in the order in which they are taken out, and by how much the
    share of runs that are right is larger for the better side, mean over the test sets that have
    the point. Empty if more than `most` of the `points` would have to go.
    """

    index: tuple[int, ...]
    ahead: tuple[float, ...]
    points: int
    most: int


Values = Sequence[NDArray[np.float64]]


def hanging(
    better: Sequence[OnTestSet],
    worse: Sequence[OnTestSet],
    told: Callable[[Values, Values], bool],
    few: float = FEW,
) -> Hanging:
    """Return the fewest points, taken out by their contributions, without which nothing is told.

    A point's contribution is the share of the better side's runs that are right on it minus that of
    the other's, divided by the size of the test set and summed over the test sets. Points are taken
    out of all test sets, the largest contribution first, until `told` says no.

    `better` and `worse`: on the same test sets, their `index` ascending. `told`: whether
    accuracies, an array (run,) for each test set, tell that the first side is better. `few`: share
    of the points that are tried at most.
    """
    sums = [[one.sums() for one in side] for side in (better, worse)]
    every, place = np.unique(np.concatenate([one.index for one in better]), return_inverse=True)
    apart = [own - other for (_, own), (_, other) in zip(*sums, strict=True)]
    ahead = np.concatenate(apart)
    size = np.concatenate([np.full(one.index.size, one.index.size) for one in better])
    contribution = np.bincount(place, ahead / size)
    most = max(int(few * every.size), 1)
    order = np.argsort(-contribution, kind="stable")[:most]
    order = order[contribution[order] > 0]
    left = [
        [one.without(every[order], counts) for one, (counts, _) in zip(side, of_side, strict=True)]
        for side, of_side in zip((better, worse), sums, strict=True)
    ]
    mean = np.bincount(place, ahead) / np.bincount(place)
    for k in range(1, order.size + 1):
        values = [[one[k] for one in side] for side in left]
        if any(np.isnan(one).any() for one in values[0]) or not told(*values):
            gone = order[:k]
            return Hanging((*every[gone].tolist(),), (*mean[gone].tolist(),), every.size, most)
    return Hanging((), (), every.size, most)


def _called(index: int, names: pl.Series | None) -> dict[str, str]:
    """Return the column that names a point, if any does."""
    if names is None:
        return {}
    if index < len(names):
        return {names.name: names[index]}
    return {"row": UNKNOWN} if names.name == "row" else {}


def hangs(
    found: Hanging,
    verdict: str,
    dataset: str,
    levels: str = "",
    names: pl.Series | None = None,
    *,
    alone: bool = False,
) -> Answer:
    """Say on how many points a verdict hangs.

    `verdict`: such as mlp > xgb. `levels`: of other axes, in words. `names`: of the
    dataset's points, if known: of point i at place i. `alone`: whether the verdict holds by itself,
    but not for all comparisons together.
    """
    name = f"{verdict} on {dataset}{levels}{', alone,' if alone else ''}"
    by_itself = "Alone: told by itself, not for all comparisons together. " if alone else ""
    n, of = len(found.index), f"{found.points:,}"
    if not n:
        return Answer(
            f"{name} hangs on no few points: more than {found.most:,} of {of}.",
            evidence=f"{name} is still told without the {found.most:,} of {of} points that speak "
            "most for it.",
            cannot_tell=by_itself.rstrip(),
        )
    rows = [
        {"dataset": dataset, "verdict": verdict, "alone": alone, "index": index, "ahead": ahead}
        | _called(index, names)
        for index, ahead in zip(found.index, found.ahead, strict=True)
    ]
    ahead = [signed(one, 2) for one in found.ahead[:_LISTED]]
    listed = [f"{place(row)} ({one})" for row, one in zip(rows, ahead, strict=False)]
    more = f" and {n - _LISTED:,} more" if n > _LISTED else ""
    return Answer(
        f"{name} hangs on {n:,} of {of} points.",
        details=(f"  {', '.join(listed)}{more}",),
        rows=rows,
        evidence=f"{name} hangs on {n:,} of {of} points: without them, taken out of all test sets "
        "(those that speak most for it first), the same test of the accuracies on all other points "
        "does not tell it; with one of them, it does. In brackets: how much more of its runs are "
        "right.",
        cannot_tell=f"{by_itself}Points that are taken out together may do with fewer; and a "
        "verdict that is only just told hangs on few points, even if no point matters more than "
        "others.",
    )
