"""From stored scores to probabilities.

With two classes the positive one's probability is the sigmoid of the logit gap, whether the scores
are softmax logits or normalised one-vs-rest sigmoids of g and -g. More classes need all scores.
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
"""Memory for the doubles of the runs computed together; a few copies come on top."""

_NORMALISED = 1e-5
"""The logarithms of probabilities, as stored in float32, sum to 1 within this."""


def confidences(part: Part) -> Iterator[Real]:
    """Yield the probability of the predicted class, (sample,), run by run."""
    for run in range(part.n_runs):
        if part.held_out.n_classes == 2 and part.margin is not None:
            yield np.asarray(expit(np.abs(part.margin[run].astype(np.float64))))
        elif part.confidence is not None:
            yield part.confidence[run].astype(np.float64)
        elif part.score is not None and part.held_out.probability == "softmax":
            score = part.score[run].astype(np.float64)
            logs = score if _is_normalised(score) else log_probabilities(part, run)
            yield np.exp(logs.max(axis=1))
        else:
            yield np.exp(log_probabilities(part, run).max(axis=1))


def log_probabilities(part: Part, run: int) -> Real:
    """Return the logarithm of each class's probability, (sample, class)."""
    if part.held_out.n_classes == 2 and part.margin is not None:
        gap = part.margin[run].astype(np.float64)
        return np.stack([log_expit(-gap), log_expit(gap)], axis=1)
    if part.score is None:
        raise ValueError("probabilities of all classes need the scores of all classes")
    score = part.score[run].astype(np.float64)
    # in logarithms, so that no row of small probabilities sums to zero
    logs = score if part.held_out.probability == "softmax" else log_expit(score)
    result: Real = log_softmax(logs, axis=1)
    return result


def all_true_log_probabilities(part: Part, rows: slice) -> Real:
    """Return the logarithm of the true class's probability for some runs, (run, sample)."""
    result = np.empty((rows.stop - rows.start, part.held_out.n_test))
    if part.held_out.n_classes == 2 and part.margin is not None:
        _of_gaps(part.margin[rows], part.y_true, result)
    elif part.score is not None:
        _of_scores(part.score[rows], part.y_true, part.held_out.probability == "ovr", result)
    else:
        raise ValueError("probabilities of all classes need the scores of all classes")
    return result


@numba.njit(cache=True, nogil=True)
def _of_gaps(gap: NDArray[Any], y_true: NDArray[Any], result: Real) -> None:
    for run in range(gap.shape[0]):
        for point in range(gap.shape[1]):
            value = np.float64(gap[run, point])
            result[run, point] = log_sigmoid(value if y_true[point] == 1 else -value)


@numba.njit(cache=True, nogil=True)
def _of_scores(score: NDArray[Any], y_true: NDArray[Any], ovr: bool, result: Real) -> None:
    logs = np.empty(score.shape[2])
    for run in range(score.shape[0]):
        for point in range(score.shape[1]):
            _from_highest(score[run, point], ovr, logs)
            result[run, point] = logs[y_true[point]] - np.log(np.exp(logs).sum())


def true_log_probability(logs: Real, y_true: NDArray[np.integer[Any]]) -> Real:
    """Return the logarithm of the true class's probability, (sample,)."""
    result: Real = np.take_along_axis(logs, y_true.astype(np.intp)[:, None], axis=1)[:, 0]
    return result


def slices(n_runs: int, run_bytes: int) -> Iterator[slice]:
    """Yield slices of runs to compute together: `SLICE_BYTES`, but at least one run."""
    size = max(1, SLICE_BYTES // max(run_bytes, 1))
    for start in range(0, n_runs, size):
        yield slice(start, min(start + size, n_runs))


def log_odds(score: NDArray[np.floating[Any]], *, ovr: bool) -> Real:
    """Return the log odds of each class against all others, log(p / (1 - p)).

    Reordering the other classes' scores changes no bit of a class's odds. Where scores are the
    logarithms of probabilities, equal ones have equal odds, whatever the others are.

    Parameters
    ----------
    score : float array (run, sample, class)
    ovr : bool
        Whether probabilities are normalised one-vs-rest sigmoids of the scores, not their softmax.

    Returns
    -------
    float64 array (run, class, sample)
        NaN for points with a score that is NaN or plus infinity.
    """
    result = np.empty((score.shape[0], score.shape[2], score.shape[1]))
    _log_odds(score, ovr, result)
    return result


@numba.njit(cache=True, nogil=True)
def _log_odds(score: NDArray[Any], ovr: bool, result: Real) -> None:
    n_classes = score.shape[2]
    logs = np.empty(n_classes)
    below, above = np.zeros(n_classes + 1), np.zeros(n_classes + 1)
    for run in range(score.shape[0]):
        alone = not ovr and _is_normalised(score[run])
        for point in range(score.shape[1]):
            if alone:
                for k in range(n_classes):
                    result[run, k, point] = _odds_of(np.float64(score[run, point, k]))
                continue
            _from_highest(score[run, point], ovr, logs)
            ordered = np.sort(logs)
            for k in range(n_classes):
                below[k + 1] = below[k] + np.exp(ordered[k])
                last = n_classes - 1 - k
                above[last] = above[last + 1] + np.exp(ordered[last])
            for k in range(n_classes):
                # position of the first equal value, so that equal values get equal odds
                place = min(np.searchsorted(ordered, logs[k]), n_classes - 1)
                if logs[k] != logs[k]:
                    result[run, k, point] = np.nan
                elif place == n_classes - 1:
                    result[run, k, point] = -_log_sum(ordered[:-1])
                else:
                    result[run, k, point] = logs[k] - np.log(below[place] + above[place + 1])


@numba.njit(cache=True, nogil=True)
def _is_normalised(score: NDArray[Any]) -> bool:
    """Whether a run's scores, (sample, class), are logarithms of probabilities, not logits.

    Renormalising those would give equal probabilities different last digits, which are no ties.
    """
    for point in range(score.shape[0]):
        total = 0.0
        for k in range(score.shape[1]):
            total += np.exp(np.float64(score[point, k]))
        if not abs(total - 1.0) <= _NORMALISED:
            return False
    return True


@numba.njit(cache=True, nogil=True)
def _odds_of(log_probability: float) -> float:
    """Return log(p / (1 - p)) of log(p)."""
    if log_probability >= 0:
        return math.inf
    return log_probability - math.log(-math.expm1(log_probability))


@numba.njit(cache=True, nogil=True)
def _log_sum(ordered: Real) -> float:
    """Return the logarithm of the sum of exponentials of sorted values, without underflow."""
    last = float(ordered[-1])
    if last == -math.inf:
        return last
    total = 0.0
    for value in ordered:
        total += math.exp(value - last)
    return last + math.log(total)


@numba.njit(cache=True, nogil=True)
def _from_highest(score: NDArray[Any], ovr: bool, logs: Real) -> None:
    """Write the logarithms of a point's unnormalised probabilities to `logs`, the highest as 0."""
    highest = -np.inf
    for k in range(logs.size):
        logs[k] = score[k]  # in double precision from here on
        if ovr:
            logs[k] = log_sigmoid(logs[k])
        highest = max(highest, logs[k])
    for k in range(logs.size):
        logs[k] -= highest


@numba.njit(cache=True, nogil=True)
def log_sigmoid(value: float) -> float:
    """Return the logarithm of 1 / (1 + e^-x)."""
    if value >= 0:
        return -math.log1p(math.exp(-value))
    return value - math.log1p(math.exp(value))
