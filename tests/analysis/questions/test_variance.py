"""Variance components: by loops over runs, and planted ones, which intervals must hold."""

from __future__ import annotations

import operator
import re
from dataclasses import replace
from functools import partial
from itertools import combinations

import numpy as np
import polars as pl
import pytest
from scipy import stats

from manyseed.analysis.axes import LATER
from manyseed.analysis.options import Options
from manyseed.analysis.questions.components import covariances, difference_limits
from manyseed.analysis.questions.effects import effects
from manyseed.analysis.questions.howmany import PRECISE, fewest_runs, howmany
from manyseed.analysis.questions.intervals import SEEDS, assumed
from manyseed.analysis.questions.question import Evidence, answers
from manyseed.analysis.questions.resolution import largest_sd
from manyseed.analysis.questions.variance import (
    ACCURACY,
    ADDED,
    ALL,
    ALONE,
    ERRORS,
    OWN,
    TEST_SET,
    TOGETHER,
    answer,
    variance,
    without_alike,
)
from manyseed.analysis.tables.rows import Tables
from manyseed.orchestrator.results.answers.variance import sentence
from tests.analysis import planted as sweeps

KEY = {
    "dataset": "one",
    "classifier": "mlp",
    "train_fraction": 1.0,
    **dict.fromkeys(
        ("perturb_continuous", "perturb_categorical", "perturb_hparams", *LATER),
        "none",
    ),
    "hparams": "default",
}
TYPES = {"cell": pl.UInt32, "repeat_index": pl.UInt16}
RUN = {**TYPES, "run_index": pl.UInt16}
PAIR = {**TYPES, "run_i": pl.UInt16, "run_j": pl.UInt16}


def tables(cells, wrong=None, n_test=1_000_000):
    """Tables of cells: their axes and accuracies (repeat, run), or errors (repeat, run, point)."""
    repeats, runs, pairs = [], [], []
    for cell, (axes, values) in enumerate(cells):
        if wrong:
            errors, values = values, 1 - values.mean(axis=2)
        n_repeats, n_runs = values.shape
        key = {**KEY, **axes, "cell": cell}
        for repeat in range(n_repeats):
            repeats.append({**key, "repeat_index": repeat, "n_runs": n_runs, "n_test": n_test})
            runs += [(cell, repeat, run, float(values[repeat, run])) for run in range(n_runs)]
            for i, j in combinations(range(n_runs), 2) if wrong else ():
                both = float((errors[repeat, i] & errors[repeat, j]).mean())
                either = float((errors[repeat, i] | errors[repeat, j]).mean())
                pairs.append((cell, repeat, i, j, both / either if either else None, both))
    columns = {**PAIR, "ec_local": pl.Float64, "ec_global": pl.Float64}
    return Tables(
        pl.DataFrame(runs, schema={**RUN, "accuracy": pl.Float64}, orient="row"),
        pl.DataFrame(pairs, schema=columns, orient="row"),
        pl.DataFrame(repeats).cast(TYPES),
        pl.DataFrame(
            {
                **KEY,
                **axes,
                "cell": cell,
                "n_runs": runs_of.shape[1],
                "n_distinct": runs_of.shape[1],
            }
            | {"n_identical_repeats": 0, "n_repeats": len(runs_of)}
            for cell, (axes, runs_of) in enumerate(cells)
        ).cast({"cell": pl.UInt32}),
    )


def found(made, **where):
    return {
        (row["metric"], row["source"], row["part"]): row
        for row in variance(made).filter(**where).iter_rows(named=True)
    }


def streams(rng, repeats=6, runs=10):
    """Values of init, batch and train for each run, and what they are fixed at; test sets."""
    drawn = rng.normal(size=(3, repeats, runs))
    fixed = rng.normal(size=(3, repeats, 1))
    return drawn, fixed, rng.normal(size=(repeats, 1))


