"""Figures of margins, of single ensembles, and of runs by epoch: what is drawn is what is there."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import polars as pl
import pytest
from matplotlib.collections import PathCollection
from matplotlib.patches import StepPatch

from manyseed.analysis.figures import drawing, scatters
from manyseed.analysis.figures.drawing import FigureTables, why_not
from manyseed.analysis.figures.margins import alike, candidates, margins, places_of
from manyseed.analysis.figures.scatters import OF_DRAWS, runs_by_epoch, single_ensembles
from manyseed.analysis.figures.style import shades
from manyseed.analysis.questions.margins import EDGES
from manyseed.analysis.tables.rows import Tables
from tests.analysis.planted import planted
from tests.analysis.questions.test_margins import counted
from tests.analysis.samples import noisy, predictions, regular

AXES = {
    "dataset": "toy",
    "classifier": "mlp",
    "perturb_continuous": pl.Series(["none", "noise"]),
}


def table_of_margins(n_classes=2, spoilt=0):
    runs = regular(2, 2, 6)
    score, y_true = noisy(np.random.default_rng(5), runs, 80, n_classes, 4)
    score[:spoilt, 0, 0] = np.nan
    of = predictions(score, y_true, runs)
    cells = pl.DataFrame(
        {"cell": pl.Series([0, 1], dtype=pl.UInt32), "epoch": pl.Series([0, 0], dtype=pl.UInt32)}
    ).with_columns(**{name: pl.lit(one) for name, one in AXES.items()})
    return counted(of), cells, score[:, 0, :, 1] - score[:, 0, :, 0], runs


def test_lines_are_means_and_bands_the_envelope_of_runs():
    table, cells, gaps, runs = table_of_margins()
    plot = margins(table, cells)
    titles = [axis.get_title(loc="left").replace("\n", " ") for axis in plot.figure.axes]
    assert titles == ["toy × mlp · none", "toy × mlp · noise"]
    for cell, axis in enumerate(plot.figure.axes):
        own = gaps[runs.filter(cell=cell)["row"].to_numpy()]
        each = np.stack([np.histogram(run, EDGES)[0] / 80 for run in own])
        band, line, ensemble = (p for p in axis.patches if isinstance(p, StepPatch))
        values, edges, _ = line.get_data()
        places = np.arcsinh(4 * EDGES)
        first = int(np.argmin(np.abs(places - edges[0])))
        assert edges == pytest.approx(places[first : first + len(edges)])
        here = slice(first, first + len(values))
        assert values == pytest.approx(each.mean(axis=0)[here])
        assert values.sum() == pytest.approx(1)
        most, _, least = band.get_data()
        assert most == pytest.approx(each.max(axis=0)[here])
        assert least == pytest.approx(each.min(axis=0)[here])
        of = plot.data.filter(cell=cell)
        begins = [int(np.argmin(np.abs(EDGES - begin))) for begin in of["begin"]]
        assert of["share"].to_numpy() == pytest.approx(each.mean(axis=0)[begins])
        assert of["share"].sum() == pytest.approx(1)
        averaged = [
            np.histogram(gaps[rows["row"].to_numpy()].mean(axis=0, dtype=float), EDGES)[0] / 80
            for _, rows in runs.filter(cell=cell).group_by("repeat_index")
        ]
        assert ensemble.get_data()[0] == pytest.approx(np.mean(averaged, axis=0)[here])
    assert plot.n == 24
    assert "n = 24 runs in 4 repeats" in plot.caption
    assert "infinite" not in plot.caption
    assert margins(table, cells.drop("epoch")).n == 24  # tables of an earlier version
    assert margins(table.with_columns(epoch=pl.lit(7, pl.UInt32)), cells) is None


def test_of_many_candidates_the_caption_describes_those_that_differ_most():
    table, cells, *_ = table_of_margins()
    of_runs = pl.DataFrame(
        {"cell": [1], "epoch": [0], "repeat_index": [0], "run_index": [5], "alpha_hat": [0.25]}
    )
    further = [pl.col("cell") + 2 * copy for copy in range(3)]
    table, cells = (pl.concat(one.with_columns(cell) for cell in further) for one in (table, cells))
    plot = candidates(table, Tables(of_runs, of_runs, of_runs, cells))
    assert len(plot.figure.axes) == 6
    assert ". Those seen to differ most are " in plot.caption
    told = {int(cell) for cell in re.findall(r"run (\d+):0:\d+ differs", plot.caption)}
    assert len(told) == 3
    apart = {}
    for cell, axis in enumerate(plot.figure.axes):
        one, other = (line.get_ydata() for line in axis.lines[2:4])
        apart[cell] = np.abs(one - other).max()
    assert (
        min(apart[cell] for cell in told)
        >= max(apart[cell] for cell in apart if cell not in told) - 1e-9
    )


def test_runs_alike_are_drawn_as_histograms_where_their_alpha_hat_differs():
    """RKS24, figure 2: beside NumPy's histograms; the caption has accuracy and churn of both."""
    table, cells, gaps, runs = table_of_margins()
    pair = {"alike_near_run": 1, "alike_far_run": 4}
    bins = [-np.inf, *EDGES, np.inf]
    share = {}
    for cell, repeat in runs.select("cell", "repeat_index").unique().rows():
        own = gaps[runs.filter(cell=cell, repeat_index=repeat)["row"].to_numpy()].astype(float)
        for column, run in pair.items():
            others = np.delete(own, run, axis=0).mean(axis=0)
            for suffix, values in (("", own[run]), ("_loo", others)):
                name = column.replace("_run", suffix)
                share[cell, repeat, name] = np.histogram(values, bins)[0] / values.size
    names = [f"{column.removesuffix('_run')}{end}" for column in pair for end in ("", "_loo")]
    key = table.select("cell", "repeat_index", "bin").rows()
    table = table.with_columns(
        **{column: pl.lit(run, pl.UInt16) for column, run in pair.items()},
        **{n: pl.Series([share[cell, repeat, n][b] for cell, repeat, b in key]) for n in names},
    )
    of_runs = pl.DataFrame(
        [
            {"cell": cell, "epoch": 0, "repeat_index": 0, "run_index": run, "alpha_hat": level}
            | {"accuracy": 0.75, "churn_loo_ensemble": 0.031, "below_resolution": False}
            for cell, run, level in ((0, 1, 0.01), (0, 4, 0.2), (1, 1, 0.2), (1, 4, 0.1))
        ]
    )
    repeats = of_runs.select("cell", "epoch", "repeat_index", delta=pl.lit(0.15)).unique()
    tables = Tables(of_runs, of_runs, repeats, cells)
    plot = alike(table, tables)
    (axis,) = plot.figure.axes  # in cell 1 the farther run has the smaller α̂
    for patch, name in zip(axis.patches, names, strict=True):
        drawn, edges, _ = patch.get_data()
        first = int(np.argmin(np.abs(places_of(0, len(bins) - 2) - edges[0])))
        assert drawn == pytest.approx(share[0, 0, name][first : first + len(drawn)])
        assert drawn.sum() == pytest.approx(1, abs=0.02)
    assert plot.n == 2
    for run, level in ((1, "0.010"), (4, "0.200")):
        told = f"run 0:0:{run} differs by [0-9.]+, accuracy 0.750, churn against the others 0.031"
        assert re.search(f"{told}, α̂ {level}", plot.caption)
    assert alike(table.drop("alike_far_run"), tables) is None
    assert not why_not("candidates-alike", FigureTables(tables, margins=table))
    coarse = replace(tables, repeats=repeats.with_columns(delta=pl.lit(0.25)))
    assert alike(table, coarse) is None
    assert "one of them above its resolution δ" in why_not(
        "candidates-alike", FigureTables(coarse, margins=table)
    )


