"""Components of crossed cells: by the book's formulas, planted ones, and with how many runs."""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import combinations, product

import numpy as np
import polars as pl
import pytest
from scipy import stats

from manyseed.analysis.axes import AXES
from manyseed.analysis.options import Options
from manyseed.analysis.questions import crossed
from manyseed.analysis.questions.classifiers import of_few_runs
from manyseed.analysis.questions.comparison import Side, compare
from manyseed.analysis.questions.crossed import Crosses, places
from manyseed.analysis.questions.effects import EFFECTS, comparisons
from manyseed.analysis.questions.flips import flips
from manyseed.analysis.questions.intervals import SEEDS, TEST_SETS
from manyseed.analysis.questions.question import Evidence
from manyseed.analysis.questions.ranking import answer as ranking
from manyseed.analysis.questions.variance import (
    ACCURACY,
    ALL,
    ERRORS,
    INTERACTION,
    OWN,
    TEST_SET,
)
from manyseed.analysis.tables.rows import independent, of_cells
from manyseed.jobs.run import crossing
from manyseed.orchestrator.results.answers.variance import sentence
from tests.analysis.questions.test_variance import KEY, found, tables

OPTIONS = Options()
SETS = {"vary": "init*batch"}


def planted(rng, parts, k, repeats=1):
    """Results (repeat, k, k, …) with a standard deviation for each effect."""
    n = max(map(len, parts))
    made = np.zeros((repeats, *(k,) * n))
    for effect, sd in parts.items():
        shape = [k if axis in effect else 1 for axis in range(n)]
        made = made + sd * rng.normal(size=(repeats, *shape))
    return made


def in_rows(made):
    """Results (repeat, run) in the order in which runs are numbered."""
    k, n = made.shape[1], made.ndim - 1
    return np.stack([made[(slice(None), *crossing(n, run))] for run in range(k**n)], axis=1)


@pytest.mark.parametrize("sources", [2, 3])
def test_runs_are_numbered_as_they_are_trained(sources):
    assert crossed.places(sources, 4) == [crossing(sources, run) for run in range(4**sources)]


def test_the_largest_full_cross_is_taken_whatever_runs_are_missing():
    values = np.arange(16.0)
    assert crossed.full(np.arange(16), values, 2).shape == (4, 4)
    assert crossed.full(np.arange(15), values[:15], 2).shape == (3, 3)
    assert crossed.full(np.delete(np.arange(16), 5), np.delete(values, 5), 2).shape == (2, 2)
    assert crossed.full(np.arange(1, 16), values[1:], 2) is None
    assert crossed.full(np.arange(4), values[:4], 2)[1, 0] == 2


def test_mean_squares_and_components_are_those_of_the_book():
    """Two-way random effects, one run a cell: Searle, Casella and McCulloch 1992, table 4.12."""
    k = 5
    y = np.random.default_rng(1).normal(size=(k, k))
    rows, columns, whole = y.mean(axis=1), y.mean(axis=0), y.mean()
    of_rows = k * sum((own - whole) ** 2 for own in rows) / (k - 1)
    of_columns = k * sum((own - whole) ** 2 for own in columns) / (k - 1)
    left = [(y[i, j] - rows[i] - columns[j] + whole) ** 2 for i, j in product(range(k), repeat=2)]
    rest = sum(left) / (k - 1) ** 2
    known = crossed.mean_squares(y)
    assert [known[one] for one in ((0,), (1,), (0, 1))] == pytest.approx(
        [of_rows, of_columns, rest]
    )
    crosses = Crosses.of([y])
    parts = [crosses.value(crossed.component(one, 2, k)) for one in ((0,), (1,), (0, 1))]
    assert parts == pytest.approx([(of_rows - rest) / k, (of_columns - rest) / k, rest])
    assert crosses.value(crossed.of_all(2, k)) == pytest.approx(sum(parts))
    low, high = crosses.limits(crossed.component((0, 1), 2, k), 0.95)
    chi2 = stats.chi2((k - 1) ** 2)
    ends = [(k - 1) ** 2 * rest / chi2.ppf(p) for p in (0.975, 0.025)]
    assert [low, high] == pytest.approx(ends)


@pytest.mark.parametrize("n", [2, 3])
def test_estimates_are_unbiased(n):
    rng, k = np.random.default_rng(n), 4
    parts = {one: 1.0 / (1 + place) for place, one in enumerate(crossed.effects_of(n))}
    crosses = Crosses.of(list(planted(rng, parts, k, 1500)))
    for one, sd in parts.items():
        own = crosses.by_repeat(crossed.component(one, n, k))
        assert own.mean() == pytest.approx(sd**2, abs=4 * own.std() / own.size**0.5)
    mean = sum(sd**2 / k ** len(one) for one, sd in parts.items())
    assert crosses.value(crossed.of_mean(n, k)) == pytest.approx(mean, rel=0.1)


