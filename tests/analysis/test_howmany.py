"""How many runs: simulated truth, and every answer in words."""

from __future__ import annotations

import math
from itertools import combinations

import numpy as np
import polars as pl
import pytest
from scipy.stats import t

from analysis.howmany import for_alpha, for_mean, howmany, pseudo_values, runs_for_mean
from analysis.tables import Tables
from tests.analysis.samples import sweep


@pytest.mark.parametrize(("spread", "width"), [(0.01, 0.005), (0.3, 0.1), (0.001, 1), (1, 0.01)])
def test_the_fewest_runs_that_do(spread, width):
    n = runs_for_mean(spread, width)
    half = [t.ppf(0.975, m - 1) * spread / math.sqrt(m) for m in (n, n - 1) if m > 1]
    assert half[0] <= width
    assert len(half) == 1 or half[1] > width


def test_what_needs_too_many_has_no_answer():
    assert runs_for_mean(1, 1e-6) is None
    assert "can't be said, it takes more than" in for_mean("x", [np.arange(9.0)], 1e-6).words
    with pytest.raises(ValueError, match="must be positive"):
        runs_for_mean(1, 0)


def test_intervals_hold_the_truth_as_often_as_they_say():
    rng = np.random.default_rng(0)
    truth = runs_for_mean(0.02, 0.01)
    inside = 0
    for _ in range(200):
        answer = for_mean("accuracy", list(rng.normal(0.8, 0.02, (4, 6))), 0.01)
        inside += answer.low <= truth <= answer.high
    assert 0.9 <= inside / 200 <= 0.99


def test_repeats_may_differ_in_their_mean():
    rng = np.random.default_rng(1)
    values = list(rng.normal(0, 0.01, (5, 8)) + 10 * np.arange(5)[:, None])
    assert for_mean("x", values, 0.01).runs < 12


def test_pseudo_values_of_pairs():
    rng = np.random.default_rng(2)
    i, j = (np.array(side) for side in zip(*combinations(range(6), 2), strict=True))
    values = rng.random(15)
    values[3] = np.nan
    found = pseudo_values(i, j, values)
    for k in range(6):
        rest = np.nanmean(values[(i != k) & (j != k)])
        assert found[k] == pytest.approx(6 * np.nanmean(values) - 5 * rest)
    assert pseudo_values(i[:1], j[:1], values[:1]).size == 0


def test_the_jackknife_finds_the_error_of_a_mean_over_pairs():
    # Pairs (x_i + x_j) / 2 have the mean of x as their mean, so its error is known.
    rng = np.random.default_rng(3)
    x = rng.normal(size=12)
    i, j = np.triu_indices(12, k=1)
    found = pseudo_values(i, j, (x[i] + x[j]) / 2)
    assert found.std(ddof=1) == pytest.approx(x.std(ddof=1))


def table(close, accepted, sizes=(3, 5, 10, 30)):
    resolution = {"n_side": 4000, "delta": 0.0364}
    return pl.DataFrame(
        {"size": sizes, "draws": 500, "close": close, "accepted": accepted, **resolution}
    )


def test_table_one_is_read_from_its_last_failure():
    close, accepted = for_alpha(
        table([0.8, 1.0, 0.998, 1.0], [0.1, 0.5, 0.9, 0.97]), seconds_each=60
    )
    assert (close.runs, close.low, close.high) == (30, 11, 30)
    assert "at least 99.4% do" in close.words
    assert "about 30 minutes of training" in close.words
    # (0.0847 - δ) / (1 - δ) = 0.05
    assert "with δ = 0.036 at N = 4,000" in close.words
    assert "contamination of up to 8% passes" in close.words
    assert accepted.runs is None
    assert "not all ensembles of 30 pass" in accepted.words
    first = for_alpha(table([1.0] * 4, [1.0] * 4))[0]
    assert (first.runs, first.low) == (3, 1)


def test_answers_from_tables():
    tables = sweep({"vehicle": 60}, {"lr-sgd": 0.6, "xgb": 0.0}, repeats=3, runs=6)
    tables = Tables(
        tables.runs.with_columns(fit_seconds=pl.lit(90.0)),
        tables.pairs,
        tables.repeats,
        tables.cells,
    )
    accuracy, consistency = howmany(tables, accuracy=0.02, consistency=0.05)
    runs = tables.runs.join(
        tables.repeats.filter(~pl.col("identical")), on=["cell", "repeat_index"], how="semi"
    )
    spread = runs.group_by("cell", "repeat_index").agg(pl.col("accuracy").var())["accuracy"].mean()
    assert accuracy.runs == runs_for_mean(math.sqrt(spread), 0.02)
    assert accuracy.made == runs.height == 54
    assert accuracy.low <= accuracy.runs <= accuracy.high
    assert accuracy.seconds == 90 * accuracy.runs
    assert f"accuracy ± 0.02: {accuracy.runs} runs are needed ({accuracy.low} to" in accuracy.words
    assert "minutes of training" in accuracy.words
    assert consistency.runs > 1
    # Twice as precisely takes about four times the runs.
    finer = howmany(tables, accuracy=0.01)[0]
    assert finer.runs == pytest.approx(4 * accuracy.runs, rel=0.2)


@pytest.mark.parametrize(
    ("kept", "reason"),
    [
        ({"run_index": [0]}, "no repeat has two runs or more"),
        ({"identical": [True]}, "the runs of every repeat are identical"),
    ],
)
def test_what_has_no_spread_says_why(kept, reason):
    tables = sweep({"vehicle": 60}, {"lr-sgd": 0.6, "xgb": 0.0}, repeats=1, runs=3)
    (name, values), *_ = kept.items()
    here = pl.col(name).is_in(values)
    if name == "identical":
        keys = tables.repeats.filter(here).select("cell")
        cut = [
            getattr(tables, n).join(keys, on="cell", how="semi")
            for n in ("runs", "pairs", "repeats", "cells")
        ]
    else:
        cut = [tables.runs.filter(here), tables.pairs.clear(), tables.repeats, tables.cells]
    assert reason in howmany(Tables(*cut))[0].words


def test_pairs_that_are_not_listed_are_named():
    tables = sweep({"vehicle": 60}, {"lr-sgd": 0.6}, repeats=1, runs=3)
    without = Tables(tables.runs, tables.pairs.clear(), tables.repeats, tables.cells)
    assert "see analyze --max-pair-runs" in howmany(without)[1].words


def test_single_runs_say_nothing():
    answer = for_mean("accuracy ± 0.01", [np.array([0.5]), np.array([0.6])], 0.01)
    assert answer.words == "For accuracy ± 0.01: can't be said, no repeat has two runs or more."