def test_candidates_are_drawn_as_ecdfs_beside_those_of_their_ensembles():
    table, cells, gaps, runs = table_of_margins()
    of_runs = pl.DataFrame(
        {"cell": [1], "epoch": [0], "repeat_index": [0], "run_index": [5], "alpha_hat": [0.25]}
    )
    plot = candidates(table, Tables(of_runs, of_runs, of_runs, cells))
    for cell, axis in enumerate(plot.figure.axes):
        own = gaps[runs.filter(cell=cell, repeat_index=0)["row"].to_numpy()].astype(float)
        others = (own.sum(axis=0) - own) / 5
        told = table.filter(cell=cell, repeat_index=0).row(0, named=True)
        ends = [told["nearest_run"], told["furthest_run"]]
        wanted = [each[run] for run in ends for each in (own, others)]
        for line, values in zip(axis.lines, wanted, strict=True):
            x, y = line.get_data()
            below = [np.mean(values < np.sinh(place) / 4) for place in x]
            assert y == pytest.approx(np.array(below), abs=1e-9)
        of = plot.data.filter(cell=cell)
        for column, values in zip(("nearest", "nearest_loo"), wanted, strict=False):
            for begin, share in of.select("begin", column).rows():
                end = next((edge for edge in EDGES if edge > begin), np.inf)
                assert share == pytest.approx(np.mean((values >= begin) & (values < end)))
        assert f"run {cell}:0:{ends[0]} differs by" in plot.caption
    assert plot.n == 4
    assert plot.caption.count("α̂ 0.250") == (told["furthest_run"] == 5)
    assert candidates(table.drop("nearest_run"), Tables(of_runs, of_runs, of_runs, cells)) is None
    none = table.with_columns(nearest_run=pl.lit(None, pl.UInt16))
    assert candidates(none, Tables(of_runs, of_runs, of_runs, cells)) is None