def planted(rng, scales, names=("init", "batch"), together=0.0, of_set=0.5, repeats=6, runs=10):
    """Cells that vary each source, and all: a sum of normal parts, and their product."""
    drawn, fixed, sets = streams(rng, repeats, runs)
    cells = []
    for vary in [*((name,) for name in names), names]:
        parts = [drawn[k] if name in vary else fixed[k] for k, name in enumerate(names)]
        value = sum(scale * part for scale, part in zip(scales, parts, strict=True))
        value = value + together * parts[0] * parts[1] + of_set * sets
        cells.append(({"vary": "+".join(vary)}, 0.9 + 0.01 * (value + np.zeros((repeats, runs)))))
    return cells


def test_components_are_those_of_loops():
    cells = planted(np.random.default_rng(0), (1, 0.5), together=0.3, repeats=3, runs=6)
    rows = found(tables(cells))
    init, batch, both = (values for _, values in cells)

    def mean_cov(one, other):
        return np.mean([np.cov(a, b)[0, 1] for a, b in zip(one, other, strict=True)])

    whole = mean_cov(both, both)
    own = mean_cov(init, both), mean_cov(batch, both)
    expected = {
        ("init+batch", ALL): whole,
        ("init", OWN): own[0],
        ("init", ALONE): mean_cov(init, init),
        ("batch", OWN): own[1],
        ("batch", ALONE): mean_cov(batch, batch),
        ("init+batch", TOGETHER): whole - sum(own),
        ("test set", TEST_SET): both.mean(axis=1).var(ddof=1) - whole / 6,
    }
    assert {key[1:] for key in rows} == set(expected)
    for (source, part), value in expected.items():
        row = rows[ACCURACY, source, part]
        assert row["variance"] == pytest.approx(value)
        assert row["low"] < value < row["high"]
        assert (row["cell"], row["n_repeats"], row["over"]) == (2, 3, "test sets")
        adds_up = part in (ALL, OWN, TOGETHER)
        assert row["share"] == (pytest.approx(value / whole) if adds_up else None)
    assert rows[ACCURACY, "init", OWN]["cells"] == "0,2"
    assert rows[ACCURACY, "init", OWN]["n_runs"] == 18


def test_leaving_runs_out_and_limits():
    rng = np.random.default_rng(1)
    one, two = rng.normal(size=(2, 3, 7))
    estimates, (plus, minus) = covariances([*one], [*two])
    for repeat in range(3):
        assert estimates.own[repeat] == pytest.approx(np.cov(one[repeat], two[repeat])[0, 1])
        for run in range(7):
            left = [np.delete(side[repeat], run) for side in (one, two)]
            assert estimates.left_out[repeat][run] == pytest.approx(np.cov(*left)[0, 1])
    assert (plus - minus) / 4 == pytest.approx(estimates.value)
    # of a variance with nothing to take off, the limits are those of χ²
    low, high = difference_limits(2.0, 9, 1e-300, 9, 0.9)
    assert (low, high) == pytest.approx(
        (18 / stats.chi2.ppf(0.95, 9), 18 / stats.chi2.ppf(0.05, 9))
    )


def test_limits_of_a_difference_hold_it():
    rng = np.random.default_rng(2)
    one, two = 3 * rng.chisquare(4, 4000) / 4, 1.5 * rng.chisquare(30, 4000) / 30
    ends = [difference_limits(a, 4, b, 30, 0.95) for a, b in zip(one, two, strict=True)]
    low, high = np.array(ends).T
    assert ((low <= 1.5) & (high >= 1.5)).mean() == pytest.approx(0.95, abs=0.015)


