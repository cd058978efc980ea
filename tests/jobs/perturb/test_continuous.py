"""Bounds, distributions and fixed points of the continuous schemes (MV)."""

import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.stats import kstest

from manyseed.jobs.perturb import exponent, find_neighbours, perturb_continuous

SCHEMES = ("sig-digit:0", "sig-digit:1", "relative:0.2", "percentile:0.1", "neighbour:0.5")

values = st.floats(-1e6, 1e6).map(lambda x: x if abs(x) > 1e-6 else 0.0)
tables = arrays(np.float64, st.tuples(st.integers(3, 12), st.integers(1, 4)), elements=values)


def perturb(X, scheme, seed=0, cardinality=None):
    kinds = np.zeros(X.shape[1], dtype=np.int32) if cardinality is None else cardinality
    near = find_neighbours(X[:, kinds == 0]) if scheme.startswith("neighbour") else None
    return perturb_continuous(X, kinds, scheme, np.random.default_rng(seed), near)


@given(X=tables, scheme=st.sampled_from(SCHEMES), seed=st.integers(0, 100))
@settings(deadline=None)
def test_a_scheme_leaves_its_input_alone_and_repeats_itself(X, scheme, seed):
    before = X.copy()
    first = perturb(X, scheme, seed)
    np.testing.assert_array_equal(X, before)
    np.testing.assert_array_equal(perturb(X, scheme, seed), first)
    assert first.shape == X.shape
    assert np.isfinite(first).all()


@given(X=tables, k=st.integers(0, 3), seed=st.integers(0, 100))
@settings(deadline=None)
def test_sig_digit_moves_less_than_a_unit_of_its_digit(X, k, seed):
    moved = perturb(X, f"sig-digit:{k}", seed)
    for x, y in zip(X.ravel().tolist(), moved.ravel().tolist(), strict=True):
        N = int(f"{x:.16e}".split("e")[1]) if x else 0
        width = 10.0 ** (N - k) if x else 0.0
        assert abs(y - x) <= width * (1 + 1e-9) + abs(x) * 1e-15


@pytest.mark.parametrize(
    ("x", "N"),
    [
        (1000.0, 3),
        (np.nextafter(1000.0, 0), 2),
        (1e-3, -3),
        (9.999, 0),
        (1e22, 22),
        (1e23, 23),  # the nearest float lies below 10^23, but reads as 1e23
        (5e-324, -324),
        (1.7e308, 308),
    ],
)
@pytest.mark.parametrize("sign", [1, -1])
def test_the_exponent_is_that_of_scientific_notation(x, N, sign):
    assert exponent(np.array([sign * x])) == N


def test_zero_stays_zero_where_noise_scales_with_the_value():
    X = np.array([[0.0, 1.0], [-0.0, 2.0], [3.0, 0.0]])
    for scheme in ("sig-digit:0", "sig-digit:1", "relative:0.9"):
        assert (perturb(X, scheme)[X == 0] == 0).all()


@given(X=tables, p=st.floats(0.01, 0.99), seed=st.integers(0, 100))
@settings(deadline=None)
def test_relative_moves_at_most_its_share(X, p, seed):
    moved = perturb(X, f"relative:{p!r}", seed)
    assert (np.abs(moved - X) <= p * np.abs(X) * (1 + 1e-12)).all()


def test_percentile_has_the_same_bits_whether_or_not_values_are_missing():
    X = np.random.default_rng(1).lognormal(sigma=3, size=(301, 4))
    X[:150, 3] = np.nan
    for known in (X[:, :3], X):
        noise = 2 * np.random.Generator(np.random.PCG64(5)).random(known.shape) - 1
        width = np.nanquantile(known, 0.37, axis=0)
        expected = np.clip(known + noise * (width / 2), np.nanmin(known, 0), np.nanmax(known, 0))
        cardinality = np.zeros(known.shape[1], np.int32)
        generator = np.random.Generator(np.random.PCG64(5))
        moved = perturb_continuous(known, cardinality, "percentile:0.37", generator)
        np.testing.assert_array_equal(moved, expected)


@given(X=tables, p=st.floats(0.01, 0.99), seed=st.integers(0, 100))
@settings(deadline=None)
def test_percentile_moves_at_most_half_a_quantile_within_the_observed_range(X, p, seed):
    moved = perturb(X, f"percentile:{p!r}", seed)
    q = np.quantile(np.abs(X), p, axis=0)
    assert (np.abs(moved - X) <= q / 2 + np.abs(X) * 1e-12).all()
    assert (moved >= X.min(axis=0)).all()
    assert (moved <= X.max(axis=0)).all()


