"""The temperature that half of a test set wants, beside a slow search and planted truth."""

from __future__ import annotations

import hashlib
import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar
from scipy.special import log_softmax, logsumexp

from manyseed.analysis import Refused
from manyseed.analysis.uncertainty import LEAST, MOST, calibrate, calibration_splits, fit, slope


def drawn(n, classes, scale=1.0, seed=0):
    """Scores z and true classes drawn from softmax(z / scale)."""
    rng = np.random.default_rng(seed)
    z = 2 * rng.normal(size=(n, classes))
    noise = rng.gumbel(size=(n, classes))
    return z, (z / scale + noise).argmax(axis=1)


def splits(n, count=5, repeat=0):
    return calibration_splits(7, "0f" * 16, repeat, n, count)


def mean_log(logs, y_true, beta):
    return log_softmax(beta * logs, axis=1)[np.arange(len(y_true)), y_true]


def cll_slow(logs, y_true, first):
    """Point by point, each half by the temperature that a search finds on the other."""
    total = 0.0
    for half in first:
        for calibrating, measured in ((half, ~half), (~half, half)):
            own, true = logs[calibrating], y_true[calibrating]
            found = minimize_scalar(
                lambda t, own=own, true=true: -mean_log(own, true, np.exp(-t)).sum(),
                bounds=(-np.log(MOST), -np.log(LEAST)),
                method="bounded",
                options={"xatol": 1e-12},
            )
            total += mean_log(logs[measured], y_true[measured], np.exp(-found.x)).sum()
    return total / first.size


def cll(logs, y_true, first):
    found = calibrate(logs, y_true, first)
    rows = np.arange(len(y_true))
    return float(np.mean([own[rows, y_true].mean() for own in found.logs()]))


@pytest.mark.parametrize(("n", "classes"), [(300, 2), (97, 3), (400, 10)])
@pytest.mark.parametrize("scale", [0.4, 1, 3])
def test_cll_is_that_of_a_slow_search(n, classes, scale):
    z, y_true = drawn(n, classes, scale)
    found = calibrate(z, y_true, splits(n))
    assert not found.bounded.any()
    assert cll(z, y_true, splits(n)) == pytest.approx(cll_slow(z, y_true, splits(n)), abs=1e-7)


def test_the_planted_temperature_is_found():
    z, y_true = drawn(100_000, 10, scale=2)
    logs = log_softmax(z, axis=1)
    found = calibrate(logs, y_true, splits(len(y_true)))
    assert found.temperature == pytest.approx(2, abs=0.05)
    truth = mean_log(z, y_true, 0.5)
    standard_error = truth.std() / np.sqrt(truth.size)
    expected = (np.exp(log_softmax(z / 2, axis=1)) * log_softmax(z / 2, axis=1)).sum(axis=1).mean()
    assert abs(cll(logs, y_true, splits(len(y_true))) - expected) < 3 * standard_error
    assert mean_log(z, y_true, 1).mean() < truth.mean()
    assert found.temperature_sd > 0


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10_000), st.floats(0.3, 3), st.floats(-50, 50))
def test_cll_does_not_know_scale_and_offsets(seed, scale, shift):
    z, y_true = drawn(60, 4, seed=seed)
    first = splits(60)
    offsets = shift * np.random.default_rng(seed).normal(size=(60, 1))
    one, other = (calibrate(s, y_true, first) for s in (z, scale * z + offsets))
    if not (one.bounded.any() or other.bounded.any()):
        assert cll(scale * z + offsets, y_true, first) == pytest.approx(
            cll(z, y_true, first), abs=1e-9
        )


