"""Every cell of a dataset in its own row: accuracy, its range, error consistency, α̂.

A row is a cell, a column a quantity; nothing is pooled. Many cells are drawn as bars of quantiles,
few as violins and dots.
"""

from __future__ import annotations

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

from manyseed.analysis.counts import fixed
from manyseed.analysis.figures.kind import kind
from manyseed.analysis.figures.labels import (
    COLOURS,
    LEVELS,
    NOTHING,
    QUANTILES,
    SEPARATOR,
    Quantities,
    Quantity,
    among,
    axis_of_levels,
    colour,
    column,
    described,
    differing,
    main,
    mark_resolution,
    marker,
    not_drawn,
    over_test_sets,
    runs_vary,
    with_names,
)
from manyseed.analysis.figures.style import (
    DOTTED,
    FEWEST,
    MANY,
    Band,
    Mark,
    Plot,
    addresses,
    at_median,
    outline,
    scattered,
    shapes_told,
    styled,
    wide,
    wrapped,
)
from manyseed.analysis.figures.svg import CELLS
from manyseed.analysis.tables.rows import Tables

Real = NDArray[np.float64]

WIDTH = 8.6  # inches
ROW = 0.125  # inches per cell
BELOW = 0.28  # inches of the labels below
LINE = 0.17  # inches per line of the legend
LETTER = 0.068  # inches per letter, approximately
LETTERS = 26  # letters per line of a row's label
RICH = 200  # most cells of a page that are drawn as violins
ROWS = 72  # most cells per figure
BESIDE = 5  # most columns with titles and ticks of the usual size
MOST = 2400  # most cells that are drawn
_AROUND = 0.05  # margin on both sides of a single value, as a share of it
_DOT = 1e-6  # length of a stroke drawn as a dot, as a share of the axis


