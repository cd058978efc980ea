"""Scores of response curves: planted curves, and slow versions by numerical integration."""

import itertools
import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy.integrate import quad

from manyseed.analysis import Refused, response

ELEVEN, TWENTY_ONE = np.linspace(0, 0.5, 11), np.linspace(-30, 30, 21)


def unit(magnitudes):
    return (magnitudes - magnitudes[0]) / (magnitudes[-1] - magnitudes[0])


def algorithm_2(magnitudes, accuracy) -> float:
    """The published algorithm, step by step, on an axis from 0 to 1."""
    u, density = unit(magnitudes), [0.0]
    for i in range(1, len(u)):
        density.append(density[-1] + (u[i] - u[i - 1]) * (accuracy[i] + accuracy[i - 1]) / 2)
    area = 0.0
    for i in range(1, len(u)):
        gaps = u[i] - density[i], u[i - 1] - density[i - 1]
        area += (u[i] - u[i - 1]) * sum(gaps) / 2
    return area / 0.5


def densities(magnitudes, accuracy):
    """The cumulative density as a function, by adaptive quadrature."""
    u = unit(magnitudes)

    def density(x: float) -> float:
        knots = [0.0, *u[(u > 0) & (u < x)], x]
        return sum(
            quad(lambda t: np.interp(t, u, accuracy), a, b)[0] for a, b in itertools.pairwise(knots)
        )

    return density


@pytest.mark.parametrize(
    ("level", "gi", "pal", "printed"), [(1, 0, 84, 6), (0.7, 0.3, 84, 6), (0.1, 0.9, 84, 6)]
)
def test_a_constant_accuracy(level, gi, pal, printed) -> None:
    curve = np.full(11, level)
    assert response.gi(ELEVEN, curve) == pytest.approx(gi)
    assert response.pal(ELEVEN, curve) == pytest.approx(pal)
    assert response.pal_printed(ELEVEN, curve) == pytest.approx(printed)
    assert response.mean_accuracy(ELEVEN, curve) == pytest.approx(level)


@pytest.mark.parametrize(
    ("curve", "n", "gi", "pal", "printed"),
    [
        (lambda u: 1 - u, 11, 0.335, 54.6207, 4.42105),
        (lambda u: 1 - u, 21, 0.33375, 54.6207, 4.42105),
        (lambda u: 1 - u**2, 11, 0.17, 67.846, None),
        (lambda u: 1 - u / 2, 11, 0.1675, 69.559, 5.2308),
    ],
)
def test_falling_curves(curve, n, gi, pal, printed) -> None:
    u = np.linspace(0, 1, n)
    assert response.gi(u / 2, curve(u)) == pytest.approx(gi, abs=1e-9)
    assert response.pal(u / 2, curve(u)) == pytest.approx(pal, abs=5e-4)
    if printed is not None:
        assert response.pal_printed(u / 2, curve(u)) == pytest.approx(printed, abs=5e-5)


def test_a_step_and_its_complement() -> None:
    step = (np.arange(21) < 10).astype(float)
    assert response.gi(TWENTY_ONE, step) == pytest.approx(0.27625)
    assert response.gi(TWENTY_ONE, 1 - step) == pytest.approx(0.72375)


def test_both_signs_are_folded() -> None:
    u = np.linspace(0, 1, 21)
    tent, ramp = 1 - np.abs(2 * u - 1), np.minimum(2 * u, 1)
    assert response.gi(TWENTY_ONE, tent) == pytest.approx(0.5)
    assert response.gi_folded(TWENTY_ONE, tent) == pytest.approx(0.335)
    assert response.gi(TWENTY_ONE, ramp) == pytest.approx(0.41625)
    assert response.gi(TWENTY_ONE, ramp[::-1]) == pytest.approx(0.08375)
    for curve in (ramp, ramp[::-1]):
        assert response.gi_folded(TWENTY_ONE, curve) == pytest.approx(0.1675)
    assert np.isnan(response.gi_folded(ELEVEN, np.ones(11)))
    for score in (response.pal, response.pal_printed):
        assert np.isnan(score(TWENTY_ONE, np.ones(21)))


