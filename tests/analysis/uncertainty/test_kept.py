"""Accuracy by confidence and by rejection: beside loops over orders of ties, and as a table."""

from __future__ import annotations

from itertools import pairwise, permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import softmax

from manyseed.analysis.graph.chunks import compute_all
from manyseed.analysis.options import Options
from manyseed.analysis.questions import members
from manyseed.analysis.tables.schema import together
from manyseed.analysis.uncertainty import area_under_risk_coverage, confident, rejecting
from tests.analysis.samples import noisy, predictions, regular


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(1, 6))
def test_curves_are_those_of_loops(seed, n):
    rng = np.random.default_rng(seed)
    confidence, wrong = rng.integers(1, 4, n) / 4, rng.random(n) < 0.5
    shares = np.array([0.01, 0.3, 0.5, 0.8, 1.0])
    expected = np.zeros(5)
    orders = [
        order
        for order in permutations(range(n))
        if all(confidence[a] >= confidence[b] for a, b in pairwise(order))
    ]
    for order in orders:
        for place, share in enumerate(shares):
            first = list(order)[: max(1, int(np.ceil(share * n)))]
            expected[place] += 1 - np.mean(wrong[first])
    np.testing.assert_allclose(rejecting(confidence, wrong, shares), expected / len(orders))
    every = rejecting(confidence, wrong, np.arange(1, n + 1) / n)
    assert 1 - every.mean() == pytest.approx(area_under_risk_coverage(confidence, wrong))
    accuracy, kept = confident(confidence, wrong, np.array([0.0, 0.25, 0.3, 0.75, 0.9]))
    for level, found, share in zip((0.0, 0.25, 0.3, 0.75, 0.9), accuracy, kept, strict=True):
        own = confidence >= level
        assert share == pytest.approx(own.mean())
        assert np.isnan(found) if not own.any() else found == pytest.approx(1 - wrong[own].mean())


@pytest.mark.parametrize("n_classes", [2, 3])
def test_the_table_has_both_curves_of_single_runs_and_of_their_average(n_classes):
    runs = regular(1, 1, 4)
    score, y_true = noisy(np.random.default_rng(0), runs, 90, n_classes, 1.5)
    given_ = predictions(score, y_true, runs, keep="all")
    options = Options(calibration=True, resamples=2)
    tasks = members.build_rejection(given_, options)
    found = together("rejection", compute_all(tasks, scheduler="synchronous"))
    p = softmax(score[:, 0].astype(float), axis=2)
    for size, models in ((1, p), (4, p.mean(axis=0)[None])):
        wrong = models.argmax(axis=2) != y_true[0]
        confidence = models.max(axis=2)
        for row in found.filter(members=size, curve="confidence").iter_rows(named=True):
            kept = [confidence[k] >= row["level"] for k in range(len(models))]
            right = [1 - wrong[k][own].mean() for k, own in enumerate(kept) if own.any()]
            assert row["accuracy"] == pytest.approx(np.mean(right))
            assert row["accuracy_min"] == pytest.approx(min(right))
            assert row["accuracy_max"] == pytest.approx(max(right))
            assert (row["n_runs"], row["kept"]) == (len(right), pytest.approx(np.mean(kept)))
        for row in found.filter(members=size, curve="share").iter_rows(named=True):
            first = int(np.ceil(row["level"] * 90 - 1e-9))
            order = np.argsort(-confidence, axis=1)[:, :first]
            right = 1 - np.take_along_axis(wrong, order, axis=1).mean(axis=1)
            assert row["accuracy"] == pytest.approx(right.mean())
            assert row["kept"] == row["level"]
        assert found.filter(members=size, curve="share").height == 40
    assert members.build_rejection(given_, Options()) == []
