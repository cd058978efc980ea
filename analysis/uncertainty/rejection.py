"""The error that remains when the least confident predictions are rejected."""

from __future__ import annotations

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
