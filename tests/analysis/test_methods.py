"""Figures and the table of ensembling methods, of planted tables."""

from __future__ import annotations

from itertools import product

import numpy as np
import polars as pl
import pytest
from matplotlib.colors import to_hex
from matplotlib.container import Container

from manyseed.analysis.axes import AXES
from manyseed.analysis.figures.drawing import FigureTables, why_not
from manyseed.analysis.figures.ensembles import (
    averaged_equivalents,
    equivalents,
    equivalents_by_metric,
)
from manyseed.analysis.figures.labels import colour
from manyseed.analysis.figures.uncertainty import members_by_size
from manyseed.analysis.questions.dee import compared
from manyseed.analysis.report.tables import COLUMNS, of_methods
from tests.analysis.planted import planted

POOL, MEMBERS, SECONDS = 10, (1, 5, 10), 2.0
SEEN = ("none", "crop-flip:4")


def axes(classifier, ensembling, seen):
    found = dict.fromkeys(AXES, "none")
    return found | {
        "dataset": "photos",
        "classifier": classifier,
        "train_fraction": 1.0,
        "hparams": "default",
        "vary": "init+batch",
        "ensembling": ensembling,
        "test_augment": seen,
        "perturb_labels": "none",
    }


def quality(size, ensembling, seen):
    """Return what a metric is: a method's k members are worth √k runs, and augmentation gains."""
    worth = size if ensembling == "none" else np.sqrt(size)
    return -1 / (1 + worth) + 0.01 * (seen != "none")


def tables(classifiers=("cnn", "vit"), seen=SEEN):
    cells, rows = [], []
    for classifier, ensembling, test_augment in product(classifiers, ("none", "snapshot"), seen):
        own = {"cell": len(cells), **axes(classifier, ensembling, test_augment)}
        cells.append(own)
        deep = ensembling == "none"
        for one, size in product(range(3), range(1, POOL + 1) if deep else MEMBERS):
            value = quality(size, ensembling, test_augment) + 1e-5 * one
            rows.append(
                own
                | {
                    "epoch": 1,
                    "repeat_index": 0,
                    "run_index": None if deep else one,
                    "draw": one if deep else None,
                    "members": size,
                    "pool": POOL if deep else None,
                    "log_likelihood": value - 0.1,
                    "cll": value,
                    **dict.fromkeys(("c_brier", "c_aurc", "c_ece"), -value),
                    "error": 0.2 if ensembling == "snapshot" else -value,
                    "temperature_bounded": 0.0,
                    "fit_seconds": SECONDS * size if deep else 5.0,
                }
            )
    cells = pl.DataFrame(cells).with_columns(pl.col("cell").cast(pl.UInt32))
    kinds = {"cell": pl.UInt32, "members": pl.UInt32, "run_index": pl.UInt16, "draw": pl.UInt32}
    measured = pl.DataFrame(rows, schema_overrides={**kinds, "repeat_index": pl.UInt16})
    dee = compared(measured, cells)
    return measured, cells.join(dee, on="cell", maintain_order="right")


def test_equivalents_are_averaged_over_cells_that_share_a_dataset():
    _, dee = tables()
    plot = averaged_equivalents(dee)
    assert [axis.get_title(loc="left") for axis in plot.figure.axes] == [
        "photos · crop-flip:4",
        "photos · none",
    ]
    for axis in plot.figure.axes:
        (line,) = axis.containers
        size, worth = line.lines[0].get_data()
        assert size.tolist() == [1, 5, 10]
        np.testing.assert_allclose(worth, np.sqrt(size), atol=0.1)
        seen = axis.get_title(loc="left").removeprefix("photos · ")
        of = plot.data.filter(test_augment=seen).select("members", "dee").to_numpy()
        np.testing.assert_allclose(of, np.transpose([size, worth]))
    assert "0 of 12 comparisons" in plot.caption
    assert plot.n == 4  # methods' cells, of one repeat each
    _, alone = tables(("cnn",))
    assert averaged_equivalents(alone) is None
    assert averaged_equivalents(dee.filter(pl.col("axis") != "ensembling")) is None


def test_equivalents_beyond_the_pool_are_counted():
    measured, _ = tables(seen=("none",))
    better = pl.when(pl.col("run_index").is_not_null() & (pl.col("members") == 10))
    measured = measured.with_columns(better.then(0.0).otherwise("cll").alias("cll"))
    cells = measured.select("cell", *AXES).unique().sort("cell")
    dee = cells.join(compared(measured, cells), on="cell", maintain_order="right")
    plot = averaged_equivalents(dee)
    assert "2 of 6 comparisons are beyond the pool" in plot.caption
    [axis] = plot.figure.axes
    assert axis.get_title(loc="left") == "photos"
    assert axis.containers[0].lines[0].get_xdata().tolist() == [1, 5]


def test_a_panel_a_metric_of_each_cell():
    _, dee = tables(seen=("none",))
    plot = equivalents_by_metric(dee)
    titles = [axis.get_title(loc="left").replace("\n", " ") for axis in plot.figure.axes]
    assert titles == [
        f"photos × {name}: {metric}"
        for name in ("cnn", "vit")
        for metric in ("cll", "c_brier", "c_aurc", "error")
    ]
    for axis, title in zip(plot.figure.axes, titles, strict=True):
        size, worth = axis.containers[0].lines[0].get_data()
        same = "error" in title  # of the method it does not depend on the size
        assert (np.ptp(worth) < 1e-9) == same
        if not same:
            np.testing.assert_allclose(worth, np.sqrt(size), atol=0.1)
        classifier, metric = title.removeprefix("photos × ").split(": ")
        of = plot.data.filter(classifier=classifier, metric=metric)
        np.testing.assert_allclose(of["dee"], worth)
    assert equivalents_by_metric(dee.filter(pl.col("axis") != "ensembling")) is None


