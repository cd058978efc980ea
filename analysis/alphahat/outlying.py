"""Which models of a reference make the robust test infeasible for others, or for themselves."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from manyseed.analysis.alphahat.references import ascending

MIN_KEPT = 3  # a reference of two others, for each

Floats = NDArray[np.floating[Any]]
Positions = NDArray[np.int64]


def distances_from_median(values: Floats) -> NDArray[np.float64]:
    """Return how far the eCDF of each model is from the median one, ‖·‖_∞.

    The median is taken over models of the i-th smallest value, for each i (the lower one of an even
    number), so that fewer than half of the models can't move it beyond where the others are.

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
    for model, own in enumerate(ordered):
        steps = np.concatenate([own, middle])
        differences = np.searchsorted(own, steps, side="right") - np.searchsorted(
            middle, steps, side="right"
        )
        result[model] = np.abs(differences).max() / n_points
    return result


def suspects(values: Floats, feasible: Callable[[Positions], bool]) -> Positions | None:
    """Return the models without which no resample of any other one is infeasible.

    Models are left out in order of their distance from the median eCDF, the farthest first (of
    equal ones the last), and no more of them than are needed: fewer than half, and three are kept.

    Parameters
    ----------
    values : float array (model, point)
        Without NaN.
    feasible : callable
        Whether each of some models, ascending positions, is feasible against the others of these in
        every resample.

    Returns
    -------
    int64 array (suspect,) or None
        Ascending; None where leaving out fewer than half of the models does not do.
    """
    n_models = values.shape[0]
    most = min((n_models - 1) // 2, n_models - MIN_KEPT)
    if most < 0:
        return None
    order = np.arange(n_models)
    if most > 0:
        order = np.lexsort((-order, -distances_from_median(values)))

    def enough(n: int) -> bool:
        return feasible(np.sort(order[n:]))

    fails, does = -1, 0  # twice as many each time, then half way between
    while not enough(does):
        if does == most:
            return None
        fails, does = does, min(max(1, 2 * does), most)
    while does - fails > 1:
        half = (fails + does) // 2
        fails, does = (fails, half) if enough(half) else (half, does)
    return np.sort(order[:does])
