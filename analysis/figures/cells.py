"""Every cell of a dataset in a row of its own: accuracy, its range, error consistency, α̂.

A row is a cell, a column a quantity; nothing is put together. Many cells are drawn as bars of their
quantiles, few as violins and dots.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import polars as pl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import PathPatch
from matplotlib.path import Path
from numpy.typing import NDArray

from manyseed.analysis.figures.described import (
    AXES_TOLD,
    QUANTILES,
    described,
    differing,
    not_drawn,
    with_names,
)
from manyseed.analysis.figures.levels import (
    LEVELS,
    NOTHING,
    axis_of_levels,
    mark_resolution,
)
from manyseed.analysis.figures.quantities import MAIN, Quantities, Quantity
from manyseed.analysis.figures.shapes import DOTTED, FEWEST, outline, scattered
from manyseed.analysis.figures.style import CELLS, Band, Mark, Plot, addresses, colour, styled, wide
from manyseed.analysis.tables.schema import Tables

Real = NDArray[np.float64]

WIDTH = 8.6  # inches
ROW = 0.125  # inches, of a cell
BELOW = 0.28  # inches, of the labels below
LINE = 0.17  # inches, of a line of the legend
LETTER = 0.068  # inches, about
LETTERS = 26  # of a line of what a row is
RICH = 200  # cells of a page up to which violins are drawn
ROWS = 72  # cells of a figure
BESIDE = 5  # columns that have room for titles and ticks as large as elsewhere
MOST = 2400  # cells that are drawn
_AROUND = 0.05  # of a value, on both sides of it, where there is no other
_DOT = 1e-6  # of an axis, the length of a stroke that is drawn as a dot


def of_datasets(
    tables: Tables, of: Quantities = MAIN, name: str = "", about: str = ""
) -> list[Plot]:
    """Draw the cells of each dataset, `ROWS` of them in a figure, `MOST` in all.

    Parameters
    ----------
    tables : Tables
        With the columns of `AXES` joined.
    of : callable
        Which quantities are drawn: of tables, a list of `Quantity`.
    name, about : str
        What the figures' names end with, beside numbers, and their titles.
    """
    cells = tables.cells.sort(pl.col("dataset").cast(pl.String), "cell")
    rich = cells["cell"].n_unique() <= RICH
    drawn: list[Plot] = []
    left, out = MOST, 0
    for number, own in enumerate(cells.partition_by("dataset", maintain_order=True)):
        parts = list(_parts(own))
        for part, rows in enumerate(parts):
            if left < len(rows):
                out += len(rows)
                continue
            title = about + (f", part {part + 1} of {len(parts)}" if len(parts) > 1 else "")
            one = f"{CELLS}{name}{number + 1}" + (f"-{part + 1}" if len(parts) > 1 else "")
            plot = of_dataset(tables, rows, one, title, rich=rich, of=of)
            if plot is not None:
                drawn.append(plot)
                left -= len(rows)
    if out and drawn:
        drawn[-1] = replace(drawn[-1], caption=drawn[-1].caption + not_drawn(out))
    return drawn


def _parts(own: pl.DataFrame) -> Iterator[list[int]]:
    """Yield the cells of each figure of a dataset: whole blocks of one description."""
    blocks = own.join(described(own), on="cell").partition_by("_of", maintain_order=True)
    rows: list[int] = []
    for block in blocks:
        cells = block.sort("classifier", "cell")["cell"].unique(maintain_order=True).to_list()
        if rows and len(rows) + len(cells) > ROWS:
            yield rows
            rows = []
        rows = rows + cells
    yield rows


@styled
def of_dataset(
    tables: Tables,
    cells: Sequence[int],
    name: str,
    part: str = "",
    *,
    rich: bool = True,
    of: Quantities = MAIN,
) -> Plot | None:
    """Draw the cells of one dataset, a row each; None where none of them has a run.

    Parameters
    ----------
    tables : Tables
        With the columns of `AXES` joined.
    cells : sequence of int
        Which, of one dataset, in their order.
    name, part : str
        The figure's name, and what its title ends with.
    rich : bool
        Whether violins and dots are drawn, or bars alone.
    of : callable
        As `of_datasets` has it.
    """
    place = {cell: index for index, cell in enumerate(cells)}
    here = pl.col("cell").is_in(list(place))
    own = Tables(
        *(getattr(tables, one).filter(here) for one in ("runs", "pairs", "repeats", "cells"))
    )
    shown = [one for one in of(own) if one.values.height]
    if not shown or own.runs.is_empty():
        return None
    classifiers = tables.cells["classifier"].cast(pl.String).unique().sort().to_list()
    rows = _Shown.of(own.cells, cells, tables.cells)
    drawn = [one for one in shown if not says_nothing(one)]
    if not drawn:
        return None
    there = own.cells["classifier"].cast(pl.String).unique().sort().to_list()
    entries = there if rows.by_classifier and len(classifiers) > 1 else []
    columns = _legend_columns(entries)
    above = 0.5 + (LINE * (1 + -(-len(entries) // columns)) if entries else 0)
    tall = above + BELOW + ROW * rows.height
    figure = Figure(figsize=(wide(WIDTH), tall))
    beside = max(len(line) for label in rows.labels for line in label.split("\n")) * LETTER + 0.12
    axes = list(figure.subplots(1, len(drawn), squeeze=False, sharey=True).flat)
    # a layout of its own: matplotlib's takes longer than all else
    figure.subplots_adjust(
        left=beside / wide(WIDTH),
        right=0.985,
        top=1 - above / tall,
        bottom=BELOW / tall,
        wspace=0.17,
    )
    marks: list[Mark] = []
    for axis, quantity in zip(axes, drawn, strict=True):
        marks += _column(axis, quantity, rows, classifiers, rich)
        if quantity.name in LEVELS:
            axis_of_levels(axis)
            mark_resolution(axis, own.repeats)
    axes[0].set_yticks(rows.ticks, rows.labels)
    axes[0].set_ylim(rows.height - 0.3, -0.7)
    if entries:
        dots = [
            Line2D([], [], ls="", color=colour(classifiers.index(one)), marker="o", markersize=4)
            for one in entries
        ]
        figure.legend(
            dots,
            entries,
            loc="upper left",
            bbox_to_anchor=(0, 1),
            ncols=columns,
            title="classifier",
            title_fontsize=8,
            alignment="left",
        )
    dataset = str(own.cells["dataset"][0])
    varied = AXES_TOLD.join(differing(tables.cells)).replace("_", " ")
    said = [f"Rows: {varied}." if varied else "", *(one.said for one in shown)]
    said += [_nothing(one, own.repeats) for one in shown if says_nothing(one)]
    n = own.runs.filter(~pl.col("identical")).height if of is MAIN else shown[0].values.height
    words = " ".join(filter(None, said))
    bands = [Band(axes[0], top, end, levels) for top, end, levels in rows.bands()]
    data = pl.concat(described_by_quantiles(one, own.cells) for one in drawn)
    return Plot(name, f"{dataset}{part}", words, n, figure, marks, dataset, bands, data)


def described_by_quantiles(quantity: Quantity, cells: pl.DataFrame) -> pl.DataFrame:
    """Return what bars and strokes show of a quantity, a row per cell."""
    found = quantity.values.group_by("cell").agg(**QUANTILES).sort("cell")
    of = found.select("cell", pl.lit(quantity.name).alias("quantity"), *QUANTILES)
    return with_names(of, cells)


def _legend_columns(names: Sequence[str]) -> int:
    widest = max((len(name) for name in names), default=1) * LETTER + 0.6
    return int(np.clip(wide(WIDTH) // widest, 1, max(len(names), 1)))


def says_nothing(quantity: Quantity) -> bool:
    """Return whether it is α̂, and 0 throughout."""
    return quantity.name in LEVELS and float(quantity.values["value"].max()) < NOTHING  # type: ignore[arg-type]


def _nothing(quantity: Quantity, repeats: pl.DataFrame) -> str:
    deltas = repeats["delta"].drop_nulls()
    below = f", as anything below δ = {deltas[0]:.3f} would be" if deltas.len() else ""
    return f"α̂ is not drawn: that of all {quantity.values.height:,} runs is 0{below}."


@dataclass(frozen=True, slots=True)
class _Shown:
    """Where cells stand: at `at`, with blocks of one description apart.

    `blocks` are where these begin and end, with the levels of what cells differ in; none where a
    row is a classifier.
    """

    at: Mapping[int, float]
    classifier: Mapping[int, str]
    ticks: Sequence[float]
    labels: Sequence[str]
    height: float
    by_classifier: bool
    blocks: Sequence[tuple[float, float, Sequence[str]]]

    @classmethod
    def of(cls, own: pl.DataFrame, cells: Sequence[int], all_cells: pl.DataFrame) -> _Shown:
        of = dict(described(all_cells).select("cell", "_of").iter_rows())
        classifier = dict(own.select("cell", pl.col("classifier").cast(pl.String)).iter_rows())
        by_classifier = bool(differing(all_cells))
        at, ticks, labels = dict[int, float](), list[float](), list[str]()
        of_axes = all_cells.select("cell", pl.col(differing(all_cells)).cast(pl.String))
        axes = {cell: values for cell, *values in of_axes.iter_rows()}
        blocks = list[tuple[float, float, Sequence[str]]]()
        y = 0.0
        block: list[int] = []

        def close() -> None:
            nonlocal y
            label = textwrap.fill(of[block[0]], LETTERS)
            first, last = at[block[0]], at[block[-1]]
            ticks.append((first + last) / 2)
            labels.append(label)
            lines = label.count("\n") + 1
            half = max(last - first + 1, 1.1 * lines) / 2
            blocks.append((ticks[-1] - half, ticks[-1] + half, axes[block[0]]))
            y = max(last, first + 1.1 * lines - 1) + 1.7

        for cell in cells:
            if not by_classifier:
                at[cell] = y
                ticks.append(y)
                labels.append(textwrap.fill(classifier[cell], LETTERS))
                y += 1.6
                continue
            if block and of[block[0]] != of[cell]:
                close()
                block = []
            at[cell] = y
            y += 1
            block.append(cell)
        if block:
            close()
        return cls(at, classifier, ticks, labels, y, by_classifier, blocks)

    def bands(self) -> Iterator[tuple[float, float, Sequence[str]]]:
        """Yield where each block begins and ends, half-way to the next one, and its levels."""
        if not self.blocks:
            return
        tops, ends, levels = zip(*self.blocks, strict=True)
        between = [(end + top) / 2 for end, top in zip(ends, tops[1:], strict=False)]
        yield from zip([tops[0], *between], [*between, ends[-1]], levels, strict=True)


def _column(
    axis: Axes, quantity: Quantity, rows: _Shown, classifiers: Sequence[str], rich: bool
) -> list[Mark]:
    """Draw a quantity of all cells; what is of one classifier is one shape each.

    Return the dots that are runs.
    """
    parts = quantity.values.sort("cell", "value", maintain_order=True).partition_by(
        "cell", as_dict=True
    )
    by_classifier: dict[str, list[tuple[float, Real]]] = {}
    marks: list[Mark] = []
    for (cell,), own in parts.items():
        values = own["value"].to_numpy()
        by_classifier.setdefault(rows.classifier[int(cell)], []).append(
            (rows.at[int(cell)], values)
        )
        if "run_index" in own.columns and (own.height < FEWEST or (rich and own.height <= DOTTED)):
            up = rows.at[int(cell)] + scattered(own.height)
            marks.append(Mark(axis, values, up, addresses(own)))
    span = quantity.values["value"].to_numpy()
    tiny = _DOT * (float(span.max() - span.min()) or 1)
    axis.grid(visible=True, axis="x")
    axis.grid(visible=False, axis="y")
    for one, drawn in by_classifier.items():
        look = colour(classifiers.index(one))
        shaped = rich and quantity.name not in LEVELS  # its axis is not linear
        outlines = [outline(values, y) for y, values in drawn if shaped and values.size >= FEWEST]
        shapes = [shape for shape in outlines if shape is not None]
        if shapes:
            path = Path.make_compound_path(*(Path(shape, closed=True) for shape in shapes))
            axis.add_patch(PathPatch(path, facecolor=look, edgecolor="none", alpha=0.3))
            axis.update_datalim(np.asarray(path.vertices)[:-1])
        boxes = [(y, v) for y, v in drawn if v.size >= FEWEST and (not rich or v.size > DOTTED)]
        if boxes:
            ends = [(v[0], v[-1], y) for y, v in boxes]
            middle = [(*np.quantile(v, [0.25, 0.75]), y) for y, v in boxes]
            axis.plot(*_strokes(ends), color=look, linewidth=0.8)
            axis.plot(*_strokes(middle), color=look, linewidth=3.2, solid_capstyle="butt")
        dots = [
            (value, value + tiny, y + up)
            for y, v in drawn
            if v.size < FEWEST or (rich and v.size <= DOTTED)
            for value, up in zip(v, scattered(v.size), strict=True)
        ]
        if dots:
            axis.plot(
                *_strokes(dots),
                color=look,
                linewidth=2.4,
                solid_capstyle="round",
                alpha=0.75,
                snap=False,  # a stroke of no length would not be drawn as pixels
            )
        medians = [(float(np.median(v)), y) for y, v in drawn]
        xs = np.array([[x, x, np.nan] for x, _ in medians]).ravel()
        ys = np.array([[y - 0.42, y + 0.42, np.nan] for _, y in medians]).ravel()
        axis.plot(xs, ys, color="black", linewidth=1.1, solid_capstyle="butt")
    if span.max() == span.min() and quantity.name not in LEVELS:
        around = _AROUND * (abs(float(span[0])) or 1)  # else its dots would be as wide as the axis
        axis.set_xlim(float(span[0]) - around, float(span[0]) + around)
    narrow = len(axis.figure.axes) > BESIDE
    axis.set_title(quantity.label, pad=12, fontsize=8 if narrow else None)
    axis.tick_params(axis="y", length=0)
    _with_room(axis, 2 if narrow else 4)
    return marks


def _with_room(axis: Axes, most: int) -> None:
    """Have as many ticks across as their numbers have room for."""
    inches = axis.get_position().width * wide(WIDTH)
    low, high = axis.get_xlim()
    for bins in range(most, 0, -1):
        axis.locator_params(axis="x", nbins=bins)
        ticks = [one for one in axis.get_xticks() if low <= one <= high]
        if len(ticks) < 2:
            return
        said = axis.xaxis.get_major_formatter().format_ticks(ticks)
        room = (max(map(len, said)) + 1) * LETTER
        if (ticks[1] - ticks[0]) / (high - low) * inches > room:
            return


def _strokes(ends: Sequence[tuple[float, float, float]]) -> tuple[Real, Real]:
    """Return x and y of horizontal strokes from, to, at; one line, interrupted."""
    xs = np.array([[low, high, np.nan] for low, high, _ in ends]).ravel()
    ys = np.array([[y, y, np.nan] for _, _, y in ends]).ravel()
    return xs, ys
