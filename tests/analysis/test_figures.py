"""Figures: what they draw, in what room, and that a grid of any size stays small."""

from __future__ import annotations

import itertools
from dataclasses import replace
from xml.etree import ElementTree

import matplotlib as mpl
import numpy as np
import polars as pl
import pytest
from matplotlib.colors import to_hex

from manyseed.analysis.figures import cells as of_cells
from manyseed.analysis.figures import ensembles, scatters, style
from manyseed.analysis.figures import epochs as of_curves
from manyseed.analysis.figures import uncertainty as of_uncertainty
from manyseed.analysis.figures.drawing import FigureTables, all_figures, plots
from manyseed.analysis.figures.epochs import learning_curves, over_repeats
from manyseed.analysis.figures.labels import colour, column, first_of_each, marker, runs_vary
from manyseed.analysis.figures.overview import overview
from manyseed.analysis.figures.style import (
    MAX_POINTS,
    comparable,
    legend,
    panels,
    places,
    thinned,
    values,
    wrapped,
)
from manyseed.analysis.figures.svg import compact
from manyseed.analysis.figures.violins import violins
from tests.analysis.planted import planted
from tests.analysis.samples import ENSEMBLES, curves_of, looks_of, sweep

NASTY = '<script>alert("1")</script> & $x_1$'


@pytest.fixture(scope="module")
def tables():
    return sweep({"vehicle": 60, NASTY: 40}, {"lr-sgd": 0.6, "xgb": 0.0}, repeats=2, runs=4)


def figures_of_cells(tables):
    return {plot.title: plot for plot in of_cells.of_datasets(tables)}


def test_learning_curves_are_over_all_runs_of_all_repeats():
    values = np.random.default_rng(0).random((3, 4, 5))
    runs_of_repeat = [4, 1, 3]
    curves = curves_of(values, runs_of_repeat)
    every = np.concatenate([values[r][:n] for r, n in enumerate(runs_of_repeat)])
    found = over_repeats(curves, "test_loss")
    assert found["mean"].to_list() == pytest.approx(every.mean(axis=0))
    own = [values[r][:n] for r, n in enumerate(runs_of_repeat)]
    squares = sum(np.square(one - one.mean(axis=0)).sum(axis=0) for one in own)
    assert found["std"].to_list() == pytest.approx(np.sqrt(squares / 5))
    assert found["min"].to_list() == every.min(axis=0).tolist()
    assert found["max"].to_list() == every.max(axis=0).tolist()
    cells = planted(classifiers=("mlp",)).cells
    plot = learning_curves(curves, "accuracy", cells)
    test, train = plot.figure.axes[0].get_lines()
    for line in (test, train):
        assert line.get_ydata() == pytest.approx(every.mean(axis=0))
    assert "n = 8 runs" in plot.caption
    assert over_repeats(curves.filter(repeat_index=1), "test_loss")["std"].null_count() == 5
    assert learning_curves(curves.clear(), "loss", cells) is None


def test_ensembles_are_drawn_by_size_with_their_resolution():
    shares = ensembles.ensembles_close(ENSEMBLES, 0.05)
    axis = {axis.get_title(loc="left"): axis for axis in shares.figure.axes}["vehicle"]
    accepted, close = axis.get_lines()
    assert accepted.get_ydata().tolist() == [0.1, 0.2]
    assert close.get_ydata().tolist() == [0.5, 1.0]
    of = shares.data.filter(dataset="vehicle").sort("size")
    assert of["close"].to_list() == [0.5, 1.0]
    assert of["accepted"].to_list() == [0.1, 0.2]
    assert [label.get_text() for label in axis.get_xticklabels()] == ["3", "5"]
    assert "δ = 0.036 to 0.281 with N = 4,000 to 71 test points" in shares.caption
    assert (
        "40 of each size, out of 8 to 12 runs, those of one repeat of cells 0, 4." in shares.caption
    )
    assert ensembles.ensembles_close(ENSEMBLES.clear(), 0.05) is None
    assert "No solid line" not in shares.caption
    weak = ENSEMBLES.with_columns(close=pl.lit(None, dtype=pl.Float64))
    assert "No solid line where δ is above 0.05" in ensembles.ensembles_close(weak, 0.05).caption
    few = ensembles.ensembles_close(ENSEMBLES.with_columns(distinct=pl.Series([40, 38, 4])), 0.05)
    assert "40 of each size, of which 4 to 40 differ in their members, out of" in few.caption


