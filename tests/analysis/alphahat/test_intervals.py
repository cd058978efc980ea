"""The interval of α̂ over new test points: its pieces by hand, and its measured coverage."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from manyseed.analysis.alphahat.resampling import (
    SPLITS,
    Resamples,
    bootstraps,
    composed,
    disjoint_halves,
    generator,
    interval,
)
from manyseed.analysis.alphahat.trimming import dkw_threshold, smallest_trimming_level
from manyseed.analysis.graph.chunks import analyze_group, compute
from manyseed.analysis.options import Options
from tests.analysis.samples import predictions, regular

N_RUNS = 6


def analysed(margin, seed=7, chunk_runs=None, **options):
    runs = regular(1, 1, margin.shape[0])
    score = np.stack([np.zeros_like(margin), margin], axis=-1)[:, None].astype(np.float32)
    y_true = np.zeros((1, margin.shape[1]), dtype=np.uint16)
    asked = Options(metrics=("alpha_hat",), **{"resamples": 40, "alpha_bootstrap": 100} | options)
    given = replace(predictions(score, y_true, runs, chunk_runs), seed=seed)
    return compute([analyze_group(given, asked)], scheduler="synchronous")[0].runs


def drawn(rng, design, n_test, n_runs=N_RUNS):
    """Runs that share what is easy and hard, the first of them set apart."""
    kind, size = design
    point = rng.normal(size=n_test)
    margin = point + 0.5 * rng.normal(size=(n_runs, n_test))
    if kind == "contaminated":
        margin[0] = np.where(rng.random(n_test) < size, 50, margin[0])
    elif kind == "shifted":
        margin[0] += size
    elif kind == "scaled":
        margin[0] *= size
    elif kind == "wrong where hard":
        margin[0] = np.where(point < -1, margin[0] - size, margin[0])
    return margin


@pytest.mark.slow
@pytest.mark.parametrize(
    "design",
    [
        ("alike", 0),
        ("contaminated", 0.17),  # δ is .167: next to the boundary
        ("contaminated", 0.2),
        ("contaminated", 0.35),
        ("shifted", 0.3),
        ("shifted", 0.6),
        ("scaled", 2.5),
        ("wrong where hard", 3),
    ],
)
def test_it_holds_the_level_at_endless_points(design):
    """Measured coverage: what docs/results.md says."""
    n_test, replications = 400, 60
    rng = np.random.default_rng(1)
    gamma = dkw_threshold(n_test // 2, Options().epsilon)
    endless = drawn(rng, design, 400_000)
    truth = 0.0
    if design[0] != "alike":
        truth = smallest_trimming_level(endless[0], endless[1:].ravel(), gamma)
    if design[0] == "contaminated":
        assert truth == pytest.approx((design[1] - gamma) / (1 - gamma), abs=0.004)
    held, plain = 0, 0
    for replication in range(replications):
        row = analysed(drawn(rng, design, n_test), seed=replication).row(0, named=True)
        assert row["alpha_hat_low"] <= row["alpha_hat"] <= row["alpha_hat_high"]
        held += row["alpha_hat_low"] <= truth + 1e-9 and truth <= row["alpha_hat_high"] + 1e-9
        plain += abs(row["alpha_hat"] - truth) <= 1.96 * row["alpha_hat_mc_se"] + 1e-9
    print(f"{design}: level {truth:.4f}, held {held}, by the Monte-Carlo error {plain}")
    assert held >= 0.93 * replications


def slow_interval(levels, means, within, confidence=0.95):
    """The rule, for one candidate, from means over splits and the variance within samples."""
    centre, grand = levels.mean(), means.mean()
    between = means.var(ddof=1)
    wanted = max(between - within / SPLITS, 0) + levels.var(ddof=1) / levels.size
    scale = max(np.sqrt(wanted / between), 1)
    tail = (1 - confidence) / 2
    reach = scale * max(
        np.quantile(means, 1 - tail) - grand,
        grand - np.quantile(means, tail),
    )
    shift = grand - centre
    return max(centre - 1.25 * (max(shift, 0) + reach), 0), min(centre + max(-shift, 0) + reach, 1)


@pytest.mark.parametrize("offset", [-0.1, 0.0, 0.1])
def test_ends_follow_the_rule(offset):
    rng = np.random.default_rng(0)
    levels = 0.3 + 0.2 * rng.normal(size=(3, 20)) * np.array([[1], [5], [0]])
    samples = levels.mean() + offset + 0.1 * rng.normal(size=(3, 50, 1))
    splits = samples + 0.05 * rng.normal(size=(3, 50, SPLITS))
    low, high = interval(levels, splits.reshape(3, -1), 0.95)
    for k in range(3):
        means, within = splits[k].mean(axis=1), splits[k].var(axis=1, ddof=1).mean()
        assert (low[k], high[k]) == pytest.approx(slow_interval(levels[k], means, within))


def test_levels_without_spread_are_their_own_interval():
    low, high = interval(np.full((1, 5), 0.25), np.full((1, 40 * SPLITS), 0.25), 0.95)
    assert (low[0], high[0]) == (0.25, 0.25)


@pytest.mark.parametrize("kind", ["halves", "replacement"])
def test_a_bootstrap_sample_is_split_like_the_test_set(kind):
    n_test = 31
    bits, again = generator(0, "points"), generator(0, "points")
    split = (
        disjoint_halves(generator(0, "split"), n_test, 3)
        if kind == "halves"
        else bootstraps(generator(0, "split"), n_test, n_test, 3)
    )
    found = composed(bits, n_test, split)
    points = (again.random_raw(n_test) % np.uint64(n_test)).astype(np.int64)
    for b in range(3):
        for side, of in ((found.candidate, split.candidate), (found.reference, split.reference)):
            values = np.repeat(points, of[b])
            assert np.array_equal(side[b], np.bincount(values, minlength=n_test))
    assert isinstance(found, Resamples)
    assert found.n_side == split.n_side
    assert (found.candidate.sum(axis=1) == split.n_side).all()


def test_it_is_off_unless_asked_for_and_then_changes_nothing_else():
    margin = drawn(np.random.default_rng(3), ("shifted", 0.6), 200)
    off, on = analysed(margin, alpha_bootstrap=0), analysed(margin, alpha_bootstrap=40)
    ends = ["alpha_hat_low", "alpha_hat_high"]
    assert off[ends].null_count().row(0) == (N_RUNS, N_RUNS)
    assert on[ends].null_count().row(0) == (0, 0)
    assert on.drop(ends).equals(off.drop(ends))


@pytest.mark.parametrize("reference", ["others", "half", "loo_ensemble"])
@pytest.mark.parametrize("mode", ["exact", "paper"])
def test_a_repeat_that_is_cut_gives_the_same(reference, mode):
    margin = drawn(np.random.default_rng(4), ("shifted", 0.6), 60)
    asked = {"alpha_reference": reference, "alpha_mode": mode, "alpha_bootstrap": 40}
    whole = analysed(margin, **asked)
    assert analysed(margin, chunk_runs=2, block_bytes=2 * 60 * 5, **asked).equals(whole)
    assert whole["alpha_hat_low"].null_count() == (3 if reference == "half" else 0)
