"""What the source's text and code have otherwise, restated, and shown to differ."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import log_softmax

from manyseed.analysis.metrics.calibration import calibrated
from manyseed.analysis.options import Options
from manyseed.analysis.uncertainty import LEAST, MOST, calibrate, calibration_splits
from manyseed.analysis.uncertainty import thresholded_adaptive_calibration_error as tace


def drawn(n, classes=4, scale=2.0, seed=0):
    rng = np.random.default_rng(seed)
    z = rng.normal(size=(n, classes))
    p = np.exp(log_softmax(z, axis=1))
    y_true = np.array([rng.choice(classes, p=row) for row in p])
    return log_softmax(scale * z, axis=1), y_true


def ece(confidence, right, bins=15):
    """Return the calibration error of bins of equal width, as both forms have it."""
    place = np.minimum((confidence * bins).astype(int), bins - 1)
    gaps = [abs((right[place == one] - confidence[place == one]).sum()) for one in np.unique(place)]
    return sum(gaps) / confidence.size


def test_equation_1_takes_the_true_classs_probability_for_a_confidence():
    logs, y_true = drawn(5000, scale=1.0)  # calibrated
    p = np.exp(logs)
    right = p.argmax(axis=1) == y_true
    assert ece(p.max(axis=1), right) < 0.03
    assert ece(p[np.arange(y_true.size), y_true], right) > 0.1


def test_equation_2_divides_by_the_number_of_bins_once_more():
    logs, y_true = drawn(600)
    p, bins, total = np.exp(logs), 15, 0.0
    for c in range(p.shape[1]):
        order = np.argsort(p[:, c], kind="stable")
        order = order[p[order, c] > 0]
        parts = np.split(order, [each * (order.size // bins) for each in range(1, bins)])
        gaps = [
            part.size / y_true.size * abs((y_true[part] == c).mean() - p[part, c].mean())
            for part in parts
        ]
        total += sum(gaps) / bins / p.shape[1]
    assert total == pytest.approx(tace(logs, y_true, 0.0, bins) / bins)


def test_probabilities_that_are_limited_hide_how_wrong_a_model_is():
    logs = np.array([[0.0, -80.0], [-80.0, 0.0]])
    y_true = np.array([1, 1])
    floored = np.log(np.maximum(np.exp(logs), 1e-12))
    assert logs[[0, 1], y_true].mean() == -40
    assert floored[[0, 1], y_true].mean() == pytest.approx(np.log(1e-12) / 2)


def test_halves_have_the_bias_of_half_as_many_points():
    options, larger = Options(calibration=True), 0
    for seed in range(12):
        logs, y_true = drawn(200, seed=seed)
        splits = calibration_splits(seed, "d", 0, 200, 5)
        wrong = logs.argmax(axis=1) != y_true
        ours = calibrated(logs, y_true, wrong, splits, options)["c_ece"]
        found = calibrate(logs, y_true, splits)
        halves = []
        for whole, first in zip(found.logs(), splits, strict=True):
            for half in (first, ~first):
                p = np.exp(whole[half])
                halves.append(ece(p.max(axis=1), p.argmax(axis=1) == y_true[half]))
        larger += np.mean(halves) > ours
    assert larger == 12


def test_a_search_without_bounds_follows_a_half_without_errors_away():
    rng = np.random.default_rng(0)
    y_true = rng.integers(0, 3, 40)
    logs = log_softmax(3 * np.eye(3)[y_true] + 0.1 * rng.normal(size=(40, 3)), axis=1)

    def likelihood(beta):
        return log_softmax(beta * logs, axis=1)[np.arange(40), y_true].sum()

    values = [likelihood(beta) for beta in (1.0, MOST, 10 * MOST, 1000 * MOST)]
    assert all(np.diff(values) >= 0)  # there is no optimum
    found = calibrate(logs, y_true, calibration_splits(1, "d", 0, 40, 5))
    assert found.share_bounded == 1
    assert LEAST < found.beta.max() == MOST