def test_datasets_without_room_are_told(monkeypatch):
    monkeypatch.setattr(ensembles, "MAX_PANELS", 1)
    for plot in (
        ensembles.ensembles_close(ENSEMBLES, 0.05),
        ensembles.ensembles_accuracy(ENSEMBLES),
    ):
        assert len(plot.figure.axes) == 1
        assert "1 more dataset is not drawn" in plot.caption


def test_ticks_that_would_overlap_have_one_label():
    labels = style.labels([3, 5, 10, 20, 30, 70, 100, 150, 200])
    assert labels == ["", "5", "10", "", "30", "", "100", "", "200"]


@pytest.mark.parametrize("largest", [0.09, 0.0021, 1.0])
def test_numbers_below_an_axis_stand_apart(largest):
    tables = planted(1, schemes=("none", "relative:0.25"), runs=4, repeats=2, alpha=0.3)
    pairs = tables.pairs.height
    spread = pl.Series("ec_global", [largest * k / (pairs - 1) for k in range(pairs)])
    of = replace(tables, pairs=tables.pairs.with_columns(spread))
    plot, *_ = of_cells.of_datasets(of)
    plot.figure.draw_without_rendering()
    (axis,) = [one for one in plot.figure.axes if one.get_title(loc="left") == "EC global"]
    low, high = axis.get_xlim()
    labels = [
        label.get_window_extent()
        for tick, label in zip(axis.get_xticks(), axis.get_xticklabels(), strict=True)
        if low <= tick <= high
    ]
    assert len(labels) >= 2
    for one, other in itertools.pairwise(labels):
        assert other.x0 - one.x1 > 0.3 * one.height


def test_groups_beyond_the_colours_get_other_markers():
    looks = {(colour(index), marker(index)) for index in range(36)}
    assert len(looks) == 36


def test_dots_are_thinned_evenly_and_keep_the_extremes():
    values = pl.Series(range(10 * MAX_POINTS)).cast(float).to_numpy()[::-1]
    shown = thinned(values)
    assert shown.size == MAX_POINTS
    assert (shown.min(), shown.max()) == (values.min(), values.max())


@pytest.mark.parametrize("count", [1, 2, 3, 4, 7, 37])
def test_panels_fit_a_page(count):
    figure, axes = panels([str(index) for index in range(count)], "accuracy")
    assert [axis.get_title(loc="left") or axis.get_title() for axis in axes] == [
        str(index) for index in range(count)
    ]
    assert len(figure.axes) == count
    assert axes[0].get_ylabel() == "accuracy"


def test_a_legend_of_long_names_stays_on_the_page(tables):
    figure, axes = panels(["vehicle"], "α̂")
    names = [f"absolute:0.{index} of the whole range of the hparam" for index in range(9)]
    legend(figure, {name: axes[0].scatter([0], [0]) for name in names}, "scheme")
    figure.draw_without_rendering()
    box = figure.legends[0].get_window_extent()
    assert 0 <= box.x0 < box.x1 <= figure.bbox.width


def test_a_legend_stands_where_a_row_has_no_panel():
    """In full columns elsewhere: two lines of four rather than six and two."""
    drawn = {}
    for count in (5, 6):
        figure, axes = panels([str(index) for index in range(count)], "accuracy")
        tall = figure.get_figheight()
        handles = {f"classifier {n}": axes[0].scatter([0], [0]) for n in range(8)}
        legend(figure, handles, "classifier")
        figure.draw_without_rendering()
        drawn[count] = figure.legends[0], axes, figure.get_figheight() - tall
    free, axes, more = drawn[5]
    box = free.get_window_extent()
    assert more == 0
    assert not any(box.overlaps(axis.get_tightbbox()) for axis in axes)
    above, _, more = drawn[6]
    assert more > 0
    assert above._ncols == 4


