"""Two cells compared: against SciPy, slow versions, and how often intervals hold."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from manyseed.analysis.questions.comparison import Side, compare, compare_apart


def sides(*values, fixed=False):
    return [Side(np.asarray(own, dtype=float), fixed) for own in values]


def agarwal(a, b):
    """Mean over tasks, then over all pairs, of 1[a > b] + ½ 1[a = b]."""
    of_tasks = []
    for x, y in zip(a, b, strict=True):
        total = 0.0
        for one in x:
            for other in y:
                total += 1.0 if one > other else 0.5 if one == other else 0.0
        of_tasks.append(total / (len(x) * len(y)))
    return sum(of_tasks) / len(of_tasks)


coarse = st.lists(st.integers(0, 4).map(float), min_size=2, max_size=7)


@given(st.lists(st.tuples(coarse, coarse), min_size=1, max_size=4), st.booleans())
@settings(deadline=None, max_examples=60)
def test_p_better_is_that_of_agarwal_and_lies_in_its_intervals(tasks, higher):
    a, b = ([task[k] for task in tasks] for k in range(2))
    found = compare(sides(*a), sides(*b), paired=False, higher=higher)
    expected = agarwal(a, b)
    assert found.better == pytest.approx(expected if higher else 1 - expected)
    for limits in (found.better_seeds, found.better_sets):
        assert limits is None or 0 <= limits[0] <= found.better <= limits[1] <= 1
    turned = compare(sides(*b), sides(*a), paired=False, higher=higher)
    assert turned.better == pytest.approx(1 - found.better)
    assert (turned.better_seeds is None) == (found.better_seeds is None)
    if found.better_seeds is not None:
        ends = [1 - end for end in found.better_seeds[::-1]]
        assert turned.better_seeds == pytest.approx(ends, abs=1e-6)
    assert turned.difference == pytest.approx(-found.difference)


def test_p_better_of_one_test_set_is_mann_and_whitneys():
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=9), rng.normal(0.5, 1, 6)
    found = compare(sides(a), sides(b), paired=False)
    assert found.better == pytest.approx(stats.mannwhitneyu(a, b).statistic / (9 * 6))


def test_one_test_set_is_scipys_t_test_paired_and_not():
    rng = np.random.default_rng(1)
    a, b = rng.normal(size=8), rng.normal(0.3, 2, 8)
    for paired, oracle in (
        (True, stats.ttest_rel(a, b)),
        (False, stats.ttest_ind(a, b, equal_var=False)),
    ):
        found = compare(sides(a), sides(b), paired=paired, confidence=0.9)
        assert found.seeds == pytest.approx(tuple(oracle.confidence_interval(0.9)))
        assert found.difference == pytest.approx(a.mean() - b.mean())
        assert (found.sets, found.no_sets) == (None, "there is one test set")


def test_over_test_sets_it_is_scipys_t_test_of_their_means():
    rng = np.random.default_rng(2)
    a, b = (rng.normal(size=(6, 5)) + 3 * rng.normal(size=(6, 1)) for _ in range(2))
    means = a.mean(axis=1), b.mean(axis=1)
    shared = compare(sides(*a), sides(*b), paired=True)
    assert shared.sets == pytest.approx(tuple(stats.ttest_rel(*means).confidence_interval()))
    apart = compare_apart(sides(*a), sides(*b[:4]))
    oracle = stats.ttest_ind(means[0], means[1][:4], equal_var=False)
    assert apart.sets == pytest.approx(tuple(oracle.confidence_interval()))
    assert (apart.seeds, apart.no_seeds) == (None, "test sets differ")
    assert apart.better == pytest.approx(np.mean([[agarwal([x], [y]) for y in b[:4]] for x in a]))


def test_test_sets_that_agree_by_chance_leave_what_seeds_leave_open():
    a = sides([0.9, 0.7], [0.8, 0.8])
    found = compare(a, sides([0.5, 0.7], [0.6, 0.6]), paired=False)
    assert found.sets == found.seeds
    assert found.sets[0] < found.difference < found.sets[1]


def test_several_test_sets_with_as_much_spread_have_the_pooled_interval():
    """Of equal variances Satterthwaite's degrees of freedom are the sum."""
    base = np.array([-1.0, 0.0, 1.0])
    a = [base + shift for shift in (0, 1, 2, 3)]
    found = compare(sides(*a), sides(*[np.zeros(1)] * 4, fixed=True), paired=True)
    half = stats.t.ppf(0.975, 4 * 2) * math.sqrt(1 / 3 / 4)
    assert found.seeds == pytest.approx((1.5 - half, 1.5 + half))


