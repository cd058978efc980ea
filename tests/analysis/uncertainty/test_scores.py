"""TACE beside loops, and beside the published function."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from manyseed.analysis.uncertainty import calibration_errors
from manyseed.analysis.uncertainty import thresholded_adaptive_calibration_error as tace


def slow(p, y_true, threshold, bins):
    total = 0.0
    for c in range(p.shape[1]):
        points = sorted((p[i, c], i) for i in range(len(p)) if p[i, c] > threshold)
        if not points:
            continue
        used = min(bins, len(points))
        each = len(points) // used
        for r in range(used):
            last = r == used - 1
            own = points[r * each :] if last else points[r * each : (r + 1) * each]
            total += abs(sum((y_true[i] == c) - q for q, i in own))
    return total / p.size


def published(p, y_true, threshold, bins):
    """Restated: bins of ⌊m/M⌋ points, which are none where a class has fewer points than bins."""
    total = 0.0
    for c in range(p.shape[1]):
        own = p[:, c]
        order = np.argsort(own, kind="stable")
        order = order[own[order] > threshold]
        each = len(order) // bins
        for r in range(bins):
            part = order[r * each :] if r == bins - 1 else order[r * each : (r + 1) * each]
            with np.errstate(invalid="ignore"):
                gap = np.abs(np.divide((y_true[part] == c).sum() - own[part].sum(), len(part)))
            total += len(part) / len(p) * gap
    return total / p.shape[1]


@settings(max_examples=60, deadline=None)
@given(
    st.integers(0, 1000),
    st.integers(1, 60),
    st.integers(2, 5),
    st.integers(1, 20),
    st.sampled_from([0, 1e-3, 0.2, 0.9]),
)
def test_tace_is_that_of_loops(seed, n, classes, bins, threshold):
    rng = np.random.default_rng(seed)
    p = rng.dirichlet(np.full(classes, 0.5), n).round(2) * 0.98 + 0.02 / classes
    y_true = rng.integers(0, classes, n)
    logs = np.log(p)
    assert tace(logs, y_true, threshold, bins) == pytest.approx(
        slow(np.exp(logs), y_true, threshold, bins), abs=1e-12
    )


def test_several_thresholds_are_as_each_alone_even_where_probabilities_equal_them():
    rng = np.random.default_rng(5)
    logs = np.log(rng.dirichlet(np.ones(3), 60).round(1) * 0.97 + 0.01)
    p, y_true = np.exp(logs), rng.integers(0, 3, 60)
    thresholds, bins = [1e-3, *np.unique(p)[[2, 5]].tolist()], [1, 4]
    found = calibration_errors(logs, y_true, thresholds, bins)
    alone = [[slow(p, y_true, threshold, most) for most in bins] for threshold in thresholds]
    assert found == pytest.approx(np.array(alone), abs=1e-12)
    assert len(set(found[:, 0].tolist())) == 3


def test_a_class_with_fewer_points_than_bins_counts():
    y_true = np.arange(20) % 2
    p = np.where(np.eye(2)[y_true] > 0, 0.9995, 0.0005)
    assert tace(np.log(p), y_true, 1e-3, 15) == pytest.approx(2.5e-4)
    with np.errstate(invalid="ignore", divide="ignore"):
        assert np.isnan(published(p, y_true, 1e-3, 15))


def test_the_published_function_agrees_where_every_class_has_enough_points():
    rng = np.random.default_rng(2)
    p, y_true = rng.dirichlet(np.ones(3), 400), rng.integers(0, 3, 400)
    assert tace(np.log(p), y_true, 1e-3, 15) == pytest.approx(published(p, y_true, 1e-3, 15))


def test_not_a_number():
    logs = np.log(np.full((30, 2), 0.5))
    logs[3] = np.nan
    assert np.isnan(tace(logs, np.zeros(30, dtype=int), 1e-3, 15))