def test_panels_side_by_side_share_their_axis():
    tables = planted(datasets=5, accuracy=lambda dataset, *_: 0.5 + 0.1 * int(dataset[-1]))
    (plot,) = plots(FigureTables(tables), "accuracy", ["classifier"])
    axes = plot.figure.axes
    ends = [axis.get_ylim() for axis in axes]
    assert len(set(ends[:3])) == len(set(ends[3:])) == 1
    for axis in axes:
        low, high = axis.get_ylim()
        assert all(low <= y <= high for line in axis.get_lines() for y in line.get_ydata())
    assert comparable([pl.Series([0.1, 0.2]), pl.Series([0.5, 0.9])])
    assert not comparable([pl.Series([0.1, 0.2]), pl.Series([0.1, -3e7])])
    assert comparable([pl.Series([1.0])])


@pytest.mark.parametrize("kind", ["cells", "accuracy", "classifiers"])
def test_twenty_four_classifiers_are_told_apart_by_colour_and_marker(kind):
    names = [f"classifier-{number:02d}" for number in range(24)]
    tables = planted(classifiers=names, schemes=("none", "a"), runs=12)
    by = ["perturb_continuous"] if kind == "accuracy" else []
    (plot, *_) = plots(FigureTables(tables), kind, by)
    looks = looks_of(plot)
    assert len(looks) == len(set(looks)) == (0 if kind == "classifiers" else 24)
    drawn = {(to_hex(line.get_color()), line.get_marker()) for line in plot.figure.axes[0].lines}
    expected = {(colour(n).lower(), marker(n)) for n in range(24)}
    assert expected - drawn <= {(colour(n).lower(), marker(0)) for n in range(6)}


def rows_of(axis):
    """The medians that are drawn, (place, value), from top to bottom."""
    found = []
    for line in axis.get_lines():
        x, y = line.get_xdata(), line.get_ydata()
        if line.get_color() == "black" and line.get_solid_capstyle() == "butt":
            found += [(round((y[k] + y[k + 1]) / 2, 3), x[k]) for k in range(0, len(x), 3)]
    return sorted(found)


def test_every_cell_has_a_row_of_its_own(tables):
    """In the order of schemes, then classifiers, and its numbers and no others."""
    plots = figures_of_cells(tables)
    assert list(plots) == sorted(("vehicle", NASTY))
    axes = {axis.get_title(loc="left"): axis for axis in plots["vehicle"].figure.axes}
    assert list(axes)[:4] == ["accuracy", "accuracy range", "EC local", "EC global"]
    runs = tables.runs.filter(~pl.col("identical"), dataset="vehicle")
    expected = [
        runs.filter(perturb_continuous=scheme, classifier=classifier)["accuracy"].median()
        for scheme in ("none", "neighbour:0.5")
        for classifier in ("lr-sgd", "xgb")
    ]
    assert [value for _, value in rows_of(axes["accuracy"])] == pytest.approx(expected)
    assert [label.get_text() for label in axes["accuracy"].get_yticklabels()] == [
        "none",
        "neighbour:0.5",
    ]
    # the cell of identical runs has no row where runs are compared
    assert len(rows_of(axes["EC global"])) == 3


def test_copies_are_counted_once(tables):
    plot = figures_of_cells(tables)["vehicle"]
    here = tables.runs.filter(dataset="vehicle")
    distinct = here.filter(~pl.col("identical")).height
    assert plot.n == distinct
    assert f"n = {distinct} runs (6 identical copies left out)" in plot.caption
    assert "n = 6 repeats (2 repeats of identical runs left out)" in plot.caption


def test_no_violin_is_drawn_below_six_points():
    few, many = (planted(runs=n, repeats=1, alpha=0.2) for n in (5, 6))
    for tables, drawn in ((few, 0), (many, 2)):
        axis = of_cells.of_datasets(tables)[0].figure.axes[0]
        assert len(axis.patches) == drawn


