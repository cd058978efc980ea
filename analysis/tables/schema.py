"""The result tables: runs, pairs, repeats and cells, with one schema whatever is computed.

``tables.toml`` has a record of each table: its key, its columns, what it shows, how to get it.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import polars.selectors as cs
from numpy.typing import NDArray

from manyseed.analysis.axes import AXES
from manyseed.analysis.metrics.metric import MEANINGS, Column, Metric, dtype_of
from manyseed.analysis.tables.rows import (
    CELL_KEY,
    EPOCH,
    PAIR_KEY,
    REPEAT_KEY,
    RUN_KEY,
    VARIES,
    Failures,
    Tables,
    compares_runs,
    mean_of,
    pooled,
    std_of,
)

Meaning = tuple[str, str]  # a unit, or an empty string, and a sentence


@dataclass(frozen=True, slots=True)
class TableRecord:
    """One result table, or (everywhere, added, grouped) columns that several have.

    `key`: columns that name a row, and that rows are sorted by. `types`: of the columns that are no
    metric's, in order, if one question makes them all. `columns`: unit and meaning of columns that
    are no metric's (`schema.describe`). `shown`: columns that a query shows by default, beside
    those that describe a cell. `where_kept`: further ones that it shows if they have values: the
    sweep file must ask for them. `paper`: what a table for a paper has by default; empty for
    `shown`. `beside`: columns in which rows of a cell differ, beside seeds.
    `how`: how to get the table, with DIR for the sweep; empty if `analyze` always writes it.
    `not_averaged`: why its rows cannot be grouped, and what to do instead; empty if they can.
    `of_copies`: whether copies of runs have rows. `of_all_repeats`: whether metrics that compare
    runs count in all repeats, not only in those that vary.
    """

    key: tuple[str, ...] = ()
    types: Mapping[str, Any] = field(default_factory=dict)
    columns: Mapping[str, Meaning] = field(default_factory=dict)
    shown: tuple[str, ...] = ()
    where_kept: tuple[str, ...] = ()
    paper: tuple[str, ...] = ()
    beside: tuple[str, ...] = ()
    how: str = ""
    not_averaged: tuple[str, ...] = ()
    of_copies: bool = True
    of_all_repeats: bool = False


@cache
def records() -> Mapping[str, TableRecord]:
    """Return all records by name."""
    read = tomllib.loads(Path(__file__).with_name("tables.toml").read_text("utf-8"))
    return {name: _record(**table) for name, table in read.items()}


def table_names() -> tuple[str, ...]:
    """Return the names of all result tables."""
    return tuple(name for name, record in records().items() if record.shown)


def _record(columns: Mapping[str, Sequence[str]] = {}, **facts: Any) -> TableRecord:
    """Make a record from a table's columns, [type], [type, unit, meaning] or [unit, meaning]."""
    values: dict[str, Any] = {
        name: tuple(fact) if isinstance(fact, list) else fact for name, fact in facts.items()
    }
    return TableRecord(
        types={name: getattr(pl, said[0]) for name, said in columns.items() if len(said) != 2},
        columns={name: (said[-2], said[-1]) for name, said in columns.items() if len(said) > 1},
        **values,
    )


Table = Mapping[str, NDArray[Any]]
Type = pl.DataType | type[pl.DataType]
Schema = dict[str, type[pl.DataType]]

FACTS: Schema = {
    "n_runs": pl.UInt32,
    "n_distinct": pl.UInt32,
    "n_test": pl.UInt32,
    "n_undefined": pl.UInt32,
    "problem": pl.String,
}
"""Columns of the table of repeats besides its keys and metrics."""

OVER_REPEATS = (
    *("accuracy_mean", "accuracy_std", "accuracy_range"),
    *("accuracy_q05", "accuracy_median", "accuracy_q95"),
    *("ec_local_mean", "ec_local_range", "ec_local_q05", "ec_local_median", "ec_local_q95"),
    *("ec_global_mean", "ec_global_range", "ec_global_q05", "ec_global_median", "ec_global_q95"),
    *("ec_local_cube_root_mean", "ec_global_cube_root_mean"),
    *("ec_local_square_root_mean", "ec_global_square_root_mean"),
    *("churn_mean", "churn_range", "churn_q05", "churn_median", "churn_q95", "churn_points_mean"),
    *("ec_kappa_mean", "ec_kappa_range"),
    *("alpha_hat_mean", "alpha_hat_max"),
    "label_kappa_mean",
    *("balanced_accuracy_mean", "f1_macro_mean", "matthews_corrcoef_mean"),
    *("roc_auc_mean", "average_precision_mean"),
    *("ece_mean", "log_likelihood_mean", "log_loss_mean", "brier_mean"),
    *("cll_mean", "aurc_mean"),
    *("ensemble_accuracy", "churn_ensemble_mean", "churn_loo_ensemble_mean"),
    *("train_accuracy_mean", "train_accuracy_std"),
    *("generalization_gap_mean", "generalization_gap_std"),
)
"""Columns of the table of repeats whose distribution the table of cells describes."""


