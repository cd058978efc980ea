"""Intervals of means over few clusters, independent parts or pairs of runs; p values corrected.

Values within a cluster (those on one test set, or of one run) depend on each other, those of
different clusters don't. The variance of a mean is then Σ_s m/(m - 1) Σ_c u², where u is the sum of
weight · (value - mean of the stratum) over cluster c of stratum s, and m the number of clusters in
the stratum. The degrees of freedom are Satterthwaite's (1946, eq. 17). Equal clusters in one
stratum give the t interval.

A mean over the pairs of n independent runs is a U-statistic of degree two (Hoeffding 1948). With
h(i, j) = θ + a_i + a_j + e_ij, its first- and second-order parts, its variance is

    Var_n = 4 ζ₁ (n - 2) / (n (n - 1)) + 2 ζ₂ / (n (n - 1)) = 4 σ_a² / n + 2 σ_e² / (n (n - 1))

(eq. 5.13), with ζ₁ = σ_a² the covariance of two pairs that share a run and ζ₂ = 2 σ_a² + σ_e² the
variance of a pair. The first part falls as 1 / n and the second as 1 / n², so they must be
separated before the variance at one number of runs says anything about another number.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from manyseed.analysis.questions import quantiles
from manyseed.analysis.questions.quantiles import chi2_quantile

_ROUNDING = 1e-12  # equal values up to 1 may seem to differ by this much

FEWEST = 5
"""Runs needed for a mean over their pairs: four have two disjoint pairs, and the jackknife leaves
one run out."""

TEST_SETS, SEEDS = "test sets", "seeds"  # the two kinds of units that intervals are over

USEFUL = 4  # test sets: t of 95 % is 12.7 with two, 4.3 with three, 3.2 with four

MORE = "repeats = 5 where test sets are drawn"
"""What gives more test sets, unless data come with their own."""

SKEWED = 1.0  # skewness beyond which answers warn that an interval assumes normal values
ASSUMED = "roughly normal values, and holds in 84 % or more at skewness ±1"
"""What an interval of a standard deviation assumes; as in `benchmarks/claims/skewed.py`."""

Real = NDArray[np.float64]


def too_few(test_sets: int) -> str:
    """Say that an interval over so few test sets is of little use; empty if there are enough."""
    if not 1 < test_sets < USEFUL:
        return ""
    return f"{test_sets} test sets are too few for useful intervals; more narrow them, by {MORE}."


def skewness_of(values: Sequence[Real]) -> float:
    """Return the skewness of values around the means of their arrays; 0 if they are all equal."""
    deviations = np.concatenate([own - own.mean() for own in values])
    spread = float(np.sqrt(np.square(deviations).mean()))
    return float((deviations**3).mean()) / spread**3 if spread > 0 else 0.0


def assumed(values: Sequence[Real], among: int) -> str:
    """Say what an interval assumes; of the chosen one of several, no rate is known if skewed."""
    skewness = skewness_of(values)
    variances = np.array([own.var(ddof=1) for own in values])
    apart = unequal(variances, np.array([own.size - 1.0 for own in values]))
    of_sets, more = "", ""
    if len(values) > 1:
        of_sets = f"is over seeds on these {len(values):,} test sets, and "
    if told := differs(apart, still(variances), len(values)):
        more = f"; {told}, so new ones may take other numbers of runs"
    assumes = f"the interval {of_sets}assumes "
    if abs(skewness) > SKEWED:
        return (
            f"{assumes}normal values, but these are skewed ({skewness:+.1f}), so it may miss the "
            f"truth{more}"
        )
    if among > 1:
        return f"{assumes}normal values, and may miss the truth of skewed ones{more}"
    return f"{assumes}{ASSUMED}{more}"


UNEQUAL = 0.7  # standard deviation of the log variance beyond which test sets are said to differ

FEWEST_COMPARED = 3  # test sets that show whether variances differ


def differs(apart: float, equal: int, sets: int) -> str:
    """Say that test sets differ in how much runs vary on them; nothing if they are about equal.

    `apart`: of `unequal`. `equal`: how many of the `sets` are `still`.
    """
    if 0 < equal < sets:  # the logarithm of 0 says nothing
        return f"on {equal:,} of {sets:,} test sets all runs are equal"
    if apart < UNEQUAL:
        return ""
    return f"the variance differs between test sets (sd of its logarithm {apart:.1f})"


def still(own: Real) -> int:
    """Return on how many test sets nothing differs; `own` as of `unequal`."""
    return int((own <= _ROUNDING**2).sum())


def unequal(own: Real, freedom: Real) -> float:
    """Return the standard deviation of the log variance, beyond that of normal values.

    `own` and `freedom`, float arrays (test set,): variance of its runs, and their number minus one.
    """
    known = (own > _ROUNDING**2) & (freedom > 0)
    if known.sum() < FEWEST_COMPARED:
        return 0.0
    half = freedom[known] / 2
    sampling = (1 / half + 1 / (2 * half**2) + 1 / (6 * half**3)).mean()  # trigamma
    return float(max(np.log(own[known]).var(ddof=1) - sampling, 0.0) ** 0.5)


def between(own: Real, freedom: Real) -> float:
    """Return the variance of the mean over test sets, from their differences; 0 with one."""
    n, weights = own.size, freedom / freedom.sum()
    squares = float(weights**2 @ np.square(own - weights @ own))
    return squares * n / (n - 1) if n > 1 else 0.0


def of_log_variance(
    sd: float, variance: float, freedom: float, confidence: float
) -> tuple[float, float]:
    """Return the interval of a standard deviation, given the variance of the log of its square."""
    half = t_quantile(confidence, freedom) * math.sqrt(variance) / 2
    return sd * math.exp(-half), sd * math.exp(half)


def of_variance(own: Real, freedom: Real, confidence: float) -> tuple[float, float]:
    """Return the interval of the mean variance of runs on these test sets, over seeds.

    χ² with Satterthwaite's degrees of freedom: 2 V² / Var(V), with Var(V) from the differences
    between test sets, which also shows values that are not normal. A sum over test sets has no
    fewer degrees than one of them, and no more than all. `own` and `freedom` as of `unequal`; not
    all variances are 0.
    """
    value, error = float(freedom @ own / freedom.sum()), between(own, freedom)
    degrees = 2 * value**2 / error if error > 0 else math.inf
    degrees = min(max(degrees, freedom.min()), freedom.sum())
    tail = (1 - confidence) / 2
    low, high = (degrees * value / chi2_quantile(degrees, p) for p in (1 - tail, tail))
    return float(low), float(high)


def may_differ(freedom: float, confidence: float) -> str:
    """Say how many further runs may differ from runs that are all equal.

    Runs that differ with probability p agree with probability (1 - p)^freedom at most. `freedom`:
    number of runs less the number of test sets.
    """
    share = 1 - (1 - confidence) ** (1 / freedom)
    return f"up to {share:.0%} of further runs may differ ({100 * confidence:g} %)"


def total(column: pl.Expr) -> pl.Expr:
    """Return the sum within a group; that of polars depends on the number of threads."""
    return column.implode().list.sum()


def clustered(influence: pl.DataFrame, key: Sequence[str]) -> pl.DataFrame:
    """Return the variance and degrees of freedom of estimates.

    `influence`: columns `key`, stratum, cluster, and u: what part of a cluster adds to the error of
    the estimate named by `key`. Rows of the same cluster are summed. Returns columns `key`,
    variance, freedom; without estimates that have a stratum of one cluster.
    """
    by = [*key, "stratum"]
    strata = (
        influence.sort(*by, "cluster")
        .group_by(*by, "cluster", maintain_order=True)
        .agg(total(pl.col("u")))
        .group_by(by, maintain_order=True)
        .agg(pl.len().cast(pl.Float64).alias("m"), total(pl.col("u") ** 2).alias("squares"))
        .with_columns(own=pl.col("m") / (pl.col("m") - 1) * pl.col("squares"))
    )
    return (
        strata.group_by(key, maintain_order=True)
        .agg(
            pl.col("m").min(),
            total(pl.col("own")).alias("variance"),
            total(pl.col("own") ** 2 / (pl.col("m") - 1)).alias("parts"),
        )
        .filter(pl.col("m") > 1)
        .select(*key, "variance", freedom=pl.col("variance") ** 2 / pl.col("parts"))
    )


def t_quantile(confidence: float, freedom: float) -> float:
    """Return the half-width of a t interval, in standard errors."""
    return float(quantiles.t_quantile(freedom, (1 + confidence) / 2))


def of_parts(
    centre: float, parts: Sequence[tuple[float, float]], confidence: float
) -> tuple[float, float]:
    """Return the t interval of a sum of independent means, as Welch's for a difference.

    `centre`: the sum. `parts`: variance and degrees of freedom of each mean.
    """
    variance = sum(part for part, _ in parts)
    if variance == 0:
        return centre, centre
    freedom = variance**2 / sum(part**2 / own for part, own in parts)
    half = t_quantile(confidence, freedom) * math.sqrt(variance)
    return centre - half, centre + half


def of_pairs(pairs: pl.DataFrame, key: Sequence[str]) -> pl.DataFrame:
    """Return what each run adds to the error of weighted means over pairs, by the jackknife.

    `pairs`: columns `key`, run_i, run_j, value without nulls. `key`: columns that identify a mean,
    among them `weight`, its weight.

    Returns columns `key`, cluster (a run), n (runs of the mean), own and own_n (sum and number of
    the run's pairs), without (the mean without the run) and u = weight · (1 - 1/n) · (mean of
    `without` - `without`).
    """
    key = list(dict.fromkeys(key))
    ends = pl.concat(
        [pairs.with_columns(cluster=pl.col(side).cast(pl.UInt16)) for side in ("run_i", "run_j")]
    )
    runs = (
        ends.sort(*key, "cluster", "run_i", "run_j")
        .group_by([*key, "cluster"], maintain_order=True)
        .agg(total(pl.col("value")).alias("own"), pl.len().alias("own_n"))
    )
    n, without = pl.len().over(key), pl.col("without")
    all_of, all_n = pl.col("own").sum().over(key) / 2, pl.col("own_n").sum().over(key) / 2
    return runs.with_columns(
        without=(all_of - pl.col("own")) / (all_n - pl.col("own_n")), n=n
    ).with_columns(
        u=pl.col("weight") * (1 - 1 / pl.col("n")) * (without.mean().over(key) - without)
    )


def t_interval(
    estimate: Real, variance: Real, freedom: Real, confidence: float
) -> tuple[Real, Real, Real]:
    """Return the ends of the t interval and p of no difference; NaN where all values are equal.

    Two or three equal values, as accuracies on few test points may be, are no evidence that the
    spread is zero.

    `estimate`, `variance` and `freedom`, float arrays (estimate,): variance and degrees of freedom
    are those of `clustered`.
    """
    error = np.sqrt(np.where(variance > _ROUNDING**2, variance, np.nan))
    half = quantiles.t_quantile(freedom, (1 + confidence) / 2) * error
    p = 2 * quantiles.t_below(freedom, -np.abs(estimate) / error)
    return estimate - half, estimate + half, p


def holm(p: NDArray[Any]) -> Real:
    """Return p values corrected for their number (Holm 1979); NaN marks no comparison.

    Rejecting those of at most ε rejects any true hypothesis with probability at most ε, whatever
    the dependence between tests.
    """
    result = np.full(p.shape, np.nan)
    known = np.flatnonzero(~np.isnan(p))
    order = known[np.argsort(p[known], kind="stable")]
    scaled = p[order] * np.arange(order.size, 0, -1)
    result[order] = np.minimum(np.maximum.accumulate(scaled), 1)
    return result


def of_share(centre: Any, half: Any) -> tuple[Any, Any]:
    """Return the ends of an interval of a share: those of ± half, on the scale of the log odds.

    There the standard error is that of the share divided by p (1 - p), so the interval stays
    between 0 and 1; far from both, it is about the same.

    `centre` and `half`: the share, and the half-width of its t interval. A share of 0 or 1 without
    variance keeps its value; with some, the whole range is possible.
    """
    centre, half = np.asarray(centre, np.float64), np.asarray(half, np.float64)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        odds, wide = np.log(centre) - np.log1p(-centre), half / (centre * (1 - centre))
        low, high = (1 / (1 + np.exp(-(odds + end))) for end in (-wide, wide))
    at_end = (centre <= 0) | (centre >= 1)
    low = np.where(at_end, np.where(half > 0, 0.0, centre), low)
    high = np.where(at_end, np.where(half > 0, 1.0, centre), high)
    return (low[()], high[()])


def within(centre: Any, low: Any, high: Any) -> tuple[Any, Any]:
    """Return the ends of a share's t interval, by `of_share` where one of them leaves 0 to 1."""
    outside = (np.asarray(low) < 0) | (np.asarray(high) > 1)
    inside = of_share(centre, (np.asarray(high) - low) / 2)
    low, high = (np.where(outside, *ends) for ends in zip(inside, (low, high), strict=True))
    return (low[()], high[()])