def test_no_violin_is_drawn_of_test_sets_whose_runs_are_equal():
    """Its shape would look like a spread between runs."""
    tables = planted(runs=10, repeats=3, alpha=0.2)
    level = pl.when(classifier="mlp").then(pl.col("repeat_index") / 10).otherwise("accuracy")
    equal = replace(tables, runs=tables.runs.with_columns(accuracy=level.cast(pl.Float64)))
    for own, drawn in ((tables, 2), (equal, 1)):
        assert len(of_cells.of_datasets(own)[0].figure.axes[0].patches) == drawn
        (plot, *_) = violins(own, column("accuracy", {}), ["classifier"])
        assert len(plot.figure.axes[0].patches) == drawn
    of_repeats = equal.repeats.select("cell", "repeat_index", value="accuracy_mean")
    assert runs_vary(of_repeats, equal.cells)["vary"].all(), "a value of each test set"


def test_no_violin_is_drawn_of_one_model_of_each_test_set():
    """Its copies are left out, so that its six values, one of each test set, had a density."""
    tables = planted(runs=1, repeats=6, alpha=0.2)
    is_copied = pl.col("classifier") == "mlp"
    copied = tables.cells.with_columns(
        n_runs=pl.when(is_copied).then(36).otherwise(6),
        n_distinct=pl.lit(6),
        n_repeats=pl.lit(6),
        n_identical_repeats=pl.when(is_copied).then(6).otherwise(0),
    )
    for cells, drawn in ((copied.with_columns(n_identical_repeats=pl.lit(0)), 2), (copied, 1)):
        own = replace(tables, cells=cells)
        assert len(of_cells.of_datasets(own)[0].figure.axes[0].patches) == drawn
        (plot, *_) = violins(own, column("accuracy", {}), ["classifier"])
        assert len(plot.figure.axes[0].patches) == drawn


def test_violins_hold_all_values():
    tables = planted(runs=40, repeats=2, alpha=0.2)
    axis = of_cells.of_datasets(tables)[0].figure.axes[0]
    for patch, classifier in zip(axis.patches, ("lr-sgd", "mlp"), strict=True):
        values = tables.runs.filter(classifier=classifier)["accuracy"]
        x = patch.get_path().vertices[:-1, 0]
        assert (x.min(), x.max()) == pytest.approx((values.min(), values.max()))
        left, right = axis.get_xlim()
        assert left <= x.min() < x.max() <= right


def test_levels_that_are_all_zero_are_a_line_not_a_panel():
    (zero,) = of_cells.of_datasets(planted(delta=0.3))
    assert "α̂ is not drawn: it is 0 for all 60 runs, as anything below δ = 0.300" in zero.caption
    assert len(zero.figure.axes) == 4
    (some,) = of_cells.of_datasets(planted(alpha=0.2, delta=0.3))
    assert [text.get_text() for text in some.figure.axes[4].texts] == ["δ = 0.300"]
    assert scatters.alpha_hat_against(*_of(planted()), "accuracy") is None
    one = planted(datasets=3, alpha=lambda dataset, *_: 0.3 * (dataset == "data-01"))
    plot = scatters.alpha_hat_against(*_of(one), "accuracy")
    assert [axis.get_title(loc="left") for axis in plot.figure.axes] == ["data-01"]
    assert "2 of 3 datasets are not drawn: α̂ is 0 in all runs." in plot.caption


def test_one_dataset_that_is_not_drawn_is_one():
    one = planted(datasets=2, alpha=lambda dataset, *_: 0.3 * (dataset == "data-01"))
    plot = scatters.alpha_hat_against(*_of(one), "accuracy")
    assert "1 of 2 datasets is not drawn: α̂ is 0 in all runs." in plot.caption


def test_panels_of_datasets_name_a_classifier_that_is_the_only_one():
    one = planted(classifiers=("mlp",), alpha=0.2)
    plot = scatters.alpha_hat_against(*_of(one), "accuracy")
    assert [axis.get_title(loc="left") for axis in plot.figure.axes] == ["data-00 × mlp"]


def test_titles_do_not_begin_a_line_with_a_separator():
    for letters in range(15, 60):
        lines = wrapped("breast-cancer × svm-sgd · 0.5 · sig-digit:0", letters).split("\n")
        assert not any(line[0] in "·×" for line in lines)
        assert all(len(line) <= letters for line in lines)
        assert not any(line.endswith("-") for line in lines)
        assert "\N{FIGURE SPACE}" not in "".join(lines)


