"""Deep ensembles and what they are worth, beside a dense search and planted curves."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import log_softmax

from manyseed.analysis.uncertainty import equivalent, orders, prefixes, size_for, spread

NO_STD = np.zeros(3)


def dee(value, mean, std=None, less=False):
    mean = np.array(mean, dtype=float)
    std = np.zeros(mean.size) if std is None else np.array(std, dtype=float)
    return equivalent(value, mean, std, less_is_better=less)


def dense(value, mean):
    """Return the first of many sizes whose ensembles are as good."""
    size = np.linspace(1, len(mean), 20_000 * (len(mean) - 1) + 1)
    reached = np.interp(size, np.arange(1, len(mean) + 1), mean) >= value
    return size[reached.argmax()] if reached.any() else None


def published(values, mean):
    """Restated: one pointer into the deep curve, which only goes on; the pool's size at its end."""
    found, l = [], 0  # noqa: E741
    for value in values:
        while l < len(mean) and mean[l] < value:
            l += 1  # noqa: E741
        if l == len(mean):
            found.append(float(len(mean)))
        elif l == 0:
            found.append(1.0)
        else:
            found.append(l + max(0, (value - mean[l - 1]) / (mean[l] - mean[l - 1])))
    return found


@pytest.mark.parametrize(
    ("mean", "value", "expected"),
    [
        ([-1, -0.8, -0.7], -0.75, 2.5),
        ([-1, -0.8, -0.7], -0.95, 1.25),
        ([-1, -0.8, -0.7], -1.2, 1),
        ([-1, -0.8, -0.7], -0.6, None),
        ([-0.9, -0.6, -0.75], -0.75, 1.5),
    ],
)
def test_planted_curves(mean, value, expected):
    assert dee(value, mean).dee == (expected if expected is None else pytest.approx(expected))
    turned = dee(-value, [-one for one in mean], less=True)
    assert turned == dee(value, mean)


def test_equivalents_fall_and_end_where_the_published_ones_do_not():
    mean, values = [-1, -0.8, -0.7], [-0.75, -0.95]
    assert [dee(value, mean).dee for value in values] == pytest.approx([2.5, 1.25])
    assert published(values, mean) == pytest.approx([2.5, 2])
    assert [dee(value, mean).dee for value in (-0.9, -0.75)] == pytest.approx([1.5, 2.5])
    assert published([-0.9, -0.6, -0.75], mean) == pytest.approx([1.5, 3, 3])
    assert dee(-0.6, mean).dee is None


@settings(max_examples=80, deadline=None)
@given(
    st.lists(st.integers(-50, 50), min_size=2, max_size=5),
    st.lists(st.integers(0, 20), min_size=5, max_size=5),
    st.integers(-60, 60),
)
def test_first_crossings_are_those_of_a_dense_search(mean, std, value):
    curve, s = np.array(mean, dtype=float), np.array(std[: len(mean)], dtype=float)
    found = dee(value, curve, s)
    for own, bound in ((found.dee, curve), (found.lower, curve + s), (found.upper, curve - s)):
        expected = dense(value, bound)
        assert (own is None) == (expected is None)
        if own is not None:
            assert own == pytest.approx(expected, abs=1e-3)
    top = np.inf
    lower, middle, upper = (
        top if one is None else one for one in (found.lower, found.dee, found.upper)
    )
    assert lower <= middle <= upper


def test_bounds_of_draws_that_share_a_pool():
    std = np.array([0.4, 0.3, 0.2, 0.0])
    assert (spread(std, "draws") == std).all()
    found = spread(std, "independent")
    assert found[:2] == pytest.approx([0.4 / np.sqrt(0.75), 0.3 / np.sqrt(0.5)])
    assert np.isnan(found[2:]).all()
    assert dee(0.9, [0, 1, 2, 3], found).upper == pytest.approx(
        dense(0.9, [-0.4619, 0.5757]), abs=2
    )
    assert dee(2.9, [0, 1, 2, 3], found).upper is None


def test_how_many_bring_a_share_of_the_gain():
    assert size_for(0.5, np.array([0.0, 4, 8])) == 2
    assert size_for(0.9, np.array([0.0, 8, 10])) == pytest.approx(2.5)
    assert size_for(0.5, np.array([1.0, 0.5, 0.9])) is None


def test_probabilities_are_averaged_and_not_logits():
    members = np.log([[[0.1, 0.9]], [[0.5, 0.5]]])
    single, both = prefixes(lambda j: members[j], [0, 1])
    assert single == pytest.approx(members[0])
    assert both[0, 1] - both[0, 0] == pytest.approx(np.log(0.7 / 0.3))
    of_logits = 0.5 * np.log(9)
    assert 1 / (1 + np.exp(-of_logits)) == pytest.approx(0.75)


def test_prefixes_are_means_in_the_order_asked_for_whatever_is_small():
    rng = np.random.default_rng(0)
    logs = log_softmax(200 * rng.normal(size=(5, 7, 4)), axis=2)
    logs.setflags(write=False)  # what is given is averaged elsewhere
    order = [3, 0, 4, 1, 2]
    for size, found in enumerate(prefixes(lambda j: logs[j], order), start=1):
        mean = np.exp(logs[order[:size]]).mean(axis=0)
        seen = mean > 1e-300
        assert found[seen] == pytest.approx(np.log(mean[seen]))
        assert np.isfinite(found).all()
    same = list(prefixes(lambda _: logs[0], range(4)))
    assert same[3] == pytest.approx(same[0], abs=1e-12)
    assert (logs[order[0]] == next(prefixes(lambda j: logs[j], order))).all()


def test_orders_are_permutations_that_more_draws_begin_with():
    found = orders(7, "0f" * 16, 0, 6, 4)
    assert (np.sort(found, axis=1) == np.arange(6)).all()
    assert (orders(7, "0f" * 16, 0, 6, 2) == found[:2]).all()
    assert len({tuple(order) for order in found.tolist()}) > 1
    assert (orders(7, "0f" * 16, 1, 6, 4) != found).any()
