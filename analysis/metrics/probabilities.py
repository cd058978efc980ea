"""From what is stored of a run to probabilities.

With two classes the probability of the positive one is the sigmoid of the logit gap, whether the
scores are softmax logits or normalised one-vs-rest sigmoids of g and -g. With more it takes the
scores of all classes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, log_expit, log_softmax

from manyseed.analysis.metrics.metric import Part

Real = NDArray[np.float64]


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


def true_log_probability(logs: Real, y_true: NDArray[np.integer[Any]]) -> Real:
    """Return the logarithm of the true class's probability, (sample,)."""
    result: Real = np.take_along_axis(logs, y_true.astype(np.intp)[:, None], axis=1)[:, 0]
    return result
