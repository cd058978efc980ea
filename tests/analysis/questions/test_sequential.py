"""Intervals that hold at every look: formulas, coverage at all looks at once, runs they take."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from manyseed.analysis.questions.sequential import BLOCK, FIRST, decide, running


def bayes_factor(t, n, g):
    """Likelihood ratio of t: a standardized mean of N(0, g) makes it t's times √(1 + n g)."""
    scale = math.sqrt(1 + n * g)
    return stats.t.pdf(t, n - 1, scale=scale) / stats.t.pdf(t, n - 1)


@pytest.mark.parametrize("n", [8, 30, 100])
def test_the_running_interval_is_where_the_bayes_factor_reaches_its_limit(n):
    alpha, std = 0.01, 0.3
    level = -2 * math.log(alpha)
    g = (level + math.log(level) + 1) / 30
    t = math.sqrt(n) * running(n, std, alpha) / std
    assert bayes_factor(t, n, g) == pytest.approx(1 / alpha)


def test_few_values_exclude_nothing():
    assert running(2, 1.0, 0.01) == math.inf
    found = decide(np.array([0.5] * (FIRST - 1)), 0.1)
    assert (found.runs, found.enough, found.low, found.high) == (0, None, -math.inf, math.inf)


@given(st.integers(0, 2**32 - 1), st.floats(0.01, 2))
@settings(deadline=None, max_examples=40)
def test_what_was_decided_stays_and_intervals_only_shrink(seed, half_width):
    values = np.random.default_rng(seed).normal(size=120)
    last = None
    for n in range(FIRST, 121, BLOCK):
        found = decide(values[:n], half_width)
        if last is not None:
            assert last.low <= found.low
            assert found.high <= last.high
            if last.enough:
                assert found == last
        if found.enough:
            assert found.half_width <= half_width * (1 + 1e-12)
        last = found


def test_values_that_agree_by_chance_are_no_precision():
    """Ten runs that get 35 of 36 points right each: ± 0.001 is not known of their mean."""
    same = np.full(10, 35 / 36)
    assert decide(same, 0.001).enough == 10
    found = decide(same, 0.001, step=1 / 36)
    assert found.enough is None
    assert found.predicted > 100


def test_a_precision_that_is_none_is_refused():
    with pytest.raises(ValueError, match="must be positive"):
        decide(np.zeros(20), 0.0)


def test_a_bad_run_is_seen_as_skewness():
    values = np.r_[np.full(9, 0.9) + 0.001 * np.arange(9), 0.5]
    assert decide(values, 0.1).skewness < -2
    assert abs(decide(np.r_[values[:9], 0.909], 0.1).skewness) < 0.1


SHAPES = {
    "normal": lambda rng, shape: rng.normal(size=shape),
    "skewed": lambda rng, shape: (rng.gamma(4, 1, shape) - 4) / 2,
    "accuracies": lambda rng, shape: (
        (rng.binomial(150, 0.95, shape) - 142.5) / math.sqrt(150 * 0.95 * 0.05)
    ),
}
STUDIES = 1000


def study(values, half_width, step):
    """Return whether the interval ever missed 0 at a look, and after how many runs it stopped."""
    found = decide(values, half_width, step=step)
    missed, alpha = False, 0.05
    n = np.arange(FIRST, values.size + 1, BLOCK)
    sums, squares = np.cumsum(values)[n - 1], np.cumsum(np.square(values))[n - 1]
    means = sums / n
    std = np.sqrt(np.maximum((squares - n * means**2) / (n - 1), step**2 / 12))
    wide = np.array([running(int(k), float(s), 0.2 * alpha) for k, s in zip(n, std, strict=True)])
    missed = bool((np.abs(means) > wide).any())  # also after it stopped
    return missed or (found.enough is not None and not found.low <= 0 <= found.high), found.enough


@pytest.mark.slow
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("oracle", [30, 50, 100, 200])
def test_it_holds_at_all_looks_at_once_and_takes_few_runs_more_than_the_oracle(shape, oracle):
    """`oracle` runs have that half width where the variance is known and the number is fixed."""
    rng = np.random.default_rng(oracle)
    half_width = stats.norm.ppf(0.975) / math.sqrt(oracle)
    step = 1 / math.sqrt(150 * 0.95 * 0.05) if shape == "accuracies" else 0.0
    drawn = SHAPES[shape](rng, (STUDIES, 5 * oracle))
    missed, runs = zip(*(study(own, half_width, step) for own in drawn), strict=True)
    assert None not in runs
    assert 1 - np.mean(missed) >= (0.94 if shape == "skewed" else 0.95)
    assert np.mean(runs) / oracle <= (1.35 if oracle == 30 else 1.3)


def empirical_bernstein(values, alpha):
    """Half widths of the predictable plug-in sequence (Waudby-Smith and Ramdas 2024, theorem 2)."""
    n = np.arange(1, values.size + 1)
    means = (0.5 + np.cumsum(values)) / (n + 1)
    variances = (0.25 + np.cumsum(np.square(values - means))) / (n + 1)
    before = np.concatenate([[0.25], variances[:-1]])
    means_before = np.concatenate([[0.5], means[:-1]])
    bets = np.minimum(np.sqrt(2 * math.log(2 / alpha) / (before * n * np.log(1 + n))), 0.5)
    psi = (-np.log(1 - bets) - bets) / 4
    v = 4 * np.square(values - means_before)
    return (math.log(2 / alpha) + np.cumsum(v * psi)) / np.cumsum(bets)


@pytest.mark.slow
def test_sequences_that_assume_less_take_many_more_runs():
    """What normality buys, at accuracies 0.97 ± 0.007 and half width 0.002 (oracle: 47 runs)."""
    rng = np.random.default_rng(0)
    oracle = (stats.norm.ppf(0.975) * 0.007 / 0.002) ** 2
    bounded, asymptotic = [], []
    for _ in range(20):
        values = np.clip(rng.normal(0.97, 0.007, 20_000), 0, 1)
        bounded.append(1 + np.argmax(empirical_bernstein(values, 0.05) <= 0.002))
        n = np.arange(2, 2000)
        rho = (-2 * math.log(0.05) + math.log(-2 * math.log(0.05)) + 1) / oracle
        widths = 0.007 * np.sqrt(
            2 * (n * rho + 1) / (n**2 * rho) * np.log(np.sqrt(n * rho + 1) / 0.05)
        )
        asymptotic.append(n[np.argmax(widths <= 0.002)])
    assert np.mean(bounded) / oracle > 10
    assert np.mean(asymptotic) / oracle > 2
