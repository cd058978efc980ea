"""Means over pairs of runs: both parts of their variance, and how often intervals hold."""

from __future__ import annotations

import math
import warnings
from itertools import combinations

import numpy as np
import pytest
from scipy.stats import t

from manyseed.analysis.questions.howmany import for_pairs
from manyseed.analysis.questions.intervals import FEWEST, Parts, matrix, parts

TRUE_RUNS = 30


def slowly(values):
    """ζ₁ and ζ₂ of a symmetric array by going through all pairs of pairs."""
    runs = range(len(values))
    products = {1: [], 2: [], 0: []}
    centred = values - np.nanmean(values)
    pairs = [pair for pair in combinations(runs, 2) if not math.isnan(values[pair])]
    for one in pairs:
        for other in pairs:
            products[len({*one} & {*other})].append(centred[one] * centred[other])
    none = np.mean(products[0])
    return np.mean(products[1]) - none, np.mean(products[2]) - none


def symmetric(rng, runs, undefined=0):
    values = rng.random((runs, runs))
    values = values + values.T
    np.fill_diagonal(values, np.nan)
    for _ in range(undefined):
        i, j = rng.choice(runs, 2, replace=False)
        values[i, j] = values[j, i] = np.nan
    return values


@pytest.mark.parametrize("undefined", [0, 3])
def test_parts_are_those_of_all_pairs_of_pairs(undefined):
    values = symmetric(np.random.default_rng(0), 7, undefined)
    found = parts([values])
    assert (found.zeta_1[0], found.zeta_2[0]) == pytest.approx(slowly(values))
    if not undefined:  # else the centre, that of all runs, changes the last digits
        for run in range(7):
            rest = np.delete(np.delete(values, run, 0), run, 1)
            assert [own[run] for own in found.left_out[0]] == pytest.approx(slowly(rest))


def test_a_sum_of_two_runs_has_no_second_part():
    x = np.random.default_rng(1).normal(size=(3, 12))
    values = [(own[:, None] + own) / 2 for own in x]
    for own in values:
        np.fill_diagonal(own, np.nan)
    found = parts(values)
    spread = x.var(axis=1, ddof=1)
    assert found.zeta_1 == pytest.approx(spread / 4)
    assert found.zeta_2 == pytest.approx(spread / 2)
    assert found.variance(50) == pytest.approx(spread.mean() / 50)


def test_repeats_count_by_their_pairs_whatever_their_means():
    rng = np.random.default_rng(2)
    small, large = symmetric(rng, 6), symmetric(rng, 15)
    both, shifted = parts([small, large]), parts([small + 5, large])
    assert both.weights == pytest.approx([15 / 120, 105 / 120])
    assert shifted.variance(9) == pytest.approx(both.variance(9))
    assert shifted.limits(9, 0.9) == pytest.approx(both.limits(9, 0.9))


def test_pairs_by_name_become_an_array():
    i, j = (np.array(side) for side in zip(*combinations((3, 7, 9), 2), strict=True))
    found = matrix(i, j, np.array([0.1, 0.2, np.nan]))
    assert found[0, 1] == found[1, 0] == 0.1
    assert found[0, 2] == 0.2
    assert np.isnan(found[[0, 1, 2, 1], [0, 1, 2, 2]]).all()


def test_what_is_too_little_says_nothing():
    rng = np.random.default_rng(3)
    assert parts([symmetric(rng, FEWEST - 1)]) is None
    assert parts([np.full((8, 8), np.nan)]) is None
    # Without run 0, which all defined pairs have in common, nothing is left.
    star = np.full((8, 8), np.nan)
    star[0, 1:] = star[1:, 0] = rng.random(7)
    assert parts([star]) is None


def test_pairs_that_are_all_alike_do_not_tell_how_many_runs_are_needed():
    values = np.full((6, 6), 0.4)
    np.fill_diagonal(values, np.nan)
    answer = for_pairs("x", [values], 0.01)
    assert (answer.runs, answer.low, answer.high) == (None, None, None)
    assert answer.reason


