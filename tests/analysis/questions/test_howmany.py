"""How many runs: simulated truth, and every answer in words."""

from __future__ import annotations

import math

import numpy as np
import polars as pl
import pytest
from scipy.stats import chi2, t

from manyseed.analysis.alphahat.trimming import dkw_threshold, points_needed
from manyseed.analysis.graph.chunks import analyze_group, compute
from manyseed.analysis.options import Options
from manyseed.analysis.questions.ensembles import for_alpha
from manyseed.analysis.questions.howmany import (
    _of_cell,
    answer,
    fewest_runs,
    for_mean,
    for_pairs,
    howmany,
)
from manyseed.analysis.questions.question import Evidence
from manyseed.analysis.tables.rows import Tables
from tests.analysis.samples import predictions, regular, sweep


def runs_for_mean(spread, half_width):
    return fewest_runs(lambda n: spread**2 / n, half_width)


@pytest.mark.parametrize(("spread", "width"), [(0.01, 0.005), (0.3, 0.1), (0.001, 1), (1, 0.01)])
def test_the_fewest_runs_that_do(spread, width):
    n = runs_for_mean(spread, width)
    half = [t.ppf(0.975, m - 1) * spread / math.sqrt(m) for m in (n, n - 1) if m > 1]
    assert half[0] <= width
    assert len(half) == 1 or half[1] > width


def test_what_needs_too_many_has_no_answer():
    assert runs_for_mean(1, 1e-6) is None
    assert "there is no answer: it takes more than" in for_mean("x", [np.arange(9.0)], 1e-6).words
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