@settings(max_examples=60, deadline=None)
@given(
    st.integers(0, 10_000), st.integers(2, 6), st.floats(0.01, 100), st.floats(0.06, 19), st.data()
)
def test_the_objective_is_concave_and_the_fit_its_optimum(seed, classes, spread, beta, data):
    rng = np.random.default_rng(seed)
    z = spread * rng.normal(size=(30, classes))
    below, y_true = z - z.max(axis=1, keepdims=True), rng.integers(0, classes, 30)
    rows = np.arange(30)
    first = slope(below, y_true, rows, beta)
    step = 1e-6 * beta
    ahead, behind = (mean_log(below, y_true, beta + s).sum() for s in (step, -step))
    assert first == pytest.approx((ahead - behind) / (2 * step), rel=1e-4, abs=1e-3 * spread)
    assert slope(below, y_true, rows, 1.1 * beta) <= first + 1e-9 * spread
    found, bounded = fit(below, y_true, rows, data.draw(st.floats(0.01, 50)))
    assert LEAST <= found <= MOST
    assert bounded == (found in (LEAST, MOST))
    best = mean_log(below, y_true, found).sum()
    for other in np.geomspace(LEAST, MOST, 41):
        assert mean_log(below, y_true, other).sum() <= best + 1e-9 * max(1, abs(best))


def test_without_errors_the_temperature_is_at_its_bound_and_cll_finite():
    y_true = np.arange(40) % 2
    logs = np.log(np.where(np.eye(2)[y_true] > 0, 0.9, 0.1))
    found = calibrate(logs, y_true, splits(40))
    assert found.share_bounded == 1
    assert found.temperature == pytest.approx(1 / 20)
    assert np.isfinite(cll(logs, y_true, splits(40)))
    always_wrong = calibrate(logs, 1 - y_true, splits(40))
    assert (always_wrong.beta == LEAST).all()


@settings(max_examples=100, deadline=None)
@given(
    st.integers(0, 10_000),
    st.integers(2, 5),
    st.floats(-2, 5.5).map(lambda e: 10.0**e),
    st.integers(0, 2),
    st.floats(0.01, 50),
)
def test_the_slope_is_zero_at_the_result_or_points_beyond_a_bound(
    seed, classes, gap, errors, start
):
    rng = np.random.default_rng(seed)
    y_true = rng.integers(0, classes, 40)
    below = -gap * (1 + rng.random((40, classes)))
    rows = np.arange(40)
    below[rows, (y_true + (rows < errors)) % classes] = 0
    found, bounded = fit(below, y_true, rows, start)
    if bounded:
        assert found in (LEAST, MOST)
        sign = 1 if found == MOST else -1
        assert sign * slope(below, y_true, rows, found) >= 0
    else:
        before, after = (slope(below, y_true, rows, found * (1 + s)) for s in (-1e-8, 1e-8))
        assert before > 0 > after
    if errors == 0:
        assert (found, bounded) == (MOST, True)


@pytest.mark.parametrize("gap", [0.1, 5, 6, 20, 300, 1e4, 1e6])
def test_halves_without_errors_end_at_the_bound_whatever_the_gap(gap):
    y_true = np.arange(40) % 2
    z = gap * np.eye(2)[y_true]
    found = calibrate(z, y_true, splits(40))
    assert (found.beta == MOST).all()
    assert found.share_bounded == 1


def test_one_error_of_sixty_at_the_bound_of_the_half_without_it():
    y_true = np.arange(60) % 2
    z = 10.0 * np.eye(2)[y_true]
    z[7] = z[7, ::-1]
    found = calibrate(z, y_true, splits(60))
    assert found.share_bounded == 0.5
    # the half with the error has the other's β of 20: one point of 60 at -200
    assert cll(z, y_true, splits(60)) == pytest.approx(-3.350, abs=1e-3)


def test_one_half_without_errors_is_told_as_a_share():
    rng = np.random.default_rng(3)
    y_true = np.arange(40) % 2
    p = np.where(np.eye(2)[y_true] > 0, 0.9, 0.1)
    p[7] = p[7, ::-1]  # the only error: in one half of each split
    found = calibrate(np.log(p), y_true, splits(40))
    assert found.share_bounded == 0.5
    assert np.isfinite(cll(np.log(p) + rng.normal(size=(40, 1)), y_true, splits(40)))


