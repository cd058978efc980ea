"""Moments and quantiles of a column, compiled; importing numba is slow."""

from __future__ import annotations

import numba
import numpy as np
from numpy.typing import NDArray

Real = NDArray[np.float64]


@numba.njit(cache=True, nogil=True)
def moments(values: Real, levels: Real) -> tuple[int, float, float, float, float, Real]:
    """Return count, mean, standard deviation, extremes and quantiles of the defined values.

    Compiled, because a sweep has a dozen columns for each of its repeats.
    """
    quantiles = np.full(levels.size, np.nan)
    defined = values[~np.isnan(values)]
    n = defined.size
    if n == 0:
        return 0, np.nan, np.nan, np.nan, np.nan, quantiles
    if levels.size:
        defined.sort()
    lowest, highest = defined.min(), defined.max()
    mean = lowest if lowest == highest else defined.mean()  # exact for equal values
    std = np.nan if n < 2 else np.sqrt(((defined - mean) ** 2).sum() / (n - 1))
    for index in range(levels.size):  # between the two neighbours, as NumPy does by default
        place = levels[index] * (n - 1)
        below = int(place)
        low, high, share = defined[below], defined[min(below + 1, n - 1)], place - below
        step = high - low
        quantiles[index] = low + step * share if share < 0.5 else high - step * (1 - share)
    return n, mean, std, lowest, highest, quantiles