def test_errors_are_split_by_what_runs_have_in_common():
    rng = np.random.default_rng(3)
    hard = rng.random((2, 1, 200))
    wrong = [rng.random((2, 6, 200)) < hard / 2 for _ in range(3)]
    vary = ("init", "batch", "init+batch")
    made = tables([({"vary": v}, w) for v, w in zip(vary, wrong, strict=True)], wrong=True)
    rows = found(made)
    own = [w.var(axis=1, ddof=1).mean() for w in wrong]
    assert rows[ERRORS, "init+batch", ALL]["variance"] == pytest.approx(own[2])
    assert rows[ERRORS, "init", ALONE]["variance"] == pytest.approx(own[0])
    assert rows[ERRORS, "init", OWN]["variance"] == pytest.approx(own[2] - own[1])
    accuracy = made.runs.filter(cell=2)["accuracy"].mean()
    assert own[2] == pytest.approx(1 - accuracy - made.pairs.filter(cell=2)["ec_global"].mean())
    for name in ("ec_local", "ec_global"):
        pairs = made.pairs.filter(cell=0, repeat_index=0)[name]
        # pairs that share a run depend on each other, so this is near, not equal
        between = rows[name, "init", ALONE]["variance"]
        assert between == pytest.approx(pairs.var(), rel=1)
        assert (name, "test set", TEST_SET) in rows


def test_a_subsample_is_a_source_that_cells_share():
    rng = np.random.default_rng(4)
    drawn, fixed, sets = streams(rng, 40, 10)
    half = {"train_fraction": 0.5}
    cells = [
        ({**half, "vary": "init"}, drawn[0] + fixed[1] + 2 * drawn[2] + sets),
        ({**half, "vary": "batch"}, fixed[0] + drawn[1] + 2 * drawn[2] + sets),
        ({**half, "vary": "init+batch"}, drawn[0] + drawn[1] + 2 * drawn[2] + sets),
    ]
    rows = found(tables(cells))
    assert rows[ACCURACY, "init+batch+subsample", ALL]["cells"] == "2"
    for source, part in (("init", 1), ("batch", 1), ("subsample", 4)):
        row = rows[ACCURACY, source, OWN]
        assert row["low"] < part < row["high"]
    assert rows[ACCURACY, "subsample", OWN]["cells"] == "0,1"
    # without what varies all, the covariance of two cells is left
    rows = found(tables(cells[:2]))
    assert (ACCURACY, "subsample", OWN) in rows
    assert (ACCURACY, "init", OWN) not in rows


def test_noise_is_told_by_what_it_adds():
    rng = np.random.default_rng(5)
    drawn, _, sets = streams(rng, 40, 10)
    cells = [
        ({"vary": "init+batch"}, drawn[0] + sets),
        ({"vary": "init+batch", "perturb_continuous": "relative:0.1"}, drawn[0] + drawn[1] + sets),
    ]
    made = tables(cells)
    rows = found(made, cell=1)
    row = rows[ACCURACY, "perturb_continuous", ADDED]
    assert row["low"] < 1 < row["high"]
    assert row["cells"] == "1,0"
    assert set(found(made, cell=0)) == {
        (ACCURACY, "init+batch", ALL),
        (ACCURACY, "test set", TEST_SET),
    }


def test_what_is_estimated_below_zero_is_left_so():
    below = 0
    for seed in range(12):
        cells = planted(np.random.default_rng(seed), (1, 0), of_set=0, repeats=4, runs=5)
        rows = found(tables(cells))
        of_set, own = rows[ACCURACY, "test set", TEST_SET], rows[ACCURACY, "batch", OWN]
        below += of_set["variance"] < 0
        assert of_set["low"] == 0 or of_set["variance"] > 0
        # nothing that batch does: its runs are one model
        assert (own["variance"], own["low"]) == (pytest.approx(0, abs=1e-12), None) or own[
            "low"
        ] == 0
    assert 2 <= below <= 10


