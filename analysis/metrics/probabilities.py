"""From what is stored of a run to probabilities.

With two classes the probability of the positive one is the sigmoid of the logit gap, whether the
scores are softmax logits or normalised one-vs-rest sigmoids of g and -g. With more it takes the
scores of all classes.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numba
import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, log_expit, log_softmax

from manyseed.analysis.metrics.metric import Part

Real = NDArray[np.float64]

SLICE_BYTES = 2**22
"""What runs that are computed together take as doubles, beside a few copies of it."""


def confidences(part: Part) -> Iterator[Real]:
    """Yield of one run after the other the probability of the predicted class, (sample,)."""
    for run in range(part.n_runs):
        if part.held_out.n_classes == 2 and part.margin is not None:
            yield np.asarray(expit(np.abs(part.margin[run].astype(np.float64))))
        elif part.confidence is not None:
            yield part.confidence[run].astype(np.float64)
        else:
            yield np.exp(log_probabilities(part, run).max(axis=1))


def log_probabilities(part: Part, run: int) -> Real:
    """Return the logarithm of each class's probability, (sample, class).

    Raises
    ------
    ValueError
        Where neither the gap of two classes nor all scores are there.
    """
    if part.held_out.n_classes == 2 and part.margin is not None:
        gap = part.margin[run].astype(np.float64)
        return np.stack([log_expit(-gap), log_expit(gap)], axis=1)
    if part.score is None:
        raise ValueError("probabilities of all classes need the scores of all classes")
    score = part.score[run].astype(np.float64)
    # Both in logarithms, so that no row of small probabilities sums to zero.
    logs = score if part.held_out.probability == "softmax" else log_expit(score)
    result: Real = log_softmax(logs, axis=1)
    return result


def all_true_log_probabilities(part: Part, rows: slice) -> Real:
    """Return the logarithm of the true class's probability of some runs, (run, sample).

    Raises
    ------
    ValueError
        As `log_probabilities` does.
    """
    found = np.empty((rows.stop - rows.start, part.held_out.n_test))
    if part.held_out.n_classes == 2 and part.margin is not None:
        _of_gaps(part.margin[rows], part.y_true, found)
    elif part.score is not None:
        _of_scores(part.score[rows], part.y_true, part.held_out.probability == "ovr", found)
    else:
        raise ValueError("probabilities of all classes need the scores of all classes")
    return found


@numba.njit(cache=True, nogil=True)
def _of_gaps(gap: NDArray[Any], y_true: NDArray[Any], found: Real) -> None:
    for run in range(gap.shape[0]):
        for point in range(gap.shape[1]):
            own = np.float64(gap[run, point])
            found[run, point] = log_sigmoid(own if y_true[point] == 1 else -own)


@numba.njit(cache=True, nogil=True)
def _of_scores(score: NDArray[Any], y_true: NDArray[Any], ovr: bool, found: Real) -> None:
    own = np.empty(score.shape[2])
    for run in range(score.shape[0]):
        for point in range(score.shape[1]):
            _from_highest(score[run, point], ovr, own)
            found[run, point] = own[y_true[point]] - np.log(np.exp(own).sum())


def true_log_probability(logs: Real, y_true: NDArray[np.integer[Any]]) -> Real:
    """Return the logarithm of the true class's probability, (sample,)."""
    result: Real = np.take_along_axis(logs, y_true.astype(np.intp)[:, None], axis=1)[:, 0]
    return result


def slices(n_runs: int, run_bytes: int) -> Iterator[slice]:
    """Yield runs that are computed together: a few megabytes, at least one run."""
    each = max(1, SLICE_BYTES // max(run_bytes, 1))
    for start in range(0, n_runs, each):
        yield slice(start, min(start + each, n_runs))


def log_odds(score: NDArray[np.floating[Any]], *, ovr: bool) -> Real:
    """Return the log odds of each class against all others, log(p / (1 - p)).

    Points whose other scores are the same in another order have the same odds, to the last bit.

    Parameters
    ----------
    score : float array (run, sample, class)
    ovr : bool
        Whether probabilities are normalised one-vs-rest sigmoids of the scores, not their softmax.

    Returns
    -------
    float64 array (run, class, sample)
        NaN of points with a score that is NaN or plus infinity.
    """
    found = np.empty((score.shape[0], score.shape[2], score.shape[1]))
    _log_odds(score, ovr, found)
    return found


@numba.njit(cache=True, nogil=True)
def _log_odds(score: NDArray[Any], ovr: bool, found: Real) -> None:
    n_classes = score.shape[2]
    own = np.empty(n_classes)
    below, above = np.zeros(n_classes + 1), np.zeros(n_classes + 1)
    for run in range(score.shape[0]):
        for point in range(score.shape[1]):
            _from_highest(score[run, point], ovr, own)
            ordered = np.sort(own)
            for k in range(n_classes):
                below[k + 1] = below[k] + np.exp(ordered[k])
                last = n_classes - 1 - k
                above[last] = above[last + 1] + np.exp(ordered[last])
            for k in range(n_classes):
                # the first of those that are equal, so that equal ones have equal odds
                place = min(np.searchsorted(ordered, own[k]), n_classes - 1)
                if own[k] != own[k]:
                    found[run, k, point] = np.nan
                elif place == n_classes - 1:
                    found[run, k, point] = -_log_sum(ordered[:-1])
                else:
                    found[run, k, point] = own[k] - np.log(below[place] + above[place + 1])


@numba.njit(cache=True, nogil=True)
def _log_sum(ordered: Real) -> float:
    """Return the logarithm of the sum of exponentials of sorted values, however small they are."""
    last = float(ordered[-1])
    if last == -math.inf:
        return last
    total = 0.0
    for value in ordered:
        total += math.exp(value - last)
    return last + math.log(total)


@numba.njit(cache=True, nogil=True)
def _from_highest(score: NDArray[Any], ovr: bool, own: Real) -> None:
    """Put the logarithms of unnormalised probabilities of a point into `own`, the highest as 0."""
    highest = -np.inf
    for k in range(own.size):
        own[k] = score[k]  # in double precision from here on
        if ovr:
            own[k] = log_sigmoid(own[k])
        highest = max(highest, own[k])
    for k in range(own.size):
        own[k] -= highest


@numba.njit(cache=True, nogil=True)
def log_sigmoid(value: float) -> float:
    """Return the logarithm of 1 / (1 + e^-x)."""
    if value >= 0:
        return -math.log1p(math.exp(-value))
    return value - math.log1p(math.exp(value))
