"""How good probabilities are: calibration error, log-likelihood, Brier score, log loss."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from manyseed.analysis.metrics.metric import Finished, HeldOut, Metric, Part, real
from manyseed.analysis.metrics.probabilities import (
    all_true_log_probabilities,
    confidences,
    log_probabilities,
    slices,
    true_log_probability,
)
from manyseed.analysis.options import Options

Real = NDArray[np.float64]


def expected_calibration_error(confidence: Real, right: NDArray[np.bool_], bins: int) -> float:
    """Return the expected calibration error (RKS, section V; Naeini et al. 2015).

    The mean over test points of |accuracy - mean confidence| in the point's bin. Confidence is the
    predicted class's probability; bins have equal widths and include their right edge.

    Parameters
    ----------
    confidence : float array (sample,)
        Any NaN makes the result NaN.
    right : bool array (sample,)
    bins : int
    """
    if np.isnan(confidence).any():
        return float("nan")
    index = np.clip(np.ceil(confidence * bins).astype(np.intp) - 1, 0, bins - 1)
    gap = np.bincount(index, weights=confidence, minlength=bins) - np.bincount(
        index, weights=right.astype(np.float64), minlength=bins
    )
    return float(np.abs(gap).sum() / confidence.size)


def log_likelihood(logs: Real, y_true: NDArray[np.integer[Any]]) -> float:
    """Return the mean logarithm of the true class's probability, in nats (PIT)."""
    return float(true_log_probability(logs, y_true).mean())


def brier(logs: Real, y_true: NDArray[np.integer[Any]]) -> float:
    """Return the Brier score, summed over classes: mean of Σ_k (p_k - 1[k = y])² (PIT, tables).

    Parameters
    ----------
    logs : float array (sample, class)
        Logarithms of probabilities.
    y_true : integer array (sample,)
    """
    p = np.exp(logs)
    p[np.arange(y_true.size), y_true] -= 1
    return float(np.square(p).sum(axis=1).mean())


def log_loss(logs: Real) -> Real:
    """Return the mean log loss of runs, in nats, as in ``sklearn.metrics.log_loss``.

    Probabilities are clipped to 2.2e-16 from 0 and 1, the precision of a double, so that no point
    loses more than 36 nats; `log_likelihood` does not clip.

    Parameters
    ----------
    logs : float64 array (run, sample)
        Logarithms of the true class's probability.
    """
    precision = float(np.finfo(np.float64).eps)
    limited = np.clip(logs, np.log(precision), np.log1p(-precision))
    result: Real = -limited.mean(axis=1)
    return result


def _ece_chunk(part: Part, _: Part, shared: None, options: Options) -> Real:
    return np.array(
        [
            expected_calibration_error(confidence, label == part.y_true, options.ece_bins)
            for confidence, label in zip(confidences(part), part.label, strict=True)
        ]
    )


def _ece_finish(held_out: HeldOut, partials: Sequence[Real], options: Options) -> Finished:
    return Finished(runs={"ece": np.concatenate(partials)})


def _scores_chunk(part: Part, _: Part, shared: None, options: Options) -> Real:
    values = []
    for run in range(part.n_runs):
        logs = log_probabilities(part, run)
        values.append((log_likelihood(logs, part.y_true), brier(logs, part.y_true)))
    losses = np.concatenate(
        [
            log_loss(all_true_log_probabilities(part, rows))
            for rows in slices(part.n_runs, 8 * part.held_out.n_test)
        ]
    )
    return np.column_stack([np.array(values), losses])


def _scores_finish(held_out: HeldOut, partials: Sequence[Real], options: Options) -> Finished:
    values = np.concatenate(partials)
    return Finished(
        runs={
            "log_likelihood": values[:, 0],
            "brier": values[:, 1],
            "brier_per_class": values[:, 1] / held_out.n_classes,
            "log_loss": values[:, 2],
        }
    )


ECE = Metric(
    name="ece",
    needs="confidence",
    source="RKS, section V; Naeini et al. 2015",
    chunk=_ece_chunk,
    finish=_ece_finish,
    runs=(
        real(
            "ece",
            "difference of shares",
            "Expected calibration error of the predicted class's probability. Not a criterion for "
            "selection: it grows with fewer points per bin, and uninformative probabilities lower "
            "it.",
        ),
    ),
)

PROPER_SCORES = Metric(
    name="proper_scores",
    needs="score",
    source="PIT; scikit-learn (log_loss)",
    chunk=_scores_chunk,
    finish=_scores_finish,
    runs=(
        real("log_likelihood", "nats", "Mean logarithm of the true class's probability."),
        real("brier", "squared probability", "Brier score, summed over classes: from 0 to 2."),
        real(
            "brier_per_class",
            "squared probability",
            "The same, averaged over classes: from 0 to 2 / number of classes.",
            (),
        ),
        real(
            "log_loss",
            "nats",
            "Mean negative logarithm of the true class's probability, which is clipped to 2.2e-16 "
            "from 0 and 1: at most 36.",
        ),
    ),
)
