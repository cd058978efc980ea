"""Imported probabilities → the scores that a sweep keeps: logarithms, or the logit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from manyseed.jobs.training.prediction import OFF, gaps, labels
from manyseed.orchestrator.importing.source import Predicted

FLOOR = float(np.finfo(np.float32).tiny)
"""Smaller probabilities are raised to this value, as the logarithm of 0 is not a score."""


def predicted(
    p: NDArray[np.floating[Any]], refuse: Callable[[int, int, str], NoReturn]
) -> Predicted:
    """Return labels and scores for the probabilities of runs.

    Parameters
    ----------
    p : float array (run, sample) or (run, sample, class)
        Probability of the positive of two classes, or of each class.
    refuse : callable
        Raises an error; takes the indices in `p` of a run and of a test point whose values are not
        probabilities, and what is wrong with them.

    Returns
    -------
    Predicted
        Scores are float32: for two classes the gap log p₁ − log p₀, for more log p. Their softmax
        is p, however p was computed. Test points with a probability below `FLOOR` are counted.
    """
    label = np.empty(p.shape[:2], dtype=np.int64)
    two = p.ndim == 2 or p.shape[2] == 2
    scores = np.empty(p.shape[:2] if two else p.shape, dtype=np.float32)
    floored = 0
    for run, given in enumerate(p):
        exact = given.astype(np.float64)
        if (problem := _problem(exact)) is not None:
            refuse(run, *problem)
        if exact.ndim == 1:
            exact = np.stack([1 - np.minimum(exact, 1), exact], axis=1)
        logs = np.log(np.maximum(exact, FLOOR))
        floored += int((exact < FLOOR).any(axis=1).sum())
        label[run] = labels(gaps(exact), exact.shape[1])
        scores[run] = gaps(logs)
    return Predicted(label[:, None], scores, floored)


def _problem(p: NDArray[np.float64]) -> tuple[int, str] | None:
    """Return the first test point with invalid probabilities and why; None if all are valid."""
    each = p.reshape(len(p), -1)
    negative = np.asarray(~(each >= 0).all(axis=1))  # or NaN
    sums = each.sum(axis=1)
    too_much, too_little = ~(sums <= 1 + OFF), (sums < 1 - OFF) & (p.ndim > 1)
    if not (wrong := negative | too_much | too_little).any():
        return None
    point = int(np.argmax(wrong))
    if negative[point] or p.ndim == 1:
        return point, f"{each[point].min():g} is not a probability"
    return point, f"the probabilities sum to {sums[point]:.6g}, not to 1"
