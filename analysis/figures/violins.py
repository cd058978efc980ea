"""Violins of a quantity by axes in which cells differ: by one axis, or on a grid of two.

The grid is that of the notes on model variance (rows data perturbation, columns hparam
perturbation). Cells that agree in the chosen axes are pooled, and the caption says so.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import polars as pl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import PathPatch
from matplotlib.path import Path
from numpy.typing import NDArray

from manyseed.analysis import Refused
from manyseed.analysis.axes import FRACTION, level_told
from manyseed.analysis.figures.kind import kind
from manyseed.analysis.figures.labels import (
    COLOURS,
    LEVELS,
    QUANTILES,
    SEPARATOR,
    Quantities,
    Quantity,
    among,
    colour,
    column,
    differing,
    labelled,
    mark_resolution,
    marker,
    over_test_sets,
    runs_vary,
    upright_axis_of_levels,
)
from manyseed.analysis.figures.style import (
    CHARACTER,
    DOTTED,
    FEWEST,
    MAX_POINTS,
    PANEL,
    VECTORS,
    Handle,
    Plot,
    at_median,
    legend,
    outline,
    panels,
    scattered,
    shapes_told,
    styled,
    wide,
)
from manyseed.analysis.questions.accuracy import accuracies
from manyseed.analysis.questions.usual import scope_in_words
from manyseed.analysis.tables.rows import SIZE, Tables, of_cells

Real = NDArray[np.float64]

GROUP = 0.13  # inches per violin
BESIDE = 2.3  # inches of a panel with δ beside it
PAGE = 12  # most panels of a figure
DEEP = 1.35  # inches per row of the grid
SIDES = 2  # axes of a grid
_FULL = 2 / 3  # share of its panels above which a grid has all of them
PERTURBATIONS = ("perturb_continuous", "perturb_hparams")


@dataclass(frozen=True, slots=True)
class _Violins:
    """What all panels of a figure share; `classifiers`: in the order of colours."""

    quantity: Quantity
    tables: Tables
    values: pl.DataFrame
    classifiers: Sequence[str]

    def group(self, chosen: Mapping[str, Any]) -> tuple[Real, bool]:
        """Return the values of a violin in ascending order, and whether it has a shape."""
        own = self.values.filter(**chosen)
        shaped = own.height >= FEWEST and self.quantity.name not in LEVELS
        vary = bool(runs_vary(own, self.tables.cells)["vary"].all())
        return own["value"].sort().to_numpy(), shaped and vary

    def finish(self, axis: Axes, **chosen: Any) -> None:
        """Set up the vertical axis if the quantity is α̂."""
        if self.quantity.name in LEVELS:
            upright_axis_of_levels(axis)
            repeats = self.tables.repeats.filter(**chosen)
            if not repeats.is_empty():
                mark_resolution(axis, repeats, across=True)


def violins(tables: Tables, of: Quantities, by: Sequence[str]) -> list[Plot]:
    """Draw a quantity by one or two columns in which cells differ.

    One column gives a panel per dataset, with levels side by side, coloured by classifier. Two give
    a figure per dataset: rows are the levels of the first, columns those of the second. Fewer than
    six values are drawn as dots without a violin.

    `tables`: with the columns of `AXES` joined. `of`: the quantity to draw
    (`analysis.figures.labels.Quantity`). `by`: one or two columns of the table of cells.
    """
    allowed = axes_of(tables.cells)
    for name in by:
        if name not in allowed:
            raise Refused("by", name, "cells do not differ in it", allowed)
    if not 1 <= len(set(by)) == len(by) <= SIDES:
        raise Refused("by", ",".join(by), "takes one column, or two different ones")
    (quantity,) = of(tables)
    if quantity.values.is_empty():
        return []
    named = tables.cells.select("cell", *allowed).unique("cell", maintain_order=True)
    values = quantity.values.join(named, on="cell", maintain_order="left")
    drawn = _Violins(quantity, tables, values, among(levels(tables.cells, "classifier")))
    return _by_one(drawn, by[0]) if len(by) == 1 else _grids(drawn, by[0], by[1])


@kind(
    "grids",
    "violins of accuracy: rows data perturbation, columns hparam perturbation",
    chapter="cells",
    small=True,
)
def perturbation_grids(tables: Tables, meanings: Mapping[str, tuple[str, str]]) -> list[Plot]:
    """Draw accuracy on the grid of the notes on model variance, if both axes vary."""
    if any(tables.cells[axis].n_unique() < 2 for axis in PERTURBATIONS):
        return []
    return violins(tables, column("accuracy", meanings), PERTURBATIONS)


@kind(
    "classifiers",
    "accuracy of runs by classifier, on the cells that answers compare",
    chapter="answers",
)
def of_classifiers(tables: Tables, meanings: Mapping[str, tuple[str, str]]) -> Plot | None:
    """Draw the accuracies that answers begin with; of one classifier, by what differs first."""
    if tables.cells["classifier"].n_unique() > 1:
        by, compared = "classifier", {cell for one in accuracies(tables) for cell in one.cells}
        which = scope_in_words(tables.cells)
        tables = of_cells(tables, tables.cells.filter(pl.col("cell").is_in(compared)))
    else:
        by, which = next(iter(differing(tables.cells)), "classifier"), ""
    found = violins(tables, column("accuracy", meanings), [by])
    if not found:
        return None
    names = tables.cells["dataset"].n_unique()
    more = f" Only the runs with {which}." if which else ""
    more += f" The first {PAGE} of {names:,} datasets." if len(found) > 1 else ""
    return replace(found[0], name="classifiers", caption=found[0].caption + more)


def axes_of(cells: pl.DataFrame) -> list[str]:
    """Return the columns to draw by: axes in which cells differ, and hparams that grids vary."""
    own = [name for name in cells.columns if name.startswith("hparam_")]
    return ["dataset", "classifier", *differing(cells), *own]


def levels(cells: pl.DataFrame, axis: str) -> list[Any]:
    """Return the values of an axis: numbers and names sorted, others in the order of cells."""
    if axis == FRACTION:  # shares of unknown numbers of rows are after numbers
        return cells.filter(pl.col(axis).is_not_null()).unique(axis).sort(SIZE)[axis].to_list()
    if cells.schema[axis].is_numeric():
        return cells[axis].drop_nulls().unique().sort().to_list()
    if axis in ("dataset", "classifier"):
        return cells[axis].cast(pl.String).unique().sort().to_list()
    return cells.sort("cell")[axis].drop_nulls().unique(maintain_order=True).to_list()


def _by_one(drawn: _Violins, by: str) -> list[Plot]:
    apart = by != "dataset"
    datasets = levels(drawn.values, "dataset") if apart else [""]
    pages = [datasets[start : start + PAGE] for start in range(0, len(datasets), PAGE)]
    plots = [
        _page(drawn, by, page, f"-{number}" if len(pages) > 1 else "")
        for number, page in enumerate(pages, start=1)
    ]
    return [plot for plot in plots if plot is not None]


@styled
def _page(drawn: _Violins, by: str, datasets: Sequence[str], end: str) -> Plot | None:
    x = levels(drawn.values, by)
    classifiers = levels(drawn.values, "classifier")
    apart = by != "classifier" and len(classifiers) > 1
    least = BESIDE if drawn.quantity.name in LEVELS else PANEL
    need = max(least, len(x) * (len(classifiers) if apart else 1) * GROUP + 0.6)
    figure, axes = panels(datasets, drawn.quantity.label, need)
    values = drawn.values
    if datasets != [""]:
        values = values.filter(pl.col("dataset").is_in(datasets))
    handles: dict[str, Handle] = {}
    for axis, dataset in zip(axes, datasets, strict=True):
        in_panel = {"dataset": dataset} if dataset else {}
        wanted = drawn.values.filter(**in_panel) if in_panel else drawn.values
        own = [level for level in x if level in wanted[by].unique().to_list()]
        hues = levels(wanted, "classifier") if apart else [None]
        for place, level in enumerate(own):
            for index, hue in enumerate(hues):
                chosen = {**in_panel, by: level, **({} if hue is None else {"classifier": hue})}
                classifier = level if by == "classifier" else hue or classifiers[0]
                look = drawn.classifiers.index(classifier)
                at = place + 0.84 * ((index + 0.5) / len(hues) - 0.5)
                _violin(axis, drawn, drawn.group(chosen), at, 0.38 / len(hues), look)
                if hue is not None:
                    handles[hue] = _dot(look)
        _name(axis, [level_told(by, one) if _is_number(by, one) else one for one in own])
        if by not in ("dataset", "classifier"):
            axis.set_xlabel(labelled(by))
        drawn.finish(axis, **in_panel)
    if handles:
        legend(figure, handles, "classifier")
    by_words = labelled(by)
    return Plot(
        f"{drawn.quantity.name}-by-{by}{end}".replace("_", "-"),
        f"{_title(drawn)} by {by_words}",
        f"{_described(drawn, values.height)} {shapes_told([drawn.quantity])}{_pooled(drawn, [by])}",
        values.height,
        figure,
        data=_quantiles(values, [by]),
    )


def _grids(drawn: _Violins, by: str, across: str) -> list[Plot]:
    apart = "dataset" not in (by, across)
    datasets = levels(drawn.values, "dataset") if apart else [None]
    plots = [
        _grid(drawn, by, across, dataset, f"-{number}" if len(datasets) > 1 else "")
        for number, dataset in enumerate(datasets, start=1)
    ]
    return [plot for plot in plots if plot is not None]


@styled
def _grid(drawn: _Violins, by: str, across: str, dataset: str | None, end: str) -> Plot | None:
    in_figure = {} if dataset is None else {"dataset": dataset}
    own = drawn.values.filter(**in_figure) if in_figure else drawn.values
    rows, columns = levels(own, by), levels(own, across)
    hues = [None] if "classifier" in (by, across) else levels(own, "classifier")
    there = {*own.select(by, across).iter_rows()}
    by_words, across_words = labelled(by), labelled(across)
    if _FULL * len(rows) * len(columns) < len(there):
        figure, placed = _fields(by, rows, across, columns, drawn.quantity.label)
        layout = f"Rows: {by_words}; columns: {across_words}."
    else:
        both = [(row, level) for row in rows for level in columns if (row, level) in there]
        titles = [
            f"{level_told(by, row)}{SEPARATOR}{level_told(across, level)}" for row, level in both
        ]
        figure, axes = panels(titles, drawn.quantity.label)
        placed = dict(zip(both, axes, strict=True))
        layout = f"Panels: {by_words}{SEPARATOR}{across_words}, those that there are."
    handles: dict[str, Handle] = {}
    for (row, level), axis in placed.items():
        for index, hue in enumerate(hues):
            chosen = {**in_figure, by: row, across: level}
            chosen |= {} if hue is None else {"classifier": hue}
            classifier = hue or str(chosen.get("classifier", ""))
            look = drawn.classifiers.index(classifier) if classifier else 0
            _violin(axis, drawn, drawn.group(chosen), index, 0.4, look)
            if hue is not None and len(hues) > 1:
                handles[hue] = _dot(look)
        axis.set_xticks([])
        axis.set_xlim(-0.7, len(hues) - 0.3)
        drawn.finish(axis, **in_figure)
    ends = np.array([axis.get_ylim() for axis in placed.values()])
    for axis in placed.values():
        axis.set_ylim(ends.min(), ends.max())
    if handles:
        legend(figure, handles, "classifier")
    on_dataset = f" on {dataset}" if dataset else ""
    shapes = shapes_told([drawn.quantity])
    return Plot(
        f"{drawn.quantity.name}-by-{by}-{across}{end}".replace("_", "-"),
        f"{_title(drawn)} by {by_words} and {across_words}{on_dataset}",
        f"{_described(drawn, own.height)} {layout} {shapes}{_pooled(drawn, [by, across])}",
        own.height,
        figure,
        data=_quantiles(own, [by, across]),
    )


def _fields(
    by: str, rows: Sequence[Any], across: str, columns: Sequence[Any], label: str
) -> tuple[Figure, dict[tuple[Any, Any], Axes]]:
    """Return a figure with a panel for each row and column, named above and on the right."""
    figure = Figure(figsize=(wide(), 0.6 + DEEP * len(rows)))
    figure.set_layout_engine("constrained")
    axes = figure.subplots(len(rows), len(columns), squeeze=False, sharex=True, sharey=True)
    for axis, level in zip(axes[0], columns, strict=True):
        axis.set_title(level_told(across, level), fontsize=8)
    for axis, row in zip(axes[:, -1], rows, strict=True):
        axis.annotate(
            level_told(by, row), (1, 0.5), xycoords="axes fraction", xytext=(14, 0),
            textcoords="offset points", rotation=270, va="center", ha="center",
        )  # fmt: skip
    figure.supylabel(label, fontsize=8.5)
    return figure, {
        (row, level): axes[y, x] for y, row in enumerate(rows) for x, level in enumerate(columns)
    }


def _quantiles(values: pl.DataFrame, by: Sequence[str]) -> pl.DataFrame:
    """Return the quantiles of the violins, one row each."""
    names = list(dict.fromkeys(["dataset", *by, "classifier"]))
    return values.group_by(names).agg(**QUANTILES).sort(names)


def _described(drawn: _Violins, n: int) -> str:
    """Describe the quantity, with the number of values if it is a part of all."""
    part = f" Shown here: {n:,}." if n < drawn.values.height else ""
    return f"{drawn.quantity.words}{part}"


def _violin(
    axis: Axes, drawn: _Violins, of: tuple[Real, bool], at: float, half: float, look: int
) -> None:
    """Draw values as a violin with its middle half, or as dots, and their median."""
    values, shaped = of
    if not values.size:
        return
    shade = colour(look)
    if shaped:
        shape = outline(values, at, half)
        if shape is not None:
            path = Path(shape[:, ::-1], closed=True)
            axis.add_patch(PathPatch(path, facecolor=shade, edgecolor="none", alpha=0.35))
            axis.update_datalim(np.asarray(path.vertices)[:-1])
    if values.size > DOTTED:
        middle = np.quantile(values, [0.25, 0.75])
        axis.plot([at, at], values[[0, -1]], color=shade, linewidth=0.8)
        axis.plot([at, at], middle, color=shade, linewidth=3, solid_capstyle="butt")
    else:
        kept = values[:MAX_POINTS]
        axis.plot(
            at + half / 0.45 * 0.9 * scattered(kept.size), kept, ls="", marker=marker(look),
            markersize=2.6, color=shade, markeredgewidth=0, alpha=0.75,
            rasterized=drawn.values.height > 10 * VECTORS,
        )  # fmt: skip
    median = float(np.median(values))
    axis.plot([at - half, at + half], [median] * 2, color="black", linewidth=1.1)
    if values.size > DOTTED and look >= len(COLOURS):
        axis.plot([at], [median], **at_median(look))


def _is_number(by: str, level: Any) -> bool:
    """Return whether a level is a number of training rows."""
    return by == FRACTION and level > 1


def _name(axis: Axes, own: Sequence[Any]) -> None:
    """Label the levels below a panel, vertically if they do not fit side by side."""
    names = [f"{one:g}" if isinstance(one, float) else str(one) for one in own]
    place = axis.get_subplotspec()
    assert place is not None
    room = wide() / place.get_gridspec().ncols - 0.6
    upright = max(map(len, names), default=0) * CHARACTER * len(names) > room
    axis.set_xticks(range(len(names)), names, rotation=90 if upright else 0)
    axis.set_xlim(-0.6, len(names) - 0.4)
    axis.tick_params(axis="x", length=0)


def _dot(look: int) -> Line2D:
    return Line2D([], [], ls="", color=colour(look), marker=marker(look), markersize=4)


def _title(drawn: _Violins) -> str:
    label = drawn.quantity.label.partition(" (")[0]
    return label if label.startswith("α") else label[:1].upper() + label[1:]


def _pooled(drawn: _Violins, by: Sequence[str]) -> str:
    """Name the axes that values are pooled over, and the number of test sets."""
    over = [name for name in differing(drawn.tables.cells) if name not in by]
    text = f" Pooled over: {SEPARATOR.join(map(labelled, over))}." if over else ""
    return text + over_test_sets(drawn.values)