@dataclass(frozen=True, slots=True)
class Parts:
    """The parts of the variance of a mean over pairs, pooled over repeats in proportion to pairs.

    `runs`, int array (repeat,): runs of each repeat. `zeta_1` and `zeta_2`, float array (repeat,):
    unbiased estimates; with few runs ζ₁ may be negative. `left_out`, tuple of (float array (run,),
    float array (run,)), one per repeat: estimates of both without each run.
    """

    runs: NDArray[np.int64]
    zeta_1: Real
    zeta_2: Real
    left_out: tuple[tuple[Real, Real], ...]

    @property
    def weights(self) -> Real:
        """Weight of each repeat: its share of the pairs."""
        pairs = self.runs * (self.runs - 1.0)
        result: Real = pairs / pairs.sum()
        return result

    def variance(self, n: int) -> float:
        """Return the variance of the mean over the pairs of n ≥ 2 runs, negative parts set to 0."""
        first = max(float(self.weights @ self.zeta_1), 0.0)
        second = max(float(self.weights @ (self.zeta_2 - 2 * self.zeta_1)), 0.0)
        return 4 * first / n + 2 * second / (n * (n - 1))

    def limits(self, n: int, confidence: float) -> tuple[float, float]:
        """Return the confidence interval of the variance at n ≥ 2 runs.

        The estimate is M - Q: how much runs differ on average, minus how much pairs differ by
        chance. M is approximately a multiple of χ², and Q is known far better. The degrees of
        freedom match M's variance to the jackknife variance of the estimate over runs
        (Satterthwaite's approximation).
        """
        estimate = float(self.weights @ mean_variance(n, self.zeta_1, self.zeta_2))
        between = self.zeta_2 + (self.runs - 4) * self.zeta_1
        whole = max(4 / n * float(self.weights @ (between / (self.runs - 2))), estimate)
        error = 0.0
        for weight, own in zip(self.weights, self.left_out, strict=True):
            values = weight * mean_variance(n, *own)
            error += (1 - 1 / values.size) * float(np.square(values - values.mean()).sum())
        if not whole > 0 or not error > 0:
            return (max(estimate, 0.0), max(estimate, 0.0))
        freedom = 2 * whole**2 / error
        with np.errstate(divide="ignore"):  # with few runs χ² quantiles may underflow to 0
            scale = freedom / chi2_quantile(freedom, [(1 + confidence) / 2, (1 - confidence) / 2])
        low, high = np.maximum(whole * (scale - 1) + estimate, 0.0)
        return float(min(low, max(estimate, 0.0))), float(high)