def _of(tables):
    return tables.runs, tables.repeats


def test_a_classifier_keeps_its_colour_in_all_figures():
    tables = planted(datasets=2, classifiers=("a", "b", "c"))
    some = tables.runs.filter((pl.col("dataset") == "data-00") | (pl.col("classifier") == "c"))
    kept = type(tables)(some, tables.pairs, tables.repeats, tables.cells)
    both = figures_of_cells(kept)
    alone = both["data-01"].figure.axes[0].patches
    assert alone[0].get_facecolor() == both["data-00"].figure.axes[0].patches[2].get_facecolor()


def test_a_large_dataset_has_several_figures_and_loses_no_cell(monkeypatch):
    monkeypatch.setattr(of_cells, "ROWS", 5)
    tables = planted(schemes=("none", "a", "b", "c"), classifiers=("x", "y"))
    plots = of_cells.of_datasets(tables)
    assert [plot.title for plot in plots] == ["data-00, part 1 of 2", "data-00, part 2 of 2"]
    assert [len(rows_of(plot.figure.axes[0])) for plot in plots] == [4, 4]


def test_what_there_is_no_room_for_is_said(monkeypatch):
    monkeypatch.setattr(of_cells, "MOST", 4)
    plots = of_cells.of_datasets(planted(datasets=3))
    assert [plot.title for plot in plots] == ["data-00", "data-01"]
    assert "2 more cells are not drawn: their numbers are in the tables." in plots[-1].caption


def test_long_names_take_no_room_from_the_columns():
    dataset, classifier = "openml:a-dataset@2 " * 4, "lr-sgd:elastic-net-with-options"
    found = sweep({dataset: 60}, {classifier: 0.6, "xgb": 0.0}, repeats=1, runs=3)
    figure = of_cells.of_datasets(found)[0].figure
    figure.draw_without_rendering()
    assert all(axis.bbox.height > figure.bbox.height / 3 for axis in figure.axes)
    assert figure.axes[0].bbox.x0 < figure.bbox.width / 2


def test_an_overview_has_a_field_for_each_cell():
    level = {"lr-sgd": 0.8, "mlp": 0.9}
    tables = planted(
        datasets=3,
        schemes=("none", "noise"),
        accuracy=lambda dataset, classifier, scheme, _: (
            level[classifier] - 0.1 * (scheme != "none")
        ),
        sd=0,
        between=0,
    )
    lost = tables.cells.filter(pl.col("cell") != 1)
    plot = overview(lost, "accuracy_mean")
    assert plot.n == 11
    shown = {axis.get_title(loc="left"): axis for axis in plot.figure.axes if axis.images}
    assert list(shown) == ["lr-sgd", "mlp"]
    field = shown["lr-sgd"].images[0].get_array()
    assert field.tolist()[1] == pytest.approx([0.8, 0.7])
    assert field.mask.tolist()[0] == [False, True]
    same = overview(lost.with_columns(accuracy_std=0.0), "accuracy_std").figure
    same.draw_without_rendering()
    assert [t.get_text() for t in same.axes[-1].get_yticklabels()] == ["0"]
    assert overview(planted().cells, "accuracy_mean") is None
    assert overview(tables.cells, "alpha_hat_mean") is None


def test_ranks_are_drawn_with_wins_and_critical_difference():
    level = {"a": 0.7, "b": 0.9, "c": 0.8}
    tables = planted(
        datasets=3, classifiers=("a", "b", "c"), accuracy=lambda _, one, *__: level[one], runs=3
    )
    (plot,) = (plot for plot in all_figures(FigureTables(tables)) if plot.name == "mean-ranks")
    (axis,) = plot.figure.axes
    assert [label.get_text() for label in axis.get_yticklabels()] == ["b", "c", "a"]
    assert [line.get_xdata()[0] for line in axis.get_lines()] == [1, 2, 3]
    assert [text.get_text() for text in axis.texts] == ["3 wins", "0 wins", "0 wins"]
    (grey,) = axis.patches
    assert grey.get_x() == 1
    assert grey.get_width() == pytest.approx(2.343 * (3 * 4 / (6 * 3)) ** 0.5, abs=1e-3)
    assert "n = 3 datasets" in plot.caption
    assert plot.data.select("classifier", "mean_rank", "wins").rows() == [
        ("b", 1, 3),
        ("c", 2, 0),
        ("a", 3, 0),
    ]
    assert plot.data["critical_difference"].to_list() == pytest.approx([grey.get_width()] * 3)
    alone = all_figures(FigureTables(planted(classifiers=("a", "b"), runs=3)))
    assert "mean-ranks" not in [plot.name for plot in alone]