@kind(
    "cells",
    "accuracy, its range, error consistency and α̂, a row per cell, a figure per dataset",
    chapter="cells",
    least=MANY,
)
def of_datasets(
    tables: Tables, of: Quantities = main, name: str = "", about: str = ""
) -> list[Plot]:
    """Draw the cells of each dataset, `ROWS` to a figure and `MOST` in total.

    `tables`: with the columns of `AXES` joined. `of`: returns the list of `Quantity` to draw, given
    tables. `name` and `about`: suffix of the figures' names, before their numbers, and of their
    titles.
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
            full_name = f"{CELLS}{name}{number + 1}" + (f"-{part + 1}" if len(parts) > 1 else "")
            plot = of_dataset(tables, rows, full_name, title, rich=rich, of=of)
            if plot is not None:
                drawn.append(plot)
                left -= len(rows)
    if out and drawn:
        drawn[-1] = replace(drawn[-1], caption=drawn[-1].caption + not_drawn(out))
    return drawn


_CONSISTENCY = {
    "ec_global_mean": "global: mean",
    "ec_global_range": "global: range",
    "ec_global_cube_root_mean": "global, adjusted",
    "ec_local_mean": "local: mean",
    "ec_local_range": "local: range",
    "ec_local_cube_root_mean": "local, adjusted",
}


@kind(
    "consistency-repeats",
    "means and ranges of error consistency of each repeat, a row per cell, a figure per dataset",
    chapter="cells",
    least=MANY,
    small=True,
)
def consistency_of_repeats(tables: Tables) -> list[Plot]:
    """Draw means and ranges of error consistency of each repeat."""
    about = ": error consistency of repeats"
    return of_datasets(tables, _consistency, "consistency-repeats-", about)


def _consistency(tables: Tables) -> list[Quantity]:
    known = [name for name in _CONSISTENCY if name in tables.repeats.columns]
    found = [one for name in known for one in column(name)(tables)]
    labels_of: dict[str, list[str]] = {}
    for one in found:
        labels_of.setdefault(one.words, []).append(_CONSISTENCY[one.name])
    words = (
        "Error consistency of the pairs of each repeat: their mean, the largest minus the "
        "smallest, and the mean adjusted for accuracy (cube root). "
    ) + " ".join(
        text if len(labels_of) == 1 else f"{', '.join(labels)}: {text}"
        for text, labels in labels_of.items()
    )
    return [
        replace(one, label=_CONSISTENCY[one.name], words="" if number else words)
        for number, one in enumerate(found)
    ]


def _parts(own: pl.DataFrame) -> Iterator[list[int]]:
    """Yield the cells of each figure of a dataset; cells of one description stay together."""
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
    of: Quantities = main,
) -> Plot | None:
    """Draw the cells of one dataset, one row each; None if none of them has a run.

    `tables`: with the columns of `AXES` joined. `cells`: cells of one dataset, in the order of
    rows. `name` and `part`: the figure's name, and the suffix of its title. `rich`: whether to draw
    violins and dots, or bars only. `of`: as in `of_datasets`.
    """
    wanted = pl.col("cell").is_in(list(cells))
    own = Tables(
        *(getattr(tables, one).filter(wanted) for one in ("runs", "pairs", "repeats", "cells"))
    )
    shown = [one for one in of(own) if one.values.height]
    if not shown or own.runs.is_empty():
        return None
    classifiers = tables.cells["classifier"].cast(pl.String).unique().sort().to_list()
    places = among(classifiers)
    rows = _Shown.of(own.cells, cells, tables.cells)
    drawn = [one for one in shown if not says_nothing(one)]
    if not drawn:
        return None
    entries = []
    if rows.by_classifier and len(classifiers) > 1:
        entries = own.cells["classifier"].cast(pl.String).unique().sort().to_list()
    columns = _legend_columns(entries)
    above = 0.5 + (LINE * (1 + -(-len(entries) // columns)) if entries else 0)
    tall = above + BELOW + ROW * rows.height
    figure = Figure(figsize=(wide(WIDTH), tall))
    beside = max(len(line) for label in rows.labels for line in label.split("\n")) * LETTER + 0.12
    axes = list(figure.subplots(1, len(drawn), squeeze=False, sharey=True).flat)
    # matplotlib's layout engine would take longer than everything else
    figure.subplots_adjust(
        left=beside / wide(WIDTH),
        right=0.985,
        top=1 - above / tall,
        bottom=BELOW / tall,
        wspace=0.17,
    )
    marks: list[Mark] = []
    for axis, quantity in zip(axes, drawn, strict=True):
        marks += _column(axis, quantity, rows, places, rich)
        if quantity.name in LEVELS:
            axis_of_levels(axis)
            mark_resolution(axis, own.repeats)
    axes[0].set_yticks(rows.ticks, rows.labels)
    axes[0].set_ylim(rows.height - 0.3, -0.7)
    dataset = str(own.cells["dataset"][0])
    if entries:
        dots = [
            Line2D([], [], ls="", color=colour(look), marker=marker(look), markersize=4)
            for look in map(places.index, entries)
        ]
        figure.legend(
            dots,
            entries,
            loc="upper left",
            bbox_to_anchor=(0, 1),
            ncols=columns,
            title=f"{dataset}, classifier",
            title_fontsize=8,
            alignment="left",
        )
    else:
        name_of = wrapped(dataset, max(int(beside / LETTER), 1))
        figure.text(0.06 / wide(WIDTH), 1 - (above - 0.15) / tall, name_of, va="bottom", fontsize=8)
    varied = SEPARATOR.join(differing(tables.cells)).replace("_", " ")
    sentences = [f"Rows: {varied}." if varied else "", *(one.words for one in shown)]
    sentences += [_nothing(one, own.repeats) for one in shown if says_nothing(one)]
    sentences.append(shapes_told(drawn, rich=rich))
    sentences.append(over_test_sets(shown[0].values).strip() if shown else "")
    n = own.runs.filter(~pl.col("identical")).height if of is main else shown[0].values.height
    words = " ".join(filter(None, sentences))
    bands = [Band(axes[0], top, end, levels) for top, end, levels in rows.bands()]
    data = pl.concat(described_by_quantiles(one, own.cells) for one in drawn)
    return Plot(name, f"{dataset}{part}", words, n, figure, marks, dataset, bands, data)


def described_by_quantiles(quantity: Quantity, cells: pl.DataFrame) -> pl.DataFrame:
    """Return the quantiles that bars and strokes show, a row per cell."""
    found = quantity.values.group_by("cell").agg(**QUANTILES).sort("cell")
    named = found.select("cell", pl.lit(quantity.name).alias("quantity"), *QUANTILES)
    return with_names(named, cells)


def _legend_columns(names: Sequence[str]) -> int:
    widest = max((len(name) for name in names), default=1) * LETTER + 0.6
    return int(np.clip(wide(WIDTH) // widest, 1, max(len(names), 1)))


def says_nothing(quantity: Quantity) -> bool:
    """Return whether the quantity is α̂ and 0 everywhere."""
    return quantity.name in LEVELS and float(quantity.values["value"].max()) < NOTHING  # type: ignore[arg-type]


def _nothing(quantity: Quantity, repeats: pl.DataFrame) -> str:
    deltas = repeats["delta"].drop_nulls()
    below = f", as anything below δ = {fixed(deltas[0], 3)} would be" if deltas.len() else ""
    return f"α̂ is not drawn: it is 0 for all {quantity.values.height:,} runs{below}."


@dataclass(frozen=True, slots=True)
class _Shown:
    """Vertical positions of cells, `at`, with gaps between blocks of one description.

    `blocks` holds the top, bottom and levels of each block; empty if a row is a classifier.
    `cells`: their rows of the table of cells.
    """

    cells: pl.DataFrame
    at: Mapping[int, float]
    classifier: Mapping[int, str]
    ticks: Sequence[float]
    labels: Sequence[str]
    height: float
    by_classifier: bool
    blocks: Sequence[tuple[float, float, Sequence[str]]]

    @classmethod
    def of(cls, own: pl.DataFrame, cells: Sequence[int], all_cells: pl.DataFrame) -> _Shown:
        description = dict(described(all_cells).select("cell", "_of").iter_rows())
        classifier = dict(own.select("cell", pl.col("classifier").cast(pl.String)).iter_rows())
        by_classifier = bool(differing(all_cells))
        at, ticks, labels = dict[int, float](), list[float](), list[str]()
        levels = all_cells.select("cell", pl.col(differing(all_cells)).cast(pl.String))
        axes = {cell: values for cell, *values in levels.iter_rows()}
        blocks = list[tuple[float, float, Sequence[str]]]()
        y = 0.0
        block: list[int] = []

        def close() -> None:
            nonlocal y
            label = wrapped(description[block[0]], LETTERS)
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
                labels.append(wrapped(classifier[cell], LETTERS))
                y += 1.6
                continue
            if block and description[block[0]] != description[cell]:
                close()
                block = []
            at[cell] = y
            y += 1
            block.append(cell)
        if block:
            close()
        return cls(own, at, classifier, ticks, labels, y, by_classifier, blocks)

    def bands(self) -> Iterator[tuple[float, float, Sequence[str]]]:
        """Yield the top and bottom of each block, half-way to its neighbours, and its levels."""
        if not self.blocks:
            return
        tops, ends, levels = zip(*self.blocks, strict=True)
        between = [(end + top) / 2 for end, top in zip(ends, tops[1:], strict=False)]
        yield from zip([tops[0], *between], [*between, ends[-1]], levels, strict=True)


def _column(
    axis: Axes, quantity: Quantity, rows: _Shown, classifiers: Sequence[str], rich: bool
) -> list[Mark]:
    """Draw a quantity of all cells, each classifier as a single artist; return dots of runs."""
    parts = quantity.values.sort("cell", "value", maintain_order=True).partition_by(
        "cell", as_dict=True
    )
    vary = runs_vary(quantity.values, rows.cells, ["cell"])
    varying = {int(cell) for cell, varies in vary.rows() if varies}
    with_shape: set[float] = {rows.at[cell] for cell in varying}
    by_classifier: dict[str, list[tuple[float, Real]]] = {}
    marks: list[Mark] = []
    for (cell,), own in parts.items():
        values = own["value"].to_numpy()
        by_classifier.setdefault(rows.classifier[int(cell)], []).append(
            (rows.at[int(cell)], values)
        )
        if "run_index" in own.columns and (own.height < FEWEST or (rich and own.height <= DOTTED)):
            heights = rows.at[int(cell)] + scattered(own.height)
            marks.append(Mark(axis, values, heights, addresses(own)))
    span = quantity.values["value"].to_numpy()
    tiny = _DOT * (float(span.max() - span.min()) or 1)
    axis.grid(visible=True, axis="x")
    axis.grid(visible=False, axis="y")
    for classifier, drawn in by_classifier.items():
        look = colour(classifiers.index(classifier))
        shaped = rich and quantity.name not in LEVELS  # the axis of α̂ is not linear
        outlines = [
            outline(values, y)
            for y, values in drawn
            if shaped and y in with_shape and values.size >= FEWEST
        ]
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
                snap=False,  # snapping to pixels would hide strokes without length
            )
        medians = [(float(np.median(v)), y) for y, v in drawn]
        xs = np.array([[x, x, np.nan] for x, _ in medians]).ravel()
        ys = np.array([[y - 0.42, y + 0.42, np.nan] for _, y in medians]).ravel()
        axis.plot(xs, ys, color="black", linewidth=1.1, solid_capstyle="butt")
        if classifiers.index(classifier) >= len(COLOURS):
            axis.plot(*zip(*medians, strict=True), **at_median(classifiers.index(classifier)))
    if span.max() == span.min() and quantity.name not in LEVELS:
        around = _AROUND * (abs(float(span[0])) or 1)  # else dots would fill the axis
        axis.set_xlim(float(span[0]) - around, float(span[0]) + around)
    narrow = len(axis.figure.axes) > BESIDE
    axis.set_title(quantity.label, pad=12, fontsize=8 if narrow else None)
    axis.tick_params(axis="y", length=0)
    _with_room(axis, 2 if narrow else 4)
    return marks


def _with_room(axis: Axes, most: int) -> None:
    """Set as many horizontal ticks as there is room for labels."""
    inches = axis.get_position().width * wide(WIDTH)
    low, high = axis.get_xlim()
    for bins in range(most, 0, -1):
        axis.locator_params(axis="x", nbins=bins)
        ticks = [one for one in axis.get_xticks() if low <= one <= high]
        if len(ticks) < 2:
            return
        labels = axis.xaxis.get_major_formatter().format_ticks(ticks)
        room = (max(map(len, labels)) + 1) * LETTER
        if (ticks[1] - ticks[0]) / (high - low) * inches > room:
            return


def _strokes(ends: Sequence[tuple[float, float, float]]) -> tuple[Real, Real]:
    """Return x and y of horizontal strokes (from, to, at) as one interrupted line."""
    xs = np.array([[low, high, np.nan] for low, high, _ in ends]).ravel()
    ys = np.array([[y, y, np.nan] for _, _, y in ends]).ravel()
    return xs, ys