def test_the_bootstrap_over_pairs_finds_the_same_interval():
    rng = np.random.default_rng(3)
    shared = rng.normal(size=60)
    a, b = shared + rng.normal(size=60), shared + rng.normal(size=60)
    found = compare(sides(a), sides(b), paired=True)
    drawn = stats.bootstrap(
        (a, b),
        lambda x, y: np.mean(x - y),
        paired=True,
        method="percentile",
        vectorized=False,
        n_resamples=4000,
        random_state=rng,
    )
    width = found.seeds[1] - found.seeds[0]
    assert found.seeds == pytest.approx(tuple(drawn.confidence_interval), abs=0.06 * width)


def test_runs_that_are_one_model_add_nothing_and_single_runs_are_told():
    a = sides([0.9, 0.8, 0.85])
    one = compare(a, sides([0.7], fixed=True), paired=True)
    assert one.seeds == pytest.approx(
        tuple(stats.ttest_1samp(a[0].values - 0.7, 0).confidence_interval())
    )
    assert one.saved_runs is None
    assert one.better == 1
    assert 0.4 < one.better_seeds[0] < 0.7  # Wilson's interval of three of three
    lone = compare(a, sides([0.7]), paired=False)
    assert (lone.seeds, lone.no_seeds) == (None, "a test set has a single run")
    with pytest.raises(ValueError, match="equally many runs"):
        compare(a, sides([0.7]), paired=True)
    alike = compare(
        sides([0.9, 0.9, 0.9], [0.8, 0.8, 0.8]), sides([0.7], [0.6], fixed=True), paired=False
    )
    assert (alike.seeds, alike.sets) == (None, None)
    assert alike.no_seeds == "all runs agree, which a few may do by chance"
    assert alike.better_seeds[0] < 0.7 < alike.better_seeds[1] == 1
    mixed = compare(sides([0.9, 0.9], [0.5, 0.5]), sides([0.7], [0.6], fixed=True), paired=False)
    assert (mixed.better, mixed.better_seeds) == (0.5, None), "nothing varies between seeds"
    both = compare(sides([0.9], fixed=True), sides([0.7], fixed=True), paired=False)
    assert both.seeds == pytest.approx((0.2, 0.2))
    assert both.better_seeds == (1, 1)


def test_values_that_compare_runs_have_no_interval_over_seeds():
    rng = np.random.default_rng(4)
    a, b = rng.normal(size=(3, 5)), rng.normal(size=(3, 5))
    found = compare(sides(*a), sides(*b), paired=False, independent=False)
    assert (found.seeds, found.better_seeds) == (None, None)
    assert found.no_seeds == "it compares runs with each other"
    assert found.sets is not None


def test_what_pairing_saves_is_the_ratio_of_variances():
    rng = np.random.default_rng(5)
    shared, easy = rng.normal(size=(4, 50)), 3 * rng.normal(size=4)[:, None]
    a = easy + shared + 0.5 * rng.normal(size=(4, 50))
    b = easy + shared + 0.5 * rng.normal(size=(4, 50))
    found = compare(sides(*a), sides(*b), paired=True)
    within = [x - x.mean(axis=1, keepdims=True) for x in (a, b)]
    ratio = np.square(within[0] - within[1]).sum() / sum(np.square(x).sum() for x in within)
    saving = found.saved_runs
    assert saving.share == pytest.approx(1 - ratio)
    assert saving.unpaired(10) == pytest.approx(10 / ratio)
    assert saving.low < 0.8 < saving.high  # 1 / 1.25 is the correlation planted
    means = a.mean(axis=1), b.mean(axis=1)
    sets = 1 - np.var(means[0] - means[1]) / (np.var(means[0]) + np.var(means[1]))
    assert found.saved_sets.share == pytest.approx(sets)
    two = compare(sides(*a[:2]), sides(*b[:2]), paired=True)
    assert two.saved_sets is None  # two points always correlate by 1 or -1
    assert two.saved_runs is not None
    assert compare(sides(*a), sides(*b), paired=False).saved_runs is None
    same = compare(sides(a[0]), sides(a[0] + 1), paired=True)
    assert (same.saved_runs.share, same.saved_runs.unpaired(10)) == (pytest.approx(1), math.inf)


