"""Intervals of means over few clusters or independent parts; p values corrected for their number.

Values within a cluster (those on one test set, or of one run) depend on each other, those of
different clusters don't. The variance of a mean is then Σ_s m/(m - 1) Σ_c u², where u is the sum of
weight · (value - mean of the stratum) over cluster c of stratum s, and m the number of clusters in
the stratum. The degrees of freedom are Satterthwaite's (1946, eq. 17). Equal clusters in one
stratum give the t interval.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from manyseed.analysis.questions import quantiles

_ROUNDING = 1e-12  # equal values up to 1 may seem to differ by this much

FEWEST = 5
"""Runs needed for a mean over their pairs: four have two disjoint pairs, and the jackknife leaves
one run out."""

TEST_SETS, SEEDS = "test sets", "seeds"  # the two kinds of units that intervals are over

USEFUL = 4  # test sets: t of 95 % is 12.7 with two, 4.3 with three, 3.2 with four

Real = NDArray[np.float64]


def too_few(test_sets: int) -> str:
    """Say that an interval over so few test sets is of little use; empty if there are enough."""
    if not 1 < test_sets < USEFUL:
        return ""
    return (
        f"{test_sets} test sets are too few for useful intervals; more repeats narrow them, such "
        "as repeats = 5."
    )


def total(column: pl.Expr) -> pl.Expr:
    """Return the sum within a group; that of polars depends on the number of threads."""
    return column.implode().list.sum()


def clustered(influence: pl.DataFrame, key: Sequence[str]) -> pl.DataFrame:
    """Return the variance and degrees of freedom of estimates.

    Parameters
    ----------
    influence : polars frame
        Columns `key`, stratum, cluster, and u: what part of a cluster adds to the error of the
        estimate named by `key`. Rows of the same cluster are summed.
    key : sequence of str

    Returns
    -------
    polars frame
        Columns `key`, variance, freedom; without estimates that have a stratum of one cluster.
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

    Parameters
    ----------
    centre : float
        The sum.
    parts : sequence of tuple of float
        Variance and degrees of freedom of each mean.
    confidence : float
    """
    variance = sum(part for part, _ in parts)
    if variance == 0:
        return centre, centre
    freedom = variance**2 / sum(part**2 / own for part, own in parts)
    half = t_quantile(confidence, freedom) * math.sqrt(variance)
    return centre - half, centre + half


def of_pairs(pairs: pl.DataFrame, key: Sequence[str]) -> pl.DataFrame:
    """Return what each run adds to the error of weighted means over pairs, by the jackknife.

    Parameters
    ----------
    pairs : polars frame
        Columns `key`, run_i, run_j, value without nulls.
    key : sequence of str
        Columns that identify a mean, among them `weight`, its weight.

    Returns
    -------
    polars frame
        Columns `key`, cluster (a run), n (runs of the mean), own and own_n (sum and number of the
        run's pairs), without (the mean without the run) and u = weight · (1 - 1/n) · (mean of
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

    Parameters
    ----------
    estimate, variance, freedom : float arrays (estimate,)
        Variance and degrees of freedom are those of `clustered`.
    confidence : float
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

    Parameters
    ----------
    centre, half : float or float array
        The share, and the half-width of its t interval. A share of 0 or 1 without variance keeps
        its value; with some, the whole range is possible.
    """
    centre, half = np.asarray(centre, np.float64), np.asarray(half, np.float64)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        odds, wide = np.log(centre) - np.log1p(-centre), half / (centre * (1 - centre))
        low, high = (1 / (1 + np.exp(-(odds + end))) for end in (-wide, wide))
    at_end = (centre <= 0) | (centre >= 1)
    low = np.where(at_end, np.where(half > 0, 0.0, centre), low)
    high = np.where(at_end, np.where(half > 0, 1.0, centre), high)
    return (low[()], high[()])