PARTS = {
    "all alike": {(0,): 1.0, (1,): 1.0, (0, 1): 1.0},
    "little together": {(0,): 1.0, (1,): 0.5, (0, 1): 0.2},
    "only together": {(0,): 0.0, (1,): 0.0, (0, 1): 1.0},
    "three sources": dict.fromkeys(crossed.effects_of(3), 1.0),
}


@pytest.mark.parametrize("repeats", [1, 4])
@pytest.mark.parametrize("name", PARTS)
def test_intervals_hold_planted_components(name, repeats):
    parts, draws = PARTS[name], 300
    n, k = max(map(len, parts)), 6 if name != "three sources" else 4
    rng = np.random.default_rng(len(name) + repeats)
    held = dict.fromkeys([*parts, "all"], 0)
    for _ in range(draws):
        crosses = Crosses.of(list(planted(rng, parts, k, repeats)))
        terms = {one: crossed.component(one, n, k) for one in parts}
        truth = {one: sd**2 for one, sd in parts.items()}
        terms["all"], truth["all"] = crossed.of_all(n, k), sum(truth.values())
        for one in held:
            low, high = crosses.limits(terms[one], 0.95)
            held[one] += max(low, 0.0) <= truth[one] <= high
    assert min(held.values()) >= 0.9 * draws
    if repeats == 1 and name == "all alike":
        assert held[0, 1] <= 0.98 * draws  # as wide as it promises, not more


def test_an_interaction_is_told_from_none():
    rng = np.random.default_rng(5)
    told = 0
    for _ in range(50):
        made = planted(rng, {(0,): 1.0, (1,): 1.0, (0, 1): 0.5, (2,): 0, (0, 1, 2): 0.1}, 5)
        crosses = Crosses.of(list(made))
        told += crosses.limits(crossed.component((0, 1), 3, 5), 0.95)[0] > 0
    assert told > 45


def test_half_the_runs_of_nested_designs_tell_as_much():
    """k values of each source: one cross of k² runs, or orders within inits, and the reverse.

    A nested design tells its outer source alone, so both sources take two of them.
    """
    rng, k, draws = np.random.default_rng(3), 8, 1500
    parts = {(0,): 1.0, (1,): 1.0, (0, 1): 1.0}
    crosses = Crosses.of(list(planted(rng, parts, k, draws)))
    init, batch, both = rng.normal(size=(3, 2, draws, k, k))
    nested = init[..., :1] + batch + both  # each init has orders of its own; and the reverse
    within = nested.var(axis=-1, ddof=1).mean(axis=-1)
    outer = nested.mean(axis=-1).var(axis=-1, ddof=1) - within / k
    for one in ((0,), (1,)):
        own = crosses.by_repeat(crossed.component(one, 2, k))
        assert own.mean() == pytest.approx(outer[0].mean(), abs=0.05)
        assert own.var() < outer[0].var()
    together = crosses.by_repeat(crossed.component((0, 1), 2, k))
    of_nested = within.mean(axis=0) - outer.mean(axis=0)
    assert of_nested.mean() == pytest.approx(1.0, abs=0.05)
    assert together.var() < of_nested.var() / 4


def test_the_error_of_a_mean_is_that_of_means():
    rng, k = np.random.default_rng(4), 5
    parts = {(0,): 1.0, (1,): 0.5, (0, 1): 0.5}
    made = in_rows(planted(rng, parts, k, 500))
    errors = [crossed.mean_error(own, 2) for own in made]
    assert np.mean([one for one, _ in errors]) == pytest.approx(made.mean(axis=1).var(), rel=0.2)
    half = [stats.t.ppf(0.975, freedom) * one**0.5 for one, freedom in errors]
    assert np.mean(np.abs(made.mean(axis=1)) <= half) >= 0.9
    naive = stats.t.ppf(0.975, k**2 - 1) * made.std(axis=1, ddof=1) / k
    assert np.mean(np.abs(made.mean(axis=1)) <= naive) < 0.8
    assert np.isnan(crossed.mean_error(made[0][:-1], 2)[0])


# ---- in the table of variances