def test_intervals_of_parts_stay_inside_what_is_possible():
    for seed in range(20):
        rows = found(tables(planted(np.random.default_rng(seed), (1, 0.2), repeats=3, runs=5)))
        whole = rows[ACCURACY, "init+batch", ALL]
        for (metric, _, part), row in rows.items():
            if metric == ACCURACY and row["low"] is not None:
                assert 0 <= row["low"] <= row["high"]
                assert part == TEST_SET or row["high"] <= whole["high"] or part in ("alone", ALL)


@pytest.mark.parametrize(
    ("value", "words"),
    [(-1.39e-19, "variance estimated at 0 "), (-2e-5, "variance estimated below 0 at -2e-05 ")],
)
def test_a_difference_that_is_0_but_for_rounding_is_not_below_0(value, words):
    values = np.array([[0.8, 0.9, 0.85], [0.7, 0.8, 0.85]])
    row = found(tables([({"vary": "init"}, values)]))[ACCURACY, "init", ALL]
    assert words in sentence({**row, "variance": value, "low": 0.0, "high": 0.00175})


def test_unequal_variances_are_told():
    rng = np.random.default_rng(5)
    equal = 0.8 + 0.01 * rng.normal(size=(8, 10))
    apart = 0.8 + 0.01 * np.exp(0.7 * rng.normal(size=(8, 1))) * rng.normal(size=(8, 10))
    rows = [
        found(tables([({"vary": "init"}, values)]))[ACCURACY, "init", ALL]
        for values in (equal, apart)
    ]
    assert rows[0]["unequal"] < 0.7 < rows[1]["unequal"]
    assert "variance differs between test sets" not in sentence(rows[0])
    assert "intervals for new test sets covered the truth in 75 to 92 %" in sentence(rows[1])


def test_test_sets_on_which_nothing_differs_are_counted_not_taken_as_a_small_variance():
    rng = np.random.default_rng(5)
    values = 0.8 + 0.01 * rng.normal(size=(5, 10))
    values[:2] = [[0.7], [0.6 + 0.1 + 1e-16]]
    row = found(tables([({"vary": "init"}, values)]))[ACCURACY, "init", ALL]
    assert (row["n_equal"], row["unequal"] < 0.7) == (2, True)
    assert "on 2 of 5 test sets all runs are equal, and where variances differ so" in sentence(row)
    assert "logarithm" not in sentence(row)
    told = assumed([*values], 1)
    assert "; on 2 of 5 test sets all runs are equal, so new ones may take other" in told


@pytest.mark.parametrize("points", [0.0, 0.4])
def test_runs_below_one_test_point_have_the_limit_of_howmany_and_no_verdict(points):
    """One rule: variance, answers and howmany say the same of what test sets do not resolve."""
    n_test = 200
    rng = np.random.default_rng(5)
    near, far = points / n_test * rng.normal(size=(5, 10)), 0.01 * rng.normal(size=(5, 10))
    sets = np.linspace(0.4, 0.9, 5)[:, None]
    cells = [
        ({"vary": "init+batch", "dataset": name}, sets + own)
        for name, own in (("a", near), ("b", far))
    ]
    made = tables(cells, n_test=n_test)
    raw = variance(made).filter(metric=ACCURACY)
    rows = without_alike(raw, made.repeats, made.cells)
    assert rows.filter(cell=1).equals(raw.filter(cell=1))
    of_sets = pl.col("part") == TEST_SET
    assert rows.filter(of_sets).equals(raw.filter(of_sets))
    alike = rows.filter(cell=0, part=ALL).row(0, named=True)
    limit = largest_sd(alike["variance"], 45, 1 / n_test)
    assert (alike["low"], alike["seeds_low"], alike["seeds_high"]) == (None, None, None)
    assert alike["high"] == pytest.approx(limit**2)
    assert f"the sd of further runs is at most {limit:.2g} (95 %" in sentence(alike)
    assert ("below one test point" in sentence(alike)) == (points > 0)
    (text,) = said(cells, n_test)
    of = "2 cells" if points else "1 cell whose runs differ"
    assert (
        f"than between seeds in 1 of {of} (whose two intervals do not overlap), such as b" in text
    )


