"""Figures by kind: what violins hold, in what room, and the files that they become."""

from __future__ import annotations

import re
import subprocess
import sys
import zlib

import numpy as np
import polars as pl
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.patches import PathPatch

from manyseed.analysis import Refused
from manyseed.analysis.figures import drawing, labels
from manyseed.analysis.figures.drawing import WIDTHS, FigureTables, as_files, why_not
from manyseed.analysis.figures.labels import colour
from manyseed.analysis.figures.style import drawn_wide
from manyseed.analysis.tables.rows import Tables
from tests.analysis.planted import planted
from tests.analysis.samples import ENSEMBLES, sweep


@pytest.fixture(scope="module")
def tables():
    return planted(
        datasets=2,
        schemes=("none", "noise"),
        fractions=(0.5, 1.0),
        repeats=2,
        runs=8,
        alpha=0.2,
        accuracy=lambda dataset, classifier, scheme, fraction: (
            0.6 + 0.1 * (scheme == "none") + 0.1 * fraction + 0.05 * (classifier == "mlp")
        ),
    )


def shapes(axis):
    """Violins of a panel from left to right: colour, and the values from smallest to largest."""
    found = []
    for patch in axis.patches:
        assert isinstance(patch, PathPatch)
        x, y = patch.get_path().vertices[:-1].T
        look = patch.get_facecolor()[:3]
        found.append(((x.min() + x.max()) / 2, look, (y.min(), y.max())))
    return [(look, values) for _, look, values in sorted(found)]


def medians(axis):
    lines = [line for line in axis.get_lines() if line.get_color() == "black"]
    flat = [line for line in lines if line.get_linestyle() == "-"]
    return [line.get_ydata()[0] for line in sorted(flat, key=lambda line: line.get_xdata()[0])]


def test_a_violin_holds_the_runs_that_agree_in_what_is_drawn_by(tables):
    (plot,) = drawing.plots(FigureTables(tables), "accuracy", ["perturb_continuous"])
    panels = {axis.get_title(loc="left"): axis for axis in plot.figure.axes}
    assert list(panels) == ["data-00", "data-01"]
    for dataset, axis in panels.items():
        assert [label.get_text() for label in axis.get_xticklabels()] == ["none", "noise"]
        groups = [
            tables.runs.filter(dataset=dataset, perturb_continuous=scheme, classifier=one)
            for scheme in ("none", "noise")
            for one in ("lr-sgd", "mlp")
        ]
        expected = [own["accuracy"] for own in groups]
        assert [len(own) for own in expected] == [32] * 4
        ends = [values for _, values in shapes(axis)]
        assert ends == [pytest.approx((own.min(), own.max())) for own in expected]
        assert medians(axis) == pytest.approx([own.median() for own in expected])
    assert plot.n == tables.runs.height
    assert f"n = {plot.n} runs." in plot.caption
    assert "Pooled over: training fraction." in plot.caption


def test_a_grid_has_rows_and_columns_and_a_figure_a_dataset(tables):
    by = ["perturb_continuous", "train_fraction"]
    plots = drawing.plots(FigureTables(tables), "accuracy", by)
    assert [plot.title for plot in plots] == [
        f"Accuracy by continuous perturbation and training fraction on data-0{n}" for n in range(2)
    ]
    for dataset, plot in zip(("data-00", "data-01"), plots, strict=True):
        axes = np.array(plot.figure.axes).reshape(2, 2)
        assert [axis.get_title() or axis.get_title(loc="left") for axis in axes[0]] == [
            "0.5",
            "1.0",
        ]
        assert [row[-1].texts[-1].get_text() for row in axes] == ["none", "noise"]
        for row, scheme in zip(axes, ("none", "noise"), strict=True):
            for axis, fraction in zip(row, (0.5, 1.0), strict=True):
                cell = {"dataset": dataset, "perturb_continuous": scheme}
                own = tables.runs.filter(**cell, train_fraction=fraction)
                expected = [own.filter(classifier=one)["accuracy"] for one in ("lr-sgd", "mlp")]
                assert medians(axis) == pytest.approx([one.median() for one in expected])
        assert plot.n == tables.runs.filter(dataset=dataset).height
        assert "Pooled" not in plot.caption
        assert f"n = {tables.runs.height} runs. Shown here: {plot.n}." in plot.caption