def test_margins_without_a_place_are_told_and_classes_beyond_two_have_no_ensemble():
    table, cells, _, _ = table_of_margins(spoilt=6)
    told = margins(table, cells).caption
    assert "are not drawn: 1 cell has some, up to 0.6% of the points." in told
    table, cells, _, _ = table_of_margins(n_classes=3)
    plot = margins(table, cells)
    assert "Dashed" not in plot.caption
    assert [len(axis.patches) for axis in plot.figure.axes] == [2, 2]
    only_nan = table.filter(pl.col("values") != "finite")
    assert margins(only_nan, cells) is None


def draws(each=4, classifiers=("mlp", "xgb")):
    rng = np.random.default_rng(0)
    rows = [
        (name, size, draw, *rng.random(5))
        for name in classifiers
        for size in (3, 10, 30)
        for draw in range(each)
    ]
    names = ["classifier", "size", "draw", "accuracy", *OF_DRAWS]
    frame = pl.DataFrame(rows, schema=names, orient="row")
    return frame.with_columns(
        cell=0, dataset=pl.lit("toy"), delta=0.1, n_side=pl.lit(500, pl.UInt32)
    )


def dots(axis):
    found = [one for one in axis.collections if isinstance(one, PathCollection)]
    return [np.asarray(one.get_offsets()) for one in found]


@pytest.mark.parametrize("name", list(OF_DRAWS))
def test_each_dot_is_an_ensemble_and_its_shade_the_size(name):
    table = draws()
    plot = single_ensembles(table.sample(fraction=1, shuffle=True, seed=1), name)
    for axis, classifier in zip(plot.figure.axes, ("mlp", "xgb"), strict=True):
        assert axis.get_title(loc="left") == f"toy × {classifier}"
        for found, size in zip(dots(axis), (3, 10, 30), strict=True):
            own = table.filter(classifier=classifier, size=size).sort("accuracy")
            assert found == pytest.approx(own.select("accuracy", name).to_numpy())
            told = plot.data.filter(classifier=classifier, size=size)
            assert told.select("accuracy", name).rows() == own.select("accuracy", name).rows()
    (key,) = plot.figure.legends
    assert [text.get_text() for text in key.get_texts()] == ["3", "10", "30"]  # not as words
    assert plot.n == 24
    assert ("δ = 0.100 with N = 500" in plot.caption) == (name in ("alpha_hat", "ks_distance"))
    assert single_ensembles(table.with_columns(pl.lit(None, pl.Float64).alias(name)), name) is None