def test_one_model_has_no_limit_as_no_seed_reaches_it():
    made = tables([({"vary": "init"}, np.full((3, 5), 0.8))], n_test=200)
    made = replace(
        made, cells=made.cells.with_columns(n_identical_repeats=3, n_repeats=3, n_distinct=1)
    )
    rows = without_alike(variance(made), made.repeats, made.cells)
    assert rows.filter(part=ALL).select("low", "high").row(0) == (None, None)


def test_identical_runs_have_no_interval_and_one_test_set_is_told():
    same = np.full((1, 5), 0.8)
    rows = found(tables([({"vary": "init"}, same)]))
    row = rows[ACCURACY, "init", ALL]
    assert (row["variance"], row["low"], row["over"]) == (0, None, None)
    rng = np.random.default_rng(6)
    rows = found(tables(planted(rng, (1, 1), repeats=1)))
    assert (ACCURACY, "test set", TEST_SET) not in rows
    assert {row["over"] for row in rows.values() if row["low"] is not None} == {SEEDS}
    assert variance(tables([({"vary": "init"}, same[:, :1])])).is_empty()


def test_runs_that_a_cell_lacks_are_paired_with_none():
    cells = planted(np.random.default_rng(7), (1, 1), repeats=2, runs=6)
    made = tables(cells)
    here = (pl.col("cell") == 0) & (pl.col("repeat_index") == 1) & (pl.col("run_index") == 2)
    made = Tables(made.runs.filter(~here), made.pairs, made.repeats, made.cells)
    expected = [
        np.cov(cells[0][1][0], cells[2][1][0])[0, 1] * 5,
        np.cov(*(np.delete(cells[k][1][1], 2) for k in (0, 2)))[0, 1] * 4,
    ]
    row = found(made)[ACCURACY, "init", OWN]
    assert row["variance"] == pytest.approx(sum(expected) / 9)
    assert row["n_runs"] == 11


def coverage(times, make, truth, wrong=None):
    inside = dict.fromkeys(truth, 0)
    for seed in range(times):
        rows = found(tables(make(np.random.default_rng([seed, times])), wrong))
        for key, value in truth.items():
            row = rows[key]
            if row["low"] is None:  # nothing moves it but rounding: it must be exact
                inside[key] += abs(row["variance"] - value) < 1e-12
            else:
                inside[key] += row["low"] <= value <= row["high"]
    return {key: n / times for key, n in inside.items()}


@pytest.mark.slow
@pytest.mark.parametrize(("repeats", "runs"), [(1, 20), (2, 10), (4, 10), (10, 5)])
def test_planted_components_are_held(repeats, runs):
    names = ("init", "batch", "train")
    unit = 1e-4

    def make(rng):
        return planted(rng, (1, 0.5, 0.0), names, repeats=repeats, runs=runs)

    truth = {
        (ACCURACY, "init", OWN): unit,
        (ACCURACY, "init", ALONE): unit,
        (ACCURACY, "batch", OWN): 0.25 * unit,
        (ACCURACY, "init+batch+train", ALL): 1.25 * unit,
        (ACCURACY, "init+batch+train", TOGETHER): 0.0,
    }
    if repeats > 1:
        truth[ACCURACY, "test set", TEST_SET] = 0.25 * unit
    held = coverage(100, make, truth)
    assert min(held.values()) >= 0.9, held


