"""How precise a mean over pairs of runs would be with n runs, judged from fewer or more runs.

A mean over the pairs of n independent runs is a U-statistic of degree two (Hoeffding 1948). With
h(i, j) = θ + a_i + a_j + e_ij, its first- and second-order parts, its variance is

    Var_n = 4 ζ₁ (n - 2) / (n (n - 1)) + 2 ζ₂ / (n (n - 1)) = 4 σ_a² / n + 2 σ_e² / (n (n - 1))

(eq. 5.13), with ζ₁ = σ_a² the covariance of two pairs that share a run and ζ₂ = 2 σ_a² + σ_e² the
variance of a pair. The first part falls as 1 / n and the second as 1 / n², so they must be
separated before the variance at one number of runs says anything about another number.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from manyseed.analysis.questions.intervals import FEWEST
from manyseed.analysis.questions.quantiles import chi2_quantile

Real = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Parts:
    """The parts of the variance of a mean over pairs, pooled over repeats in proportion to pairs.

    Attributes
    ----------
    runs : int array (repeat,)
        Runs of each repeat.
    zeta_1, zeta_2 : float array (repeat,)
        Unbiased estimates; with few runs ζ₁ may be negative.
    left_out : tuple of (float array (run,), float array (run,)), one per repeat
        Estimates of both without each run.
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

    Parameters
    ----------
    values : sequence of float arrays (run, run)
        One symmetric array per repeat, as `matrix` returns it; NaN where undefined. Arrays with
        fewer than `FEWEST` runs, or too few defined values, are ignored.

    Returns
    -------
    Parts or None
        None if every array is ignored.
    """
    found = [(own.shape[0], *estimated) for own in values if (estimated := _estimates(own))]
    if not found:
        return None
    runs, all_runs, without = zip(*found, strict=True)
    zeta_1, zeta_2 = (np.array(zeta) for zeta in zip(*all_runs, strict=True))
    return Parts(np.array(runs), zeta_1, zeta_2, without)


def matrix(i: NDArray[Any], j: NDArray[Any], values: Real) -> Real:
    """Return the values of pairs of runs as a symmetric array (run, run), NaN on its diagonal.

    Parameters
    ----------
    i, j : integer arrays (pair,)
        Indices of the two runs.
    values : float array (pair,)
        NaN where undefined.
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