def test_a_crossed_cell_has_its_parts_and_other_cells_keep_theirs():
    rng = np.random.default_rng(6)
    made = planted(rng, {(0,): 1.0, (1,): 0.5, (0, 1): 0.7}, 5, 4) + 3 * rng.normal(size=(4, 1, 1))
    plain = rng.normal(size=(4, 10))
    both = tables([({"vary": "init+batch"}, plain), (SETS, in_rows(made))])
    assert found(both, cell=0) == found(tables([({"vary": "init+batch"}, plain)]))
    own = found(both, cell=1)
    assert [*own] == [
        (ACCURACY, "init*batch", ALL),
        (ACCURACY, "init", OWN),
        (ACCURACY, "batch", OWN),
        (ACCURACY, "init*batch", INTERACTION),
        (ACCURACY, "test set", TEST_SET),
    ]
    whole = own[ACCURACY, "init*batch", ALL]
    assert (whole["n_repeats"], whole["n_runs"], whole["over"]) == (4, 100, TEST_SETS)
    parts = [own[ACCURACY, "init", OWN], own[ACCURACY, "batch", OWN]]
    parts.append(own[ACCURACY, "init*batch", INTERACTION])
    assert sum(row["share"] for row in parts) == pytest.approx(1)
    for row in own.values():
        assert 0 <= row["low"] <= row["high"]
    assert sentence(parts[-1]).startswith("interaction of init × batch, beyond what each does by")
    assert found(tables([(SETS, in_rows(made[:1]))]))[ACCURACY, "init", OWN]["over"] == SEEDS


def test_errors_have_the_parts_of_each_point():
    rng, k, points = np.random.default_rng(7), 4, 300
    hard = rng.normal(size=(5, 1, 1, points))
    init, batch = rng.normal(size=(5, k, 1, points)), rng.normal(size=(5, 1, k, points))
    wrong = hard + init + batch > 1
    made = np.stack([wrong[:, *crossing(2, run)] for run in range(k**2)], axis=1)
    rows = found(tables([(SETS, made)], wrong=True), metric=ERRORS)
    by_point = Crosses.of([one for own in np.moveaxis(wrong.astype(float), -1, 1) for one in own])
    for source, part, effect in (
        ("init", OWN, (0,)),
        ("batch", OWN, (1,)),
        ("init*batch", INTERACTION, (0, 1)),
    ):
        row = rows[ERRORS, source, part]
        expected = by_point.value(crossed.component(effect, 2, k))
        assert row["variance"] == pytest.approx(expected)
        assert row["low"] <= row["variance"] <= row["high"]
    assert rows[ERRORS, "init*batch", ALL]["n_runs"] == 5 * 16


# ---- what assumes that runs are independent


def crossed_tables(made):
    """Tables of a crossed cell, with the pairs of its runs."""
    held = tables([(SETS, in_rows(made))])
    n = made.shape[1] ** 2
    ends = {"run_i": pl.UInt16, "run_j": pl.UInt16}
    rows = [(0, 0, i, j, 0.5) for i, j in combinations(range(n), 2)]
    schema = {"cell": pl.UInt32, "repeat_index": pl.UInt16, **ends, "ec_local": pl.Float64}
    return replace(held, pairs=pl.DataFrame(rows, schema=schema, orient="row"))


def test_the_diagonal_stands_for_a_cross_where_runs_must_be_independent():
    made = np.random.default_rng(8).normal(size=(1, 4, 4))
    kept = independent(crossed_tables(made))
    assert kept.runs["run_index"].to_list() == [0, 3, 8, 15]
    assert kept.runs["accuracy"].to_list() == np.diag(made[0]).tolist()
    assert kept.pairs.select("run_i", "run_j").rows() == [*combinations([0, 3, 8, 15], 2)]
    plain = tables([({"vary": "init+batch"}, made[0])])
    assert independent(plain).runs.equals(plain.runs)
    three = tables([({"vary": "init*batch*train"}, made.reshape(1, 16)[:, :8])])
    assert independent(three).runs["run_index"].to_list() == [0, 7]


def howmany_of(made, half_width):
    held = crossed_tables(made)
    seen = held.repeats.with_columns(identical=False, n_test=1000)
    runs = held.runs.with_columns(identical=False, fit_seconds=2.0)
    made = replace(held, runs=runs, repeats=seen)
    return crossed.howmany(made, accuracy=half_width, consistency=0.02)