@pytest.mark.slow
@pytest.mark.parametrize(
    ("repeats", "together"), [(2, 0.3), (2, 0.6), (3, 0.6), (4, 0.3), (10, 0.3)]
)
def test_components_that_sources_have_together_are_held(repeats, together):
    unit, interaction = 1e-4, together**2 * 1e-4
    truth = {
        (ACCURACY, "init", OWN): unit,
        (ACCURACY, "init", ALONE): unit + interaction,
        (ACCURACY, "batch", OWN): 0.49 * unit,
        (ACCURACY, "init+batch", TOGETHER): interaction,
        (ACCURACY, "init+batch", ALL): 1.49 * unit + interaction,
        (ACCURACY, "test set", TEST_SET): 0.25 * unit,
    }
    held = coverage(
        200, lambda rng: planted(rng, (1, 0.7), together=together, repeats=repeats), truth
    )
    assert min(held.values()) >= 0.9, held


def scored(rng, sets, repeats=5, runs=10, points=200):
    """Errors (repeat, run, point): a point is wrong where difficulty and streams exceed 1.5."""
    hard = rng.normal(size=(repeats, 1, points)) + sets * rng.normal(size=(repeats, 1, 1))
    drawn, fixed = (
        rng.normal(size=(2, repeats, runs, points)),
        rng.normal(size=(2, repeats, 1, points)),
    )
    cells = []
    for vary in (("init",), ("batch",), ("init", "batch")):
        init = drawn[0] if "init" in vary else fixed[0]
        batch = drawn[1] if "batch" in vary else fixed[1]
        cells.append(
            ({"vary": "+".join(vary)}, hard + 0.6 * init + 0.3 * batch + 0 * drawn[0] > 1.5)
        )
    return cells


@pytest.mark.slow
@pytest.mark.parametrize("repeats", [2, 5])
def test_planted_components_of_errors_are_held(repeats):
    x = np.linspace(-9, 9, 4001)
    weight = stats.norm.pdf(x) * (x[1] - x[0])

    def squared(fixed, drawn):
        p = stats.norm.sf((1.5 - fixed * x) / drawn)
        return weight @ p**2

    error = stats.norm.sf(1.5 / (1 + 0.36 + 0.09) ** 0.5)
    unit = {
        (ERRORS, "init+batch", ALL): error - squared(1.0, 0.45**0.5),
        (ERRORS, "init", ALONE): error - squared(1.09**0.5, 0.6),
        (ERRORS, "batch", ALONE): error - squared(1.36**0.5, 0.3),
    }
    unit[ERRORS, "init", OWN] = unit[ERRORS, "init+batch", ALL] - unit[ERRORS, "batch", ALONE]
    held = coverage(100, lambda rng: scored(rng, 0.0, repeats), unit, wrong=True)
    assert min(held.values()) >= 0.9, held


@pytest.mark.slow
@pytest.mark.parametrize(("repeats", "sets"), [(2, 0.3), (5, 0.3), (5, 0.05), (10, 0.3)])
def test_variance_of_consistency_is_held(repeats, sets):
    rng = np.random.default_rng(9)
    runs = 10
    # what a pair varies by on a fixed test set, and what test sets do, from many of each
    first, pair = [], []
    for _ in range(3000):
        hard = rng.normal(size=200) + sets * rng.normal()
        wrong = hard + 0.45**0.5 * rng.normal(size=(60, 200)) > 1.5
        both = (wrong[::2] & wrong[1::2]).mean(axis=1)
        either = (wrong[::2] | wrong[1::2]).mean(axis=1)
        first.append((both / either).mean())
        pair.append((both / either).var(ddof=1))
    noise = float(np.mean(pair))
    truth = {
        ("ec_local", "init+batch", ALL): noise,
        ("ec_local", "test set", TEST_SET): float(np.var(first, ddof=1) - noise / 30),
    }
    held = coverage(200, lambda rng: scored(rng, sets, repeats, runs), truth, wrong=True)
    assert min(held.values()) >= 0.9, held


def said(cells, n_test=1_000_000):
    """What is said of the sources of cells."""
    made = tables(cells, n_test=n_test)
    of_cells = made.repeats.select("cell", "dataset", "classifier").unique()
    rows = variance(made).join(of_cells, on="cell")
    return [one.text for one in answer(Evidence(made, rows, rows, Options()))]


