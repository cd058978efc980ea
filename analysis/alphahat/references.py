"""References of the two-sample test: values of models, sorted once for all candidates.

Also the Wasserstein-1 distance of candidates from their reference, and which models of a reference
are unlike the majority and make the others seem so.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numba
import numpy as np
from numpy.typing import NDArray

from manyseed.analysis import Refused
from manyseed.analysis.alphahat import PAPER_INFEASIBLE
from manyseed.analysis.alphahat.resampling import Resamples
from manyseed.analysis.alphahat.trimming import interpolated_levels, trimming_levels

Real = NDArray[np.float64]
Floats = NDArray[np.floating[Any]]

PAPER_LEVELS = np.array(
    [0, 0.01, 0.025, 0.05, 0.075, 0.10, 0.15, 0.20, 0.25, 0.30, 0.35, 0.40, 0.45]
)
"""Trimming levels that the authors' code tries."""


ROUNDING = 1e-12  # tolerance of comparisons with a level


def ascending(values: Floats) -> NDArray[np.int64]:
    """Return the order of each row of values without NaN, equal values by position.

    Each float32 is packed with its position into one integer, which sorts several times faster
    than `numpy.argsort`.
    """
    if values.dtype != np.float32 or values.shape[1] >= 2**32:
        return np.argsort(values, axis=1, kind="stable")
    bits = np.ascontiguousarray(values).view(np.uint32)
    # The bits of floats ascend with positive values, and descend with negative ones.
    rising = np.where(bits >> 31, ~bits, bits | np.uint32(1 << 31)).astype(np.uint64)
    rising <<= np.uint64(32)
    rising |= np.arange(values.shape[1], dtype=np.uint64)
    rising.sort(axis=1)
    return (rising & np.uint64(2**32 - 1)).astype(np.int64)


