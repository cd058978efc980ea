"""From scores to a run's prediction."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from jobs.run import Prediction, Probability


def prediction(
    scores: NDArray[np.floating[Any]],
    probability: Probability,
    fit_seconds: float,
    curves: Mapping[str, NDArray[np.float32]] | None = None,
) -> Prediction:
    """Derive labels and confidences from scores, which are rounded to float32 first.

    Parameters
    ----------
    scores : array
        Logit gaps (epoch, sample), or a score a class (epoch, sample, class).
    probability : {"softmax", "ovr", "none"}
        How scores become probabilities.
    fit_seconds : float
        Wall time of fitting.
    curves : dict, optional
        Learning curves.

    Raises
    ------
    FloatingPointError
        Where a score is not finite: the training diverged.
    """
    with np.errstate(over="ignore"):
        scores = np.ascontiguousarray(scores, dtype=np.float32)
    if not np.isfinite(scores).all():
        bad = np.count_nonzero(~np.isfinite(scores))
        raise FloatingPointError(
            f"the training diverged: {bad} of {scores.size} scores are not finite"
        )
    label = scores >= 0 if scores.ndim == 2 else scores.argmax(axis=2)
    return Prediction(
        scores=scores,
        label=label.astype(np.uint16),
        confidence=_confidence(scores, probability).astype(np.float32),
        fit_seconds=fit_seconds,
        curves=curves,
    )


def logit_scores(logits: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return the scores that are kept of a network's logits (epoch, sample, class)."""
    if logits.shape[2] != 2:
        return logits
    gap: NDArray[np.float32] = logits[..., 1] - logits[..., 0]
    return gap


def _confidence(scores: NDArray[np.float32], probability: Probability) -> NDArray[np.float64]:
    """Return the probability of the predicted class, (epoch, sample)."""
    exact = scores.astype(np.float64)
    if probability == "none":
        return np.full(scores.shape[:2], np.nan)
    if scores.ndim == 2:
        # Sigmoid of the gap; normalised one-vs-rest sigmoids of g and -g are the same number.
        return 1 / (1 + np.exp(-np.abs(exact)))
    # Both in logarithms, so that no row of small probabilities sums to zero.
    logs = exact if probability == "softmax" else -np.logaddexp(0.0, -exact)
    shares: NDArray[np.float64] = np.exp(logs - logs.max(axis=2, keepdims=True))
    return np.asarray(1 / shares.sum(axis=2))
