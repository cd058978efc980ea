"""The smallest trimming level at which the robust two-sample KS test accepts, in closed form.

An α-trimming of the candidate's eCDF Ĝ is h∘Ĝ with h(0) = 0, h(1) = 1 and 0 ≤ h′ ≤ κ = 1/(1 − α).
The test at level α accepts if some trimming stays within γ of the reference eCDF Ḡ. Between two
neighbouring candidate values a trimming is constant while Ḡ rises. So with v_1 < … < v_n the
distinct candidate values and T_i = Ĝ(v_i), the condition is h(T_i) ∈ [ℓ_i, u_i] with

    ℓ_i = max(Ḡ(v_{i+1}⁻) − γ, 0),   u_i = min(Ḡ(v_i) + γ, 1),   0 < i < n,

and h fixed at both ends: ℓ_0 = u_0 = 0, ℓ_n = u_n = 1. The smallest slope that passes through all
these gates is κ* = max(1, max_{i<j} (ℓ_j − u_i)/(T_j − T_i)), and α* = 1 − 1/κ*. If a gate is
empty, or Ḡ has more than γ below v_1 or above v_n, no trimming helps and α* = 1.
"""

from __future__ import annotations

import math
from typing import Any

import numba
import numpy as np
from numpy.typing import NDArray

ASYMPTOTIC_N = 458  # from here on the two-sample DKW inequality holds with C = 2

Real = NDArray[np.float64]


def dkw_threshold(n_side: int, epsilon: float) -> float:
    """Return the two-sample DKW threshold δ = sqrt(ln(C/ε)/N) (RKS).

    Parameters
    ----------
    n_side : int
        Points on each side (N); C = e below 458 and 2 from there on.
    epsilon : float
        Probability that two samples of one distribution differ by more than δ.
    """
    if n_side < 1:
        raise ValueError(f"n_side is {n_side!r}; at least one point is needed on each side")
    constant = 2.0 if n_side >= ASYMPTOTIC_N else math.e
    return math.sqrt(math.log(constant / epsilon) / n_side)


def dkw_of_one(n_side: int, epsilon: float, models: float = 1) -> float:
    """Return sqrt(ln(2 M/ε)/(2 N)), a bound on the distance of eCDFs from their distributions.

    RKS, theorem 1 (after eq. 13): with probability 1 − ε it bounds the distance of the average eCDF
    of M models on the same N points from the average of their distribution functions, by the
    inequality of Dvoretzky, Kiefer and Wolfowitz for each model. With M = 1 it is δ_c, else δ_b.

    Parameters
    ----------
    n_side : int
        Points (N).
    epsilon : float
    models : float
        M; NaN gives NaN.
    """
    return math.sqrt(math.log(2 * models / epsilon) / (2 * n_side))


def points_needed(threshold: float, epsilon: float) -> int:
    """Return the fewest points per side for which `dkw_threshold` is at most `threshold`."""
    few, many = (math.ceil(math.log(c / epsilon) / threshold**2) for c in (math.e, 2.0))
    return few if few < ASYMPTOTIC_N else max(many, ASYMPTOTIC_N)


def smallest_trimming_level(
    candidate: NDArray[np.floating[Any]], reference: NDArray[np.floating[Any]], gamma: float
) -> float:
    """Return α*, the smallest level at which the robust two-sample KS test accepts.

    Parameters
    ----------
    candidate, reference : float arrays (point,)
        Probe values on each side, with or without ties, in any order; the reference may hold the
        values of several models with the same number of points each.
    gamma : float
        Threshold γ, usually `dkw_threshold`.

    Returns
    -------
    float in [0, 1]
        0 if the classical test accepts; 1 if no trimming is accepted.
    """
    if candidate.size == 0 or reference.size == 0:
        raise ValueError("an eCDF needs at least one value on each side")
    values, counts = np.unique(candidate, return_counts=True)
    ordered = np.sort(reference)
    levels = np.concatenate([[0.0], np.cumsum(counts) / candidate.size])
    below = np.asarray(np.searchsorted(ordered, values, side="left") / reference.size)
    upto = np.asarray(np.searchsorted(ordered, values, side="right") / reference.size)
    lower = np.concatenate([[0.0], np.maximum(below[1:] - gamma, 0.0), [1.0]])
    upper = np.concatenate([[0.0], np.minimum(upto[:-1] + gamma, 1.0), [1.0]])
    if below[0] > gamma or upto[-1] < 1 - gamma or np.any(lower > upper):
        return 1.0
    return float(1.0 - 1.0 / smallest_slope(levels, lower, upper, values.size))


@numba.njit(cache=True, nogil=True)
def smallest_slope(levels: Real, lower: Real, upper: Real, last: int) -> float:
    """Return κ* by Dinkelbach's iteration over gates 0 … `last`; a few passes suffice.

    Parameters
    ----------
    levels, lower, upper : float64 arrays (gate,)
        Levels, rising from 0 to 1, and the ends of the gate at each.
    last : int
        The last gate.
    """
    slope = 1.0
    while True:
        lowest, lowest_at = upper[0] - slope * levels[0], 0
        worst, worst_i, worst_j = 0.0, -1, -1
        for j in range(1, last + 1):
            violation = lower[j] - slope * levels[j] - lowest
            if violation > worst:
                worst, worst_i, worst_j = violation, lowest_at, j
            start = upper[j] - slope * levels[j]
            if start < lowest:
                lowest, lowest_at = start, j
        if worst_j < 0:
            return slope
        steeper = (lower[worst_j] - upper[worst_i]) / (levels[worst_j] - levels[worst_i])
        if steeper <= slope:  # the rest is rounding
            return slope
        slope = steeper