DESIGNS = {
    "normal": (lambda rng, n: rng.normal(0.8, 0.02, n), 0.02, (0.93, 0.98)),
    "skewness 1": (lambda rng, n: 0.9 - 0.01 * rng.gamma(4, size=n), 0.02, (0.88, 0.96)),
    "skewness 2": (lambda rng, n: 0.9 - rng.exponential(0.02, n), 0.02, (0.7, 0.92)),
    "one of 20 collapses": (
        lambda rng, n: rng.normal(0.8, 0.01, n) - 0.3 * (rng.random(n) < 0.05),
        math.sqrt(0.0001 + 0.09 * 0.05 * 0.95),
        (0.15, 0.93),
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("size", [(1, 10), (5, 5), (10, 10)])
@pytest.mark.parametrize("design", DESIGNS)
def test_intervals_of_skewed_accuracies_hold_as_often_as_is_told(design, size):
    draw, spread, (least, most) = DESIGNS[design]
    rng = np.random.default_rng(7)
    truth = runs_for_mean(spread, 0.004)
    inside = 0
    for _ in range(800):
        answer = for_mean("accuracy", list(draw(rng, size)), 0.004)
        inside += answer.low <= truth <= (answer.high or math.inf)
    assert least <= inside / 800 <= most


def test_an_answer_from_skewed_runs_says_so():
    normal = for_mean("accuracy", [np.array([0.8, 0.82, 0.81, 0.79, 0.8])], 0.005)
    assert "skewed" not in normal.words
    collapsed = for_mean("accuracy", [np.array([0.8, 0.81, 0.79, 0.8, 0.4, 0.8])], 0.005)
    assert "assumes normal values, but these are skewed (-1.8), so it may miss" in collapsed.words
    assert collapsed.words.count("95 %") == 1


def test_no_spread_seen_is_not_no_spread():
    same = for_mean("accuracy ± 0.005", [np.full(3, 0.9)], 0.005, resolution=1 / 40)
    most = (2 / chi2.ppf(0.05, 2)) ** 0.5 / 40
    assert (same.runs, same.low, same.high) == (None, None, runs_for_mean(most, 0.005))
    assert "there is no answer: it cannot be told yet, as the accuracies of all 3" in same.words
    assert "up to 78% of further runs may differ (95 %)" in same.words
    many = for_mean("x", [np.full(60, 0.9)], 0.005, resolution=1 / 40).words
    assert "up to 5% of further runs" in many  # the rule of three
    one_off = for_mean("x", [np.array([0.9, 0.9, 0.9, 0.925])], 0.005, resolution=1 / 40)
    assert one_off.runs is None
    assert (
        "of 4 runs, 0.013, is below one test point: a test set of 40 points resolves"
        in one_off.words
    )
    assert for_mean("x", [np.array([0.85, 0.9, 0.95])], 0.005, resolution=1 / 40).low > 90
    alike = np.full((6, 6), 0.5)
    np.fill_diagonal(alike, np.nan)
    pairs = for_pairs("consistency", [alike], 0.02)
    assert pairs.runs is None
    assert "as all pairs of the 6 runs have the same value" in pairs.words
    alike[0, 1] = alike[1, 0] = 0.51
    near = for_pairs("consistency", [alike], 0.02, resolution=1 / 40)
    assert (near.runs, near.high) == (None, 15)
    assert "of pairs of 6 runs, 0.0026, is below one of the points that some run" in near.words
    assert "if they vary by 0.025 at most, 15 runs are enough" in near.words
    assert for_pairs("consistency", [alike], 0.02, resolution=1e-3).runs is not None


@pytest.mark.parametrize(("share", "runs"), [(0.3, 3), (0.1, 10), (0.02, 40)])
def test_the_share_that_may_differ_holds_as_often_as_is_told(share, runs):
    """Of runs that agree by chance, the bound is below the truth in at most 5 % of all samples."""
    drawn = np.random.default_rng(1).random((2000, runs)) < share
    agree = drawn.all(axis=1) | ~drawn.any(axis=1)
    bound = 1 - 0.05 ** (1 / (runs - 1))
    assert (agree & (share > bound)).mean() <= 0.065


def test_repeats_may_differ_in_their_mean():
    rng = np.random.default_rng(1)
    values = list(rng.normal(0, 0.01, (5, 8)) + 10 * np.arange(5)[:, None])
    assert for_mean("x", values, 0.01).runs < 12


def table(close, accepted, sizes=(3, 5, 10, 30), n_side=4000):
    drawn = {"draws": 500, "distinct": 500, "models": 40, "n_side": n_side}
    delta = dkw_threshold(n_side, 0.01)
    return pl.DataFrame(
        {"size": sizes, "close": close, "accepted": accepted, "delta": delta, **drawn}
    )


def test_table_one_is_read_from_its_last_failure():
    close, accepted = for_alpha(
        table([0.8, 1.0, 0.998, 1.0], [0.1, 0.5, 0.9, 0.97]),
        made=80,
        epsilon=0.01,
        seconds_each=60,
        drawn_from="cell 3, repeat 1",
    )
    assert (close.runs, close.low, close.high) == (30, 11, 30)
    assert "30 runs are needed (11 to 30, from the sizes drawn)" in close.words
    assert "all 500 different ensembles of that size out of 40 runs pass" in close.words
    assert "at least 99.4% of all ensembles of these runs do (95 % confidence)" in close.words
    assert "about 30 minutes of training" in close.words
    # (0.0847 - δ) / (1 - δ) = 0.05
    assert "with δ = 0.036 at N = 4,000" in close.words
    assert "contamination of up to 8% passes" in close.words
    assert close.words.endswith("; from 80 runs of cell 3, repeat 1.")
    assert accepted.runs is None
    assert "not all ensembles of 30 pass" in accepted.words
    first = for_alpha(table([1.0] * 4, [1.0] * 4), made=80, epsilon=0.01, confidence=0.9)[0]
    assert (first.runs, first.low) == (3, 1)
    assert "at least 99.5% of all ensembles of these runs do (90 % confidence)" in first.words


def test_what_the_points_cannot_show_is_no_verdict():
    # All pass a test that sees nothing; that they fail it is seen with few points, too.
    passed, failed = for_alpha(
        table([1.0] * 4, [1.0, 1.0, 1.0, 0.9], n_side=35), made=80, epsilon=0.01
    )
    assert (passed.runs, passed.low, passed.high) == (None, None, None)
    assert "there is no answer: 35 test points per side are too few" in passed.words
    assert "contamination of up to 43% would pass α̂ ≤ 0.05 unseen (δ = 0.400)" in passed.words
    assert "about 2,120 would be enough" in passed.words
    assert "not all ensembles of 30 pass" in failed.words
    enough = for_alpha(table([1.0] * 4, [1.0] * 4, n_side=2120), made=80, epsilon=0.01)
    assert [answer.runs for answer in enough] == [3, 3]
    coarser = for_alpha(table([1.0] * 4, [1.0] * 4, n_side=35), made=8, epsilon=0.01, close=0.45)
    assert coarser[0].runs == 3


@pytest.mark.parametrize("epsilon", [0.01, 0.2])
@pytest.mark.parametrize("threshold", [0.03, 0.05, 0.107, 0.11, 0.4])
def test_the_fewest_points_that_resolve(threshold, epsilon):
    n = points_needed(threshold, epsilon)
    assert dkw_threshold(n, epsilon) <= threshold < dkw_threshold(n - 1, epsilon)


@pytest.mark.parametrize(("distinct", "claimed"), [(1, "5.0"), (4, "47.2"), (500, "99.4")])
def test_ensembles_that_are_drawn_again_and_again_claim_no_more(distinct, claimed):
    few = table([1.0], [1.0], sizes=(3,)).with_columns(distinct=pl.lit(distinct))
    words = for_alpha(few, made=80, epsilon=0.01)[0].words
    assert f"so at least {claimed}% of all" in words
    assert ("the one ensemble" in words) is (distinct == 1)
    # were the share smaller, so many different ones would all pass in less than 5 % of the cases
    assert (float(claimed) / 100) ** distinct <= 0.0501


def right_runs(wrong, runs=12, options=None):
    """Tables of runs that are all right, except the first ones at one point each."""
    frame = regular(1, 2, runs)
    y_true = np.zeros((2, 30), np.uint16)
    score = np.zeros((2 * runs, 1, 30, 2), np.float32)
    score[..., 0] = 1
    for run in range(wrong):
        score[[run, runs + run], 0, run, 1] = 2
    group = analyze_group(predictions(score, y_true, frame), options or Options(resamples=2))
    return compute([group], scheduler="synchronous")[0]


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({"wrong": 0}, "no run errs"),
        (
            {"wrong": 2},
            "too few runs err: without one of them, no two disjoint pairs have an error",
        ),
        (
            {"wrong": 1},
            "too few runs err: without one of them, no two disjoint pairs have an error",
        ),
        ({"wrong": 0, "runs": 2}, "no repeat has 5 runs or more"),
        (
            {"wrong": 3, "options": Options(resamples=2, max_pair_runs=5)},
            "pairs of so many runs are not listed: raise max_pair_runs",
        ),
        (
            {"wrong": 3, "options": Options(metrics=("accuracy",))},
            "error consistency was not computed",
        ),
    ],
)
def test_no_error_consistency_says_why(arguments, reason):
    assert f"there is no answer: {reason}." in howmany(right_runs(**arguments))[1].words


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
    interval = f"({accuracy.low} to {accuracy.high}, 95 %)"
    assert (
        f"accuracy ± 0.02 at 95 % confidence: {accuracy.runs} runs are needed {interval}"
        in accuracy.words
    )
    assert "over seeds, on one fixed test set; from 54 runs of 9 repeats" in accuracy.words
    assert "minutes of training" in accuracy.words
    assert consistency.runs > 1
    # Twice as precisely takes about four times the runs.
    finer = howmany(tables, accuracy=0.01)[0]
    assert finer.runs == pytest.approx(4 * accuracy.runs, rel=0.2)
    # More certainly takes more.
    surer = howmany(tables, accuracy=0.02, consistency=0.05, confidence=0.999)
    assert [answer.confidence for answer in surer] == [0.999] * 2
    assert surer[0].runs > accuracy.runs
    assert surer[1].runs > consistency.runs


