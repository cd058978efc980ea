"""What sets cells of a dataset and classifier apart, in words, for titles of panels and rows."""

from __future__ import annotations

import polars as pl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from manyseed.analysis.axes import AXES
from manyseed.analysis.figures.style import panels

AXES_TOLD = " · "
_VALUE = pl.col("value").cast(pl.Float64)
QUANTILES = {
    "n": _VALUE.count().cast(pl.Int64),
    "min": _VALUE.min(),
    "q25": _VALUE.quantile(0.25, "linear"),
    "median": _VALUE.median(),
    "q75": _VALUE.quantile(0.75, "linear"),
    "max": _VALUE.max(),
}
"""What bars and strokes show of `value`."""


def differing(cells: pl.DataFrame) -> list[str]:
    """Return in what cells of a dataset and classifier differ."""
    others = [name for name in AXES if name not in ("dataset", "classifier")]
    return [name for name in others if name in cells.columns and cells[name].n_unique() > 1]


def described(cells: pl.DataFrame) -> pl.DataFrame:
    """Return each cell with what sets it apart, in words: `cell`, `_of`, empty where nothing."""
    parts = [pl.col(name).cast(pl.String) for name in differing(cells)] or [pl.lit("")]
    of = pl.concat_str(parts, separator=AXES_TOLD, ignore_nulls=True).alias("_of")
    return cells.select("cell", of).unique().sort("cell")


def titles(cells: pl.DataFrame) -> dict[int, str]:
    """Return what each cell is: dataset and classifier, and what sets it apart."""
    of = described(cells)
    named = cells.select(
        "cell", pl.concat_str(["dataset", "classifier"], separator=" × ").alias("_name")
    )
    rows = named.unique("cell").join(of, on="cell").iter_rows()
    return {cell: AXES_TOLD.join(filter(None, parts)) for cell, *parts in rows}


def with_names(data: pl.DataFrame, cells: pl.DataFrame) -> pl.DataFrame:
    """Return rows of cells with what these are in front: dataset, classifier, what differs."""
    apart = [name for name in differing(cells) if name not in data.columns]
    names = cells.select("cell", "dataset", "classifier", *apart).unique("cell")
    found = data.join(names, on="cell", how="left", maintain_order="left")
    return found.select(*names.columns, pl.exclude(names.columns))


def first_of_each(cells: pl.DataFrame, most: int) -> tuple[list[int], int]:
    """Return which cells to draw where there is no room for all, and how many are left out.

    Every dataset and classifier has its first cell before any has its second.
    """
    group = ["dataset", "classifier"]
    ordered = cells.unique("cell").sort(*group, "cell")
    turn = ordered.with_columns(_turn=pl.int_range(pl.len()).over(group))
    kept = turn.sort("_turn", *group, "cell").head(most)["cell"].implode()
    chosen = ordered.filter(pl.col("cell").is_in(kept))["cell"].to_list()
    return chosen, ordered.height - len(chosen)


def panel_per_cell(
    cells: pl.DataFrame, most: int, label: str
) -> tuple[Figure, dict[int, Axes], int]:
    """Return a figure, a panel of it for each cell that there is room for, how many are left out.

    Parameters
    ----------
    cells : polars frame
    most : int
        Panels.
    label : str
        Of the vertical axes.
    """
    chosen, left = first_of_each(cells, most)
    named = titles(cells)
    figure, axes = panels([named[cell] for cell in chosen], label)
    return figure, dict(zip(chosen, axes, strict=True)), left


def not_drawn(cells: int) -> str:
    """Say how many cells have no panel."""
    if not cells:
        return ""
    are = "1 more cell is" if cells == 1 else f"{cells:,} more cells are"
    return f" {are} not drawn: their numbers are in the tables."
