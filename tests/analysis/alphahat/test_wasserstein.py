"""The Wasserstein-1 distance beside SciPy's, and where values are infinite."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.stats import wasserstein_distance

from manyseed.analysis.alphahat.references import Reference, distances

VALUES = st.floats(-1e6, 1e6, width=32) | st.sampled_from([-1.0, 0.0, 2.5])


@given(
    models=st.tuples(st.integers(2, 5), st.integers(1, 12)).flatmap(
        lambda shape: arrays(np.float32, shape, elements=VALUES)
    )
)
@settings(deadline=None, max_examples=60)
def test_equals_scipys_for_members_and_others(models):
    reference = Reference.sort(models)
    members = np.arange(len(models), dtype=np.int32)
    found = distances(models, reference, members)
    outside = distances(models + 1, reference, np.full(len(models), -1, dtype=np.int32))
    exact = models.astype(np.float64)  # SciPy subtracts in the precision that it is given
    for k, own in enumerate(exact):
        others = np.delete(exact, k, axis=0).ravel()
        assert found[k] == pytest.approx(wasserstein_distance(own, others), rel=1e-9, abs=1e-9)
        moved = (models[k] + 1).astype(np.float64)
        expected = wasserstein_distance(moved, exact.ravel())
        assert outside[k] == pytest.approx(expected, rel=1e-9, abs=1e-9)


def test_a_run_that_is_moved_is_as_far_as_it_was_moved():
    models = np.random.default_rng(0).normal(size=(4, 500))
    models[:] = models[0]
    models[2] += 3
    found = distances(models, Reference.sort(models), np.arange(4, dtype=np.int32))
    assert found == pytest.approx([1, 1, 3, 1])


def test_infinite_values_are_infinitely_far_unless_all_have_as_many():
    models = np.array([[0, 1, np.inf], [0, 2, np.inf], [-np.inf, 1, np.inf]])
    nobody = np.array([-1], dtype=np.int32)
    of_two = Reference.sort(models[:2])
    assert distances(models[:1], of_two, nobody)[0] == pytest.approx(1 / 6)
    assert distances(models[2:], of_two, nobody)[0] == np.inf
    members = np.arange(2, dtype=np.int32)
    assert distances(models[:2], of_two, members) == pytest.approx([1 / 3, 1 / 3])
