"""Ensembles of members as stores hold them: equal ones, and in half precision."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
from scipy.special import log_softmax as of_scipy

from manyseed.analysis.metrics.calibration import calibrated, plain
from manyseed.analysis.options import Options
from manyseed.analysis.uncertainty import calibrate, calibration_splits, equivalent, prefixes


def log_softmax(scores):
    return scores - np.logaddexp.reduce(scores, axis=-1, keepdims=True)


def members(count, n=400, classes=5, seed=1, spread=1.0):
    rng = np.random.default_rng(seed)
    y = rng.integers(0, classes, n)
    shared = rng.standard_normal((n, classes)) + 2 * np.eye(classes)[y]
    own = shared + spread * rng.standard_normal((count, n, classes))
    return log_softmax(3 * own), y


def cll(logs, y):
    found = calibrate(logs, y, calibration_splits(1, "d", 0, y.size, 5))
    return np.mean([each[np.arange(y.size), y].mean() for each in found.logs()])


def test_equal_members_are_worth_what_one_is():
    """Planted truth: CLL is the same for all sizes, and so is the deep ensemble equivalent."""
    logs, y = members(6, spread=0.0)
    values = [cll(each, y) for each in prefixes(lambda j: logs[j], range(6))]
    np.testing.assert_allclose(values, values[0], atol=1e-9)
    deep, _ = members(12, seed=1)
    curve = np.array([cll(each, y) for each in prefixes(lambda j: deep[j], range(12))])
    curve += np.mean(values) - (curve[2] + curve[3]) / 2  # between 3 and 4 networks
    std = np.full(12, 0.01)
    worth = [equivalent(value, curve, std, less_is_better=False) for value in values]
    assert worth[0].dee == pytest.approx(3.5, abs=1e-6)
    np.testing.assert_allclose([one.dee for one in worth], worth[0].dee, atol=1e-6)


@pytest.mark.parametrize(("n", "classes"), [(400, 2), (400, 5), (200, 10)])
@pytest.mark.parametrize("spread", [0.3, 3.0])
def test_half_precision_moves_no_calibrated_likelihood_by_a_thousandth(n, classes, spread):
    logs, y = members(5, n, classes, spread=spread)
    for whole in prefixes(lambda j: logs[j], range(5)):
        if classes == 2:  # what is stored of two classes is the gap
            gap = whole[:, 1] - whole[:, 0]
            of = {}
            for dtype in (np.float16, np.float32):
                kept = gap.astype(dtype).astype(np.float64)
                of[dtype] = cll(log_softmax(np.stack([np.zeros(n), kept], axis=1)), y)
        else:
            of = {
                dtype: cll(whole.astype(dtype).astype(np.float64), y)
                for dtype in (np.float16, np.float32)
            }
        assert of[np.float16] == pytest.approx(of[np.float32], abs=1e-3)
        assert of[np.float32] == pytest.approx(cll(whole, y), abs=1e-6)


def test_ensembles_of_any_size_are_measured_in_eight_arrays_of_a_prediction():
    """Beside the members: of all that is made of one ensemble, and the sum of those before."""
    rng = np.random.default_rng(0)
    n, classes, count = 4000, 20, 4
    y = rng.integers(0, classes, n)
    score = rng.standard_normal((count, n, classes)).astype(np.float32)
    splits = calibration_splits(1, "d", 0, n, 5)
    options = Options(calibration=True)

    def measured(members):
        logs = (lambda j: of_scipy(score[j].astype(np.float64), axis=1), range(members))
        for whole in prefixes(*logs):
            wrong = whole.argmax(axis=1) != y
            plain(whole, y, wrong, options)
            found = calibrated(whole, y, wrong, splits, options)
        return found["cll"]

    measured(1)  # compiles
    tracemalloc.start()
    assert np.isfinite(measured(count))
    peak = tracemalloc.get_traced_memory()[1] / (8 * n * classes)
    tracemalloc.stop()
    assert 3 < peak < 7
