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
    """Return the fewest points per side for which `dkw_threshold` is at most `threshold`.

    N = ⌈ln(c / ε) / threshold²⌉ with the c of `dkw_threshold`.

    Parameters
    ----------
    threshold : float
        Largest distance of the two eCDFs, from 0 to 1.
    epsilon : float
        Probability of a larger one by chance.

    Returns
    -------
    int
        Points (N).
    """
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


STRETCH = 256  # values of a candidate to scan before turning to the next candidate


@numba.njit(cache=True, nogil=True)
def trimming_levels(
    point_of: NDArray[np.int32],
    edges: NDArray[np.int64],
    order: NDArray[np.int32],
    last_of_tie: NDArray[np.bool_],
    below: NDArray[np.int32],
    upto: NDArray[np.int32],
    member: bool,
    n_models: int,
    candidate_counts: NDArray[np.uint8],
    reference_counts: NDArray[np.uint8],
    n_side: int,
    gamma: float,
) -> tuple[Real, Real]:
    """Return α* and the distance of the eCDFs of several candidates in several resamples.

    Parameters
    ----------
    point_of : int32 array (models × points,)
        Test point of each reference value, in ascending order of the values.
    edges : int64 array (edge,)
        Ascending numbers of reference values up to which their mass is needed.
    order : int32 array (candidate, point)
        Test points in ascending order of the candidate's values.
    last_of_tie : bool array (candidate, point)
        In that order, whether the next value is larger.
    below, upto : int32 array (candidate, point)
        In that order, positions in `edges` of the numbers of reference values below the value and
        up to it.
    member : bool
        Whether each candidate is one of the reference models, to be left out of its reference.
    n_models : int
        Models in the reference.
    candidate_counts, reference_counts : uint8 array (resample, point)
        How often a point is drawn on each side; each resample draws `n_side` points per side.
    gamma : float
        Threshold.

    Returns
    -------
    float64 arrays (candidate, resample)
        The smallest trimming level, and ‖Ĝ - Ḡ‖_∞.
    """
    n_candidates, n_points = order.shape
    n_resamples = candidate_counts.shape[0]
    result = np.empty((n_candidates, n_resamples))
    distances = np.empty((n_candidates, n_resamples))
    total = (n_models - 1 if member else n_models) * n_side
    running = np.zeros(point_of.size + 1, dtype=np.int32)
    # Only the needed mass: every candidate walks through it, so it should fit into a CPU cache.
    kept = np.zeros(edges.size, dtype=np.int32)
    state = np.zeros((n_candidates, 5), dtype=np.int64)
    levels = np.zeros(n_points + 1)
    lower = np.zeros(n_points + 1)
    upper = np.zeros(n_points + 1)
    for b in range(n_resamples):
        drawn, opposite = candidate_counts[b], reference_counts[b]
        mass = 0
        for position in range(point_of.size):
            mass += opposite[point_of[position]]
            running[position + 1] = mass
        for edge in range(edges.size):
            kept[edge] = running[edges[edge]]
        counts = (drawn, opposite, kept)
        state[:] = 0
        for start in range(0, n_points, STRETCH):
            for c in range(n_candidates):
                candidate = (order[c], last_of_tie[c], below[c], upto[c])
                _scan(*candidate, member, *counts, total, n_side, start, state[c])
        for c in range(n_candidates):
            candidate = (order[c], last_of_tie[c], below[c], upto[c])
            distance = state[c, 0] / (total * n_side)
            distances[c, b] = distance
            result[c, b] = 0.0
            if distance > gamma:
                result[c, b] = 1.0
                knots = _knots(*candidate, member, *counts, total, n_side, levels, lower, upper)
                if _gates(lower, upper, knots, gamma):
                    result[c, b] -= 1.0 / smallest_slope(levels, lower, upper, knots)
    return result, distances


@numba.njit(cache=True, nogil=True)
def _scan(
    order: NDArray[np.int32],
    last_of_tie: NDArray[np.bool_],
    below: NDArray[np.int32],
    upto: NDArray[np.int32],
    member: bool,
    drawn: NDArray[np.uint8],
    opposite: NDArray[np.uint8],
    running: NDArray[np.int32],
    total: int,
    n_side: int,
    start: int,
    state: NDArray[np.int64],
) -> None:
    """Find ‖Ĝ - Ḡ‖_∞, in units of 1 / (total · n_side), along a stretch of a candidate's values.

    It checks every value, drawn or not: between jumps of Ĝ the difference is no larger than at
    them, and skipping undrawn values is slower. `state` is carried from stretch to stretch: the
    largest difference; the candidate's mass (times `total`) below the value and up to it; and its
    mass in the reference, likewise.
    """
    largest, level, next_level, own_below, own_upto = state
    for position in range(start, min(start + STRETCH, order.size)):
        point = order[position]
        next_level += drawn[point] * total
        if member:
            own_upto += opposite[point]
        if last_of_tie[position]:
            before = (running[below[position]] - own_below) * n_side - level
            reached = (running[upto[position]] - own_upto) * n_side - next_level
            largest = max(largest, abs(before), abs(reached))
            level, own_below = next_level, own_upto
    state[0], state[1], state[2] = largest, level, next_level
    state[3], state[4] = own_below, own_upto