def test_howmany_counts_values_of_each_source():
    made = planted(np.random.default_rng(9), {(0,): 0.01, (1,): 0.02, (0, 1): 0.005}, 6)
    of_accuracy, of_pairs = howmany_of(made, 0.01)
    crosses = Crosses.of(list(made))
    own = [max(crosses.value(crossed.component(one, 2, 6)), 0) for one in ((0,), (1,), (0, 1))]
    k = round(of_accuracy.runs**0.5)
    assert k**2 == of_accuracy.runs

    def half(values):
        error = own[0] / values + own[1] / values + own[2] / values**2
        return stats.t.ppf(0.975, values - 1) * error**0.5

    assert half(k) <= 0.01 < half(k - 1)
    assert of_accuracy.seconds == 2 * k**2
    assert f"a full cross of {k} × {k} values" in of_accuracy.words
    assert of_pairs.runs is None
    assert "it cannot be told for crossed cells" in of_pairs.words


def test_a_cross_that_varies_by_less_than_a_test_point_is_not_told():
    few = howmany_of(np.full((1, 3, 3), 0.9), 0.01)[0]
    assert (few.runs, few.high) == (None, 16)
    assert "accuracies of all 9 runs are equal on their test set, while up to 78% of" in few.words
    made = np.round(planted(np.random.default_rng(9), {(0,): 3e-4, (1,): 3e-4}, 6), 4)
    near = howmany_of(made, 0.0005)[0]
    assert near.runs is None
    assert "is below one test point: a test set of 1,000 points" in near.words
    assert f"for which {near.high:,} runs are enough" in near.words


def test_a_cross_is_no_effect_of_the_sources_that_it_crosses():
    rows = [(vary, cell) for cell, vary in enumerate(("init+batch", "init*batch", "init*train"))]
    more = dict.fromkeys(EFFECTS, 0.9) | {"n_distinct": 4, "identical": False, "n_runs": 4}
    more |= {"probe": None, "delta": None, "repeat_index": 0}
    repeats = pl.DataFrame([{**KEY, **more, "vary": vary, "cell": cell} for vary, cell in rows])
    found = comparisons(repeats).filter(axis="vary")
    assert found["level"].to_list() == ["init*train"]


def test_a_comparison_needs_a_full_cross_for_an_interval_over_seeds():
    made = in_rows(planted(np.random.default_rng(10), PARTS["all alike"], 4))[0]
    whole, part = (Side(own, crossed=2) for own in (made, made[:-1]))
    error, freedom = crossed.mean_error(made, 2)
    found = compare([whole], [Side(np.zeros(1), fixed=True)], paired=False)
    half = stats.t.ppf(0.975, freedom) * error**0.5
    assert found.seeds == pytest.approx((made.mean() - half, made.mean() + half))
    assert found.better_seeds is None
    same = compare([whole], [Side(made + 1, crossed=2)], paired=True)
    assert same.difference == pytest.approx(-1)
    lacking = compare([part], [whole], paired=False)
    assert (lacking.seeds, lacking.no_seeds) == (None, "not all runs of a cross are there")


@pytest.mark.parametrize("vary", ["init*batch", "init*batch*train"])
def test_flips_by_source_are_the_planted_split(vary):
    """Of 1,000 points, values of each source decide some alone: beside loops over all pairs."""
    sources = vary.split("*")
    k, rng = 3, np.random.default_rng(0)
    sizes = dict(zip(sources, (300, 100, 50), strict=False))
    runs = places(len(sources), k)
    label = np.zeros((len(runs), 1000), int)
    start = 0
    for axis, size in enumerate(sizes.values()):
        drawn = rng.integers(0, 2, (k, size))
        label[:, start : start + size] = drawn[[run[axis] for run in runs]]
        start += size
    rows, alone, apart = [], {name: [] for name in sources}, []
    for i, one in enumerate(runs):
        for j in range(i + 1, len(runs)):
            churn = float((label[i] != label[j]).mean())
            rows.append((0, 0, i, j, "toy", "mlp", vary, churn))
            differing = [s for s, a, b in zip(sources, one, runs[j], strict=True) if a != b]
            if len(differing) == 1:
                alone[differing[0]].append(churn)
            elif len(differing) == len(sources):
                apart.append(churn)
    names = ("cell", "repeat_index", "run_i", "run_j", "dataset", "classifier", "vary", "churn")
    (found,) = flips(pl.DataFrame(rows, schema=names, orient="row"))
    shares = {row["source"]: row["share"] for row in found.rows}
    expected = {name: np.mean(own) / np.mean(apart) for name, own in alone.items()}
    assert shares == pytest.approx(expected)
    for name, size in sizes.items():  # sources that do not act together: shares add up
        assert shares[name] == pytest.approx(size / sum(sizes.values()), abs=0.08)
    assert sum(shares.values()) == pytest.approx(1)
    assert found.headline.startswith(f"Of the flips seen of mlp on toy, {vary}: init alone ")
    plain = pl.DataFrame(rows, schema=names, orient="row").with_columns(vary=pl.lit("init"))
    assert not [*flips(plain)]