def test_cells_have_panels_of_their_own_in_learning_curves(monkeypatch):
    """Never is one of a scheme, a fraction or a source drawn with another."""
    cells = planted(schemes=("none", "noise"), classifiers=("mlp",)).cells
    means = {0: 0.9, 1: 0.5}
    curves = pl.concat(
        curves_of(np.full((1, 3, 4), means[cell]), [3]).with_columns(
            pl.lit(cell, pl.UInt32).alias("cell")
        )
        for cell in means
    )
    plot = learning_curves(curves, "accuracy", cells)
    figure = plot.figure
    of_schemes = plot.data.group_by("perturb_continuous").agg(pl.col("mean").unique())
    assert dict(of_schemes.iter_rows()) == {"none": [0.9], "noise": [0.5]}
    titles = [axis.get_title(loc="left").replace("\n", " ") for axis in figure.axes]
    assert titles == ["data-00 × mlp · none", "data-00 × mlp · noise"]
    for axis, mean in zip(figure.axes, means.values(), strict=True):
        for line in axis.get_lines():
            assert line.get_ydata() == pytest.approx([mean] * 4)
    monkeypatch.setattr(of_curves, "MAX_PANELS", 1)
    less = learning_curves(curves, "accuracy", cells)
    assert len(less.figure.axes) == 1
    assert "1 more cell is not drawn: its numbers are in the tables." in less.caption


def uncertainty_of(cells):
    """Ensembles of 1 and 2 runs of each cell: better with each of them."""
    rows = pl.DataFrame({"members": [1, 2], "gain": [0.0, 0.1]}, schema_overrides={"members": int})
    return (
        cells.join(rows, how="cross")
        .join(pl.DataFrame({"draw": [0, 1]}), how="cross")
        .with_columns(
            repeat_index=pl.lit(0),
            pool=pl.lit(2),
            cll=-pl.col("cell").cast(float) - 1 + pl.col("gain"),
            log_likelihood=-pl.col("cell").cast(float) - 2 + pl.col("gain"),
            temperature_bounded=pl.lit(0.0),
        )
    )


def test_cells_have_panels_of_their_own_in_ensembles(monkeypatch):
    cells = planted(schemes=("none", "noise"), classifiers=("mlp",)).cells
    uncertainty = uncertainty_of(cells)
    figure = of_uncertainty.likelihood_by_size(uncertainty).figure
    for axis, cell in zip(figure.axes, (0, 1), strict=True):
        assert axis.get_lines()[0].get_ydata().tolist() == pytest.approx([-cell - 1, -cell - 0.9])
    monkeypatch.setattr(of_uncertainty, "MAX_PANELS", 1)
    assert "1 more cell is not drawn" in of_uncertainty.likelihood_by_size(uncertainty).caption