@numba.njit(cache=True, nogil=True)
def _knots(
    order: NDArray[np.int32],
    last_of_tie: NDArray[np.bool_],
    below: NDArray[np.int32],
    upto: NDArray[np.int32],
    member: bool,
    drawn: NDArray[np.uint8],
    opposite: NDArray[np.uint8],
    running: NDArray[np.int32],
    total: int,
    n_side: int,
    levels: Real,
    lower: Real,
    upper: Real,
) -> int:
    """Write Ĝ at the candidate's drawn values, and Ḡ below and at them; return how many."""
    knots = 0
    level, tied = 0, 0  # candidate mass up to the value, and at it
    own_below, own_upto = 0, 0
    for position in range(order.size):
        point = order[position]
        tied += drawn[point]
        if member:
            own_upto += opposite[point]
        if not last_of_tie[position]:
            continue
        if tied > 0:
            lower[knots] = (running[below[position]] - own_below) / total
            knots += 1
            level += tied
            levels[knots] = level / n_side
            upper[knots] = (running[upto[position]] - own_upto) / total
        tied, own_below = 0, own_upto
    return knots


@numba.njit(cache=True, nogil=True)
def _gates(before: Real, reached: Real, last: int, gamma: float) -> bool:
    """Turn the reference eCDF around the candidate's values into gates; say whether all are open.

    `before[i]` is Ḡ just below value i + 1 and `reached[i]` is Ḡ at value i, for 0 < i ≤ last.
    """
    if before[0] > gamma or reached[last] < 1.0 - gamma:
        return False
    before[0] = reached[0] = 0.0
    before[last] = reached[last] = 1.0
    for i in range(1, last):
        before[i] = max(before[i] - gamma, 0.0)
        reached[i] = min(reached[i] + gamma, 1.0)
        if before[i] > reached[i]:
            return False
    return True


@numba.njit(cache=True, nogil=True)
def interpolated_levels(
    values: Real,
    point_of: NDArray[np.int32],
    model_of: NDArray[np.int32],
    ordered: Real,
    order: NDArray[np.int32],
    last_of_tie: NDArray[np.bool_],
    left_out: NDArray[np.int32],
    n_models: int,
    candidate_counts: NDArray[np.uint8],
    reference_counts: NDArray[np.uint8],
    n_side: int,
    gamma: float,
) -> Real:
    """Return α* against the linearly interpolated reference (RKS, eq. 57).

    Parameters
    ----------
    values : float64 array (models × points,)
        Reference values in ascending order.
    point_of, model_of : int32 array (models × points,)
        Test point and model of each value.
    ordered : float64 array (candidate, point)
        The candidates' values in ascending order.
    order, last_of_tie : arrays (candidate, point)
        As in `trimming_levels`.
    left_out : int32 array (candidate,)
        The reference model that is the candidate itself, or -1.
    n_models, candidate_counts, reference_counts, n_side, gamma
        As in `trimming_levels`.

    Returns
    -------
    float64 array (candidate, resample)
    """
    n_candidates, n_points = order.shape
    n_resamples = candidate_counts.shape[0]
    result = np.empty((n_candidates, n_resamples))
    knots = np.empty(values.size)
    mass = np.empty(values.size)
    levels = np.zeros(n_points + 1)
    lower = np.zeros(n_points + 1)
    upper = np.zeros(n_points + 1)
    for b in range(n_resamples):
        drawn, opposite = candidate_counts[b], reference_counts[b]
        n_knots, built_for = 0, -2
        for c in range(n_candidates):
            if left_out[c] != built_for:
                built_for = left_out[c]
                n_knots = _distinct(values, point_of, model_of, built_for, opposite, knots, mass)
            total = (n_models - 1 if built_for >= 0 else n_models) * n_side
            n, level, tied, at = 0, 0, 0, 0
            for position in range(n_points):
                tied += drawn[order[c, position]]
                if not last_of_tie[c, position]:
                    continue
                if tied > 0:
                    value = ordered[c, position]
                    while at < n_knots and knots[at] <= value:
                        at += 1
                    reached = _between(knots, mass, n_knots, at, value) / total
                    lower[n] = reached
                    n += 1
                    level += tied
                    levels[n] = level / n_side
                    upper[n] = reached
                tied = 0
            if _gates(lower, upper, n, gamma):
                result[c, b] = 1.0 - 1.0 / smallest_slope(levels, lower, upper, n)
            else:
                result[c, b] = 1.0
    return result


@numba.njit(cache=True, nogil=True)
def _distinct(
    values: Real,
    point_of: NDArray[np.int32],
    model_of: NDArray[np.int32],
    left_out: int,
    counts: NDArray[np.uint8],
    knots: Real,
    mass: Real,
) -> int:
    """Write the distinct drawn values and the mass up to each; return how many."""
    n, reached = 0, 0
    for position in range(values.size):
        count = counts[point_of[position]]
        if count == 0 or model_of[position] == left_out:
            continue
        reached += count
        if n == 0 or values[position] > knots[n - 1]:
            knots[n] = values[position]
            n += 1
        mass[n - 1] = reached
    return n


@numba.njit(cache=True, nogil=True)
def _between(knots: Real, mass: Real, n_knots: int, at: int, value: float) -> float:
    """Return the mass up to `value`, which is below knot `at`; linear between knots."""
    if at == 0:
        return 0.0
    if at == n_knots or knots[at - 1] == value:
        return float(mass[at - 1])
    share = (value - knots[at - 1]) / (knots[at] - knots[at - 1])
    return float(mass[at - 1] + (mass[at] - mass[at - 1]) * share)