@dataclass(frozen=True, slots=True)
class RepeatRows:
    """The rows of one repeat, as columns of the three tables.

    `failures` says why users' own metrics could not be computed, by metric name.
    """

    runs: Table
    pairs: Table
    repeats: Table
    failures: Failures


@dataclass(frozen=True, slots=True)
class Block:
    """The result of one task: rows of the three tables, and why metrics failed."""

    runs: pl.DataFrame
    pairs: pl.DataFrame
    repeats: pl.DataFrame
    failures: Failures


@dataclass(frozen=True, slots=True)
class GroupColumns:
    """The columns of a group's tables, computed or not.

    `keys`: types of cell, repeat_index and run_index, those of the plan, so that tables join it.
    """

    keys: Mapping[str, pl.DataType]
    metrics: tuple[Metric, ...]

    def block(self, repeats: Sequence[RepeatRows]) -> Block:
        """Concatenate the results of repeats."""
        runs = tuple(column for metric in self.metrics for column in metric.runs)
        pairs = tuple(column for metric in self.metrics for column in metric.pairs)
        return Block(
            runs=self._frame([r.runs for r in repeats], RUN_KEY, {"identical": pl.Boolean}, runs),
            pairs=self._frame([r.pairs for r in repeats], PAIR_KEY, {}, pairs),
            repeats=self._frame(
                [r.repeats for r in repeats], REPEAT_KEY, FACTS, repeat_columns(self.metrics)
            ),
            failures=_failures([r.failures for r in repeats]),
        )

    def _frame(
        self, parts: Sequence[Table], key: Sequence[str], facts: Schema, columns: Sequence[Column]
    ) -> pl.DataFrame:
        run = self.keys["run_index"]
        types: Mapping[str, Type] = {**self.keys, **EPOCH, "run_i": run, "run_j": run}
        schema: dict[str, Type] = {name: types[name] for name in key}
        schema |= facts
        schema |= {column.name: column.dtype for column in columns}
        present = {
            name: np.concatenate([part[name] for part in parts])
            for name in schema
            if parts and name in parts[0]
        }
        frame = pl.DataFrame(present).with_columns(cs.float().fill_nan(None))
        return frame.select(
            (pl.col(name) if name in present else pl.Series(name, [None] * frame.height)).cast(
                dtype
            )
            for name, dtype in schema.items()
        )


def repeat_columns(metrics: Sequence[Metric]) -> tuple[Column, ...]:
    """Return the columns that metrics add to the table of repeats, including summaries."""
    result: list[Column] = []
    for metric in metrics:
        for column in (*metric.runs, *metric.pairs):
            result += [summary_column(column, name) for name in column.summaries]
        result += metric.repeat
    return tuple(result)


def summary_column(column: Column, summary: str) -> Column:
    """Describe a summary of a column over the runs or pairs of a repeat."""
    unit = "count" if summary == "n" else column.unit
    meaning = f"{MEANINGS[summary]} of {column.name} over the repeat."
    return Column(f"{column.name}_{summary}", dtype_of(summary), unit, meaning)


def combine(
    blocks: Sequence[Block],
    layout: GroupColumns,
    probe: str | None,
    planned: int | Mapping[int, int] | None,
) -> Tables:
    """Make the tables of a group from its blocks, in any order.

    `probe` is that of α̂; `planned` is the number of planned runs per repeat, possibly by cell.
    """
    blocks = blocks or (layout.block(()),)
    runs, pairs, repeats = (
        ordered(
            pl.concat([getattr(block, name) for block in blocks], rechunk=False),
            records()[name].key,
        )
        for name in ("runs", "pairs", "repeats")
    )
    probe_column = pl.lit(probe, dtype=pl.String).alias("probe")
    n_planned: pl.Expr = (
        pl.col("cell").replace_strict(planned, default=None, return_dtype=pl.UInt32)
        if isinstance(planned, Mapping)
        else pl.lit(planned, dtype=pl.UInt32)
    )
    coverage = (pl.col("n_runs") / n_planned).alias("coverage")
    identical = ((pl.col("n_distinct") == 1) & (pl.col("n_runs") > 1)).alias("identical")
    problem = pl.when(pl.col("problem") != "").then("problem").alias("problem")
    repeats = repeats.with_columns(coverage, identical, probe_column, problem)
    failures = _failures([block.failures for block in blocks])
    for metric in layout.metrics:
        if metric.name in failures:
            runs, repeats = without(metric, runs), without(metric, repeats)
    return Tables(runs.with_columns(probe_column), pairs, repeats, cells(repeats), failures)


def _failures(parts: Sequence[Failures]) -> Failures:
    """Return one reason per metric that failed in any part, independent of their order."""
    names = sorted({name for part in parts for name in part})
    return {name: min(part[name] for part in parts if name in part) for name in names}


