"""The rows of the summary: the table of cells, in order."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import polars as pl

from manyseed.analysis.axes import AXES
from manyseed.analysis.tables import rows
from manyseed.analysis.tables.rows import several

Rows = tuple[Mapping[str, Any], ...]


def summary(cells: pl.DataFrame) -> Rows:
    """Return the rows of the summary: the table of cells, sorted by dataset and classifier.

    Cells are not averaged: with and without a scheme, or with all and half of the data, they are
    different trainings. `copies` is the number of copied runs; `same_as` is the cell that counts in
    place of one with the same fits.
    """
    if rows.SAME_AS not in cells.columns:
        cells = cells.with_columns(pl.lit(None, pl.UInt32).alias(rows.SAME_AS))
    copies = (pl.col("n_runs") - pl.col("n_distinct")).alias("copies")
    if "epoch" in cells.columns:
        trained = pl.when(pl.col("epoch") > 0).then(pl.format("epoch {}", "epoch"))
        cells = cells.sort("epoch").with_columns(trained.fill_null("no epochs").alias("epoch"))
    key = ("dataset", "classifier", "cell")
    return tuple(cells.with_columns(copies).sort(key, maintain_order=True).iter_rows(named=True))


def varying_axes(cells: pl.DataFrame) -> list[str]:
    """Return the axes in which rows of a dataset and classifier differ, epoch last."""
    others = [name for name in AXES if name not in ("dataset", "classifier")]
    found = [name for name in others if cells[name].n_unique() > 1]
    return [*found, "epoch"] if several(cells) else found
