"""Probabilities are averaged, member by member."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from manyseed.jobs.ensembling.methods import ARRAYS, Members, log_softmax, sizes


def taken(logits, keep=ARRAYS, count=None):
    members = Members(count or len(logits), keep)
    for own in logits:
        members.add(own)
    return members


@settings(deadline=None)
@given(st.integers(2, 14), st.integers(1, 5), st.integers(2, 4), st.integers(0, 2**32 - 1))
def test_members_are_averaged_as_a_slow_version_does(count, points, n_classes, seed):
    logits = 8 * np.random.default_rng(seed).standard_normal((count, points, n_classes))
    logits = logits.astype(np.float32)
    members = taken(logits)
    p = np.exp(logits.astype(np.longdouble))
    p /= p.sum(axis=2, keepdims=True)
    np.testing.assert_allclose(np.exp(members.logs()), p.mean(axis=0).astype(float), rtol=1e-12)
    found = members.arrays()
    assert [*found] == [*ARRAYS]
    by_size = np.stack([np.log(p[:size].mean(axis=0)) for size in sizes(count)]).astype(float)
    np.testing.assert_allclose(found["size_score"], by_size, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(found["member_score"], np.log(p).astype(float), rtol=1e-5, atol=1e-6)
    for name in ("size", "member"):
        score, margin = found[f"{name}_score"], found[f"{name}_margin"]
        np.testing.assert_array_equal(margin, score[..., 1] - score[..., 0])
        assert score.dtype == margin.dtype == np.float32


def test_the_gap_is_that_of_the_mean_probability_not_of_the_mean_logit():
    p = np.array([0.9, 0.5])
    logits = np.stack([np.zeros(2), np.log(p / (1 - p))], axis=1)[:, None]
    logs = taken(logits).logs()
    assert logs[0, 1] - logs[0, 0] == pytest.approx(np.log(0.7 / 0.3), abs=1e-14)
    assert 1 / (1 + np.exp(-logits[:, 0, 1].mean())) == pytest.approx(0.75, abs=1e-3)


def test_small_probabilities_of_all_members_do_not_become_zero():
    logits = np.array([[[0.0, 2000.0]], [[0.0, 3000.0]]])
    expected = -2000 - np.log(2)
    np.testing.assert_allclose(taken(logits).logs()[0, 0], expected)


def test_a_state_goes_on_with_the_same_bits():
    logits = np.random.default_rng(1).standard_normal((7, 4, 3)).astype(np.float32)
    first, second = Members(7, ARRAYS), Members(7, ARRAYS)
    for own in logits[:4]:
        first.add(own)
    second.restore(first.state())
    for own in logits[4:]:
        second.add(own)
    whole = taken(logits)
    np.testing.assert_array_equal(second.logs(), whole.logs())
    for name, values in whole.arrays().items():
        np.testing.assert_array_equal(second.arrays()[name], values)


def test_what_is_not_kept_takes_no_place_and_too_few_members_are_no_ensemble():
    logits = np.zeros((3, 2, 2))
    assert taken(logits, keep=("final_train_accuracy",)).arrays() == {}
    assert taken(logits, keep=()).state()["members"] == []
    with pytest.raises(ValueError, match="3 of 4 members"):
        taken(logits, count=4).arrays()
    with pytest.raises(ValueError, match="no member"):
        Members(2).logs()


def test_equal_members_change_nothing():
    logits = np.random.default_rng(2).standard_normal((4, 3))
    found = taken([logits] * 5).arrays()["size_score"]
    np.testing.assert_allclose(found, np.stack([log_softmax(logits)] * 4), atol=1e-6)
