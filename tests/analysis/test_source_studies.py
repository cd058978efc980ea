"""Figures and tables of the source studies: their numbers, against slow versions."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib.container import BarContainer
from scipy.stats import spearmanr

from manyseed.analysis.figures.drawing import FigureTables, all_figures, plots
from manyseed.analysis.figures.epochs import sources
from manyseed.analysis.figures.overview import correlations, within_repeats
from manyseed.analysis.figures.scatters import alpha_hat_of_pairs, of_pairs
from manyseed.analysis.questions.ranking import sources as compared
from manyseed.analysis.questions.variance import variance
from manyseed.analysis.report.tables import listed, similar, times
from tests.analysis.planted import planted
from tests.analysis.samples import ENSEMBLES


def frame_of(values, repeats):
    """Runs of one cell: repeat and metrics."""
    return pl.DataFrame(
        {"cell": 0, "repeat_index": repeats, **{f"m{k}": v for k, v in enumerate(values)}}
    )


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(3, 9))
def test_correlations_within_one_repeat_are_spearmans(seed, n):
    rng = np.random.default_rng(seed)
    values = rng.integers(0, 6, size=(2, n)).astype(float)  # with ties
    found, runs = within_repeats(frame_of(values, [0] * n), ["m0", "m1"])
    assert runs == n
    if min(len(set(one)) for one in values) < 2:
        assert np.isnan(found[0, 1])
    else:
        assert found[0, 1] == pytest.approx(spearmanr(*values).statistic)
        assert found[0, 1] == found[1, 0]


def test_differences_between_test_sets_make_no_correlation():
    rng = np.random.default_rng(1)
    repeats = np.repeat([0, 1, 2], 40)
    noise = rng.normal(size=(3, 120))
    values = [noise[0] + 10 * repeats, noise[1] + 10 * repeats, -noise[0] + 0.0 * repeats]
    found, _ = within_repeats(frame_of(values, repeats), ["m0", "m1", "m2"])
    assert abs(found[0, 1]) < 0.25  # of all runs together it would be near 1
    assert found[0, 2] == pytest.approx(-1)
    few, n = within_repeats(frame_of([v[:2] for v in values], [0, 0]), ["m0", "m1"])
    assert n == 0
    assert np.isnan(few).all()


def test_correlations_have_a_panel_a_classifier():
    tables = planted(alpha=0.1)
    steps = 0.001 * pl.col("run_index")
    runs = tables.runs.with_columns(
        alpha_hat=0.1 + steps,
        ece=pl.when(pl.col("classifier") == "mlp").then(steps).otherwise(-steps),
    )
    plot = correlations(replace(tables, runs=runs))
    panels = {axis.get_title(loc="left"): axis for axis in plot.figure.axes if axis.images}
    assert list(panels) == ["data-00 × lr-sgd (n = 30)", "data-00 × mlp (n = 30)"]
    for axis, value in zip(panels.values(), (-1, 1), strict=True):
        down = [label.get_text() for label in axis.get_yticklabels()].index("ECE")
        across = [label.get_text() for label in axis.get_xticklabels()].index("α̂")
        assert axis.images[0].get_array()[down, across] == pytest.approx(value)
    assert plot.n == 60
    texts = [text for axis in panels.values() for text in axis.texts]
    assert len(texts) == plot.data["correlation"].is_not_null().sum()
    of = plot.data.filter(metric="ece", other="alpha_hat").sort("classifier")
    assert of["correlation"].to_list() == pytest.approx([-1, 1])
    alone = runs.select(pl.exclude("alpha_hat", "ece")).with_columns(alpha_hat=0.0, ece=None)
    assert correlations(replace(tables, runs=alone)) is None


def with_churn(tables, seed=0):
    rng = np.random.default_rng(seed)
    churn = pl.Series("churn", rng.random(tables.pairs.height))
    levels = pl.Series("alpha_hat", 0.5 * rng.random(tables.runs.height))
    return replace(
        tables,
        pairs=tables.pairs.with_columns(churn),
        runs=tables.runs.with_columns(levels),
    )


def test_pairs_have_the_levels_of_their_two_runs():
    tables = with_churn(planted(runs=5, repeats=2))
    found = of_pairs(tables.runs, tables.pairs, tables.repeats)
    levels = {
        (row["cell"], row["repeat_index"], row["run_index"]): row["alpha_hat"]
        for row in tables.runs.iter_rows(named=True)
    }
    expected = []
    for row in tables.pairs.iter_rows(named=True):
        both = [levels[row["cell"], row["repeat_index"], row[run]] for run in ("run_i", "run_j")]
        expected.append((row["churn"], min(both), max(both)))
    assert found.select("churn", "smaller", "larger").rows() == expected
    plot = alpha_hat_of_pairs(tables.runs, tables.pairs, tables.repeats)
    (axis,) = plot.figure.axes
    drawn = [dots.get_offsets() for dots in axis.collections]
    assert [len(dots) for dots in drawn] == [10, 10, 10, 10]
    order = found.sort("churn", "larger", "smaller")
    drawn_columns = ("dataset", "vary", "churn", "smaller", "larger")
    assert plot.data.rows() == order.select(drawn_columns).rows()
    least = order.select("smaller", "larger").rows()[:10]
    assert np.array(sorted(map(tuple, drawn[0].tolist()))) == pytest.approx(np.array(sorted(least)))
    assert f"data-00 {order['churn'][9]:.3f}, {order['churn'][19]:.3f}" in plot.caption
    assert alpha_hat_of_pairs(tables.runs, tables.pairs.drop("churn"), tables.repeats) is None


def test_pairs_have_a_panel_per_source_and_four_ranges_of_all_pairs_of_the_dataset():
    """RKS, figure 10: sources in panels, quarters of all pairs of a dataset in each."""
    tables = by_source(with_churn(planted(classifiers=("mlp",), schemes=("none", "a", "b"))))
    found = of_pairs(tables.runs, tables.pairs, tables.repeats)
    plot = alpha_hat_of_pairs(tables.runs, tables.pairs, tables.repeats)
    panels = {" ".join(axis.get_title(loc="left").split()): axis for axis in plot.figure.axes}
    sources = ("batch", "init", "init+batch")
    assert list(panels) == [f"data-00 × mlp · {source}" for source in sources]
    quarters = np.array_split(np.sort(found["churn"].to_numpy()), 4)
    for title, axis in panels.items():
        own = found.filter(vary=title.rpartition(" ")[2])
        counts = [len(dots.get_offsets()) for dots in axis.collections]
        assert sum(counts) == own.height
        limits = [-1, *(part[-1] for part in quarters[:-1]), 1]
        for count, low, high in zip(counts, limits[:-1], limits[1:], strict=True):
            inside = own.filter(pl.col("churn") > low, pl.col("churn") < high).height
            assert inside <= count <= own.filter(pl.col("churn").is_between(low, high)).height
    assert "one panel per source of randomness" in plot.caption
    assert plot.n == found.height


def by_source(tables):
    """The same tables, with schemes as if they were sources of randomness."""
    named = {"none": "init+batch", "a": "init", "b": "batch"}
    return replace(
        tables,
        **{
            name: getattr(tables, name).with_columns(
                pl.col("perturb_continuous").replace(named).alias("vary"),
                pl.lit("none").alias("perturb_continuous"),
            )
            for name in ("runs", "pairs", "repeats", "cells")
        },
    )


@pytest.fixture(scope="module")
def sweep():
    spread = {"none": 0.03, "a": 0.02, "b": 0.01}
    level = {"none": 0.2, "a": 0.0, "b": 0.1}
    return by_source(
        planted(
            classifiers=("mlp",),
            schemes=("none", "a", "b"),
            sd=lambda _, __, scheme, *___: spread[scheme],
            alpha=lambda _, __, scheme, *___: level[scheme],
            delta=0.04,
        )
    )


def heights(axis):
    return [bar.get_height() for bar in axis.patches]


def of_sources(tables, name):
    return sources(tables.cells, tables.runs, tables.repeats, name)


def test_bars_of_sources_have_the_intervals_of_the_table_of_variances(sweep):
    plot = of_sources(sweep, "accuracy_std")
    own = variance(sweep).filter(metric="accuracy").filter(pl.col("part").is_in(["all", "alone"]))
    own = own.with_columns(pl.col("cells").cast(pl.UInt32).alias("cell"))
    expected = sweep.cells.select("cell").join(own, on="cell", how="left", maintain_order="left")
    for end in ("low", "high"):
        assert plot.data[end].to_list() == pytest.approx((expected[end] ** 0.5).to_list())
    (bars,) = [one for one in plot.figure.axes[0].containers if isinstance(one, BarContainer)]
    (whiskers,) = bars.errorbar.lines[2]
    ends = [segment[:, 1].tolist() for segment in whiskers.get_segments()]
    assert np.array(ends) == pytest.approx(plot.data.select("low", "high").to_numpy())
    assert "Whiskers: 95 % intervals" in plot.caption


def test_sources_stand_side_by_side_epoch_by_epoch(sweep):
    plot = of_sources(sweep, "accuracy_std")
    (axis,) = plot.figure.axes
    assert [label.get_text() for label in axis.get_xticklabels()] == ["init+batch", "init", "batch"]
    assert heights(axis) == pytest.approx(sweep.cells["accuracy_std"].to_list())
    assert plot.n == 90
    assert plot.data.select("vary", "accuracy_std").rows() == [
        *sweep.cells.select("vary", "accuracy_std").rows()
    ]
    early = sweep.cells.with_columns(
        pl.lit(2, pl.UInt32).alias("epoch"), pl.col("alpha_hat_mean") + 0.3
    )
    late = sweep.cells.with_columns(pl.lit(50, pl.UInt32).alias("epoch"))
    both = of_sources(replace(sweep, cells=pl.concat([early, late])), "alpha_hat_mean")
    (axis,) = both.figure.axes
    assert heights(axis) == pytest.approx([0.5, 0.3, 0.4, 0.2, 0.0, 0.1])
    assert "Colours: epochs 2, 50." in both.caption
    assert "δ = 0.040" in both.caption
    assert of_sources(planted(), "accuracy_std") is None
    assert both.caption.count("0.040") == 1  # not from 0.040 to 0.040
    nothing = of_sources(
        replace(sweep, cells=late.with_columns(alpha_hat_mean=pl.lit(1e-4))), "alpha_hat_mean"
    )
    (axis,) = nothing.figure.axes
    assert (heights(axis), [text.get_text() for text in axis.texts]) == ([], ["α̂ is 0"])


def test_bars_of_one_epoch_stand_above_their_source(sweep):
    """Beside a classifier of several epochs: one of fewer has its bars in the middle, too."""
    late = sweep.cells.with_columns(pl.lit(9, pl.UInt32).alias("epoch"))
    other = sweep.cells.with_columns(pl.col("cell") + 10, classifier=pl.lit("svm-sgd"))
    plot = of_sources(replace(sweep, cells=pl.concat([sweep.cells, late, other])), "accuracy_std")
    first, second = plot.figure.axes
    middles = [bar.get_x() + bar.get_width() / 2 for bar in second.patches]
    assert middles == pytest.approx([0, 1, 2])
    assert len(first.patches) == 6


def test_tables_two_and_three_compare_sources(sweep):
    tables = with_churn(sweep)
    tables = replace(tables, runs=sweep.runs)  # levels as they were planted
    own = compared(tables, 0.05).with_columns(epoch=pl.lit(0, pl.UInt32))
    described = sweep.cells.select("cell", "dataset", "classifier", "vary")
    own = own.select(pl.exclude("dataset", "classifier", "vary")).join(described, on="cell")
    (table,) = [one for one in listed(tables, 0.05, None, own) if one.name == "sources"]
    rows = {row[2]: dict(zip(table.heads, row, strict=True)) for row in table.rows}
    assert list(rows) == ["init+batch", "init", "batch"]
    for vary, row in rows.items():
        accuracy = sweep.runs.filter(vary=vary)["accuracy"]
        assert row["Accuracy, range"] == f"{accuracy.min():.4f} to {accuracy.max():.4f}"
        assert row["Runs"] == "30"
        close = "30 of 30 (100%)" if vary == "init" else "0 of 30 (0%)"
        assert row["Runs with α̂ ≤ 0.05"] == close
        assert (row["Their accuracy, range"] == "–") == (vary != "init")
        churn = tables.pairs.filter(vary=vary)["churn"]
        assert row["Churn of pairs, range"] == f"{churn.min():.4f} to {churn.max():.4f}"
    assert "sources" not in [one.name for one in listed(planted(), 0.05, None, own)]


def test_table_one_is_that_of_ensembles():
    tables = planted()
    (table,) = [one for one in listed(tables, 0.05, ENSEMBLES, None) if one.name == "ensembles"]
    assert len(table.rows) == ENSEMBLES.height
    first = ENSEMBLES.sort("dataset", "classifier", "size").row(0, named=True)
    assert table.rows[0][2] == str(first["size"])
    assert table.rows[0][4] == f"{100 * first['close']:.1f}"
    assert table.rows[0][5] == f"{first['accuracy']:.4f} ± {first['accuracy_std']:.4f}"


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_similar_runs_are_the_neighbours_that_differ_most(seed):
    tables = with_churn(planted(runs=7, repeats=2), seed)
    found = similar(tables.runs)
    for classifier in ("lr-sgd", "mlp"):
        best, expected = -1.0, []
        own = tables.runs.filter(classifier=classifier)
        for (_, _), runs in own.sort("repeat_index").group_by(
            "cell", "repeat_index", maintain_order=True
        ):
            rows = runs.sort("accuracy").rows(named=True)
            for start in range(len(rows) - 3):
                window = rows[start : start + 4]
                levels = [row["alpha_hat"] for row in window]
                if max(levels) - min(levels) > best:
                    best, expected = max(levels) - min(levels), window
        chosen = found.filter(classifier=classifier)
        assert chosen["accuracy"].sort().to_list() == [row["accuracy"] for row in expected]
        assert chosen["alpha_hat"].is_sorted()
    assert similar(planted().runs).is_empty()  # α̂ is 0 throughout: nothing to choose by


def test_similar_runs_are_not_chosen_by_levels_below_their_resolution():
    for delta, is_told in ((0.001, True), (2.0, False)):
        tables = with_churn(planted(runs=7, repeats=2, delta=delta), 0)
        assert ("similar" in {one.name for one in listed(tables, 0.05, None, None)}) == is_told


def test_times_are_told_by_quantiles():
    tables = planted(runs=9)
    seconds = np.random.default_rng(0).exponential(size=tables.runs.height)
    table = times(tables.runs.with_columns(fit_seconds=pl.Series(seconds)))
    assert list(table.heads)[2:] == [
        *("Mean, s", "50 %", "75 %", "95 %", "97.5 %", "99 %", "Longest"),
    ]
    for row in table.rows:
        own = seconds[(tables.runs["classifier"] == row[0]).to_numpy()]
        expected = [own.mean(), *np.quantile(own, [0.5, 0.75, 0.95, 0.975, 0.99, 1])]
        assert [float(one) for one in row[2:]] == pytest.approx(expected, abs=6e-4)
    assert times(tables.runs.with_columns(fit_seconds=None)) is None


def test_times_are_told_by_classes_of_datasets_that_differ():
    """MV, runtime considerations: a dataset is as slow as the median of its slowest classifier."""
    tables = planted(datasets=3, runs=5)
    each = {("data-00", "mlp"): 2.0, ("data-01", "mlp"): 59.0, ("data-02", "lr-sgd"): 60.0}
    seconds = [each.get(key, 1.0) for key in tables.runs.select("dataset", "classifier").rows()]
    table = times(tables.runs.with_columns(fit_seconds=pl.Series(seconds)))
    assert list(table.heads)[:3] == ["Classifier", "Datasets", "Runs"]
    found = [(*row[:2], float(row[3])) for row in table.rows]
    assert found == [
        *(("lr-sgd", "fast", 1.0), ("lr-sgd", "mid", 1.0), ("lr-sgd", "slow", 60.0)),
        *(("mlp", "fast", 2.0), ("mlp", "mid", 59.0), ("mlp", "slow", 1.0)),
    ]
    assert sum(int(row[2]) for row in table.rows) == tables.runs.height
    assert "slow below 600 s" in table.legend


def test_repeats_have_their_means_and_ranges_of_consistency():
    tables = planted(repeats=4)
    (plot,) = plots(FigureTables(tables), "consistency-repeats")
    axes = {axis.get_title(loc="left").partition(" (")[0]: axis for axis in plot.figure.axes}
    assert list(axes)[:2] == ["global: mean", "global: range"]
    drawn = axes["local: mean"].get_lines()
    medians = [line for line in drawn if line.get_color() == "black"]
    expected = [
        tables.repeats.filter(cell=cell)["ec_local_mean"].median()
        for cell in tables.cells["cell"].to_list()
    ]
    assert [line.get_xdata()[0] for line in medians] == pytest.approx(expected)
    assert "n = 8 repeats" in plot.caption


@pytest.mark.parametrize("kind", ["cells", "consistency-repeats"])
@pytest.mark.parametrize("schemes", [("none",), ("none", "a")])
def test_figures_of_cells_name_their_dataset_in_the_drawing(kind, schemes):
    for plot in plots(FigureTables(planted(datasets=2, schemes=schemes)), kind):
        figure = plot.figure
        inside = [text.get_text() for text in figure.texts]
        inside += [legend.get_title().get_text() for legend in figure.legends]
        assert any(plot.title.partition(":")[0] in text for text in inside), inside


def test_the_grid_of_both_perturbations_is_on_a_small_page():
    tables = planted(schemes=("none", "a"), fractions=(0.5, 1.0), runs=6)
    hparams = pl.when(pl.col("train_fraction") == 1).then(pl.lit("none"))
    parts = {
        name: getattr(tables, name).with_columns(
            hparams.otherwise(pl.lit("relative:0.1")).alias("perturb_hparams"),
            pl.lit(1.0).alias("train_fraction"),
        )
        for name in ("runs", "pairs", "repeats", "cells")
    }
    names = [plot.name for plot in all_figures(FigureTables(replace(tables, **parts)))]
    assert "accuracy-by-perturb-continuous-perturb-hparams" in names
    assert "cells-consistency-repeats-1" in names
    without = [plot.name for plot in all_figures(FigureTables(tables))]
    assert not [name for name in without if "-by-" in name]