def crossed_sweep(parts, names=("mlp",), datasets=("d",), fallen=0.0):
    """Tables of 4 × 4 crossed runs on one test set for each classifier and dataset."""
    rng = np.random.default_rng(3)
    cells = []
    for dataset, name in product(datasets, names):
        values = 0.9 + 0.01 * in_rows(planted(rng, parts, 4))
        values[0, 11] -= fallen
        cells.append(({**SETS, "dataset": dataset, "classifier": name}, values))
    made = tables(cells)
    plain = {"identical": False, "coverage": 1.0, "n_distinct": 16, "alpha_hat": None}
    plain |= {"delta": None, "accuracy_mean": None}
    repeats = made.repeats.with_columns(pl.lit(v).alias(k) for k, v in plain.items())
    axes = [name for name in repeats.columns if name in AXES]
    return replace(
        made,
        runs=made.runs.join(repeats.select("cell", *axes).unique(), on="cell").with_columns(
            identical=pl.lit(value=False),
            alpha_hat=pl.lit(None, pl.Float64),
        ),
        repeats=repeats.with_columns(delta=pl.lit(None, pl.Float64)),
    )


ALIKE = {(0,): 1.0, (1,): 1.0, (0, 1): 1.0}


def evidence_of(made):
    return Evidence(independent(made), pl.DataFrame(), None, OPTIONS, every=made)


def test_spreads_of_crossed_cells_are_of_all_runs_and_told_by_dataset():
    made = crossed_sweep(ALIKE, datasets=("d", "e"))
    spreads, alike, sets, _ = of_few_runs(made)
    assert ({one.classifier for one in spreads}, alike, sets) == ({"mlp on d", "mlp on e"}, [], 1)
    for cell, name in enumerate(("mlp on d", "mlp on e")):
        row = found(made, cell=cell)[ACCURACY, "init*batch", ALL]
        (one,) = (one for one in spreads if one.classifier == name)
        assert one.runs == 16
        ends = (one.sd**2, one.low**2, one.high**2)
        assert ends == pytest.approx((row["variance"], row["low"], row["high"]))


def test_the_crossed_cell_that_takes_most_runs_is_named():
    made = crossed_sweep(ALIKE, names=("cnn", "mlp"))
    (told,) = crossed.answer(evidence_of(made))
    assert re.fullmatch(
        r"Accuracy to ± 0.005 takes up to [\d,]+ runs, crossed ([\d,]+) × \1 \((cnn|mlp)\); "
        "0 of 2 cells have enough.",
        told.headline,
    )
    assert [row["n"] for row in told.rows] == [16, 16]
    by_cell = [
        crossed.howmany(of_cells(made, made.cells.filter(cell=cell)), accuracy=0.005, consistency=1)
        for cell in (0, 1)
    ]
    assert [row["runs"] for row in told.rows] == [one.runs for one, _ in by_cell]


def test_an_unlike_run_off_the_diagonal_is_named():
    made = crossed_sweep(ALIKE, fallen=0.4)
    (told,) = ranking(evidence_of(made))
    assert "1 of 16 runs is unlike the others in accuracy; see run 0:0:11" in told.headline


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        (None, "No cell has a repeat"),
        ([("all", 0.0, None)], "Nothing differs"),
        ([("all", 1.0, 0.5)], "In no cell does a source vary apart"),
        ([("all", 1.0, 0.5), ("own", 0.5, 0.0)], "Too few runs: by itself"),
        ([("all", 1.0, 0.5), ("own", 0.5, 0.1)], ""),
    ],
)
def test_why_no_source_is_told_is_said(rows, said):
    table = None
    if rows:
        schema = {"part": pl.String, "variance": pl.Float64, "low": pl.Float64}
        table = pl.DataFrame(rows, schema=schema, orient="row").with_columns(
            metric=pl.lit(ACCURACY), n_runs=pl.lit(16), cell=pl.int_range(pl.len())
        )
    told = crossed.untold(table)
    assert told.startswith(said)
    assert bool(told) == bool(said)
    together = "A source is told from 0 in 1 cell taken alone, but in none where all 1 are"
    assert crossed.untold(table, together=True).startswith(said or together)
    assert ("5 × 5 runs" in told) == said.startswith(("In no", "Too few"))