def mean_variance(n: Any, zeta_1: Any, zeta_2: Any) -> Any:
    """Return the variance of a mean over the pairs of n runs (eq. 5.13)."""
    return (4 * (n - 2) * zeta_1 + 2 * zeta_2) / (n * (n - 1))


def parts(values: Sequence[Real]) -> Parts | None:
    """Estimate the parts from the values of pairs of runs in several repeats.

    `values`, sequence of float arrays (run, run): one symmetric array per repeat, as `matrix`
    returns it; NaN where undefined. Arrays with fewer than `FEWEST` runs, or too few defined
    values, are ignored. Returns None if every array is ignored.
    """
    found = [(own.shape[0], *estimated) for own in values if (estimated := _estimates(own))]
    if not found:
        return None
    runs, all_runs, without = zip(*found, strict=True)
    zeta_1, zeta_2 = (np.array(zeta) for zeta in zip(*all_runs, strict=True))
    return Parts(np.array(runs), zeta_1, zeta_2, without)


def matrix(i: NDArray[Any], j: NDArray[Any], values: Real) -> Real:
    """Return the values of pairs of runs as a symmetric array (run, run), NaN on its diagonal.

    `i` and `j`, integer arrays (pair,): indices of the two runs. `values`, float array (pair,): NaN
    where undefined.
    """
    names, (left, right) = np.unique([i, j], return_inverse=True)
    result = np.full((names.size, names.size), np.nan)
    result[left, right] = result[right, left] = values
    return result