@pytest.mark.parametrize("count", [1, 2, 3, 9])
def test_shades_are_seen_on_light_and_on_dark_paper(count):
    """Contrast of WCAG against the page's two backgrounds; each shade is lighter than the last."""

    def luminance(colour):
        linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in colour[:3]]
        return float(np.dot([0.2126, 0.7152, 0.0722], linear))

    found = [luminance(one) for one in shades(count)]
    dark = luminance((22 / 255, 24 / 255, 28 / 255))
    assert found == sorted(found)
    assert all((one + 0.05) / (dark + 0.05) > 2.5 for one in found)
    assert all(1.05 / (one + 0.05) > 1.5 for one in found)


def test_only_so_many_ensembles_of_a_size_are_drawn(monkeypatch):
    monkeypatch.setattr(scatters, "EACH", 3)
    plot = single_ensembles(draws(), "churn")
    assert plot.n == 18
    assert "6 more are in the tables" in plot.caption


def test_runs_are_shaded_by_epoch_and_named():
    tables = planted(datasets=1, classifiers=("cnn", "lr-sgd"), repeats=1, runs=4, alpha=0.2)
    later = tables.runs.filter(classifier="cnn").with_columns(
        epoch=pl.lit(20, pl.UInt32), accuracy=pl.col("accuracy") + 0.05
    )
    runs = pl.concat([tables.runs.with_columns(epoch=pl.lit(3, pl.UInt32)), later])
    plot = runs_by_epoch(runs, tables.repeats, "alpha_hat")
    (axis,) = plot.figure.axes  # what has one snapshot alone has no panel
    assert axis.get_title(loc="left") == "data-00 × cnn"
    early, late = dots(axis)
    assert late[:, 0] - early[:, 0] == pytest.approx(np.full(4, 0.05))
    assert [len(mark.runs) for mark in plot.marks] == [4, 4]
    assert set(plot.marks[0].runs) == {f"0:0:{run}" for run in range(4)}
    (key,) = plot.figure.legends
    assert [text.get_text() for text in key.get_texts()] == ["3", "20"]
    halves = pl.when(pl.col("run_index") < 2).then(pl.lit("init")).otherwise(pl.lit("batch"))
    plot = runs_by_epoch(runs.with_columns(vary=halves), tables.repeats, "alpha_hat")
    titles = [axis.get_title(loc="left") for axis in plot.figure.axes]
    assert titles == ["data-00 × cnn · batch", "data-00 × cnn · init"]
    assert set(plot.marks[0].runs) == {"0:0:2", "0:0:3"}
    assert runs_by_epoch(tables.runs, tables.repeats, "alpha_hat") is None
    assert runs_by_epoch(runs.drop("epoch"), tables.repeats, "alpha_hat") is None


def test_kinds_draw_them_where_the_tables_are_there():
    tables = planted(datasets=1, repeats=1, runs=4)
    named = {kind.name for kind in drawing.KINDS}
    assert {"margins", "draws-alpha-hat", "draws-ks-distance", "epochs-ece"} <= named
    for name in ("margins", "draws-churn", "epochs-alpha-hat"):
        assert drawing.plots(FigureTables(tables), name) == []
    (plot,) = drawing.plots(FigureTables(tables, ensemble_draws=draws()), "draws-churn")
    assert plot.name == "draws-churn"
