"""How many test sets tell a difference: beside the t interval of as many."""

import numpy as np
import pytest
from scipy import stats

from manyseed.analysis.questions.needed import MOST_SETS, sets_needed


@pytest.mark.parametrize(("n", "difference", "sd"), [(3, 0.01, 0.02), (5, -0.01, 0.012)])
def test_the_fewest_are_those_whose_interval_excludes_no_difference(n, difference, sd):
    half = stats.t.ppf(0.975, n - 1) * sd / np.sqrt(n)
    assert half > abs(difference)
    found = sets_needed(difference, half, n, 0.95)
    halves = [stats.t.ppf(0.975, m - 1) * sd / np.sqrt(m) for m in (found - 1, found)]
    assert halves[1] < abs(difference) <= halves[0]


@pytest.mark.parametrize("among", [3, 10])
def test_all_pairs_together_take_bonferronis_quantile(among):
    n, difference, sd = 5, -0.0318, 0.0288
    half = stats.t.ppf(0.975, n - 1) * sd / np.sqrt(n)
    found = sets_needed(difference, half, n, 0.95, among)
    halves = [stats.t.ppf(1 - 0.025 / among, m - 1) * sd / np.sqrt(m) for m in (found - 1, found)]
    assert halves[1] < abs(difference) <= halves[0]
    assert found > sets_needed(difference, half, n, 0.95)


def test_a_difference_of_almost_none_takes_too_many():
    assert sets_needed(1e-6, 0.1, 5, 0.95) is None
    assert MOST_SETS == 1000
