"""Rows of several snapshots.

Where one answer per cell is needed, the cell's last analysed snapshot gives it. Tables of earlier
versions have no column `epoch`, and one snapshot.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any, TypeVar

import polars as pl

from manyseed.analysis.tables.keys import CELL_KEY, EPOCH

if TYPE_CHECKING:
    from manyseed.analysis.tables.schema import Tables

Table = TypeVar("Table", pl.DataFrame, pl.LazyFrame)

IS_LAST = pl.col("epoch") == pl.col("epoch").max().over("cell")
"""Whether a row belongs to its cell's last snapshot, in a table of all analysed snapshots."""


def several(cells: pl.DataFrame) -> bool:
    """Return whether a table holds more than one snapshot of a cell."""
    if "epoch" not in cells.columns:
        return False
    return cells.select(CELL_KEY).n_unique() > cells["cell"].n_unique()


def last(table: Table) -> Table:
    """Return the rows of each cell's last snapshot."""
    return table.filter(IS_LAST) if "epoch" in table.collect_schema() else table


def at_last(tables: Tables) -> Tables:
    """Return the rows of each cell's last snapshot."""
    return of_cells(tables, last(tables.cells)) if several(tables.cells) else tables


def of_cells(tables: Tables, cells: pl.DataFrame) -> Tables:
    """Return the rows of the cells and snapshots that `cells` lists."""
    key = [name for name in CELL_KEY if name in cells.columns]
    wanted = cells.select(key).unique()
    parts: dict[str, Any] = {
        field.name: frame.join(wanted, on=key, how="semi", maintain_order="left")
        for field in fields(tables)
        if isinstance(frame := getattr(tables, field.name), pl.DataFrame)
    }
    return replace(tables, **parts)


def side_by_side(compute: Callable[[Tables], pl.DataFrame], tables: Tables) -> pl.DataFrame:
    """Compute a table for each epoch by itself; sorted by `CELL_KEY` first.

    `compute` takes the tables of one epoch and returns a frame that is sorted by its column cell.
    """
    parts = []
    epochs = tables.cells["epoch"].unique().sort()
    for epoch in epochs:
        at_epoch = tables.cells.filter(epoch=epoch)
        computed = compute(tables if len(epochs) == 1 else of_cells(tables, at_epoch))
        computed = computed.with_columns(pl.lit(epoch, EPOCH["epoch"]).alias("epoch"))
        parts.append(computed.select("cell", "epoch", pl.exclude(CELL_KEY)))
    return pl.concat(parts).sort(CELL_KEY, maintain_order=True)