def test_a_classifier_has_its_colour_wherever_it_stands(tables):
    looks = []
    for by in (["classifier"], ["dataset"], ["perturb_continuous", "train_fraction"]):
        drawn = drawing.plots(FigureTables(tables), "accuracy", by)[0].figure.axes[0]
        looks.append([look for look, _ in shapes(drawn)][:2])
    assert looks[0] == looks[1] == looks[2]
    assert len(set(looks[0])) == 2


@pytest.mark.parametrize(
    ("name", "table"),
    [("accuracy", "runs"), ("ec_global", "pairs"), ("accuracy_range", "repeats")],
)
def test_a_column_is_drawn_of_its_table_with_a_row_a_cell(tables, name, table):
    plots = drawing.plots(FigureTables(tables), name)
    titles = [f"data-0{n}: {labels.labelled(name)}" for n in range(2)]
    assert [plot.title for plot in plots] == titles
    n = getattr(tables, table).filter(dataset="data-00").height
    assert f"n = {n:,} {table}." in plots[0].caption
    assert len(plots[0].figure.axes) == 1


def test_what_identical_runs_say_is_left_out_and_counted():
    tables = sweep({"vehicle": 60}, {"lr-sgd": 0.6, "xgb": 0.0}, repeats=2, runs=4)
    for name in ("accuracy", "churn", "accuracy_range", "accuracy_mean"):
        (found,) = labels.column(name)(tables)
        frame = getattr(tables, labels.table_of(labels.schemas(tables), name))
        same = tables.repeats.filter(pl.col("identical"))
        there = found.values.join(same, on=["cell", "repeat_index"], how="semi").height
        copies = int(tables.runs["identical"].sum())
        if name == "accuracy":
            assert found.values.height == frame.height - copies
            assert f"({copies} identical copies left out)" in found.words
        elif name == "accuracy_mean":  # says nothing of how runs differ
            assert there == same.height
            assert "left out" not in found.words
        else:
            assert there == 0
            assert "left out" in found.words


def test_undefined_values_are_counted():
    tables = planted(repeats=1, runs=4)
    holes = pl.when(pl.col("run_j") == 3).then(None).otherwise(pl.col("ec_local")).alias("ec_local")
    pairs = tables.pairs.with_columns(holes)
    found = type(tables)(tables.runs, pairs, tables.repeats, tables.cells)
    (plot,) = drawing.plots(FigureTables(found), "ec_local", ["classifier"])
    assert plot.n == 6
    assert "n = 6 pairs, 6 without a value." in plot.caption


def test_unmeaning_kinds_are_refused(tables):
    with pytest.raises(Refused) as error:
        drawing.plots(FigureTables(tables), "acuracy")
    assert error.value.option == "kind"
    assert "accuracy" in error.value.allowed
    assert "run_index" not in error.value.allowed
    for kind, by in (
        ("accuracy", ["repeat"]),
        ("accuracy", ["dataset", "classifier", "train_fraction"]),
        ("accuracy", ["dataset", "dataset"]),
        ("cells", ["dataset"]),
    ):
        with pytest.raises(Refused) as error:
            drawing.plots(FigureTables(tables), kind, by)
        assert error.value.option == "by"


def test_kinds_of_the_page_are_drawn_alone_as_on_the_page(tables):
    given = FigureTables(tables, ensembles=ENSEMBLES)
    page = drawing.all_figures(given)
    alone = [plot for kind in drawing.KINDS for plot in drawing.plots(given, kind.name)]
    assert [plot.name for plot in page] == [plot.name for plot in alone]
    assert [plot.caption for plot in page] == [plot.caption for plot in alone]
    assert drawing.plots(given, "ensembles_close")[0].name == "ensembles-close"
    assert drawing.plots(FigureTables(tables), "ensembles-close") == []


def averages(datasets, classifiers, level=0.9):
    """Rows of means that differ by data set only a little."""
    rows = [
        {
            "cell": 1000 + d * classifiers + c,  # of no run
            "dataset": f"data-{d}",
            "classifier": f"model-{c:02}",
            "metric": "accuracy",
            "mean": level + 0.01 * d,
            "low": level + 0.01 * d - 0.02,
            "high": level + 0.01 * d + 0.02,
            "over": "test sets",
            "n_runs": 5,
            "row": f"model-{c:02}",
        }
        for d in range(datasets)
        for c in range(classifiers)
    ]
    return pl.DataFrame(rows)


