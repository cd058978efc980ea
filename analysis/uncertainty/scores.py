"""Whether the probabilities of every class are right: thresholded adaptive calibration error."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numba
import numpy as np
from numpy.typing import NDArray

Real = NDArray[np.float64]


def thresholded_adaptive_calibration_error(
    logs: Real, y_true: NDArray[np.integer[Any]], threshold: float, bins: int
) -> float:
    """Return TACE: calibration error of all classes, in bins of equally many points.

    For each class c, the m points with p_c above the threshold, ascending (ties by index), are put
    in R = min(bins, m) bins of ⌊m/R⌋, the last with the rest. As in PIT's published code, TACE is
    (1/(nC)) Σ_c Σ_r |Σ_{i in r} (1[y_i = c] - p_ic)|. PIT's equation 2 also divides by the number
    of bins, and its code gives NaN for a class with fewer points than bins.

    Parameters
    ----------
    logs : float array (sample, class)
        Logarithms of probabilities; any NaN makes the result NaN.
    y_true : integer array (sample,)
    threshold : float
        θ.
    bins : int
        M.
    """
    return float(calibration_errors(logs, y_true, [threshold], [bins])[0, 0])


def calibration_errors(
    logs: Real, y_true: NDArray[np.integer[Any]], thresholds: Sequence[float], bins: Sequence[int]
) -> Real:
    """Return TACE for every threshold and number of bins, (threshold, bins), sorting once.

    Parameters are those of `thresholded_adaptive_calibration_error`.
    """
    if np.isnan(logs).any():
        return np.full((len(thresholds), len(bins)), np.nan)
    n, classes = logs.shape
    total = np.zeros((len(thresholds), len(bins)))
    for c in range(classes):
        p = np.exp(logs[:, c])
        above = np.flatnonzero(p > min(thresholds))
        order = above[np.argsort(p[above], kind="stable")]
        p, of_class = p[order], y_true[order] == c
        for row, threshold in enumerate(thresholds):
            first = int(np.searchsorted(p, threshold, side="right"))
            for column, most in enumerate(bins):
                if p.size > first:
                    above_it = p[first:]
                    gap = _gap(above_it, of_class[first:], min(most, above_it.size))
                    total[row, column] += gap
    return np.asarray(total / (n * classes))


@numba.njit(cache=True, nogil=True)
def _gap(p: Real, of_class: NDArray[Any], bins: int) -> float:
    size, total = p.size // bins, 0.0
    for index in range(bins):
        stop = p.size if index == bins - 1 else (index + 1) * size
        gap = 0.0
        for place in range(index * size, stop):
            gap += of_class[place] - p[place]
        total += abs(gap)
    return total