def _estimates(values: Real) -> tuple[tuple[float, float], tuple[Real, Real]] | None:
    """Return ζ₁ and ζ₂ of a repeat, and both without each run."""
    if values.shape[0] < FEWEST:
        return None
    known = ~np.isnan(values)
    if not known.any():
        return None
    centred = np.where(known, values - values[known].mean(), 0.0)
    sums = [_sums(centred, np.square(centred)), _sums(known.astype(float), known.astype(float))]
    sharing, same, apart = ([own[k] for own in sums] for k in range(3))
    if any((counts < 0.5).any() for _, counts in (sharing, same, apart)):
        return None
    shared, square, product = (total / counts for total, counts in (sharing, same, apart))
    first, second = shared - product, square - product
    return (float(first[0]), float(second[0])), (first[1:], second[1:])


def _sums(one: Real, squared: Real) -> tuple[Real, Real, Real]:
    """Return sums of products of two pairs that share one run, both runs, and no run.

    The first value of each array is over all runs, the others leave out each run in turn.
    """
    rows, squares = one.sum(axis=1), squared.sum(axis=1)
    total = np.append(rows.sum(), rows.sum() - 2 * rows) / 2
    same = np.append(squares.sum(), squares.sum() - 2 * squares) / 2
    by_run = np.square(rows).sum()
    by_run = np.append(by_run, by_run - np.square(rows) - 2 * one @ rows + squares)
    return by_run - 2 * same, same, np.square(total) - by_run + same