def consistency(wrong):
    """Local error consistency of all pairs of runs from their errors (run, point)."""
    both = wrong.astype(float) @ wrong.T.astype(float)
    errors = wrong.sum(axis=1)
    either = errors[:, None] + errors - both
    result = np.divide(both, either, out=np.full(both.shape, np.nan), where=either > 0)
    np.fill_diagonal(result, np.nan)
    return result


def design(name):
    """Probability of an error at each test point, and which runs share what."""
    if name == "independent":
        return np.full(400, 0.1)
    if name == "skewed":
        return np.random.default_rng(0).beta(0.15, 1, 400)
    return np.concatenate([np.full(6, 0.5), np.full(394, 0.002)])


def half_width(difficulty, rng, draws):
    """± of the mean over the pairs of `TRUE_RUNS` runs, from that many means."""
    means = [
        np.nanmean(consistency(rng.random((TRUE_RUNS, 400)) < difficulty)) for _ in range(draws)
    ]
    return t.ppf(0.975, TRUE_RUNS - 1) * np.std(means, ddof=1)


def answered(difficulty, rng, width, times):
    """Answers from sweeps of 10 repeats of 10 runs."""
    for _ in range(times):
        wrong = rng.random((10, 10, 400)) < difficulty
        yield for_pairs("x", [consistency(own) for own in wrong], width)


def test_independent_errors_need_as_many_runs_as_they_do():
    # A variance that falls as 1 / n² is no reason for three times the runs.
    rng = np.random.default_rng(4)
    difficulty = design("independent")
    answers = [*answered(difficulty, rng, half_width(difficulty, rng, 600), 12)]
    assert np.median([answer.runs for answer in answers]) == pytest.approx(TRUE_RUNS, rel=0.25)
    assert sum(answer.low <= TRUE_RUNS <= answer.high for answer in answers) >= 11


@pytest.mark.slow
@pytest.mark.parametrize("name", ["independent", "skewed", "few hard points"])
def test_intervals_hold_the_truth_as_often_as_they_say(name):
    rng = np.random.default_rng(5)
    difficulty = design(name)
    answers = [*answered(difficulty, rng, half_width(difficulty, rng, 3000), 300)]
    low, runs, high = (
        np.array([getattr(answer, end) for answer in answers]) for end in ("low", "runs", "high")
    )
    assert ((low <= TRUE_RUNS) & (high >= TRUE_RUNS)).mean() >= 0.9
    assert np.median(runs) == pytest.approx(TRUE_RUNS, rel=0.2)
    # They say something, too.
    assert np.median(low) >= 10
    assert np.median(high) <= 200


@pytest.mark.slow
@pytest.mark.parametrize("repeats", [1, 6])
def test_a_few_runs_that_collapse_do_not_break_the_interval(repeats):
    rng = np.random.default_rng(6)

    def values(runs):
        rate = np.where(rng.random((runs, 1)) < 0.08, 0.3, 0.08)
        return consistency(rng.random((runs, 400)) < rate)

    means = [np.nanmean(values(TRUE_RUNS)) for _ in range(3000)]
    width = t.ppf(0.975, TRUE_RUNS - 1) * np.std(means, ddof=1)
    inside = 0
    for _ in range(200):
        answer = for_pairs("x", [values(20) for _ in range(repeats)], width)
        inside += answer.low <= TRUE_RUNS <= (answer.high or math.inf)
    assert inside / 200 >= 0.85


def test_an_interval_without_an_upper_end_is_open_and_warns_of_nothing() -> None:
    """A quantile of χ² with a thousandth of a degree of freedom is below the smallest float."""
    without = (np.array([-80.0, 80.0, 0.0, 0.0]), np.zeros(4))
    few = Parts(np.array([4]), np.array([0.1]), np.array([0.2]), (without,))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        low, high = few.limits(10, 0.95)
    assert 0.0 <= low <= few.variance(10)
    assert high == math.inf