def test_constant_rows_have_temperature_one():
    y_true = np.arange(30) % 10
    logs = np.full((30, 10), -np.log(10)) + np.linspace(-3, 3, 30)[:, None]
    found = calibrate(logs, y_true, splits(30))
    assert (found.beta == 1).all()
    assert found.share_bounded == 0
    assert cll(logs, y_true, splits(30)) == pytest.approx(-np.log(10))


def test_probabilities_of_zero():
    z, y_true = drawn(50, 3)
    other = (y_true + 1) % 3
    z[np.arange(50), other] = -np.inf
    plain = np.where(np.isinf(z), -1e6, z)
    assert cll(z, y_true, splits(50)) == pytest.approx(cll(plain, y_true, splits(50)), abs=1e-9)
    z[4, y_true[4]] = -np.inf
    assert calibrate(z, y_true, splits(50)) is None
    z[4] = np.nan
    assert calibrate(z, y_true, splits(50)) is None


def test_splits_are_halves_keyed_by_the_test_set():
    first = splits(21)
    assert first.sum(axis=1).tolist() == [10] * 5
    assert (splits(21, 3) == first[:3]).all()
    assert (splits(21, repeat=1) != first).any()
    text = json.dumps([1, 7, "calibration", "0f" * 16, 0], separators=(",", ":"))
    words = np.frombuffer(hashlib.sha256(text.encode()).digest(), dtype="<u4")
    bits = np.random.PCG64(np.random.SeedSequence(words.tolist()))
    assert np.flatnonzero(first[0]).tolist() == sorted(np.argsort(bits.random_raw(21))[:10])


def test_a_small_test_set_is_refused():
    assert splits(20).shape == (5, 20)
    with pytest.raises(Refused, match=r"a test set of 14 points is too small .* \(20\)"):
        splits(14)


def test_scikit_learn_finds_the_same_temperature():
    calibration = pytest.importorskip("sklearn.calibration")
    if not hasattr(calibration, "_TemperatureScaling"):
        pytest.skip("this scikit-learn has no temperature scaling")
    z, y_true = drawn(300, 4, scale=1.7)
    found, _ = fit(z - z.max(axis=1, keepdims=True), y_true, np.arange(300), 1.0)
    theirs = calibration._TemperatureScaling().fit(log_softmax(z, axis=1), y_true)
    assert theirs.beta_ == pytest.approx(found, rel=1e-4)


def published_cll(logits, y_true, rng):
    """Restated: new unseeded splits at each call, Nelder-Mead without bounds, p at least 1e-12."""
    from scipy.optimize import minimize

    order = rng.permutation(len(y_true))
    halves = np.array_split(order, 2)
    total = []
    for own, other in (halves, halves[::-1]):

        def loss(t, own=own):
            scaled = logits[own] / t
            logs = scaled - logsumexp(scaled, axis=1, keepdims=True)
            p = np.maximum(np.exp(logs), 1e-12)
            return -np.log(p[np.arange(own.size), y_true[own]]).mean()

        t = minimize(loss, x0=1.0, method="Nelder-Mead").x[0]
        p = np.maximum(np.exp(log_softmax(logits[other] / t, axis=1)), 1e-12)
        total.append(np.log(p[np.arange(other.size), y_true[other]]).mean())
    return float(np.mean(total))


def test_the_published_function_differs_from_call_to_call():
    z, y_true = drawn(200, 5, scale=2)
    rng = np.random.default_rng(0)
    theirs = [published_cll(z, y_true, rng) for _ in range(2)]
    assert theirs[0] != theirs[1]
    assert cll(z, y_true, splits(200)) == cll(z, y_true, splits(200))
    assert np.mean(theirs) == pytest.approx(cll(z, y_true, splits(200)), abs=0.02)
