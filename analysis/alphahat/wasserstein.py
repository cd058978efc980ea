"""The Wasserstein-1 distance of candidates from their reference: the area between the eCDFs."""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
from numpy.typing import NDArray

from manyseed.analysis.alphahat.references import Reference

Real = NDArray[np.float64]
Floats = NDArray[np.floating[Any]]


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
