"""Rows of several snapshots: distinguished, and put together only where that is asked for.

A cell is known by its last snapshot that was analysed, where one answer is asked for. Tables of
earlier analyses have no column `epoch`, and one snapshot.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any, TypeVar

import polars as pl

from manyseed.analysis.tables.keys import CELL_KEY, EPOCH

if TYPE_CHECKING:
    from manyseed.analysis.tables.schema import Tables

Table = TypeVar("Table", pl.DataFrame, pl.LazyFrame)

IS_LAST = pl.col("epoch") == pl.col("epoch").max().over("cell")
"""Whether a row is of its cell's last snapshot, in a table of all that were analysed."""


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
    """Return the rows of some cells, at the snapshots that are listed: by their rows in `cells`."""
    key = [name for name in CELL_KEY if name in cells.columns]
    wanted = cells.select(key).unique()
    parts: dict[str, Any] = {
        one.name: of_one.join(wanted, on=key, how="semi", maintain_order="left")
        for one in fields(tables)
        if isinstance(of_one := getattr(tables, one.name), pl.DataFrame)
    }
    return replace(tables, **parts)


def each(tables: Tables) -> Iterator[tuple[int, Tables]]:
    """Yield every epoch that the tables hold, ascending, with its rows."""
    epochs = tables.cells["epoch"].unique().sort().to_list()
    for epoch in epochs:
        here = tables.cells.filter(epoch=epoch)
        yield epoch, tables if len(epochs) == 1 else of_cells(tables, here)


def side_by_side(compute: Callable[[Tables], pl.DataFrame], tables: Tables) -> pl.DataFrame:
    """Compute a table for each epoch by itself, sorted by `CELL_KEY` first.

    Parameters
    ----------
    compute : callable
        `Tables` of one epoch to a frame with the column cell, by which it is sorted.
    tables : Tables
    """
    parts = []
    for epoch, here in each(tables):
        found = compute(here).with_columns(pl.lit(epoch, EPOCH["epoch"]).alias("epoch"))
        parts.append(found.select("cell", "epoch", pl.exclude(CELL_KEY)))
    return pl.concat(parts).sort(CELL_KEY, maintain_order=True)