def test_means_of_panels_side_by_side_share_their_axis_and_no_two_classifiers_a_look(tables):
    (plot,) = drawing.plots(FigureTables(tables, averages=averages(3, 14)), "means")
    ends = {axis.get_xlim() for axis in plot.figure.axes}
    assert (len(plot.figure.axes), len(ends)) == (3, 1)
    dots = [one for one in plot.figure.axes[0].lines if one.get_linestyle() != "-"]
    assert len({(one.get_color(), one.get_marker()) for one in dots}) == 14
    assert plot.n == 3 * 14 * 5


def test_means_of_many_datasets_are_several_figures_with_all_rows(tables):
    given = FigureTables(tables, averages=averages(9, 30))
    plots = drawing.plots(given, "means")
    assert len(plots) > 1
    assert pl.concat([plot.data for plot in plots]).height == 9 * 30
    assert len({plot.name for plot in plots}) == len({plot.title for plot in plots}) == len(plots)
    assert drawing.metric_of("means-f1_macro") == drawing.metric_of("means-f1-macro") == "f1_macro"


@pytest.mark.parametrize("width", WIDTHS)
def test_figures_fit_the_columns_of_a_journal(tables, width):
    given = FigureTables(tables, ensembles=ENSEMBLES)
    wanted = [(kind.name, []) for kind in drawing.KINDS if kind.least <= WIDTHS[width]]
    wanted += [("accuracy", by) for by in ([], ["dataset"], ["perturb_continuous", "dataset"])]
    with drawn_wide(WIDTHS[width]):
        plots = [plot for name, by in wanted for plot in drawing.plots(given, name, by)]
    assert len(plots) >= 6
    for plot in plots:
        assert plot.figure.get_figwidth() == pytest.approx(WIDTHS[width])
        plot.figure.draw_without_rendering()  # which lays it out
        box = plot.figure.get_tightbbox()
        assert box.x0 >= -0.05, plot.name
        assert box.x1 <= WIDTHS[width] + 0.05, plot.name
        assert {text.get_fontsize() >= 7 for text in plot.figure.texts} <= {True}
    page = drawing.plots(given, "accuracy", ["dataset"])[0]
    assert page.figure.get_figwidth() == pytest.approx(7.2)


DRAW = """
import sys
from manyseed.analysis.figures import drawing
from manyseed.analysis.figures.drawing import as_files
from tests.analysis.planted import planted
plots = drawing.plots(drawing.FigureTables(planted(datasets=2, runs=6)), "accuracy")
sys.stdout.buffer.write(as_files(plots, "pdf")[0] + as_files(plots, "svg")[0])
"""


