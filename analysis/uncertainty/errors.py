"""Errors of probabilities: rejection of the least confident, and calibration of all classes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numba
import numpy as np
from numpy.typing import NDArray

Real = NDArray[np.float64]


def area_under_risk_coverage(confidence: Real, wrong: NDArray[np.bool_]) -> float:
    """Return AURC: the mean over j = 1…n of the share wrong among the j most confident points.

    Points of equal confidence have no order: the risk among them is the expectation over random
    orders. PIT's AU-ARC is 1 - AURC; its published code omits full coverage and divides by one too
    many, +0.001 for every model.

    Parameters
    ----------
    confidence : float array (sample,)
        Any NaN makes the result NaN.
    wrong : bool array (sample,)
    """
    if np.isnan(confidence).any():
        return float("nan")
    order = np.argsort(-confidence)  # ties may be in any order
    return float(_mean_risk(confidence[order], wrong[order]))


@numba.njit(cache=True, nogil=True)
def _mean_risk(confidence: Real, wrong: NDArray[Any]) -> float:
    n, start, before, total = confidence.size, 0, 0.0, 0.0
    while start < n:
        stop, errors = start, 0.0
        while stop < n and confidence[stop] == confidence[start]:
            errors += wrong[stop]
            stop += 1
        rate = errors / (stop - start)
        for j in range(start + 1, stop + 1):
            total += (before + rate * (j - start)) / j
        before += errors
        start = stop
    return total / n


def auroc(score: Real, positive: NDArray[np.bool_]) -> float:
    """Return P(a positive point scores higher than another) + ½ P(they tie).

    Parameters
    ----------
    score : float array (sample,)
        Any NaN makes the result NaN.
    positive : bool array (sample,)

    Returns
    -------
    float
        NaN without positive points, or without others.
    """
    n_positive = int(positive.sum())
    n_others = positive.size - n_positive
    if n_positive == 0 or n_others == 0 or np.isnan(score).any():
        return float("nan")
    order = np.argsort(score)  # ties may be in any order
    return float(_pairs_won(score[order], positive[order])) / (n_positive * n_others)


@numba.njit(cache=True, nogil=True)
def _pairs_won(score: Real, positive: NDArray[Any]) -> float:
    n, start, below, won = score.size, 0, 0.0, 0.0
    while start < n:
        stop, positives, others = start, 0.0, 0.0
        while stop < n and score[stop] == score[start]:
            positives += positive[stop]
            others += not positive[stop]
            stop += 1
        won += positives * (below + others / 2)
        below += others
        start = stop
    return won


def entropy(logs: Real) -> Real:
    """Return the entropy in nats, (sample,), of log-probabilities (sample, class)."""
    p = np.exp(logs)
    return np.asarray(-np.where(p > 0, p * np.where(p > 0, logs, 0), 0).sum(axis=1))


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
