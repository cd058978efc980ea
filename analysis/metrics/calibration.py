"""How good probabilities are: as they are, at their best temperature, and for rejection (PIT)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from manyseed.analysis.metrics.classification import areas
from manyseed.analysis.metrics.metric import Finished, HeldOut, Metric, Part, real
from manyseed.analysis.metrics.probabilities import (
    all_true_log_probabilities,
    confidences,
    log_probabilities,
    slices,
    true_log_probability,
)
from manyseed.analysis.options import Options
from manyseed.analysis.uncertainty import (
    area_under_risk_coverage,
    auroc,
    calibrate,
    calibration_splits,
    entropy,
    require_enough,
    thresholded_adaptive_calibration_error,
)

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
    """
    if np.isnan(confidence).any():
        return float("nan")
    index = np.clip(np.ceil(confidence * bins).astype(np.intp) - 1, 0, bins - 1)
    gap = np.bincount(index, weights=confidence, minlength=bins) - np.bincount(
        index, weights=right.astype(np.float64), minlength=bins
    )
    return float(np.abs(gap).sum() / confidence.size)


def log_likelihood(logs: Real, y_true: NDArray[np.integer[Any]]) -> float:
    """Return the mean logarithm of the true class's probability, in nats (PIT).

    (1/n) Σ_i ln p_i(y_i).

    Parameters
    ----------
    logs : float64 array (sample, class)
        Logarithms of probabilities.
    y_true : integer array (sample,)

    Returns
    -------
    float
        At most 0; -inf if a true class has probability 0.
    """
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


Wrong = NDArray[np.bool_]

CALIBRATED = (
    *("cll", "cll_split_sd", "temperature", "temperature_sd", "temperature_bounded"),
    *("c_brier", "c_ece", "c_tace", "c_aurc"),
)
"""The keys of `calibrated`'s result."""


def splits_of(held_out: HeldOut, options: Options) -> NDArray[np.bool_]:
    """Return the splits of a test set, (split, sample), the same for every cell with this set."""
    return calibration_splits(
        held_out.seed,
        held_out.dataset_id,
        held_out.repeat_index,
        held_out.n_test,
        options.calibration_splits,
    )


def calibrated(
    logs: Real,
    y_true: NDArray[np.integer[Any]],
    wrong: Wrong,
    splits: NDArray[np.bool_],
    options: Options,
) -> dict[str, float]:
    """Measure a prediction with each half of the test set at the other half's temperature.

    Results are means over the splits, each over all points of the test set; PIT's published code
    averages c_ece and the like over the halves, so that their bias is that of half the points.

    Parameters
    ----------
    logs : float array (sample, class)
        Logarithms of probabilities.
    y_true : integer array (sample,)
    wrong : bool array (sample,)
        The points that the prediction gets wrong; no temperature changes that.
    splits : bool array (split, sample)

    Returns
    -------
    dict
        Keys `CALIBRATED`; all NaN if no temperature can be fitted (`calibrate`).
    """
    calibration = calibrate(logs, y_true, splits)
    if calibration is None:
        return dict.fromkeys(CALIBRATED, float("nan"))
    values = []
    for tempered in calibration.logs():
        confidence = np.exp(tempered.max(axis=1))
        values.append(
            (
                log_likelihood(tempered, y_true),
                brier(tempered, y_true),
                expected_calibration_error(confidence, ~wrong, options.ece_bins),
                _tace(tempered, y_true, options),
                area_under_risk_coverage(confidence, wrong),
            )
        )
    by_split = np.array(values)
    cll, c_brier, c_ece, c_tace, c_aurc = by_split.mean(axis=0).tolist()
    return {
        "cll": cll,
        "cll_split_sd": float(by_split[:, 0].std(ddof=1)),
        "temperature": calibration.temperature,
        "temperature_sd": calibration.temperature_sd,
        "temperature_bounded": calibration.share_bounded,
        "c_brier": c_brier,
        "c_ece": c_ece,
        "c_tace": c_tace,
        "c_aurc": c_aurc,
    }


def plain(
    logs: Real, y_true: NDArray[np.integer[Any]], wrong: Wrong, options: Options
) -> dict[str, float]:
    """Measure a prediction without calibration; parameters are those of `calibrated`."""
    confidence, summed = np.exp(logs.max(axis=1)), brier(logs, y_true)
    return {
        "log_likelihood": log_likelihood(logs, y_true),
        "brier": summed,
        "brier_per_class": summed / logs.shape[1],
        "error": float(wrong.mean()),
        "ece": expected_calibration_error(confidence, ~wrong, options.ece_bins),
        "tace": _tace(logs, y_true, options),
        "aurc": area_under_risk_coverage(confidence, wrong),
        "misclassification_auroc": auroc(-confidence, wrong),
        "misclassification_aupr": aupr(-confidence, wrong),
        "misclassification_auroc_entropy": auroc(entropy(logs), wrong),
        "misclassification_aupr_entropy": aupr(entropy(logs), wrong),
    }


