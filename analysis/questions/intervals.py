"""Intervals of means, of few clusters or of independent parts; p values corrected for their number.

The values of a cluster (what was seen on one test set, or of one run) depend on each other, those
of two clusters don't. The variance of a mean is then Σ_s m/(m - 1) Σ_c u²: u is the sum over
cluster c of stratum s of weight · (value - mean of the stratum), m the clusters of the stratum. The
degrees of freedom are Satterthwaite's (1946, eq. 17). Equal clusters of one stratum give the t
interval.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray
from scipy.special import stdtr, stdtrit

_ROUNDING = 1e-12  # what values up to 1 that are the same may seem to differ by

FEWEST = 5
"""Runs that a mean over their pairs needs: the jackknife leaves one out."""

TEST_SETS, SEEDS = "test sets", "seeds"  # what an interval is over

Real = NDArray[np.float64]


def total(column: pl.Expr) -> pl.Expr:
    """Return the sum within a group: polars' own depends on the number of threads."""
    return column.implode().list.sum()


def clustered(influence: pl.DataFrame, key: Sequence[str]) -> pl.DataFrame:
    """Return variance and degrees of freedom of estimates.

    Parameters
    ----------
    influence : polars frame
        Columns `key`, stratum, cluster, and u: what a part of a cluster adds to the error of the
        estimate that `key` names. Several rows of a cluster are summed.
    key : sequence of str

    Returns
    -------
    polars frame
        Columns `key`, variance, freedom; without the estimates of which a stratum has one cluster.
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
    """Return half the width of a t interval, in standard errors."""
    return float(stdtrit(freedom, (1 + confidence) / 2))


def of_parts(
    centre: float, parts: Sequence[tuple[float, float]], confidence: float
) -> tuple[float, float]:
    """Return the t interval of a sum of independent means, as Welch's of a difference.

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
    """Return what runs add to the error of weighted means over pairs, by the jackknife.

    Parameters
    ----------
    pairs : polars frame
        Columns `key`, run_i, run_j, value without nulls.
    key : sequence of str
        What each mean is within; the weight of each, `weight`, among it.

    Returns
    -------
    polars frame
        Columns `key`, cluster (a run), n (runs of the mean), own, own_n, without (the mean without
        the run) and u = weight · (1 - 1/n) · (mean of `without` - `without`).
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
    """Return the ends of the t interval, and p of no difference; NaN where all values are the same.

    Two or three values that are equal, as accuracies of few test points may be, are no evidence of
    a spread of zero.

    Parameters
    ----------
    estimate, variance, freedom : float arrays (estimate,)
        Variance and degrees of freedom as `clustered` returns them.
    confidence : float
    """
    error = np.sqrt(np.where(variance > _ROUNDING**2, variance, np.nan))
    half = stdtrit(freedom, (1 + confidence) / 2) * error
    return estimate - half, estimate + half, 2 * stdtr(freedom, -np.abs(estimate) / error)


def holm(p: NDArray[Any]) -> Real:
    """Return p values corrected for their number (Holm 1979); NaN is no comparison.

    Rejecting where these are at most ε rejects any true hypothesis with a probability of at most ε,
    whatever the dependence between tests.
    """
    result = np.full(p.shape, np.nan)
    known = np.flatnonzero(~np.isnan(p))
    order = known[np.argsort(p[known], kind="stable")]
    scaled = p[order] * np.arange(order.size, 0, -1)
    result[order] = np.minimum(np.maximum.accumulate(scaled), 1)
    return result