def test_equivalents_are_drawn_for_each_cell_that_counts():
    of_noise = {"perturb_continuous": ["none", "noise"], "worth": [2.0, 4.0]}
    dee = pl.DataFrame(
        {
            "cell": [2, 3],
            "deep_cell": [0, 1],
            "dataset": "d",
            "classifier": "xgb",
            "deep_value": "mlp",
            "axis": "classifier",
            "train_fraction": 1.0,
            "metric": "cll",
            "members": 3,
            "repeat_index": 0,
            "pool": 8,
            "beyond": pl.Series([None, None], dtype=pl.UInt32),
            "perturb_continuous": of_noise["perturb_continuous"],
            "perturb_categorical": "none",
            "augment": "none",
            "perturb_hparams": "none",
            "ensembling": "none",
            "test_augment": "none",
            "perturb_labels": "none",
            "hparams": "default",
            "vary": "init+batch",
            "dee": of_noise["worth"],
            "dee_lower": of_noise["worth"],
            "dee_upper": of_noise["worth"],
        }
    )
    plot = ensembles.equivalents(dee)
    figure = plot.figure
    told = plot.data.select("cell", "classifier", "perturb_continuous", "averaged", "dee").rows()
    assert told == [(0, "mlp", "none", "xgb", 2.0), (1, "mlp", "noise", "xgb", 4.0)]
    titles = [axis.get_title(loc="left") for axis in figure.axes]
    assert titles == ["d × mlp · none", "d × mlp · noise"]
    for axis, worth in zip(figure.axes, of_noise["worth"], strict=True):
        (line,) = [one for one in axis.get_lines() if one.get_marker() == "o"]
        assert line.get_ydata().tolist() == [worth]


def test_likelihoods_are_correlated_within_a_cell():
    """Two cells apart, each with ρ = 1: together they would say −."""
    rows = [
        {
            "cell": cell,
            "repeat_index": 0,
            "run_index": k,
            "error": 0.1 + 0.01 * k - 0.05 * cell,
            "cll": -1.0 + 0.1 * k - cell,
        }
        for cell in (0, 1)
        for k in range(4)
    ]
    described = planted(schemes=("none", "noise"), classifiers=("mlp",)).cells
    axes = ["cell", "dataset", "classifier", "perturb_continuous"]
    runs = pl.DataFrame(rows, schema_overrides={"cell": pl.UInt32}).join(
        described.select(axes), on="cell"
    )
    runs = runs.with_columns(identical=pl.lit(value=False), log_likelihood=pl.col("cll"))
    plot = of_uncertainty.likelihood_against(runs, "error")
    titles = [axis.get_title(loc="left").replace("\n", " ") for axis in plot.figure.axes]
    assert titles == [f"data-00 × mlp · {of}: ρ\xa0=\xa01.00,\xa01.00" for of in ("none", "noise")]
    pooled = f"{np.corrcoef(runs['error'], runs['cll'])[0, 1]:.2f}"
    assert plot.data.select("cll", "error").rows() == runs.select("cll", "error").rows()
    assert f"ρ over all cells of a dataset: data-00 {pooled},\xa0{pooled}." in plot.caption


def test_every_classifier_has_a_panel_before_any_has_two():
    cells = planted(datasets=2, schemes=("none", "a", "b")).cells
    chosen, left = first_of_each(cells, 5)
    assert (chosen, left) == ([0, 1, 3, 6, 9], 7)


def test_drawing_leaves_the_users_settings_alone(tables):
    before = dict(mpl.rcParams)
    of_cells.of_datasets(tables)[0].svg()
    assert dict(mpl.rcParams) == before


def test_the_resolution_stands_where_no_dot_can_be():
    plot = scatters.alpha_hat_against(*_of(planted(datasets=2, alpha=0.2)), "accuracy")
    assert "against the other runs" not in plot.caption  # the reference is an option
    plot.figure.draw_without_rendering()
    for axis in plot.figure.axes:
        (label,) = axis.texts
        assert label.get_text().startswith("δ =")
        box = label.get_window_extent()
        assert axis.bbox.x1 < box.x0 < box.x1 <= plot.figure.bbox.width