def aupr(score: NDArray[np.floating[Any]], positive: Wrong) -> float:
    """Return the average precision of finding positive points by their score; NaN without any."""
    keys = score.astype(np.float64)[None, None]
    return float(areas(keys, positive.astype(np.uint8), first=1)[1][0, 0])


def _tace(logs: Real, y_true: NDArray[np.integer[Any]], options: Options) -> float:
    return thresholded_adaptive_calibration_error(
        logs, y_true, options.tace_threshold, options.tace_bins
    )


def _rejection_chunk(part: Part, _: Part, shared: None, options: Options) -> Real:
    wrong = part.label != part.y_true
    return np.array(
        [
            (
                errors.mean(),
                area_under_risk_coverage(confidence, errors),
                auroc(-confidence, errors),
                aupr(-confidence, errors),
            )
            for confidence, errors in zip(confidences(part), wrong, strict=True)
        ]
    ).reshape(-1, len(REJECTION.runs))


def _rejection_finish(held_out: HeldOut, partials: Sequence[Real], options: Options) -> Finished:
    values = np.concatenate(partials)
    return Finished(
        runs={column.name: values[:, index] for index, column in enumerate(REJECTION.runs)}
    )


def _allowed(n_classes: int, n_test: int, options: Options) -> None:
    require_enough(n_test)


def _share(held_out: HeldOut, gathered: Sequence[None], options: Options) -> NDArray[np.bool_]:
    return splits_of(held_out, options)


def _calibrated_chunk(
    part: Part, _: Part, splits: NDArray[np.bool_], options: Options
) -> list[Mapping[str, float]]:
    of_runs: list[Mapping[str, float]] = []
    for run in range(part.n_runs):
        logs, wrong = log_probabilities(part, run), part.label[run] != part.y_true
        of_runs.append(
            {
                "tace": _tace(logs, part.y_true, options),
                "misclassification_auroc_entropy": auroc(entropy(logs), wrong),
                "misclassification_aupr_entropy": aupr(entropy(logs), wrong),
                **calibrated(logs, part.y_true, wrong, splits, options),
            }
        )
    return of_runs


def _calibrated_finish(
    held_out: HeldOut, partials: Sequence[Sequence[Mapping[str, float]]], options: Options
) -> Finished:
    of_runs = [values for part in partials for values in part]
    names = [column.name for column in CALIBRATION.runs]
    return Finished(runs={name: np.array([values[name] for values in of_runs]) for name in names})


NOT_COMPARABLE = "Not comparable between models, as each has its own errors to detect."
_SUMMARIES = ("mean", "std", "range")
_SHARE, _NATS, _GAP = "share of test points", "nats", "difference of shares"


REJECTION = Metric(
    name="rejection",
    needs="confidence",
    source="PIT, section 3",
    chunk=_rejection_chunk,
    finish=_rejection_finish,
    runs=(
        real("error", _SHARE, "Share of the test points that the run gets wrong.", ()),
        real(
            "aurc",
            _SHARE,
            "Area under the risk-coverage curve: mean over j of the share wrong among the j most "
            "confident points.",
        ),
        real(
            "misclassification_auroc",
            "probability",
            f"That a wrong point has less confidence than a right one. {NOT_COMPARABLE}",
            (),
        ),
        real(
            "misclassification_aupr",
            "1",
            "Average precision of finding wrong points by least confidence, from the share of "
            f"wrong points up. {NOT_COMPARABLE}",
            (),
        ),
    ),
)

CALIBRATION = Metric(
    name="calibration",
    needs="score",
    source="PIT, section 4",
    share=_share,
    chunk=_calibrated_chunk,
    finish=_calibrated_finish,
    allowed=_allowed,
    runs=(
        real(
            "cll",
            _NATS,
            "Calibrated log-likelihood: with the temperature of the other half of the test set, "
            "mean over random splits.",
            _SUMMARIES,
        ),
        real(
            "cll_split_sd",
            _NATS,
            "Standard deviation of cll over the splits (n - 1): Monte-Carlo error, not the "
            "uncertainty for new test points.",
            (),
        ),
        real(
            "temperature", "1", "Geometric mean of the fitted temperatures; above 1: overconfident."
        ),
        real("temperature_sd", "1", "Their standard deviation (n - 1).", ()),
        real(
            "temperature_bounded",
            "share of fits",
            "Fits that end at a bound, 1/20 or 20, as when half of the test set has no error.",
            ("max",),
        ),
        real("c_brier", "squared probability", "brier, calibrated as for cll."),
        real("c_ece", _GAP, "ece, calibrated as for cll."),
        real(
            "tace",
            _GAP,
            "Thresholded adaptive calibration error: over all classes, in bins of equally many of "
            "the points above the option tace_threshold.",
        ),
        real("c_tace", _GAP, "tace, calibrated as for cll."),
        real("c_aurc", _SHARE, "aurc, calibrated as for cll."),
        real(
            "misclassification_auroc_entropy",
            "probability",
            f"That a wrong point has more entropy than a right one. {NOT_COMPARABLE}",
            (),
        ),
        real(
            "misclassification_aupr_entropy",
            "1",
            f"Average precision of finding wrong points by most entropy. {NOT_COMPARABLE}",
            (),
        ),
    ),
)