@given(X=tables, c=st.floats(0.1, 1.0), seed=st.integers(0, 100))
@settings(deadline=None)
def test_neighbour_stays_within_its_ball(X, c, seed):
    near = find_neighbours(X)
    moved = perturb(X, f"neighbour:{c!r}", seed)
    varies = near.scale > 0
    step = np.linalg.norm((moved - X)[:, varies] / near.scale[varies], axis=1)
    # Values far from zero keep fewer digits of a small step.
    digits = 1e-9 * (1 + np.abs(X[:, varies] / near.scale[varies]).sum(axis=1))
    assert (step <= c * near.distance + digits).all()
    np.testing.assert_array_equal(moved[:, ~varies], X[:, ~varies])


def test_noise_has_the_published_distributions():
    n = 20_000
    X = np.full((n, 1), -123.0)
    X[0] = 123.0  # so that the percentile's clamp leaves room on one side
    for scheme, width in [
        ("sig-digit:0", 100.0),
        ("sig-digit:1", 10.0),
        ("sig-digit:2", 1.0),
        ("relative:0.2", 0.2 * 123),
    ]:
        noise = (perturb(X, scheme) - X)[1:, 0]
        assert kstest(noise, "uniform", args=(-width, 2 * width)).pvalue > 1e-3, scheme
    noise = (perturb(X, "percentile:0.5") - X)[1:, 0]
    assert (noise == 0).mean() == pytest.approx(0.5, abs=0.02)  # clamped from below
    assert kstest(noise[noise > 0], "uniform", args=(0, 123 / 2)).pvalue > 1e-3


@pytest.mark.parametrize("d", [1, 2, 5])
def test_neighbour_is_uniform_in_the_ball(d):
    n = 4000
    X = np.random.default_rng(1).normal(3, [10.0**j for j in range(d)], (n, d))
    near = find_neighbours(X)
    step = (perturb(X, "neighbour:0.5") - X) / near.scale
    radius = np.linalg.norm(step, axis=1) / (0.5 * near.distance)
    # The share of a ball's volume within radius r is r^d.
    assert kstest(radius**d, "uniform").pvalue > 1e-3
    assert np.abs(np.sign(step).mean(axis=0)).max() < 4 / np.sqrt(n)


def test_neighbours_are_the_nearest_of_a_plain_search():
    X = np.random.default_rng(2).normal(size=(150, 20)) * np.arange(1, 21)
    Z = (X - X.mean(axis=0)) / X.std(axis=0)
    distances = np.linalg.norm(Z[:, None] - Z[None], axis=2)
    np.fill_diagonal(distances, np.inf)
    np.testing.assert_allclose(find_neighbours(X).distance, distances.min(axis=1), rtol=1e-9)


@pytest.mark.parametrize("d", [2, 30])  # scikit-learn takes a tree, then brute force
def test_duplicates_and_constant_features_do_not_move(d):
    X = np.random.default_rng(3).normal(size=(60, d)) + 1e4
    X[10:13] = X[5]
    X[:, 1] = 7.0
    moved = perturb(X, "neighbour:1.0")
    np.testing.assert_array_equal(moved[[5, 10, 11, 12]], X[[5, 10, 11, 12]])
    np.testing.assert_array_equal(moved[:, 1], X[:, 1])
    others = np.delete(np.arange(60), [5, 10, 11, 12])
    assert (moved[others, 0] != X[others, 0]).all()


def test_data_without_any_spread_stays():
    X = np.ones((4, 2))
    np.testing.assert_array_equal(perturb(X, "neighbour:1.0"), X)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_missing_values_stay_missing_and_categories_stay(scheme):
    rng = np.random.default_rng(4)
    X = rng.normal(5, 1, (50, 4))
    X[:, 1] = rng.integers(0, 3, 50)
    X[::7, 2] = np.nan
    X[:, 3] = np.nan
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        moved = perturb(X, scheme, cardinality=np.array([0, 3, 0, 0], dtype=np.int32))
    np.testing.assert_array_equal(np.isnan(moved), np.isnan(X))
    np.testing.assert_array_equal(moved[:, 1], X[:, 1])
    assert (moved[:, 0] != X[:, 0]).mean() > 0.9  # percentile clamps some to where they are


def test_none_changes_nothing():
    X = np.ones((3, 2))
    assert perturb(X, "none") is X
