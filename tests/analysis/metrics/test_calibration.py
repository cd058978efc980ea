"""Probabilities and what is computed of them, beside scikit-learn and loops over points."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import expit, softmax
from sklearn.metrics import balanced_accuracy_score, brier_score_loss, log_loss

from manyseed.analysis.graph.chunks import analyze_group, compute
from manyseed.analysis.graph.predictions import unavailable
from manyseed.analysis.metrics.calibration import expected_calibration_error
from manyseed.analysis.options import Options
from tests.analysis.samples import noisy, predictions, regular

N_TEST = 120


def sample(n_classes, seed=0):
    runs = regular(1, 1, 3)
    score, y_true = noisy(np.random.default_rng(seed), runs, N_TEST, n_classes)
    return 2 * score, y_true, runs


def analysed(given, **options):
    return compute([analyze_group(given, Options(resamples=2, **options))], scheduler="threads")[0]


def ece_slow(confidence, right, bins):
    total = 0.0
    for index in range(bins):
        inside = [
            p
            for p in range(len(right))
            if index / bins < confidence[p] <= (index + 1) / bins
            or (index == 0 and confidence[p] == 0)
        ]
        if inside:
            gap = np.mean([right[p] for p in inside]) - np.mean([confidence[p] for p in inside])
            total += len(inside) / len(right) * abs(gap)
    return total


@pytest.mark.parametrize("bins", [1, 4, 15])
def test_ece_is_the_mean_gap_of_the_bins(bins):
    rng = np.random.default_rng(1)
    confidence = rng.random(500)
    confidence[:6] = [0, 1, 0.25, 0.5, 0.75, 0]
    right = rng.random(500) < confidence
    found = expected_calibration_error(confidence, right, bins)
    assert found == pytest.approx(ece_slow(confidence, right, bins))


def test_a_bin_includes_its_right_edge():
    found = expected_calibration_error(np.array([0.5, 0.6]), np.array([True, False]), 2)
    assert found == pytest.approx((0.5 + 0.6) / 2)


def test_right_probabilities_are_calibrated():
    rng = np.random.default_rng(2)
    confidence = rng.uniform(0.5, 1, 100_000)
    right = rng.random(100_000) < confidence
    assert expected_calibration_error(confidence, right, 15) < 0.01
    assert expected_calibration_error(confidence, rng.random(100_000) < 0.5, 15) > 0.2


@pytest.mark.parametrize(("n_classes", "keep"), [(2, "margin"), (2, "all"), (3, "all"), (5, "all")])
@pytest.mark.parametrize("kind", ["softmax", "ovr"])
def test_scores_agree_with_scikit_learn(n_classes, keep, kind):
    score, y_true, runs = sample(n_classes)
    result = analysed(predictions(score, y_true, runs, keep=keep, probability=kind)).runs
    for k in range(3):
        if kind == "softmax" or n_classes == 2:
            p = softmax(score[k, 0].astype(float), axis=1)
        else:
            p = expit(score[k, 0].astype(float))
            p /= p.sum(axis=1, keepdims=True)
        every = np.arange(n_classes)
        assert result["log_likelihood"][k] == pytest.approx(-log_loss(y_true[0], p, labels=every))
        summed = brier_score_loss(y_true[0], p, labels=every, scale_by_half=False)
        assert result["brier"][k] == pytest.approx(summed)
        assert result["brier_per_class"][k] == pytest.approx(summed / n_classes)
        right = score[k, 0].argmax(axis=1) == y_true[0]
        assert result["ece"][k] == pytest.approx(ece_slow(p.max(axis=1), right, 15), abs=1e-6)
        assert result["balanced_accuracy"][k] == pytest.approx(
            balanced_accuracy_score(y_true[0], score[k, 0].argmax(axis=1))
        )


def test_a_class_without_test_points_does_not_count():
    score, y_true, runs = sample(3)
    y_true[y_true == 2] = 1
    given = predictions(score, y_true, runs)
    with pytest.warns(UserWarning, match="not in y_true"):
        here = [balanced_accuracy_score(y_true[0], row.argmax(axis=1)) for row in score[:, 0]]
    assert analysed(given).runs["balanced_accuracy"].to_list() == pytest.approx(here)


def test_confidences_that_were_kept_give_the_calibration_error():
    score, y_true, runs = sample(4)
    confidence = softmax(score, axis=-1).max(axis=-1).astype(np.float32)
    kept = predictions(score, y_true, runs, confidence=confidence)
    assert {metric: reason.allowed for metric, reason in unavailable(kept, Options()).items()} == {
        "proper_scores": ("all",),
        "discrimination": ("all",),
        "ensemble": ("all",),
    }
    ece = analysed(kept).runs["ece"].to_list()
    assert ece == pytest.approx(
        analysed(predictions(score, y_true, runs, keep="all")).runs["ece"].to_list(), abs=1e-6
    )
    confidence[1, 0, 5] = np.nan
    broken = predictions(score, y_true, runs, confidence=confidence)
    assert analysed(broken).runs["ece"].is_null().to_list() == [False, True, False]


def test_hinge_loss_gives_no_probabilities():
    score, y_true, runs = sample(2)
    hinge = predictions(score, y_true, runs, probability="none")
    assert set(unavailable(hinge, Options())) == {"ece", "proper_scores", "rejection"}
    result = analysed(hinge).runs
    assert result["ece"].null_count() == result["brier"].null_count() == 3
    assert result["churn_ensemble"].null_count() == 0


@pytest.mark.parametrize(("n_classes", "keep"), [(2, "margin"), (3, "all")])
def test_the_ensemble_averages_scores(n_classes, keep):
    score, y_true, runs = sample(n_classes)
    result = analysed(predictions(score, y_true, runs, keep=keep))
    average = score[:, 0].astype(float).mean(axis=0).argmax(axis=1)
    assert result.repeats["ensemble_accuracy"][0] == (average == y_true[0]).mean()
    churn = [(score[k, 0].argmax(axis=1) != average).mean() for k in range(3)]
    assert result.runs["churn_ensemble"].to_list() == pytest.approx(churn)


def test_per_repeat_ranges():
    score, y_true, runs = sample(2)
    result = analysed(predictions(score, y_true, runs))
    for name in ("balanced_accuracy", "ece", "log_likelihood", "brier", "churn_ensemble"):
        values = result.runs[name]
        assert result.repeats[f"{name}_range"][0] == pytest.approx(values.max() - values.min())
