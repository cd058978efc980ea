"""How many runs of each of two classifiers tell a difference: beside scipy, and simulated."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
from scipy.stats import nct, t, ttest_ind

from manyseed.analysis.questions.difference import POWER, of_two
from manyseed.analysis.questions.howmany import fewest_runs, for_mean


def half_width(n: int, sd: float) -> float:
    return float(t.ppf(0.975, 2 * n - 2) * sd * np.sqrt(2 / n))


def power(n: int, sd: float, difference: float) -> float:
    """Return the exact power of Student's test of two means of n values each."""
    shift, edge = difference / (sd * np.sqrt(2 / n)), t.ppf(0.975, 2 * n - 2)
    return float(nct.sf(edge, 2 * n - 2, shift) + nct.cdf(-edge, 2 * n - 2, shift))


@pytest.mark.parametrize(("sd", "difference"), [(0.0171, 0.01), (0.01, 0.02), (0.03, 0.005)])
def test_the_fewest_runs_of_each_are_those_of_the_interval_and_of_the_test(sd, difference):
    n = fewest_runs(partial(of_two, 0.95, False, sd**2), difference)
    assert half_width(n, sd) <= difference < half_width(n - 1, sd)
    told = fewest_runs(partial(of_two, 0.95, True, sd**2), difference)
    assert told > n
    assert power(told + 1, sd, difference) > POWER > power(told - 1, sd, difference)


def test_so_many_experiments_tell_it():
    sd, difference, rng = 0.0171, 0.01, np.random.default_rng(3)
    n = fewest_runs(partial(of_two, 0.95, True, sd**2), difference)
    a, b = rng.normal(0, sd, (2, 4000, n))
    share = np.mean(ttest_ind(a + difference, b, axis=1).pvalue < 0.05)
    assert share == pytest.approx(POWER, abs=0.02)


def test_the_interval_of_the_number_is_that_of_the_spread():
    values = [0.9 + 0.02 * np.random.default_rng(seed).normal(size=10) for seed in range(3)]
    mean = for_mean("x", values, 0.01)
    two = for_mean("x", values, 0.01, of=partial(of_two, 0.95, False))
    assert (two.made, two.repeats) == (mean.made, mean.repeats)
    assert mean.runs < two.runs < 2 * mean.runs + 1
    assert mean.low < two.low < two.runs < two.high
