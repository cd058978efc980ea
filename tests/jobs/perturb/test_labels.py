"""Rates, targets and fixed points of noise on training labels, and the words that it takes."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binomtest, chisquare

from manyseed.jobs.perturb import perturb_labels
from manyseed.jobs.run import raw, stream

SCHEMES = ("flip", "symmetric", "pairs")
N = 20_000


def noisy(y, n_classes, scheme, seed=0):
    return perturb_labels(y, n_classes, scheme, stream(seed, "perturb_labels", "d", scheme, 0, 0))


def labels(n, n_classes, seed=0):
    return np.random.default_rng(seed).integers(0, n_classes, n).astype(np.uint16)


@given(
    n=st.integers(0, 60),
    n_classes=st.integers(2, 300),
    scheme=st.sampled_from(SCHEMES),
    p=st.floats(0.01, 0.99),
    seed=st.integers(0, 1000),
)
@settings(deadline=None)
def test_labels_stay_classes_and_what_was_given_stays(n, n_classes, scheme, p, seed):
    y = labels(n, n_classes, seed)
    before = y.copy()
    moved = noisy(y, n_classes, f"{scheme}:{p!r}", seed)
    np.testing.assert_array_equal(y, before)
    assert moved.dtype == np.uint16
    assert moved.shape == y.shape
    assert (moved < n_classes).all()
    np.testing.assert_array_equal(noisy(y, n_classes, f"{scheme}:{p!r}", seed), moved)
    if scheme == "pairs":
        assert set(((moved.astype(int) - y) % n_classes).tolist()) <= {0, 1}


@pytest.mark.parametrize("p", [0.1, 0.4, 0.9])
@pytest.mark.parametrize("n_classes", [2, 3, 10])
@pytest.mark.parametrize("scheme", SCHEMES)
def test_as_many_labels_change_as_asked(scheme, n_classes, p):
    y = labels(N, n_classes)
    changed = noisy(y, n_classes, f"{scheme}:{p}") != y
    expected = p * (1 - 1 / n_classes) if scheme == "symmetric" else p
    for k in range(n_classes):  # whatever the class
        of_class = changed[y == k]
        assert binomtest(int(of_class.sum()), of_class.size, expected).pvalue > 1e-4


@pytest.mark.parametrize("scheme", ["flip", "symmetric"])
def test_all_other_classes_are_equally_likely(scheme):
    y = labels(N, 5)
    moved = noisy(y, 5, f"{scheme}:0.5")
    shift = (moved.astype(int) - y) % 5
    assert chisquare(np.bincount(shift[shift > 0], minlength=5)[1:]).pvalue > 1e-4


def test_with_two_classes_flip_and_pairs_are_the_other_class():
    y = labels(N, 2)
    for scheme in ("flip:0.3", "pairs:0.3"):
        moved = noisy(y, 2, scheme)
        np.testing.assert_array_equal(moved[moved != y], 1 - y[moved != y])


def test_none_is_nothing():
    y = labels(10, 3)
    assert perturb_labels(y, 3, "none", stream(0, "perturb_labels")) is y


def test_every_label_takes_two_words_as_docs_identity_says():
    y = labels(50, 4)
    words = raw(stream(7, "perturb_labels", "d"), 2 * len(y)).tolist()
    for scheme in SCHEMES:
        expected = []
        for i, k in enumerate(y.tolist()):
            chance, which = ((word >> 11) * 2.0**-53 for word in words[2 * i : 2 * i + 2])
            new = {"flip": (k + 1 + int(which * 3)) % 4, "symmetric": int(which * 4)}
            expected.append(new.get(scheme, (k + 1) % 4) if chance < 0.5 else k)
        found = perturb_labels(y, 4, f"{scheme}:0.5", stream(7, "perturb_labels", "d"))
        assert found.tolist() == expected