@pytest.mark.parametrize(
    ("kept", "reason"),
    [
        ({"run_index": [0]}, "no repeat has 2 runs or more"),
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
    tables = sweep({"vehicle": 60}, {"lr-sgd": 0.6}, repeats=1, runs=5)
    without = Tables(tables.runs, tables.pairs.clear(), tables.repeats, tables.cells)
    assert "raise max_pair_runs" in howmany(without)[1].words


def test_single_runs_say_nothing():
    answer = for_mean("accuracy ± 0.01", [np.array([0.5]), np.array([0.6])], 0.01)
    assert answer.words == "For accuracy ± 0.01 there is no answer: no repeat has 2 runs or more."


def test_an_interval_over_orders_of_magnitude_is_no_answer():
    """It was "221 runs (4 to 3,317,901)"."""
    found = for_mean("accuracy ± 0.005", [np.array([0.9, 0.91, 0.93])], 0.005)
    assert (found.runs, found.high) == (None, None)
    assert found.low is not None
    assert found.words.startswith(
        "For accuracy ± 0.005 there is no answer: it cannot be told yet; "
        f"at least {found.low} are needed (95 %), but how many more the 3 runs of 1 repeat do not "
        "tell."
    )
    many = 0.91 + 0.015 * np.random.default_rng(0).normal(size=10)
    assert for_mean("accuracy ± 0.005", [many], 0.005).runs is not None


@pytest.mark.parametrize(
    ("n", "of", "points", "said"),
    [
        (10, (), 200, "each test set has 10; lr-sgd has enough."),
        (10, ("svm",), 200, "each test set has 10; lr-sgd, svm have enough."),
        (10, ("svm", "knn"), 200, "each test set has 10; others have enough."),
        (4, (), 200, "each test set has 4; lr-sgd not told."),
        (10, (), None, "each test set has 10; lr-sgd not told."),  # of unknown size
    ],
)
def test_runs_without_a_seen_spread_are_enough_where_the_largest_one_takes_no_more(
    n: int, of: tuple[str, ...], points: int | None, said: str
) -> None:
    """The answer was "not told" beside "9 at most", with 10 runs there."""
    names = ("lr-sgd", *of, "mlp")
    wide = np.resize([0.85, 0.87], n)
    runs = pl.DataFrame(
        [
            {
                "dataset": "d",
                "classifier": name,
                "cell": cell,
                "repeat_index": repeat,
                "run_index": run,
                "accuracy": float(wide[run]) if name == "mlp" else 0.88,
                "identical": False,
            }
            for cell, name in enumerate(names)
            for repeat in range(5)
            for run in range(n)
        ]
    )
    repeats = runs.unique(["cell", "repeat_index"], maintain_order=True)
    repeats = repeats.with_columns(n_test=pl.lit(points, pl.Int64))
    tables = Tables(runs, pl.DataFrame(), repeats, pl.DataFrame())
    (one,) = answer(Evidence(tables, pl.DataFrame(), None, Options()))
    assert one.headline.startswith("Accuracy of mlp to ± 0.005 takes ")
    assert one.headline.endswith(said)
    known = _of_cell(runs.filter(cell=0), 0.0 if points is None else 1 / points)
    assert known.enough is (True if "enough" in said else None)
