"""Turn scores into a run's prediction."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from manyseed.jobs.run import Prediction, Probability

OFF = 1e-3
"""Largest deviation from 1 of the sum of a row's probabilities."""


def prediction(
    scores: NDArray[np.floating[Any]],
    probability: Probability,
    fit_seconds: float,
    curves: Mapping[str, NDArray[np.float32]] | None = None,
    measured: Mapping[str, NDArray[Any]] | None = None,
) -> Prediction:
    """Derive labels and confidences from scores, which are rounded to float32 first.

    Parameters
    ----------
    scores : array
        Gaps of two classes (epoch, sample), or a score per class (epoch, sample, class).
    probability, fit_seconds, curves, measured
        As in `jobs.run.Probability` and `jobs.run.Prediction`.

    Raises
    ------
    FloatingPointError
        If a score is not finite: the training diverged.
    """
    scores = scores if scores.ndim == 2 else gaps(scores)
    with np.errstate(over="ignore"):
        scores = np.ascontiguousarray(scores, dtype=np.float32)
    if not np.isfinite(scores).all():
        bad = np.count_nonzero(~np.isfinite(scores))
        raise FloatingPointError(
            f"the training diverged: {bad} of {scores.size} scores are not finite"
        )
    return Prediction(
        scores=scores,
        label=labels(scores, 2 if scores.ndim == 2 else scores.shape[2]).astype(np.uint16),
        confidence=_confidence(scores, probability).astype(np.float32),
        fit_seconds=fit_seconds,
        curves=curves,
        measured=measured,
    )


def gaps(scores: Any) -> Any:
    """Return scores (…, class), an array or tensor, in stored form: the gap (…) of two classes."""
    return scores[..., 1] - scores[..., 0] if scores.shape[-1] == 2 else scores


def labels(scores: Any, n_classes: int) -> Any:
    """Return the classes that gaps (…) or scores of more than two classes (…, class) predict.

    A tie goes to the positive one of two classes, and to the first of more.
    """
    return scores >= 0 if n_classes == 2 else scores.argmax(-1)


def are_probabilities(values: NDArray[Any]) -> bool:
    """Return whether a run's values (sample,) or (sample, class) can be probabilities."""
    if not 0 <= values.min() <= values.max() <= 1:  # or NaN
        return False
    return values.ndim == 1 or bool((abs(values.sum(axis=1, dtype=np.float64) - 1) <= OFF).all())


def _confidence(scores: NDArray[np.float32], probability: Probability) -> NDArray[np.float64]:
    """Return the probability of the predicted class, (epoch, sample)."""
    exact = scores.astype(np.float64)
    if probability == "none":
        return np.full(scores.shape[:2], np.nan)
    if scores.ndim == 2:
        # Sigmoid of the gap; normalised one-vs-rest sigmoids of g and -g give the same number.
        return 1 / (1 + np.exp(-np.abs(exact)))
    # Both in logarithms, so that a row of small probabilities cannot sum to zero.
    logs = exact if probability == "softmax" else -np.logaddexp(0.0, -exact)
    shares: NDArray[np.float64] = np.exp(logs - logs.max(axis=2, keepdims=True))
    return np.asarray(1 / shares.sum(axis=2))