def test_a_compact_figure_is_the_same_picture():
    """Points of a path, and names, survive; what nobody sees does not."""
    svg = (
        '<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink">'
        "<metadata>x</metadata><defs><style>*{a: b}</style></defs>"
        '<g id="figure_1"><g id="axes"><clipPath id="p1"><rect x="1.26" y="2"/></clipPath>'
        '<path id="line" d="M 1.04 2.06 L 3 4 L 5.55 -6 z M 10 10 L 10 10 " clip-path="url(#p1)"'
        ' style="fill: none; stroke: #000000"/><path d="M 1 1 C 2 2 3 3 4.123 4" '
        'style="fill: red"/>'
        '<path d="M 0 0 L 9 9 z" style="fill: none"/>'
        "<text style=\"font: 700 9px 'DejaVu Sans', sans-serif\">a &lt; b</text></g></g></svg>"
    )
    root = ElementTree.fromstring(compact(svg, "name"))
    tag = "{http://www.w3.org/2000/svg}"
    assert not root.findall(f".//{tag}metadata")
    assert not root.findall(f".//{tag}style")
    straight, curved = root.findall(f".//{tag}path")
    assert straight.get("d") == "M1 2.1l2 1.9 2.6-10zM10 10l0 0"
    assert straight.get("style") == "fill:none;stroke:currentColor"
    assert curved.get("d") == "M 1 1 C 2 2 3 3 4.1 4"
    assert straight.get("clip-path") == "url(#name-0)"
    assert root.find(f".//{tag}clipPath").get("id") == "name-0"
    (text,) = root.findall(f".//{tag}text")
    assert (text.text, text.get("style")) == ("a < b", "font-size:9px;font-weight:700")


def test_figures_are_the_same_each_time_and_share_no_name():
    tables = planted(datasets=2, alpha=0.2)
    one, other = ([plot.svg() for plot in all_figures(FigureTables(tables))] for _ in range(2))
    assert one == other
    ids = [
        element.get("id")
        for svg in one
        for element in ElementTree.fromstring(svg).iter()
        if element.get("id")
    ]
    assert len(set(ids)) == len(ids) > 0


def test_dots_are_the_runs_that_they_are_named_after():
    tables = planted(datasets=2, runs=6, repeats=2, alpha=lambda _, one, *__: 0.2 * (one == "mlp"))
    rows = tables.runs.iter_rows(named=True)
    runs = {f"{r['cell']}:{r['repeat_index']}:{r['run_index']}": r for r in rows}
    plots = all_figures(FigureTables(tables))
    wanted = ("cells-1", "cells-2", "alpha-hat-accuracy")
    assert all(not plot.marks for plot in plots if plot.name not in wanted)
    for plot in (one for one in plots if one.name in wanted):
        named = set()
        for mark in plot.marks:
            column = mark.axis.get_title(loc="left") if plot.of_cells else "accuracy"
            column = "alpha_hat" if column == "α̂" else column
            assert list(mark.x) == [runs[run][column] for run in mark.runs]
            if not plot.of_cells:
                assert list(mark.y) == [runs[run]["alpha_hat"] for run in mark.runs]
            named |= set(mark.runs)
        told = values(plot)
        assert list(told) == ["panel", *(["value"] if plot.of_cells else ["accuracy", "α̂"])]
        of = [runs[run] for _, _, run in places(plot)]
        for k, row in enumerate(of):
            if plot.of_cells:
                column = told["panel"][k].replace("α̂", "alpha_hat")
                assert told["value"][k] == pytest.approx(row[column], rel=1e-5)
            else:
                assert told["panel"][k] == row["dataset"]
                assert told["accuracy"][k] == pytest.approx(row["accuracy"], rel=1e-5)
                assert told["α̂"][k] == pytest.approx(row["alpha_hat"], rel=1e-5)
        dataset = {plot.title} if plot.of_cells else {"data-00", "data-01"}
        assert named == {run for run, row in runs.items() if row["dataset"] in dataset}
        plot.svg()
        tall, wide = plot.figure.get_figheight() * 72, plot.figure.get_figwidth() * 72
        for x, y, _ in places(plot):
            assert 0 < x < wide
            assert 0 < y < tall
        (mark, *_) = plot.marks
        dot = np.array([[mark.x[0], mark.y[0]]])
        left, up = mark.axis.transData.transform(dot)[0] / plot.figure.dpi * 72
        assert places(plot)[0][:2] == pytest.approx((left, tall - up), abs=0.06)


def test_values_that_are_all_the_same_are_dots_with_room_around():
    [plot] = of_cells.of_datasets(planted(classifiers=("mlp",), repeats=1, runs=1, sd=0, between=0))
    for axis in plot.figure.axes:
        low, high = axis.get_xlim()
        widths = [np.ptp(line.get_xdata()[:2]) for line in axis.lines]
        assert high - low > 1e4 * max(widths)
    assert plot.figure.axes[0].get_xlim() == pytest.approx((0.855, 0.945))
