"""What is left wrong where the least confident points are refused, beside all orders of ties."""

from __future__ import annotations

from itertools import pairwise, permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import entropy as scipy_entropy
from sklearn.metrics import roc_auc_score

from manyseed.analysis.uncertainty import area_under_risk_coverage, auroc, entropy


def aurc_slow(confidence, wrong):
    """Return the mean over all orders that confidence allows."""
    n = len(wrong)
    found = [
        np.mean([np.mean([wrong[i] for i in order[:j]]) for j in range(1, n + 1)])
        for order in permutations(range(n))
        if all(confidence[a] >= confidence[b] for a, b in pairwise(order))
    ]
    return float(np.mean(found))


def published_aurc(confidence, wrong):
    """Restated: 1 - AU-ARC over steps of ⌊n/1000⌋ points, full coverage left out."""
    right = 1.0 - np.asarray(wrong, dtype=float)[np.argsort(-confidence)]
    n = len(right)
    accuracies = [right[:kept].mean() for kept in range(1, n, n // 1000)]
    area = sum((a + b) / 2 for a, b in pairwise(accuracies)) / 1000
    return 1 - area


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.sampled_from([0.3, 0.5, 0.9]), st.booleans()), min_size=1, max_size=6))
def test_ties_are_expected_over_all_orders(points):
    confidence, wrong = (np.array(values) for values in zip(*points, strict=True))
    assert area_under_risk_coverage(confidence, wrong) == pytest.approx(
        aurc_slow(confidence, wrong)
    )


@pytest.mark.parametrize(
    ("confidence", "wrong", "expected"),
    [
        ([0.9, 0.8, 0.7, 0.6], [1, 0, 0, 0], 0.52083),
        ([0.9, 0.8, 0.7, 0.6], [0, 0, 0, 1], 0.0625),
        ([0.8, 0.8, 0.8, 0.8], [0, 1, 0, 0], 0.25),
        ([0.9, 0.8, 0.7, 0.6], [0, 0, 0, 0], 0.0),
    ],
)
def test_four_points(confidence, wrong, expected):
    found = area_under_risk_coverage(np.array(confidence), np.array(wrong, dtype=bool))
    assert found == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize(("n", "theirs"), [(5000, 0.001), (1500, -0.498)])
def test_a_perfect_classifier_has_no_risk_and_the_published_function_says_otherwise(n, theirs):
    confidence, wrong = np.random.default_rng(0).random(n), np.zeros(n, dtype=bool)
    assert area_under_risk_coverage(confidence, wrong) == 0
    assert published_aurc(confidence, wrong) == pytest.approx(theirs, abs=1e-9)
    with pytest.raises(ValueError, match="zero"):
        published_aurc(confidence[:900], wrong[:900])


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 4), st.booleans()), min_size=2, max_size=30))
def test_auroc_is_that_of_scikit_learn(points):
    score, positive = (np.array(values) for values in zip(*points, strict=True))
    found = auroc(score.astype(float), positive)
    if positive.all() or not positive.any():
        assert np.isnan(found)
    else:
        assert found == pytest.approx(roc_auc_score(positive, score))


def test_what_is_not_a_number_has_no_rank():
    values, wrong = np.array([0.1, np.nan, 0.3]), np.array([True, False, False])
    assert np.isnan(area_under_risk_coverage(values, wrong))
    assert np.isnan(auroc(values, wrong))


def test_entropy_is_that_of_scipy():
    p = np.random.default_rng(1).dirichlet(np.ones(4), 20)
    p[0] = [1, 0, 0, 0]
    with np.errstate(divide="ignore"):
        logs = np.log(p)
    assert entropy(logs) == pytest.approx(scipy_entropy(p, axis=1))
