"""Counts, distributions and fixed points of the categorical schemes (MV)."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare

from manyseed.jobs.perturb import perturb_categorical

CARDINALITY = np.array([0, 2, 5, 3], dtype=np.int32)


def table(n, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.integers(0, np.maximum(CARDINALITY, 1), (n, 4)).astype(float)
    X[:, 0] = rng.normal(size=n)
    return X


def perturb(X, scheme, seed=0):
    return perturb_categorical(X, CARDINALITY, scheme, np.random.default_rng(seed))


@given(
    n=st.integers(1, 60),
    scheme=st.sampled_from(["sample", "label"]),
    p=st.floats(0.01, 0.99),
    seed=st.integers(0, 1000),
)
@settings(deadline=None)
def test_only_categories_change_and_stay_among_their_labels(n, scheme, p, seed):
    X = table(n, seed)
    before = X.copy()
    moved = perturb(X, f"{scheme}:{p!r}", seed)
    np.testing.assert_array_equal(X, before)
    np.testing.assert_array_equal(moved[:, 0], X[:, 0])
    assert (moved[:, 1:] == np.floor(moved[:, 1:])).all()
    assert (moved[:, 1:] >= 0).all()
    assert (moved[:, 1:] < CARDINALITY[1:]).all()
    np.testing.assert_array_equal(perturb(X, f"{scheme}:{p!r}", seed), moved)


@given(n=st.integers(1, 200), percent=st.integers(1, 99), seed=st.integers(0, 1000))
@settings(deadline=None)
def test_sample_level_changes_no_more_samples_than_chosen(n, percent, seed):
    X = table(n, seed)
    changed = (perturb(X, f"sample:{percent / 100!r}", seed) != X).any(axis=1).sum()
    assert changed <= math.ceil(percent * n / 100 - 1e-9)


def test_sample_level_redraws_one_value_a_sample_in_expectation():
    X = table(30_000)
    changed = perturb(X, "sample:0.4") != X
    for column in (1, 2, 3):
        other = 1 - 1 / CARDINALITY[column]
        assert changed[:, column].mean() == pytest.approx(0.4 / 3 * other, rel=0.05)


def test_label_level_redraws_every_value_with_its_probability():
    X = table(30_000)
    changed = perturb(X, "label:0.1") != X
    for column in (1, 2, 3):
        other = 1 - 1 / CARDINALITY[column]
        assert changed[:, column].mean() == pytest.approx(0.1 * other, rel=0.06)


@pytest.mark.parametrize("scheme", ["label:0.9", "sample:0.9"])
def test_redrawn_labels_are_uniform(scheme):
    X = np.zeros((20_000, 4))
    moved = perturb(X, scheme)
    drawn = moved[moved[:, 2] > 0, 2]  # those that came out as 0 may not have been drawn
    assert chisquare(np.bincount(drawn.astype(int))[1:]).pvalue > 1e-3


@pytest.mark.parametrize("scheme", ["label:0.9", "sample:0.9"])
def test_missing_values_stay_missing(scheme):
    X = table(200)
    X[::3, 2] = np.nan
    np.testing.assert_array_equal(np.isnan(perturb(X, scheme)), np.isnan(X))


def test_none_changes_nothing():
    X = table(5)
    assert perturb(X, "none") is X