def test_a_range_whose_ends_differ_is_folded_to_the_smaller() -> None:
    magnitudes = np.linspace(-180, 179, 21)
    curve = 1 - np.abs(magnitudes) / 180
    u = np.unique(np.abs(magnitudes))
    u = np.concatenate([[0], u[u < 179], [179]])
    assert response.gi_folded(magnitudes, curve) == pytest.approx(response.gi(u, 1 - u / 180), 3e-3)


def test_a_model_that_is_always_wrong() -> None:
    assert response.gi(ELEVEN, np.zeros(11)) == pytest.approx(1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert np.isnan(response.pal(ELEVEN, np.zeros(11)))
        assert np.isnan(response.pal_printed(ELEVEN, np.zeros(11)))


def test_magnitudes_are_an_axis_from_its_first_to_its_last() -> None:
    curve = np.linspace(1, 0.2, 21)
    for score in (response.gi, response.mean_accuracy, response.end_accuracy):
        values = {score(m, curve) for m in (TWENTY_ONE, TWENTY_ONE * np.pi / 180)}
        assert max(values) == pytest.approx(min(values), abs=1e-12)
    assert response.gi(TWENTY_ONE, curve) == pytest.approx(
        response.gi(np.linspace(0, 1, 21), curve)
    )


CURVES = hnp.arrays(float, st.integers(2, 15), elements=st.floats(0, 1, width=16))


@given(CURVES, st.randoms(use_true_random=False))
def test_scores_equal_slow_versions(curve, random) -> None:
    steps = np.array([random.uniform(0.2, 1) for _ in curve])
    magnitudes = steps.cumsum()
    assert response.gi(magnitudes, curve) == pytest.approx(algorithm_2(magnitudes, curve), abs=1e-9)
    density = densities(magnitudes, curve)
    u = unit(magnitudes)
    np.testing.assert_allclose(
        response.cumulative(magnitudes, curve), [density(x) for x in u], atol=1e-9
    )
    if density(0.1) > 1e-3:
        printed = density(0.6) / density(0.1)
        assert response.pal_printed(magnitudes, curve) == pytest.approx(printed, rel=1e-6)


def test_pal_equals_quadrature() -> None:
    rng = np.random.default_rng(1)
    for _ in range(5):
        curve, magnitudes = rng.uniform(0.2, 1, 7), rng.uniform(0.2, 1, 7).cumsum()
        density = densities(magnitudes, curve)
        x = np.linspace(0, 1, 4001)
        values = np.array([density(v) for v in x])
        areas = np.concatenate([[0], ((values[1:] + values[:-1]) / 2 * np.diff(x)).cumsum()])
        expected = (areas[-1] - areas[1600]) / areas[400]
        assert response.pal(magnitudes, curve) == pytest.approx(expected, rel=1e-5)


@given(hnp.arrays(float, (3, 11), elements=st.floats(0, 1, width=16)))
def test_gi_is_linear_and_complements_sum_to_one(curves) -> None:
    scores = response.gi(ELEVEN, curves)
    assert scores.shape == (3,)
    np.testing.assert_allclose(scores + response.gi(ELEVEN, 1 - curves), 1, atol=1e-12)
    np.testing.assert_allclose(response.gi(ELEVEN, curves.mean(axis=0)), scores.mean(), atol=1e-12)
    for one, score in zip(curves, scores, strict=True):
        assert response.gi(ELEVEN, one) == score


def test_a_curve_that_was_not_measured_has_no_score() -> None:
    curves = np.stack([np.full(11, np.nan), np.ones(11)])
    assert np.isnan(response.gi(ELEVEN, curves)).tolist() == [True, False]


@pytest.mark.parametrize(
    ("magnitudes", "accuracy", "option"),
    [
        ([0, 0.2, 0.1], [1, 1, 1], "magnitudes"),
        ([0], [1], "magnitudes"),
        ([0, np.nan], [1, 1], "magnitudes"),
        ([0, 1], [1, 1, 1], "accuracy"),
        ([0, 1], [100, 90], "accuracy"),
        ([0, 1], 1.0, "accuracy"),
    ],
)
def test_what_is_no_curve_is_refused(magnitudes, accuracy, option) -> None:
    with pytest.raises(Refused) as refused:
        response.gi(magnitudes, accuracy)
    assert refused.value.option == option