def test_files_are_the_same_in_every_process():
    files = [
        subprocess.run(
            [sys.executable, "-c", DRAW],
            env={"PYTHONHASHSEED": seed},
            capture_output=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    ]
    assert files[0] == files[1]
    assert files[0].startswith(b"%PDF")


def test_fonts_are_embedded_as_truetype_and_letters_of_svg_are_drawn(tables):
    plots = drawing.plots(FigureTables(tables), "accuracy")
    (pdf,) = as_files(plots, "pdf")
    parts = re.findall(rb"stream\r?\n(.*?)\r?\nendstream", pdf, re.DOTALL)
    assert b"/FontFile2" in pdf
    assert b"/Type3" not in pdf
    assert any(b"glyf" in zlib.decompress(part) for part in parts if part[:1] == b"x")
    assert pdf.count(b"/Type /Page\n") + pdf.count(b"/Type /Page ") == len(plots) == 2
    one, other = as_files(plots, "svg")
    assert b"<text" not in one
    assert one != other
    assert [file[:8] for file in as_files(plots, "png")] == [b"\x89PNG\r\n\x1a\n"] * 2
    with pytest.raises(Refused):
        as_files(plots, "gif")


def test_dots_are_seen_in_pixels_too():
    """A stroke without length, as dots are drawn in SVG, would be none as pixels."""
    tables = planted(classifiers=("a",), repeats=1, runs=3)
    (plot,) = drawing.plots(FigureTables(tables), "accuracy")
    figure = plot.figure
    figure.set_facecolor("white")
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    pixels = np.asarray(canvas.buffer_rgba())[..., :3].astype(int)
    blue = np.array([int(colour(0)[k : k + 2], 16) for k in (1, 3, 5)])
    mixed = np.round(0.75 * blue + 0.25 * 255)
    assert (np.abs(pixels - mixed).max(axis=2) < 12).sum() >= 3 * 3


def test_every_figure_has_its_numbers(tables):
    """Those of runs by name, all others as a table of its own that tells cells apart in words."""
    drawn = drawing.all_figures(FigureTables(tables, ensembles=ENSEMBLES))
    assert len(drawn) > 5
    for plot in drawn:
        assert plot.marks or plot.data is not None, plot.name
        if plot.data is not None:
            assert plot.data.height, plot.name
            assert {"dataset", "classifier"} & set(plot.data.columns), plot.name


def test_the_numbers_of_violins_are_their_quantiles(tables):
    (plot,) = drawing.plots(FigureTables(tables), "accuracy", ["perturb_continuous"])
    together = "Values of 2 test sets together: the spread includes that between test sets."
    assert plot.caption.endswith(together)
    (of_classifiers,) = drawing.plots(FigureTables(tables), "classifiers")
    assert together in of_classifiers.caption
    assert together in drawing.plots(FigureTables(tables), "cells")[0].caption
    (one,) = drawing.plots(FigureTables(planted(repeats=1)), "classifiers")
    assert "test sets together" not in one.caption
    assert plot.data.height == 8
    for row in plot.data.iter_rows(named=True):
        cell = {name: row[name] for name in ("dataset", "classifier", "perturb_continuous")}
        own = tables.runs.filter(**cell)["accuracy"].to_numpy()
        told = [row[name] for name in ("n", "min", "q25", "median", "q75", "max")]
        assert told == pytest.approx([own.size, *np.quantile(own, [0, 0.25, 0.5, 0.75, 1])])


@pytest.mark.parametrize(
    ("name", "planted_with", "reason"),
    [
        ("mean-ranks", {}, "it compares datasets, and there is only one"),
        ("overview-accuracy-std", {}, "it compares datasets, and there is only one"),
        ("differences", {"classifiers": ("mlp",)}, "it compares cells of a dataset, and each"),
        ("crossed", {}, "it shows crossed sources of randomness, and no cell has them"),
        ("mean-ranks", {"datasets": 2, "classifiers": ("mlp",)}, "it compares classifiers, and"),
        ("grids", {"schemes": ("none", "x")}, "and cells have one perturb_hparams"),
        ("sources-accuracy-std", {}, "it compares sources of randomness, and all cells"),
        ("epochs-alpha-hat", {}, "it compares epochs, and only one was analysed"),
        ("alpha-hat-accuracy", {}, "alpha_hat is 0 for all runs"),
        ("alpha-hat-pairs", {"runs": 1}, "there are no pairs"),
        ("alpha_hat", {}, "alpha_hat is 0 for all runs"),
    ],
)
def test_what_cannot_be_drawn_says_why(name, planted_with, reason):
    given = FigureTables(planted(**planted_with))
    assert drawing.plots(given, name) == []
    assert reason in why_not(name, given)


def test_undefined_values_are_told():
    tables = planted()
    runs = tables.runs.with_columns(alpha_hat=pl.lit(None, pl.Float64))
    given = FigureTables(Tables(runs, tables.pairs, tables.repeats, tables.cells))
    for name in ("alpha-hat-accuracy", "alpha_hat"):
        assert drawing.plots(given, name) == []
        assert why_not(name, given) == "alpha_hat is undefined for all runs"


def test_sources_are_compared_where_nothing_else_differs():
    """Cells of other classifiers or schemes with another `vary` are no comparison of sources."""
    tables = planted(runs=4, repeats=2, schemes=("none", "noise"))
    for apart, drawn in (("classifier", False), ("perturb_continuous", False), ("", True)):
        first = tables.cells["cell"][0] if not apart else tables.cells[apart][0]
        source = pl.when(pl.col(apart or "cell") == first).then(pl.lit("init"))
        made = {
            name: getattr(tables, name).with_columns(vary=source.otherwise(pl.lit("batch")))
            for name in ("cells", "runs", "repeats", "pairs")
        }
        if drawn:  # now alike in all other axes
            alike = {name: pl.lit("x") for name in ("classifier", "perturb_continuous")}
            made = {name: one.with_columns(**alike) for name, one in made.items()}
        given = FigureTables(Tables(**made))
        reason = why_not("sources-accuracy-std", given)
        assert bool(drawing.plots(given, "sources-accuracy-std")) == drawn
        assert reason == (
            "" if drawn else "it compares sources of randomness, and no cells differ in vary alone"
        )