def without(metric: Metric, table: pl.DataFrame, where: pl.Expr | None = None) -> pl.DataFrame:
    """Return the table of runs or repeats with a metric's columns set to null (`where`)."""
    own = {c.name for c in (*metric.runs, *repeat_columns((metric,)))}
    emptied = pl.lit(True) if where is None else where
    return table.with_columns(
        pl.when(~emptied).then(pl.col(name)).alias(name) for name in table.columns if name in own
    )


def ordered(frame: pl.DataFrame, key: Sequence[str]) -> pl.DataFrame:
    """Sort by integer columns; a sorted frame is returned as it is, without a copy."""
    rising = np.zeros(max(frame.height - 1, 0), dtype=np.bool_)
    tied = ~rising
    for name in key:
        values = frame[name].to_numpy()
        rising |= tied & (values[1:] > values[:-1])
        tied &= values[1:] == values[:-1]
    return frame if (rising | tied).all() else frame.sort(key)


def together(name: str, parts: Sequence[pl.DataFrame], but: Sequence[str] = ()) -> pl.DataFrame:
    """Concatenate parts of a table, in any order and possibly none; sort by its key.

    `but`: columns that they do not have yet.
    """
    types = {column: kind for column, kind in records()[name].types.items() if column not in but}
    return ordered(pl.concat([pl.DataFrame(schema=types), *parts]), records()[name].key)


def cells(repeats: pl.DataFrame) -> pl.DataFrame:
    """Describe each cell, at each snapshot, by its distribution in the table of repeats.

    Returns for each column of `OVER_REPEATS`: its mean over repeats under its own name (`_std`
    columns are pooled), and with the endings ``_sd`` (n - 1), ``_lo``, ``_hi`` (smallest, largest)
    and ``_n`` (repeats that define it). Columns that compare runs use the repeats whose runs vary.
    """
    over: list[pl.Expr] = []
    for name in OVER_REPEATS:
        column = pl.col(name).filter(VARIES) if compares_runs(name) else pl.col(name)
        over += [
            pooled(column, pl.col("n_distinct").filter(VARIES) - 1).alias(name)
            if name.endswith("_std")
            else mean_of(column),
            std_of(column).alias(f"{name}_sd"),
            column.min().alias(f"{name}_lo"),
            column.max().alias(f"{name}_hi"),
            column.count().alias(f"{name}_n"),
        ]
    return (
        repeats.sort(REPEAT_KEY)
        .group_by(CELL_KEY, maintain_order=True)
        .agg(
            pl.len().alias("n_repeats"),
            pl.col("n_runs").sum(),
            pl.col("n_distinct").sum(),
            pl.col("identical").sum().alias("n_identical_repeats"),
            mean_of(pl.col("coverage")),
            pl.col("n_test", "n_side", "delta", "probe").first(),
            *over,
        )
    )


_AXIS: Meaning = ("", "What the cell is, in the sweep file's words.")

ENDINGS: Mapping[str, str] = {
    "std": "Standard deviation (n - 1)",
    "sd": "Standard deviation over repeats, so between test sets (n - 1),",
    "lo": "Smallest over repeats",
    "hi": "Largest over repeats",
    "min": "Smallest",
    "max": "Largest",
    "n": "Repeats that define it: number",
}
"""Meanings of the endings that make a column's name from another's."""


def describe(
    table: str,
    names: Sequence[str],
    metrics: Sequence[Metric],
    joined: Mapping[str, Meaning] | None = None,
) -> dict[str, Meaning]:
    """Return the units and meanings of a table's columns; raise KeyError for an unknown one.

    `metrics` are those whose columns the tables have (`analysis.metrics.registry.schema`), `joined`
    are further columns.
    """
    columns: list[Column] = [c for m in metrics for c in (*m.runs, *m.pairs)]
    columns += repeat_columns(metrics)
    held = records()
    known = {
        **{column.name: (column.unit, column.meaning) for column in columns},
        **held["everywhere"].columns,
        **dict.fromkeys(AXES, _AXIS),
        **(joined or {}),
        **(held["cells"].columns if table == "sources" else {}),
        **held[table].columns,
    }
    if table in ("cells", "sources"):
        for name in OVER_REPEATS:
            unit, meaning = known[name]
            known[name] = unit, f"{_over_repeats(name)}. {meaning}"
    return {name: known[name] if name in known else _with_ending(name, known) for name in names}


def _over_repeats(name: str) -> str:
    of = " whose runs vary" if compares_runs(name) else ""
    if name.endswith("_std"):
        return f"Between seeds: pooled (root of the mean of variances, by n - 1) over repeats{of}"
    return f"Mean over repeats{of}"


def _with_ending(name: str, known: Mapping[str, Meaning]) -> Meaning:
    base, _, ending = name.rpartition("_")
    unit = "repeats" if ending == "n" else known[base][0]
    return unit, f"{ENDINGS[ending]} of {base}."