def test_a_method_has_the_same_colour_in_all_figures():
    measured, dee = tables(("cnn",), seen=("none",))
    for plot in (
        members_by_size(measured),
        equivalents(dee, methods=True),
        equivalents_by_metric(dee),
    ):
        [found] = plot.figure.legends
        places = [text.get_text() for text in found.get_texts()]
        handle = found.legend_handles[places.index("snapshot")]
        line = handle.get_children()[0] if isinstance(handle, Container) else handle
        looks = getattr(line, "get_color", getattr(line, "get_colors", None))()
        assert to_hex(looks if isinstance(looks, str) else looks[0]) == to_hex(colour(0))


def test_means_of_members_are_given_as_drawn():
    measured, _ = tables(("cnn",), seen=("none",))
    plot = members_by_size(measured)
    (axis,) = plot.figure.axes
    drawn = sorted(tuple(line.get_ydata()) for line in axis.lines)
    of = plot.data.group_by("ensembling", maintain_order=True)
    told = [tuple(own[name]) for _, own in of for name in ("cll", "log_likelihood")]
    assert sorted(told) == drawn
    assert set(plot.data["classifier"]) == {"cnn"}
    deep = measured.filter(ensembling="none")
    assert members_by_size(deep) is None
    for table, reason in (
        (measured, ""),
        (deep, "it shows ensembling methods, and no cell has one"),
    ):
        given = FigureTables(planted(), uncertainty=table)
        assert why_not("member-likelihood", given) == reason


def test_every_method_has_a_line():
    measured, dee = tables(("cnn",), seen=("none",))
    names = ["csgld", "dropout", "fge", "kfac-laplace", "single", "snapshot", "swag", "vi"]
    of_method = pl.col("ensembling").cast(pl.String) == "snapshot"
    every = dee.filter(pl.col("axis") != "ensembling")
    for name in names:
        own = dee.filter(pl.col("axis") == "ensembling").with_columns(ensembling=pl.lit(name))
        every = pl.concat([every, own], how="vertical_relaxed")
    deep = measured.filter(~of_method)
    several = [measured.filter(of_method).with_columns(ensembling=pl.lit(name)) for name in names]
    for plot, others in (
        (equivalents(every, methods=True), []),
        (equivalents_by_metric(every), []),
        (members_by_size(pl.concat([deep, *several])), ["none: deep ensembles"]),
    ):
        [found] = plot.figure.legends
        assert [text.get_text() for text in found.get_texts()] == [*others, *names]
        axis = plot.figure.axes[0]
        lines = [bars.lines[0] for bars in axis.containers] or axis.lines
        looks = {(to_hex(line.get_color()), line.get_marker()) for line in lines}
        assert len(looks) == len(others) + len(names)
    assert "not drawn" not in equivalents(every, methods=True).caption


def test_the_table_has_each_ensemble_with_what_it_took_and_is_worth():
    [table] = of_methods(*tables())
    assert (table.name, table.words) == ("methods", 4)
    head = list(table.heads)
    assert head[:5] == ["Dataset", "Classifier", "Ensembling", "Test images", "Members"]
    assert head[-2:] == ["Worth, runs", "Fit, s"]
    rows = {tuple(row[1:5]): dict(zip(head, row, strict=True)) for row in table.rows}
    assert len(rows) == len(table.rows) == 2 * 2 * 2 * 3
    plain = rows["cnn", "snapshot", "none", "10"]
    assert plain["Worth, runs"] == "3.2"
    assert plain["Fit, s"] == "5"
    assert plain["Calibrated"] == "−0.240 ± 0.000"
    deep = rows["cnn", "none (deep ensemble)", "none", "10"]
    assert (deep["Worth, runs"], deep["Fit, s"]) == ("–", "20")
    seen = rows["cnn", "snapshot", "crop-flip:4", "10"]
    assert seen["Calibrated"] == "↑ −0.230 ± 0.000"
    assert seen["Brier, calibrated"] == "↓ 0.230"
    assert seen["Error, %"] == plain["Error, %"] == "20.00"  # as printed they are the same
    assert "↑ and ↓" in table.legend


@pytest.mark.parametrize("lacking", ["fit_seconds", "methods", "both"])
def test_without_methods_there_is_no_table(lacking):
    measured, dee = tables(seen=("none",))
    if lacking == "fit_seconds":  # of an earlier version
        measured = measured.drop("fit_seconds")
    if lacking == "methods":
        measured = measured.filter(pl.col("run_index").is_null())
    assert of_methods(None if lacking == "both" else measured, dee) == []


def test_without_augmentation_there_is_no_column_of_it():
    [table] = of_methods(*tables(("cnn",), seen=("none",)))
    assert "Test images" not in table.heads
    assert "↑" not in table.legend
    assert len(table.heads) == 3 + 1 + len(COLUMNS) + 2
