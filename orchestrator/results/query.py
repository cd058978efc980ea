"""Ask the result tables: a filter, columns, groups and an order."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path

import polars as pl

from manyseed.analysis.axes import AXES
from manyseed.analysis.tables.keys import CELL_KEY
from manyseed.analysis.tables.snapshots import several
from manyseed.analysis.tables.twins import IS_TWIN, SAME_AS
from manyseed.orchestrator.conditions import condition
from manyseed.orchestrator.errors import UserError, nearest
from manyseed.orchestrator.filtering import at_one_snapshot, refusing
from manyseed.orchestrator.results.grouping import grouped
from manyseed.orchestrator.results.tables import (
    CURVES,
    DEE,
    EFFECTS,
    ENSEMBLES,
    OF_EFFECT,
    TABLES,
    UNCERTAINTY,
    VARIANCE,
    Results,
)

FORMATS = (".parquet", ".csv", ".json")

_MEANS = ("accuracy_range", "ec_local_mean", "alpha_hat_mean", "delta")
_SPREADS = ("accuracy_mean", "accuracy_std", "accuracy_mean_sd")
MAIN = {
    "runs": ("address", "accuracy", "alpha_hat", "delta"),
    "pairs": ("address_i", "address_j", "ec_local", "ec_global", "churn"),
    "repeats": ("repeat_index", "n_runs", "accuracy_mean", "accuracy_std", *_MEANS),
    "cells": ("n_runs", "n_repeats", *_SPREADS, *_MEANS, "n_identical_repeats"),
    "sources": ("n_runs", *_SPREADS, "n_close", "churn_min", "churn_max"),
    "ranking": ("address", "rank", "close", "accuracy", "alpha_hat", "delta"),
    EFFECTS: (*OF_EFFECT, "difference", "low", "high", "over", "p_holm", "comparisons"),
    VARIANCE: ("metric", "source", "part", "variance", "low", "high", "share", "over"),
    CURVES: ("repeat_index", "trained_epoch", "train_loss", "test_loss", "test_accuracy"),
    ENSEMBLES: ("models", "size", "draws", "close", "accepted", "accuracy", "churn", "ece"),
    UNCERTAINTY: ("repeat_index", "draw", "members", "cll", "c_brier", "c_ece"),
    DEE: ("axis", "deep_value", "repeat_index", "metric", "members", "dee", "beyond"),
}
"""What is shown of each table beside the columns that say what a cell is."""

_FURTHER = {
    ENSEMBLES: "compute it with: manyseed howmany DIR",
    CURVES: "curves are kept where the sweep file says keep.curves = true",
    EFFECTS: "compute it with: manyseed analyze DIR",
    VARIANCE: "compute it with: manyseed analyze DIR",
    UNCERTAINTY: "it is computed where the sweep file says analysis.calibration = true",
    DEE: "it is computed where the sweep file says analysis.calibration = true",
}
"""Tables that may be absent, and what to do about it."""


ADDRESSES = {"address": "run_index", "address_i": "run_i", "address_j": "run_j"}
"""Columns that name a run as `show` and `rerun` take it, in tables that have the other column."""


def rows_of(tables: Results, table: str) -> pl.LazyFrame:
    """Return a table lazily, with the addresses of its runs."""
    frame = tables.scan(table)
    names = frame.collect_schema().names()
    own = {name: run for name, run in ADDRESSES.items() if run in names}
    return frame.with_columns(
        pl.format("{}:{}:{}", "cell", "repeat_index", run).alias(name) for name, run in own.items()
    )


def query(
    tables: Results,
    table: str = "cells",
    *,
    where: str | None = None,
    columns: Sequence[str] = (),
    by: Sequence[str] = (),
    sort: str | None = None,
    agg: Sequence[str] = (),
) -> pl.DataFrame:
    """Return rows of a result table.

    Parameters
    ----------
    tables : Results
        Of the table only the columns and rows that are asked for are read.
    table : str
        One of `TABLES`, or effects, variance, ensembles or curves where there are any.
    where : str
        An SQL condition over the table's columns: ``classifier = 'mlp' AND accuracy > 0.9``.
    columns : sequence of str
        Columns to show; without them those that describe a cell, and the main metrics.
    by : sequence of str
        Columns to group by: n, the rows of each group, and what `grouping.grouped` makes of them;
        of effects, which are averaged with new intervals, `effects.grouped`.
        Of several snapshots each cell's last is taken, unless they are asked for: by `epoch`, or
        one by the condition.
    sort : str
        A column, with a minus in front for descending order.

    Raises
    ------
    UserError
        For an unknown table or column, or a condition that cannot be read.
    """
    if table in _FURTHER and table not in tables:
        raise UserError("there is none yet", key="--table", value=table, remedy=_FURTHER[table])
    if by and table == VARIANCE:
        remedy = "ask for cells with --where, or read them in words: manyseed variance DIR"
        raise UserError("intervals are not averaged", key="--by", value=by, remedy=remedy)
    if table not in tables:
        remedy = nearest(table, (*TABLES, *_FURTHER))
        raise UserError("unknown table", key="--table", value=table, remedy=remedy)
    frame = rows_of(tables, table)
    schema = frame.collect_schema()
    for name in (*columns, *by):
        _check(name, schema.names(), "--columns" if name in columns else "--by")
    with refusing(where, schema, "--where") if where else nullcontext():
        wanted = condition(where, schema.names()) if where else pl.lit(value=True)
        one = bool(by) and "epoch" not in by and _several(tables, schema.names())
        if one:
            frame = at_one_snapshot(frame, wanted)
        elif where:
            frame = frame.filter(wanted)
        shown = list(columns) or _main_columns(table, frame, schema.names())
        if by and table == EFFECTS:
            from manyseed.orchestrator.results.effects import grouped as of_effects

            found = of_effects(tables, frame, by)
            told = [*by, *OF_EFFECT, *(["n_pairs", "n_test_sets"] if not columns else [])]
            result = found.select(n for n in dict.fromkeys([*told, *shown]) if n in found.columns)
        elif by:
            numeric = [
                c for c in shown if c not in (*by, *AXES, SAME_AS) and schema[c].is_numeric()
            ]
            told = ["epoch"] if one and "epoch" not in numeric else []
            result = grouped(
                tables, table, frame, by, [*told, *numeric], agg, wanted if where else None
            )
        else:
            result = frame.select(list(dict.fromkeys(shown))).collect()
    if sort:
        name = sort.removeprefix("-")
        _check(name, result.columns, "--sort")
        result = result.sort(name, descending=sort.startswith("-"), nulls_last=True)
    return result


def write(frame: pl.DataFrame, path: Path) -> None:
    """Write a table as Parquet, CSV or JSON, by the file's ending.

    Raises
    ------
    UserError
        For another ending.
    """
    if path.suffix not in FORMATS:
        raise UserError(
            "unknown format", key="--output", value=str(path), remedy=nearest(path.suffix, FORMATS)
        )
    if path.suffix == ".parquet":
        frame.write_parquet(path)
    elif path.suffix == ".csv":
        frame.write_csv(path)
    else:
        frame.write_json(path)


def _check(name: str, columns: Sequence[str], option: str) -> None:
    if name not in columns:
        remedy = nearest(name, columns)
        raise UserError("unknown column", key=option, value=name, remedy=remedy)


def _several(tables: Results, names: Sequence[str]) -> bool:
    """Return whether rows of a table, given by its columns, are of several snapshots."""
    if "epoch" not in names:
        return False
    cells = tables.scan("cells")
    known = "epoch" in cells.collect_schema().names()
    return known and several(cells.select(CELL_KEY).collect())


def _main_columns(table: str, frame: pl.LazyFrame, names: Sequence[str]) -> list[str]:
    """Return the columns that vary among those that say what a cell is, and the main metrics."""
    first = [name for name in AXES if name in ("dataset", "classifier")]
    others = [name for name in AXES if name not in first]
    counted = [pl.col(name).n_unique() for name in others]
    if "epoch" in names:
        more = pl.struct(CELL_KEY).n_unique() - pl.col("cell").n_unique()
        counted.append((1 + more).alias("epoch"))
    values = frame.select(counted).collect()
    main = (name for name in MAIN[table] if name in names)  # earlier versions had fewer
    twins = [SAME_AS] if SAME_AS in names and frame.filter(IS_TWIN).collect().height else []
    return [*first, *(name for name in values.columns if values[name][0] > 1), *twins, *main]