def test_shares_of_variance_are_told_where_they_are_known():
    cells = planted(np.random.default_rng(0), (1, 0.2), of_set=6, repeats=5)
    (text,) = said(cells)
    assert re.match(
        r"Of the variance between runs, init by itself accounts for \d+% in one ×", text
    )
    assert re.search(
        r"\(cell 2; sd 0\.\d{4} to 0\.\d{4}, 95 % for all 2 together; n = 50 runs", text
    )
    start = "accuracy varies more between test sets than between seeds in 1 of 1 cell (whose two"
    assert f"{start} intervals do not overlap), such as one × mlp (cell 2): sd 0.0" in text
    assert re.search(r"\d, 95 %; n = 5 test sets\) against 0\.0\d+ \(", text)
    assert said(planted(np.random.default_rng(0), (0.1, 0.1), together=3, repeats=3)) == []


def test_where_test_sets_vary_more_is_told_by_the_levels_of_the_cell():
    """It was told by the number of a cell alone."""
    apart = {"vary": "init+batch", "train_fraction": 0.5}
    usual = {"vary": "init+batch", "train_fraction": 1.0}
    rng = np.random.default_rng(0)
    sets = rng.normal(size=(6, 1)) / 10
    cells = [
        (apart, 0.5 + sets + 0.001 * rng.normal(size=(6, 8))),
        (usual, 0.9 + 0.01 * rng.normal(size=(6, 8))),
    ]
    made = tables(cells, n_test=1_000_000)
    axes = made.cells if made.cells.width else made.repeats
    rows = variance(made).join(
        axes.select("cell", "dataset", "classifier", "train_fraction").unique(), on="cell"
    )
    (told,) = [one.text for one in answer(Evidence(made, rows, rows, Options()))]
    assert "such as one × mlp, train fraction 0.5 (cell 0): sd 0.0" in told


def test_a_source_that_is_chosen_among_many_cells_is_held_to_all_of_them():
    """By itself, one of 40 components tells a source that does nothing by itself from 0."""
    rng = np.random.default_rng(5)
    cells = [
        ({"vary": vary, "dataset": f"d{number}"}, 0.9 + 0.01 * rng.normal(size=(1, 8)))
        for number in range(25)
        for vary in ("init", "batch", "init+batch")
    ]
    rows = variance(tables(cells)).filter(pl.col("metric") == ACCURACY, pl.col("part") == OWN)
    assert (rows["low"] > 0).any()
    assert not [text for text in said(cells) if "by itself" in text]


@pytest.mark.parametrize("sets", [1, 2, 5])
def test_howmany_answers_and_variance_have_one_interval_of_the_spread(sets):
    """Of one cell whose test sets differ in spread: the same ends, wherever they are printed."""

    def uneven(rng, shape):
        return np.linspace(0.5, 2, shape[1])[:, None] * rng.normal(size=shape)

    sweep = sweeps.planted(1, ["mlp"], repeats=sets, runs=8, noise=uneven, seed=3)
    row = found(sweep)[ACCURACY, "init+batch", ALL]
    low, high = (row[f"seeds_{end}"] ** 0.5 for end in ("low", "high"))
    assert f"({low:.3g} to {high:.3g}, 95 %" in sentence(row)
    said = {one.about: one.text for one in answers(sweep, effects(sweep), None, Options())}
    assert f"({low:.4f} to {high:.4f})" in said["spread"]
    ends = [fewest_runs(partial(operator.truediv, end**2), PRECISE) for end in (low, high)]
    interval = f"({ends[0]:,} to {ends[1]:,}, 95 %"
    assert interval in said["enough"]
    assert interval in howmany(sweep)[0].words
    assert (row["seeds_low"] > row["low"]) == (sets > 1)  # new test sets widen it
    assert (row["seeds_high"] < row["high"]) == (sets > 1)