@dataclass(frozen=True, slots=True)
class Reference:
    """The values of several models, sorted once.

    Attributes
    ----------
    values : float array (models × points,)
        In ascending order.
    point_of, model_of : int32 array (models × points,)
        The test point and the model of each value.
    n_models : int
    """

    values: Floats
    point_of: NDArray[np.int32]
    model_of: NDArray[np.int32]
    n_models: int

    @classmethod
    def sort(cls, margin: Floats) -> Reference:
        """Sort the margins of all models, (model, point), together."""
        n_models, n_points = margin.shape
        if margin.size >= 2**31:
            reason = f"runs of {n_points} points are too many for one reference; fewer than 2**31 "
            raise Refused("max_references", n_models, f"{reason}values fit")
        order = ascending(margin.reshape(1, -1))[0]
        return cls(
            values=margin.reshape(-1)[order],
            point_of=(order % max(n_points, 1)).astype(np.int32),
            model_of=(order // max(n_points, 1)).astype(np.int32),
            n_models=n_models,
        )


@dataclass(frozen=True, slots=True)
class Candidates:
    """The values of several candidates, each sorted.

    Attributes
    ----------
    ordered : float array (candidate, point)
    order : int32 array (candidate, point)
        The test point of each value.
    last_of_tie : bool array (candidate, point)
        Whether the next value is larger.
    """

    ordered: Floats
    order: NDArray[np.int32]
    last_of_tie: NDArray[np.bool_]

    @classmethod
    def sort(cls, margin: Floats) -> Candidates:
        """Sort the margins of each candidate, (candidate, point), without NaN."""
        order = ascending(margin).astype(np.int32)
        ordered = np.take_along_axis(margin, order, axis=1)
        last_of_tie = np.ones(ordered.shape, dtype=np.bool_)
        last_of_tie[:, :-1] = ordered[:, 1:] > ordered[:, :-1]
        return cls(ordered, order, last_of_tie)


def alpha_stars(
    candidates: Floats, reference: Reference, drawn: Resamples, *, member: bool, gamma: float
) -> tuple[Real, Real]:
    """Return each candidate's smallest trimming level and distance in each resample.

    Parameters
    ----------
    candidates : float array (candidate, point)
        Margins without NaN.
    reference : Reference
    drawn : Resamples
    member : bool
        Whether the candidates are models of the reference; each is then compared with the others,
        Ḡ₋ₖ = (K·Ḡ − Ĝₖ)/(K − 1) in integer counts.
    gamma : float
        Threshold γ.

    Returns
    -------
    float64 arrays (candidate, resample)
        The level, 1 where no trimming is accepted; and ‖Ĝ − Ḡ‖_∞.
    """
    by_value = Candidates.sort(candidates)
    below = np.searchsorted(reference.values, by_value.ordered, side="left").astype(np.int32)
    upto = np.searchsorted(reference.values, by_value.ordered, side="right").astype(np.int32)
    needed = np.zeros(reference.values.size + 1, dtype=np.bool_)
    needed[below] = needed[upto] = True
    place = np.cumsum(needed, dtype=np.int32) - 1
    return trimming_levels(
        reference.point_of,
        np.flatnonzero(needed),
        by_value.order,
        by_value.last_of_tie,
        place[below],
        place[upto],
        member,
        reference.n_models,
        drawn.candidate,
        drawn.reference,
        drawn.n_side,
        gamma,
    )


def interpolated_stars(
    candidates: Floats,
    reference: Reference,
    drawn: Resamples,
    *,
    left_out: NDArray[np.int32],
    delta: float,
) -> Real:
    """Return the smallest level at which the authors' practical test accepts (RKS, eq. 57).

    The reference is interpolated linearly between its values; the threshold is δ + 1/N.

    Parameters
    ----------
    candidates : float array (candidate, point)
        Finite margins.
    reference : Reference
    drawn : Resamples
    left_out : int32 array (candidate,)
        The reference model that is the candidate itself, or -1.
    delta : float
        Threshold δ.

    Returns
    -------
    float64 array (candidate, resample)
        1 where it accepts at no level.
    """
    by_value = Candidates.sort(candidates)
    return interpolated_levels(
        reference.values.astype(np.float64),
        reference.point_of,
        reference.model_of,
        by_value.ordered.astype(np.float64),
        by_value.order,
        by_value.last_of_tie,
        left_out,
        reference.n_models,
        drawn.candidate,
        drawn.reference,
        drawn.n_side,
        delta + 1 / drawn.n_side,
    )


def on_grid(exact: Real) -> Real:
    """Round up to a level of the authors' grid, .50 above it (RKS, algorithm 1, their code)."""
    first = np.searchsorted(PAPER_LEVELS, exact - ROUNDING)
    return np.append(PAPER_LEVELS, PAPER_INFEASIBLE)[first]


def distances(candidates: Floats, reference: Reference, left_out: NDArray[np.int32]) -> Real:
    """Return W₁ = ∫ |Ĝ(t) − Ḡ(t)| dt over all test points for each candidate.

    Parameters
    ----------
    candidates : float array (candidate, point)
        Without NaN.
    reference : Reference
        Its models have as many points.
    left_out : int32 array (candidate,)
        The reference model that is the candidate itself, or -1.

    Returns
    -------
    float64 array (candidate,)
        In units of the values; infinite where the eCDFs differ up to an infinite value.
    """
    result = np.empty(candidates.shape[0])
    for index, values in enumerate(candidates):
        model = int(left_out[index])
        if model >= 0:
            result[index] = _of_member(
                reference.values, reference.model_of, reference.n_models - 1, model
            )
        else:
            result[index] = _between(np.sort(values), reference.values)
    n_others = reference.n_models - (left_out >= 0)
    return np.asarray(result / (n_others * candidates.shape[1]))


@numba.njit(cache=True, nogil=True)
def _of_member(values: Floats, model_of: NDArray[np.int32], others: int, own: int) -> float:
    """Return the area, times the number of the others' values; the candidate is among `values`."""
    area, ahead = 0.0, 0  # candidate's eCDF minus theirs, in numbers of the others' values
    for position in range(values.size - 1):
        ahead += others if model_of[position] == own else -1
        if ahead != 0 and values[position + 1] > values[position]:
            area += abs(ahead) * (np.float64(values[position + 1]) - np.float64(values[position]))
    return area


@numba.njit(cache=True, nogil=True)
def _between(own: Floats, values: Floats) -> float:
    """Return the area, times the number of `values`; both ascending."""
    others = values.size // own.size
    area, ahead, i, j = 0.0, 0, 0, 0
    while i < own.size or j < values.size:
        if j == values.size or (i < own.size and own[i] <= values[j]):
            at = np.float64(own[i])
            ahead += others
            i += 1
        else:
            at = np.float64(values[j])
            ahead -= 1
            j += 1
        if i == own.size and j == values.size:
            break
        if i == own.size or (j < values.size and values[j] < own[i]):
            step = np.float64(values[j]) - at
        else:
            step = np.float64(own[i]) - at
        if ahead != 0 and step > 0:
            area += abs(ahead) * step
    return area


MIN_KEPT = 3  # so that each is compared with two others

Positions = NDArray[np.int64]


def distances_from_median(values: Floats) -> NDArray[np.float64]:
    """Return the distance of each model's eCDF from the median one, ‖·‖_∞.

    The median eCDF has, for each i, the median over models of the i-th smallest value (the lower
    one of an even number), so fewer than half of the models can't move it beyond the others.

    Parameters
    ----------
    values : float array (model, point)
        Without NaN.

    Returns
    -------
    float64 array (model,)
    """
    n_models, n_points = values.shape
    ordered = np.take_along_axis(values, ascending(values), axis=1)
    middle = np.sort(ordered, axis=0)[(n_models - 1) // 2]
    result = np.empty(n_models)
    for model, values_of_model in enumerate(ordered):
        steps = np.concatenate([values_of_model, middle])
        ranks, of_middle = (
            np.searchsorted(each, steps, side="right") for each in (values_of_model, middle)
        )
        result[model] = np.abs(ranks - of_middle).max() / n_points
    return result


def suspects(values: Floats, passes: Callable[[Positions], bool]) -> Positions | None:
    """Return the models without which all others pass a test against each other.

    Models are left out in order of their distance from the median eCDF, the farthest first (the
    last of equals), as few as possible: fewer than half, and at least three are kept.

    Parameters
    ----------
    values : float array (model, point)
        Without NaN.
    passes : callable
        Takes ascending positions of models; returns whether each of these passes against the
        others.

    Returns
    -------
    int64 array (suspect,) or None
        Ascending; None if leaving out fewer than half of the models is not enough.
    """
    n_models = values.shape[0]
    most = min((n_models - 1) // 2, n_models - MIN_KEPT)
    if most < 0:
        return None
    order = np.arange(n_models)
    if most > 0:
        order = np.lexsort((-order, -distances_from_median(values)))

    def enough(n: int) -> bool:
        return passes(np.sort(order[n:]))

    too_few, n_out = -1, 0  # doubles until enough are left out, then bisects
    while not enough(n_out):
        if n_out == most:
            return None
        too_few, n_out = n_out, min(max(1, 2 * n_out), most)
    while n_out - too_few > 1:
        half = (too_few + n_out) // 2
        too_few, n_out = (too_few, half) if enough(half) else (half, n_out)
    return np.sort(order[:n_out])
