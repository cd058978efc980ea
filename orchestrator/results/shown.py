"""The columns that a query shows by default, and how it names runs."""

from __future__ import annotations

import polars as pl

from manyseed.analysis.axes import AXES
from manyseed.analysis.tables.keys import CELL_KEY
from manyseed.analysis.tables.records import records
from manyseed.analysis.tables.twins import IS_TWIN, SAME_AS
from manyseed.orchestrator.results.tables import Results

ADDRESSES = {"address": "run_index", "address_i": "run_i", "address_j": "run_j"}
"""Columns with a run's address, as `show` and `rerun` take it, by the column they require."""


def rows_of(tables: Results, table: str) -> pl.LazyFrame:
    """Return a table lazily, with the addresses of its runs."""
    frame = tables.scan(table)
    names = frame.collect_schema().names()
    return frame.with_columns(
        pl.format("{}:{}:{}", "cell", "repeat_index", run).alias(name)
        for name, run in ADDRESSES.items()
        if run in names
    )


NUMBERED = (
    *("cell", "repeat_index", "run_index", "run_i", "run_j", "recipe", "draw", "members"),
    *("trained_epoch", "reference_cell", "deep_cell", "threshold", "bins", "bin"),
    *("size", "nearest_run", "furthest_run", "magnitude", "layer"),
)
"""Columns with numbers that are not averaged: indices, sizes and settings."""


def everything(table: str, frame: pl.LazyFrame) -> list[str]:
    """Return the columns to group by if rows that differ only in seeds are grouped."""
    names = frame.collect_schema().names()
    beside = [name for name in records()[table].beside if name in names]
    return [*what_varies(frame), *beside]


def what_varies(frame: pl.LazyFrame) -> list[str]:
    """Return the axes that vary, and epoch if snapshots do; dataset and classifier always."""
    first = [name for name in AXES if name in ("dataset", "classifier")]
    names = frame.collect_schema().names()  # rows may be over several cells
    others = [name for name in AXES if name not in first and name in names]
    counted = [pl.col(name).n_unique() for name in others]
    if "epoch" in names:
        more = pl.struct(CELL_KEY).n_unique() - pl.col("cell").n_unique()
        counted.append((1 + more).alias("epoch"))
    if not counted:
        return first
    values = frame.select(counted).collect()
    return [*first, *(name for name in values.columns if values[name][0] > 1)]


def main_columns(table: str, frame: pl.LazyFrame) -> list[str]:
    """Return the columns that `what_varies` returns, and the main metrics."""
    names, record = frame.collect_schema().names(), records()[table]
    main = (name for name in record.shown if name in names)  # earlier versions had fewer
    twins = [SAME_AS] if SAME_AS in names and frame.filter(IS_TWIN).collect().height else []
    optional = [name for name in record.where_kept if name in names]
    found = frame.select(pl.col(name).is_not_null().any() for name in optional).collect()
    kept = [name for name in optional if found[name].any()]
    return [*what_varies(frame), *twins, *main, *kept]
