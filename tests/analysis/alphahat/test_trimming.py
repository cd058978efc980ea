"""The closed form against the definition: an LP over every trimming, and the classical KS test."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog
from scipy.stats import ks_2samp

from manyseed.analysis.alphahat.trimming import dkw_threshold, smallest_trimming_level

few_values = st.lists(st.integers(-3, 3).map(float), min_size=1, max_size=9)
thresholds = st.floats(0.01, 0.6)


def level_by_linear_program(candidate, reference, gamma):
    """Minimise κ over all trimmings h, checked where either eCDF jumps: the definition itself."""
    values = np.unique(candidate)
    knots = np.concatenate([[0], [(candidate <= v).mean() for v in values]])
    n = knots.size
    inequality, bound = [], []
    for i in range(n - 1):  # 0 ≤ h(T_{i+1}) − h(T_i) ≤ κ (T_{i+1} − T_i)
        row = np.zeros(n + 1)
        row[[i, i + 1]] = [-1, 1]
        inequality += [-row, row.copy()]
        inequality[-1][n] = -(knots[i + 1] - knots[i])
        bound += [0, 0]
    for t in np.unique(np.concatenate([candidate, reference])):
        at = np.zeros(n + 1)
        at[np.count_nonzero(values <= t)] = 1
        inequality += [at, -at]
        mass = (reference <= t).mean()
        bound += [mass + gamma, -(mass - gamma)]
    ends = np.zeros((2, n + 1))
    ends[0, 0] = ends[1, n - 1] = 1
    cost = np.zeros(n + 1)
    cost[n] = 1
    solved = linprog(
        cost,
        A_ub=np.array(inequality),
        b_ub=np.array(bound),
        A_eq=ends,
        b_eq=[0, 1],
        bounds=[(0, 1)] * n + [(1, None)],
        method="highs",
    )
    return 1 - 1 / solved.x[n] if solved.status == 0 else 1.0


def test_the_closed_form_is_the_linear_program():
    rng = np.random.default_rng(1)
    seen = {"accepted": 0, "trimmed": 0, "infeasible": 0}
    for _ in range(500):
        width = rng.integers(1, 12)
        candidate = rng.integers(-width, width + 1, rng.integers(1, 15)).astype(float)
        shift = rng.integers(-1, 2)
        reference = rng.integers(-width, width + 1, rng.integers(1, 25)) + float(shift)
        gamma = rng.uniform(0.02, 0.5)
        level = smallest_trimming_level(candidate, reference, gamma)
        # The solver's own tolerance on h is 1e-7.
        assert level == pytest.approx(
            level_by_linear_program(candidate, reference, gamma), abs=1e-6
        ), (candidate, reference, gamma)
        seen["accepted" if level == 0 else "infeasible" if level == 1 else "trimmed"] += 1
    assert min(seen.values()) > 50, seen


def test_reference_mass_between_two_candidate_values_cannot_be_reached():
    assert smallest_trimming_level(np.array([-1.0, 1.0]), np.zeros(10), 0.1) == 1


@pytest.mark.parametrize("far", [-100.0, 100.0])
def test_reference_mass_beyond_the_candidate_cannot_be_reached(far):
    candidate = np.linspace(0, 1, 100)
    reference = np.where(np.arange(100) < 20, far, candidate)
    assert smallest_trimming_level(candidate, reference, 0.1) == 1
    assert smallest_trimming_level(candidate, reference, 0.3) < 1


def test_candidate_mass_beyond_the_reference_is_trimmed_away():
    values = np.linspace(0, 1, 1000)
    candidate = np.where(np.arange(1000) < 300, 100.0, values)
    reference = np.concatenate([values[300:], values[300:]])
    level = smallest_trimming_level(candidate, reference, 0.05)
    assert level == pytest.approx((0.3 - 0.05) / (1 - 0.05), abs=0.002)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # of the p-value, which isn't used
@given(few_values, few_values, thresholds)
@settings(deadline=None)
def test_level_zero_is_the_classical_test(candidate, reference, gamma):
    distance = ks_2samp(candidate, reference, method="asymp").statistic
    level = smallest_trimming_level(np.array(candidate), np.array(reference), gamma)
    if abs(distance - gamma) > 1e-9:
        assert (level < 1e-9) == (distance <= gamma)


@given(few_values, few_values, thresholds, st.sampled_from([2.0, 1e-3, 1e6]))
@settings(deadline=None)
def test_only_the_order_of_the_values_counts(candidate, reference, gamma, scale):
    level = smallest_trimming_level(np.array(candidate), np.array(reference), gamma)
    moved = smallest_trimming_level(
        np.array(candidate[::-1]) * scale - 20, np.array(reference[::-1]) * scale - 20, gamma
    )
    assert moved == level


@given(few_values, few_values, thresholds, thresholds)
@settings(deadline=None)
def test_a_wider_threshold_needs_no_more_trimming(candidate, reference, one, other):
    low, high = sorted([one, other])
    levels = [
        smallest_trimming_level(np.array(candidate), np.array(reference), gamma)
        for gamma in (low, high)
    ]
    assert 0 <= levels[1] <= levels[0] <= 1


def test_threshold():
    assert dkw_threshold(4000, 0.01) == pytest.approx(0.0364, abs=5e-5)
    assert dkw_threshold(71, 0.01) == pytest.approx(0.28, abs=0.005)
    assert dkw_threshold(457, 0.01) == math.sqrt(math.log(math.e / 0.01) / 457)
    assert dkw_threshold(458, 0.01) == math.sqrt(math.log(2 / 0.01) / 458)


def test_an_empty_side_is_refused():
    with pytest.raises(ValueError, match="at least one"):
        smallest_trimming_level(np.array([]), np.array([1.0]), 0.1)
    with pytest.raises(ValueError, match="n_side is 0"):
        dkw_threshold(0, 0.01)