@pytest.mark.parametrize(("n", "correlation", "ratio"), [(5, 0.97, 1), (4, 0.6, 2), (10, 0.97, 2)])
def test_intervals_of_what_pairing_saves_hold_as_often_as_they_say(n, correlation, ratio):
    """400 pairs of normal values; A may vary more than B."""
    rng = np.random.default_rng(n)
    x, y = rng.normal(size=(2, 400, n))
    b = ratio * (correlation * x + math.sqrt(1 - correlation**2) * y)
    truth = 2 * correlation * ratio / (1 + ratio**2)
    found = [
        compare(sides(*pair), sides(*other), paired=True).saved_runs
        for pair, other in zip(x[:, None], b[:, None], strict=True)
    ]
    held = sum(one.low <= truth <= one.high for one in found)
    assert 0.92 * 400 <= held <= 0.98 * 400


DESIGNS = ("paired", "apart", "unequal", "coarse")


def study(rng, design, n_sets, runs):
    """Draw A and B, values (set, run), and by how much A is better on each test set."""
    easy = rng.normal(0, 0.02, n_sets)[:, None]  # which test sets are easy
    moves = rng.normal(0, 0.004, n_sets)[:, None]  # where A gains more
    shared = rng.normal(0, 0.006, (n_sets, runs)) * (design == "paired")
    scale = 4 if design == "unequal" else 1
    a = 0.905 + easy + moves + shared + rng.normal(0, 0.005, (n_sets, runs))
    b = 0.9 + easy + shared + rng.normal(0, 0.005 * scale, (n_sets, runs))
    if design == "coarse":  # accuracies on 150 points
        a, b = np.round(a * 150) / 150, np.round(b * 150) / 150
    return a, b, 0.005 + moves[:, 0]


def p_better(design, moved):
    """P(a > b) + ½ P(a = b) on test sets where A is better by `moved`."""
    scale = 0.005 * (4 if design == "unequal" else 1)
    if design != "coarse":
        common = 0.006 * math.sqrt(2) * (design == "paired")  # of two runs that share nothing
        return stats.norm.cdf(moved / math.hypot(0.005, scale, common))
    steps = np.arange(-12, 13)  # of 1/150, both ends of it far away
    ends = (np.append(steps, 13) - 0.5) / 150
    at = [np.diff(stats.norm.cdf(ends, of, 0.005), axis=-1) for of in (moved[..., None], 0.0)]
    return (at[0] * (np.cumsum(at[1]) - at[1] / 2)).sum(axis=-1)


@pytest.mark.slow
@pytest.mark.parametrize("design", DESIGNS)
@pytest.mark.parametrize(("n_sets", "runs"), [(1, 10), (2, 5), (5, 5), (10, 10)])
def test_intervals_hold_as_often_as_they_say(design, n_sets, runs):
    rng = np.random.default_rng(100 + n_sets + runs)
    studies, held = 600, {"seeds": 0, "sets": 0, "better": 0, "better_sets": 0}
    overall = p_better(design, 0.005 + rng.normal(0, 0.004, (20_000,))).mean()
    for _ in range(studies):
        a, b, moved = study(rng, design, n_sets, runs)
        found = compare(sides(*a), sides(*b), paired=design == "paired")
        level = p_better(design, moved).mean()
        held["seeds"] += found.seeds[0] <= moved.mean() <= found.seeds[1]
        held["better"] += found.better_seeds[0] <= level <= found.better_seeds[1]
        if n_sets > 1:
            held["sets"] += found.sets[0] <= 0.005 <= found.sets[1]
            held["better_sets"] += found.better_sets[0] <= overall <= found.better_sets[1]
    for name, times in held.items():
        if n_sets > 1 or "sets" not in name:
            least = 0.91 if (design, name) == ("unequal", "better") else 0.93
            assert times / studies > least, (name, held)
