"""All cells of several datasets at a glance: one field each, coloured by a mean."""

from __future__ import annotations

import textwrap

import numpy as np
import polars as pl
from matplotlib.figure import Figure

from manyseed.analysis.counts import counted
from manyseed.analysis.figures.colours import GREY
from manyseed.analysis.figures.described import SEPARATOR, described, differing
from manyseed.analysis.figures.kind import kind
from manyseed.analysis.figures.levels import NOTHING
from manyseed.analysis.figures.style import MANY, Plot, wide

WIDTH = 8.6  # inches
ROW = 0.17  # inches per dataset
LABELLED = 40  # most columns that have labels
DATASETS = 80  # most rows
WIDEST, NARROW = 6, 9  # panels side by side if they have at most this many columns; else 4

QUANTITIES = {
    "accuracy_mean": ("Accuracy", "accuracy, mean over repeats"),
    "accuracy_std": ("Spread between seeds", "± seeds: standard deviation within repeats, pooled"),
    "ec_local_mean": ("Local error consistency", "mean over repeats whose runs vary"),
    "alpha_hat_mean": ("α̂", "mean over repeats whose runs vary, to be read with δ (Summary)"),
}
"""Columns of the table of cells that have an overview: title, and the meaning of colours."""


@kind(
    "overview-{}",
    chapter="overview",
    least=MANY,
    name={
        "accuracy_mean": "mean accuracy of all cells, one field each",
        "accuracy_std": "spread between seeds of all cells",
        "ec_local_mean": "local error consistency of all cells",
        "alpha_hat_mean": "mean α̂ of all cells",
    },
)
def overview(cells: pl.DataFrame, name: str) -> Plot | None:
    """Draw a column of the table of cells: one row per dataset, one panel per classifier.

    None with a single dataset, if no cell has a value, or if α̂ is 0 everywhere.
    """
    shown = cells.filter(pl.col(name).is_not_null())
    datasets = cells["dataset"].cast(pl.String).unique().sort().to_list()[:DATASETS]
    if shown.is_empty() or len(datasets) < 2:
        return None
    if name == "alpha_hat_mean" and float(shown[name].max()) < NOTHING:  # type: ignore[arg-type]
        return None
    named = cells.join(described(cells), on="cell").with_columns(
        pl.col("dataset", "classifier").cast(pl.String)
    )
    columns = named.sort("cell")["_of"].unique(maintain_order=True).to_list()
    classifiers = named["classifier"].unique().sort().to_list()
    apart = bool(differing(cells))
    panels = classifiers if apart else [""]
    across = columns if apart else classifiers
    key = "_of" if apart else "classifier"
    values = {
        (row["classifier"] if apart else "", row["dataset"], row[key]): row[name]
        for row in named.iter_rows(named=True)
    }
    beside = min(len(panels), WIDEST if len(across) <= NARROW else 4)
    deep = -(-len(panels) // beside)
    letters = max(map(len, across)) if len(across) <= LABELLED else 0
    tall = deep * (0.35 + ROW * max(len(datasets), 3)) + 0.5 + min(letters, 40) * 0.065
    figure = Figure(figsize=(wide(WIDTH), tall))
    figure.set_layout_engine("constrained", h_pad=0.05)
    axes = figure.subplots(deep, beside, squeeze=False, sharex=True, sharey=True)
    ends = {"vmin": shown[name].min(), "vmax": shown[name].max()}
    for index, (axis, panel) in enumerate(zip(axes.flat, panels, strict=False)):
        field = np.array(
            [[values.get((panel, one, other)) for other in across] for one in datasets], dtype=float
        )
        image = axis.imshow(field, aspect="auto", interpolation="none", cmap="cividis", **ends)
        axis.grid(visible=False)
        axis.set_title(panel)
        axis.set_yticks(range(len(datasets)), [textwrap.shorten(one, 30) for one in datasets])
        last = index + beside >= len(panels)
        labels = [textwrap.shorten(one, 40) for one in across] if letters and last else []
        axis.set_xticks(range(len(labels)), labels, rotation=90)
        axis.tick_params(length=0, labelbottom=last)
        axis.spines[["left", "bottom"]].set_visible(False)
    for extra in axes.flat[len(panels) :]:
        extra.remove()
    bar = figure.colorbar(image, ax=list(axes.flat[: len(panels)]), shrink=0.8, aspect=30, pad=0.01)
    bar.outline.set_edgecolor(GREY)
    title, meaning = QUANTITIES[name]
    varied = SEPARATOR.join(differing(cells)).replace("_", " ")
    return Plot(
        f"overview-{name.replace('_', '-')}",
        f"{title} of all cells",
        f"Each field is a cell; colour: {meaning}. Rows: datasets; "
        f"columns: {varied if apart else 'classifiers'}"
        f"{', in the order of the summary' if not letters else ''}. Empty: not planned, not "
        f"finished or undefined. n = {counted(shown.height, 'cell')}.",
        shown.height,
        figure,
        data=shown.filter(pl.col("dataset").cast(pl.String).is_in(datasets)).select(
            "cell", "dataset", "classifier", *differing(cells), name
        ),
    )
