"""Effects: paired differences and their intervals, recomputed row by row and by planted truth."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from manyseed.analysis.axes import AXES, LATER
from manyseed.analysis.questions.effects import EFFECTS, OF_PAIRS, _matters, effects
from manyseed.analysis.questions.intervals import SEEDS, TEST_SETS, clustered, holm, t_interval
from manyseed.analysis.tables.rows import Tables
from tests.analysis.samples import sweep

KEY = {
    "train_fraction": 1.0,
    **dict.fromkeys(
        ("perturb_continuous", "perturb_categorical", "perturb_hparams", *LATER),
        "none",
    ),
    "hparams": "default",
    "vary": "init+batch",
    "dataset": "one",
    "classifier": "mlp",
}


@pytest.fixture(scope="module")
def tables():
    return sweep({"one": 40, "two": 30}, {"lr-sgd": 0.6, "xgb": 0.0}, repeats=2, runs=5)


@pytest.fixture(scope="module")
def repeats(tables):
    return tables.repeats


def of(repeats, runs=None, pairs=None):
    """Tables of repeats alone, or with what else is given."""
    empty = pl.DataFrame(schema={"cell": pl.UInt32})
    return Tables(
        empty if runs is None else runs, empty if pairs is None else pairs, repeats, empty
    )


def planted(cells, runs=4):
    """Repeats whose cells have the accuracies (repeat,) and the levels of axes that are given."""
    rows = [
        {**KEY, **axes, "cell": cell, "repeat_index": repeat, "accuracy_mean": float(value)}
        for cell, (axes, values) in enumerate(cells)
        for repeat, value in enumerate(values)
    ]
    types = {"cell": pl.UInt32, "repeat_index": pl.UInt16}
    frame = pl.DataFrame(rows).cast(types)
    others = {name: None for name in EFFECTS if name not in frame.columns}
    return frame.with_columns(
        *(pl.lit(value, pl.Float64).alias(name) for name, value in others.items()),
        n_runs=pl.lit(runs, pl.UInt32),
        n_distinct=pl.lit(runs, pl.UInt32),
        identical=pl.lit(value=False),
        probe=pl.lit("gap"),
        delta=pl.lit(0.1),
    )


def test_differences_are_paired_by_everything_else(tables, repeats):
    found = effects(tables)
    assert found["level"].unique().to_list() == ["neighbour:0.5"]
    assert found["axis"].unique().to_list() == ["perturb_continuous"]
    assert found["reference"].unique().to_list() == ["none"]
    assert found.select("dataset", "classifier").unique().height == 4
    for row in found.iter_rows(named=True):
        name = row["metric"]
        differences = []
        for repeat in (0, 1):
            sides = [
                repeats.filter(
                    pl.col("dataset") == row["dataset"],
                    pl.col("classifier") == row["classifier"],
                    pl.col("repeat_index") == repeat,
                    pl.col("perturb_continuous") == scheme,
                )[name].item()
                for scheme in ("neighbour:0.5", "none")
            ]
            differences.append(sides[0] - sides[1])
        assert (row["n_pairs"], row["n_test_sets"]) == (2, 2)
        assert row["difference"] == pytest.approx(np.mean(differences))
        assert row["sd"] == pytest.approx(np.std(differences, ddof=1))
        assert row["n_identical"] == (2 if row["classifier"] == "xgb" else 0)
        if row["sd"] < 1e-12:
            assert row["over"] is None
            continue
        assert row["over"] == TEST_SETS
        low, high = stats.t.interval(0.95, 1, np.mean(differences), stats.sem(differences))
        assert (row["low"], row["high"], row["freedom"]) == pytest.approx((low, high, 1))
        assert row["p"] == pytest.approx(stats.ttest_1samp(differences, 0).pvalue)


def test_datasets_are_averaged_as_strata(tables):
    found = effects(tables, by=("classifier",)).filter(classifier="lr-sgd")
    apart = effects(tables).filter(classifier="lr-sgd")
    for row in found.iter_rows(named=True):
        own = apart.filter(metric=row["metric"])
        assert (row["n_pairs"], row["n_test_sets"]) == (4, 4)
        assert row["difference"] == pytest.approx(own["difference"].mean())
        assert row["sd"] == pytest.approx((own["sd"] ** 2).mean() ** 0.5)
        # Welch's: variances of the datasets' means, degrees of freedom by Satterthwaite
        parts = own["sd"].to_numpy() ** 2 / 2 / 4
        if not (parts > 1e-24).any():
            continue
        error, freedom = parts.sum() ** 0.5, parts.sum() ** 2 / (parts**2).sum()
        half = stats.t.ppf(0.975, freedom) * error
        expected = (row["difference"] - half, row["difference"] + half, freedom)
        assert (row["low"], row["high"], row["freedom"]) == pytest.approx(expected)


def test_pairs_on_one_test_set_are_one_value():
    # two fractions with and without noise: four pairs along two axes on each of three test sets
    rng = np.random.default_rng(0)
    noise, whole, half, both = rng.normal(size=(4, 3))
    repeats = planted(
        [
            ({}, whole),
            ({"train_fraction": 0.5}, half),
            ({"perturb_continuous": "relative:0.1"}, noise),
            ({"perturb_continuous": "relative:0.1", "train_fraction": 0.5}, both),
        ]
    )
    row = effects(of(repeats)).row(by_predicate=pl.col("axis") == "perturb_continuous", named=True)
    values = ((noise - whole) + (both - half)) / 2
    assert (row["n_pairs"], row["n_test_sets"], row["freedom"]) == (6, 3, 2)
    assert row["difference"] == pytest.approx(values.mean())
    assert row["sd"] == pytest.approx(values.std(ddof=1))
    expected = stats.t.interval(0.95, 2, values.mean(), stats.sem(values))
    assert (row["low"], row["high"]) == pytest.approx(expected)


def test_draws_of_hparams_are_shared_by_all_datasets():
    rng = np.random.default_rng(1)
    one, two = rng.normal(size=(2, 4))
    cells = [
        ({"dataset": name, "perturb_hparams": scheme}, values if scheme != "none" else [0.0] * 4)
        for name, values in (("one", one), ("two", two))
        for scheme in ("none", "relative:0.1")
    ]
    row = effects(of(planted(cells)), by=("classifier",)).row(0, named=True)
    centred = (one - one.mean() + two - two.mean()) / 8
    assert row["freedom"] == pytest.approx(3)
    half = stats.t.ppf(0.975, 3) * (4 / 3 * (centred**2).sum()) ** 0.5
    assert row["high"] - row["difference"] == pytest.approx(half)


def test_tuned_is_compared_with_default_and_vary_only_with_what_varies_less():
    """Runs that vary init alone are some of those that vary init and batch: that is no effect."""
    rng = np.random.default_rng(2)
    values = rng.normal(size=(4, 2))
    levels = [{}, {"hparams": "tuned"}, {"vary": "init"}, {"vary": "batch"}]
    found = effects(of(planted([*zip(levels, values, strict=True)])))
    named = found.select("axis", "level", "reference").rows()
    assert named == [("hparams", "tuned", "default")]
    levels[2:] = [{"vary": "init+batch+train"}, {"vary": "train"}]
    found = effects(of(planted([*zip(levels, values, strict=True)])))
    assert found.filter(axis="vary").select("level", "reference").rows() == [
        ("init+batch+train", "init+batch"),
        ("train", "init+batch"),
    ]


def test_with_one_test_set_the_interval_is_over_seeds(tables):
    one = Tables(
        *(
            getattr(tables, name).filter(repeat_index=1)
            for name in ("runs", "pairs", "repeats", "cells")[:3]
        ),
        tables.cells,
    )
    found = effects(one).filter(dataset="one", classifier="lr-sgd")
    rows = {row["metric"]: row for row in found.iter_rows(named=True)}
    cells = dict(one.repeats.filter(dataset="one", classifier="lr-sgd")
                 .select("perturb_continuous", "cell").rows())  # fmt: skip
    sides = [one.runs.filter(cell=cells[s]).sort("run_index") for s in ("neighbour:0.5", "none")]
    change = sides[0]["accuracy"].to_numpy() - sides[1]["accuracy"].to_numpy()
    row = rows["accuracy_mean"]
    assert (row["over"], row["sd"], row["n_test_sets"]) == (SEEDS, None, 1)
    expected = stats.t.interval(0.95, 4, change.mean(), stats.sem(change))
    assert (row["low"], row["high"]) == pytest.approx(expected)
    for name, column in OF_PAIRS.items():
        values = np.full((5, 5), np.nan)
        for scheme, sign in (("neighbour:0.5", 1), ("none", -1)):
            of_pairs = one.pairs.filter(cell=cells[scheme]).select("run_i", "run_j", column)
            for i, j, value in of_pairs.rows():
                values[i, j] = sign * value + (0 if sign == 1 else values[i, j])
        means = [
            np.mean([values[i, j] for i, j in combinations(range(5), 2) if run not in (i, j)])
            for run in range(5)
        ]
        half = stats.t.ppf(0.975, 4) * (4 / 5 * np.square(means - np.mean(means)).sum()) ** 0.5
        row = rows[name]
        assert row["over"] == SEEDS
        assert row["low"] == pytest.approx(row["difference"] - half)
    for name in ("accuracy_range", "alpha_hat_mean", "accuracy_std"):  # no value a run or a pair
        assert (rows[name]["low"], rows[name]["p"], rows[name]["over"]) == (None, None, None)
    together = effects(one, by=("classifier",)).filter(classifier="lr-sgd", metric="accuracy_mean")
    assert (together["over"].item(), together["n_test_sets"].item()) == (SEEDS, 2)
    # a run that one side lacks is paired with none
    fewer = Tables(one.runs.filter(pl.col("run_index") != 2), one.pairs, one.repeats, one.cells)
    assert effects(fewer).filter(metric="accuracy_mean")["low"].null_count() == 4


def test_some_datasets_with_one_test_set_leave_no_interval_over_all():
    cells = [
        ({"dataset": name, "train_fraction": fraction}, values)
        for name, n in (("one", 3), ("two", 1))
        for fraction, values in ((1.0, np.arange(n)), (0.5, np.arange(n) ** 2))
    ]
    row = effects(of(planted(cells)), by=("classifier",)).row(0, named=True)
    assert (row["n_test_sets"], row["over"], row["low"]) == (4, None, None)


def test_what_identical_runs_do_not_vary_in_is_no_effect(tables):
    found = effects(tables, by=("classifier",)).filter(classifier="xgb")
    assert found.select("metric", "n_pairs", "n_identical").rows() == [("accuracy_mean", 4, 4)]


def test_equal_differences_are_no_evidence_of_a_spread_of_zero():
    repeats = planted([({}, [0.9, 0.8]), ({"train_fraction": 0.5}, [0.85, 0.75])])
    row = effects(of(repeats)).row(0, named=True)
    assert row["difference"] == pytest.approx(-0.05)
    assert (row["low"], row["over"]) == (None, None)  # as far as rounding can tell
    repeats = planted([({}, [0.75, 0.5]), ({"train_fraction": 0.5}, [0.5, 0.25])])
    row = effects(of(repeats)).row(0, named=True)
    assert (row["difference"], row["sd"], row["low"], row["p"]) == (-0.25, 0, None, None)
    assert (row["comparisons"], row["over"]) == (0, None)


def test_levels_of_two_probes_are_not_averaged_and_their_resolution_is_told(tables, repeats):
    other = pl.when(pl.col("dataset") == "two").then(pl.lit("true_margin")).otherwise("probe")
    mixed = repeats.filter(classifier="lr-sgd").with_columns(other.alias("probe"))
    mixed = Tables(tables.runs, tables.pairs, mixed, tables.cells)
    level = pl.col("metric") == "alpha_hat_mean"
    apart = effects(mixed)
    assert apart.filter(level)["probe"].to_list() == ["gap", "true_margin"]
    assert apart["difference"].null_count() == 0
    assert apart.filter(level)["delta_lo"].to_list() == apart.filter(level)["delta_hi"].to_list()
    assert apart.filter(~level)["delta_lo"].null_count() == apart.filter(~level).height
    together = effects(mixed, by=("classifier",))
    row = together.row(by_predicate=level, named=True)
    assert (row["probe"], row["difference"], row["low"]) == ("gap+true_margin", None, None)
    deltas = apart.filter(level)["delta_lo"]
    assert (row["delta_lo"], row["delta_hi"]) == (deltas.min(), deltas.max())
    assert together.filter(~level)["difference"].null_count() == 0
    one = effects(tables, by=("classifier",)).filter(level, classifier="lr-sgd")
    assert one["difference"].null_count() == 0
    assert one["delta_lo"].item() < one["delta_hi"].item()


def test_fractions_are_compared_with_the_whole_training_set(repeats):
    half = repeats.with_columns(train_fraction=pl.lit(0.5), accuracy_mean=pl.lit(0.25))
    points = repeats.with_columns(train_fraction=pl.lit(100.0))
    found = effects(of(pl.concat([repeats, half, points]))).filter(
        axis="train_fraction", metric="accuracy_mean"
    )
    assert sorted(found["level"].unique()) == ["0.5", "100.0"]
    row = found.row(
        by_predicate=(pl.col("level") == "0.5")
        & (pl.col("dataset") == "one")
        & (pl.col("classifier") == "lr-sgd"),
        named=True,
    )
    whole = repeats.filter(dataset="one", classifier="lr-sgd")
    assert row["n_pairs"] == whole.height
    assert row["difference"] == pytest.approx(0.25 - whole["accuracy_mean"].mean())
    assert found.filter(level="100.0")["difference"].to_list() == [0] * 4


def test_without_an_unperturbed_cell_there_is_no_effect(repeats):
    found = effects(of(repeats.filter(pl.col("perturb_continuous") != "none")))
    assert found.is_empty()
    assert {"axis", "level", "metric", "difference", "low", "p_holm"} <= set(found.columns)
    assert set(AXES) <= set(repeats.columns)


def test_p_is_corrected_for_the_comparisons_of_a_metric(tables):
    found = effects(tables)
    for own in found.partition_by("metric"):
        known = own.filter(pl.col("p").is_not_null())
        assert set(own["comparisons"]) == {known.height}
        assert known["p_holm"].to_numpy() == pytest.approx(holm(known["p"].to_numpy()))
        assert (known["p_holm"] >= known["p"]).all()
    chosen = found.filter(metric="churn_mean").head(1)
    among = tables.repeats.filter(dataset=chosen["dataset"].item()).select(
        "cell", axis=pl.lit("perturb_continuous"), metric=pl.lit("churn_mean")
    )
    row = effects(tables, among=among).row(0, named=True)
    assert (row["comparisons"], row["p_holm"]) == (1, row["p"])


@settings(deadline=None)
@given(st.lists(st.floats(0, 1) | st.just(float("nan")), max_size=8))
def test_holm_steps_down(values):
    p = np.array(values)
    found = holm(p)
    assert np.isnan(found).tolist() == np.isnan(p).tolist()
    known = p[~np.isnan(p)]
    for level in (0.01, 0.05, 0.3):
        rejected = []
        for i, index in enumerate(np.argsort(known, kind="stable")):
            if known[index] * (known.size - i) > level:
                break
            rejected.append(index)
        assert sorted(rejected) == np.flatnonzero(found[~np.isnan(p)] <= level).tolist()


def test_a_cluster_alone_in_its_stratum_tells_no_variance():
    frame = pl.DataFrame({"g": [1, 1, 1, 2, 2], "stratum": ["a", "a", "b", "a", "a"],
                          "cluster": [0, 1, 0, 0, 1],
                          "u": [1.0, -1.0, 0.0, 2.0, -2.0]})  # fmt: skip
    assert clustered(frame, ["g"]).rows() == [(2, 16.0, 1.0)]


def bootstrap(values, rng, draws=400):
    """The percentile interval of a mean of clusters."""
    means = values[rng.integers(0, values.size, (draws, values.size))].mean(axis=1)
    return np.quantile(means, [0.025, 0.975])


def study(rng, test_sets, datasets=1, effect=0.01, contrasts=3):
    """Differences (dataset, test set, contrast) that share what a test set and its seeds do."""
    of_set = rng.normal(0, 0.012, (datasets, test_sets, 1))
    skewed = rng.exponential(0.004, (datasets, test_sets, 1)) - 0.004
    return effect + of_set + skewed + rng.normal(0, 0.004, (datasets, test_sets, contrasts))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("test_sets", "datasets"), [(2, 1), (3, 1), (4, 1), (10, 1), (2, 3), (4, 3)]
)
def test_intervals_hold_a_planted_effect_as_often_as_they_say(test_sets, datasets):
    rng = np.random.default_rng([test_sets, datasets])
    inside, naive, resampled, times = 0, 0, 0, 100
    for _ in range(times):
        values = study(rng, test_sets, datasets)
        cells = []
        for dataset in range(datasets):
            for contrast, fraction in enumerate((1.0, 0.5, 0.25)):
                axes = {"dataset": str(dataset), "train_fraction": fraction}
                base = rng.normal(0.9, 0.05, test_sets)
                cells.append((axes, base))
                noisy = base + values[dataset, :, contrast]
                cells.append(({**axes, "perturb_continuous": "relative:0.1"}, noisy))
        found = effects(of(planted(cells)), by=("classifier",))
        row = found.row(by_predicate=pl.col("axis") == "perturb_continuous", named=True)
        inside += row["low"] <= 0.01 <= row["high"]
        flat = values.ravel()
        low, high = stats.t.interval(0.95, flat.size - 1, flat.mean(), stats.sem(flat))
        naive += low <= 0.01 <= high
        if datasets == 1:
            low, high = bootstrap(values.mean(axis=(0, 2)), rng)
            resampled += low <= 0.01 <= high
    assert inside / times >= 0.9
    assert naive < inside
    if test_sets <= 4 and datasets == 1:
        assert resampled / times < 0.9


@pytest.mark.slow
def test_intervals_over_seeds_hold_a_planted_effect():
    rng = np.random.default_rng(7)
    runs, times, inside = 10, 100, {"accuracy_mean": 0, "churn_mean": 0}
    i, j = np.triu_indices(runs, 1)
    for _ in range(times):
        rows, pairs = [], []
        shared = rng.normal(size=runs)
        for cell, effect in ((0, 0.0), (1, 0.3)):
            own = 0.7 * shared + rng.normal(size=runs)
            between = effect + own[i] + own[j] + rng.normal(0, 0.5, i.size)
            key = {"cell": pl.lit(cell, pl.UInt32), "repeat_index": pl.lit(0, pl.UInt16)}
            index = pl.Series(np.arange(runs), dtype=pl.UInt16)
            rows.append(
                pl.DataFrame({"run_index": index, "accuracy": own + effect}).with_columns(**key)
            )
            of_pair = pl.DataFrame({"run_i": i, "run_j": j, "churn": between})
            pairs.append(of_pair.cast({"run_i": pl.UInt16, "run_j": pl.UInt16}).with_columns(**key))
        means = [[(frame[name].mean())] for frame, name in zip(rows, ["accuracy"] * 2, strict=True)]
        repeats = planted([({}, means[0]), ({"train_fraction": 0.5}, means[1])], runs)
        churn = pl.Series([frame["churn"].mean() for frame in pairs])
        repeats = repeats.with_columns(churn_mean=churn)
        found = effects(of(repeats, pl.concat(rows), pl.concat(pairs)))
        for row in found.iter_rows(named=True):
            assert row["over"] == SEEDS
            inside[row["metric"]] += row["low"] <= 0.3 <= row["high"]
    print(f"\nover seeds: { ({name: n / times for name, n in inside.items()}) }")
    assert min(inside.values()) / times >= 0.9


def test_t_interval_of_scipy():
    values = np.array([0.1, 0.3, 0.2, 0.35])
    error = stats.sem(values)
    one = (np.array([values.mean()]), np.array([error**2]), np.array([3.0]))
    low, high, p = t_interval(*one, 0.9)
    assert (low[0], high[0]) == pytest.approx(stats.t.interval(0.9, 3, values.mean(), error))
    assert p[0] == pytest.approx(stats.ttest_1samp(values, 0).pvalue)


def test_a_headline_names_every_classifier_that_a_level_moves():
    of_two = {"flip 0.2": ["mlp −0.09", "xgb −0.07"], "flip 0.1": ["mlp −0.04"]}
    assert _matters("Matters for accuracy", of_two) == (
        "Matters for accuracy: flip 0.2 (mlp −0.09, xgb −0.07), flip 0.1 (mlp −0.04)."
    )
    names = [f"net{n} −0.1" for n in range(6)]
    many = _matters("Matters for accuracy", {f"flip 0.{n}": names for n in range(1, 6)})
    assert many == (f"Matters for accuracy: flip 0.1 ({names[0]} and 5 more) and 4 other levels.")
    longer = _matters("Matters for error consistency", {"sig-digit 0.1": names, "flip 0.2": names})
    assert longer.endswith(": sig-digit 0.1 (net0 −0.1, …) and 1 other.")
    assert max(map(len, (many, longer))) <= 80
    assert len(many.split()) <= 20
