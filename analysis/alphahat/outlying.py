"""Which models of a reference are unlike the majority, and make the others seem so."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from manyseed.analysis.alphahat.references import ascending

MIN_KEPT = 3  # so that each is compared with two others

Floats = NDArray[np.floating[Any]]
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
