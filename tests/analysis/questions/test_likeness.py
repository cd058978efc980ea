"""Are A's runs like B's: planted groups of runs, formulas point by point, coverage."""

from __future__ import annotations

from itertools import combinations, product

import numpy as np
import pytest
from scipy.special import logit

from manyseed.analysis import Refused
from manyseed.analysis.alphahat.trimming import dkw_threshold
from manyseed.analysis.questions.intervals import of_share
from manyseed.analysis.questions.likeness import (
    alpha_hat_between,
    classes,
    consistency_between,
    labels,
    probes,
)
from tests.analysis.planted import two_groups, wrong_points


def test_groups_of_one_kind_are_alike():
    a, b = two_groups(points=6000)
    found = alpha_hat_between([a], [b], resamples=20, bootstrap=20)
    assert found.alike is True
    assert found.low <= found.alpha_hat <= found.high < 0.05
    assert (found.n_side, found.delta) == (3000, dkw_threshold(3000, 0.01))
    assert found.words.startswith("A's runs are like B's: α̂ < 0.04 (95 % for")
    assert "0 of 6 runs of A are above 0.05 against 8 runs of B." in found.words
    assert "δ = 0.042 at N = 3,000 test points per side." in found.words


@pytest.mark.parametrize("share", [0.2, 0.4])
def test_contamination_of_a_is_found_with_its_level(share):
    """Well-separated contamination ν gives (ν - δ) / (1 - δ)."""
    a, b = two_groups(points=6000, contaminated=share)
    found = alpha_hat_between([a], [b], resamples=20, bootstrap=20)
    delta = dkw_threshold(3000, 0.01)
    expected = (share - delta) / (1 - delta)
    assert found.alpha_hat == pytest.approx(expected, abs=0.03)
    assert found.low < expected < found.high + 0.02
    assert found.alike is False
    assert found.within < 0.01
    assert "A's runs are unlike B's" in found.words
    assert "6 of 6 runs of A are above 0.05" in found.words


def test_scores_of_another_scale_are_told_as_a_cause():
    """The same labels throughout: the scores of A are 0.3 of B's."""
    a, b = two_groups(points=6000)
    found = alpha_hat_between([0.3 * a], [b], resamples=10, bootstrap=10)
    assert found.alike is False
    assert found.scale == pytest.approx(0.3, abs=0.02)
    assert found.infeasible > 0.5
    share = f"{found.infeasible:.0%}"
    assert f"In {share} of splits no trimming makes A's runs acceptable, which" in found.words
    assert "A's scores are typically 0.3 times as large as B's: that alone is" in found.words
    same = alpha_hat_between([a], [b], resamples=10, bootstrap=10)
    assert "splits" not in same.words
    assert "times as large" not in same.words


def test_consistency_over_several_test_sets_says_so():
    (a, b), (c, d) = (wrong_points(runs=(4, 5), seed=seed) for seed in (0, 1))
    found = consistency_between([a, c], [b, d])
    assert "over 4 × 5 pairs of runs on each of 2 test sets of 1,000 points" in found.words


def test_few_points_cannot_tell():
    a, b = two_groups(points=200)
    found = alpha_hat_between([a], [b], resamples=20, bootstrap=20)
    assert found.alike is None
    assert "cannot be told, as δ is above 0.05: α̂ < 0.2" in found.words
    assert "so that differences up to about 24% are not seen" in found.words


def test_consistency_is_that_of_all_pairs():
    wrong_a, wrong_b = wrong_points(runs=(4, 5), apart=0.5)
    found = consistency_between([wrong_a], [wrong_b])

    def ec(one, other):
        return (one & other).sum() / (one | other).sum()

    assert found.ec_local == pytest.approx(np.mean([ec(*p) for p in product(wrong_a, wrong_b)]))
    within = [np.mean([ec(*p) for p in combinations(own, 2)]) for own in (wrong_a, wrong_b)]
    assert [found.within_a, found.within_b] == pytest.approx(within)
    assert found.less == pytest.approx(np.mean(within) - found.ec_local)
    assert 0 <= found.low < found.ec_local < found.high <= 1
    assert "4 × 5 pairs of runs on 1,000 test points" in found.words


def test_errors_that_differ_are_told_and_others_are_not():
    unlike = consistency_between(*([own] for own in wrong_points(runs=(8, 8), apart=0.5)))
    assert unlike.less_low > 0
    assert "A's errors are unlike B's: less consistent between than within by +0." in unlike.words
    alike = consistency_between(*([own] for own in wrong_points(runs=(8, 8))))
    assert alike.less_low < 0 < alike.less_high
    assert "That A's errors are unlike B's is not seen" in alike.words
    pair = consistency_between(*([own] for own in wrong_points(runs=(2, 8))))
    assert "cannot be told" in pair.words
    single = consistency_between(*([own] for own in wrong_points(runs=(1, 8))))
    assert (single.low, single.within_a, single.less) == (None, None, None)


def test_a_difference_is_claimed_as_seldom_as_promised():
    """200 pairs of groups of one kind: 5 % of two-sided intervals miss, half of them above 0."""
    missed = [
        consistency_between(*([own] for own in wrong_points(runs=(6, 6), seed=seed)))
        for seed in range(200)
    ]
    assert sum(one.less_low > 0 for one in missed) <= 12
    assert sum(not one.less_low <= 0 <= one.less_high for one in missed) <= 20


def test_intervals_of_shares_stay_inside():
    low, high = of_share(0.5008, 1.8574)
    assert 0 < low < 0.01
    assert 0.99 < high < 1
    assert of_share(0.9, 0.001) == pytest.approx((0.899, 0.901), abs=1e-5)
    assert of_share(1.0, 0.0) == (1, 1)
    assert of_share(np.array([0.3]), np.array([0.1]))[0] == pytest.approx(
        1 / (1 + np.exp(-(logit(0.3) - 0.1 / 0.21)))
    )


def test_labels_are_the_largest_scores():
    scores = np.random.default_rng(0).random((3, 7, 4))
    assert (labels("a", scores) == scores.argmax(axis=2)).all()


def test_masked_values_are_missing_and_never_what_is_behind_the_mask():
    scores = np.random.default_rng(0).random((3, 8, 4))
    y, mask = np.arange(8) % 4, np.zeros(scores.shape, bool)
    mask[1, 2, 3] = True
    hidden = np.ma.array(scores, mask=mask)
    for values in (hidden, [*hidden]):
        for read in (lambda v: probes("a", v, y), lambda v: labels("a", v)):
            with pytest.raises(Refused, match="a = None: 1 of 96 values are missing"):
                read(values)
    of_labels = np.ma.array(scores.argmax(axis=2), mask=mask[..., 3])
    with pytest.raises(Refused, match="1 of 24 values are missing"):
        labels("b", of_labels)
    with pytest.raises(Refused, match="y = None: 1 of 8 values are missing"):
        classes(np.ma.array(y, mask=np.arange(8) == 1), 8)
    unmasked = np.ma.array(scores)
    np.testing.assert_array_equal(labels("a", unmasked), scores.argmax(axis=2))
    assert probes("a", unmasked, y).shape == (3, 8)


def test_scores_with_nan_have_no_labels():
    scores = np.random.default_rng(0).random((3, 8, 4))
    scores[1, 2, 3] = np.nan
    for read in (lambda: labels("a", scores), lambda: probes("a", scores, np.arange(8) % 4)):
        with pytest.raises(Refused, match="a = nan: allowed: numbers; leave out runs with NaN"):
            read()
