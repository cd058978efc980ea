"""Query the result tables: a filter, columns, groups and an order."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import polars as pl

from manyseed.analysis.axes import AXES
from manyseed.analysis.tables.keys import CELL_KEY
from manyseed.analysis.tables.records import records
from manyseed.analysis.tables.snapshots import several
from manyseed.analysis.tables.twins import SAME_AS
from manyseed.orchestrator.conditions import at_one_snapshot, wanted
from manyseed.orchestrator.errors import UserError, nearest
from manyseed.orchestrator.paths import SweepPaths
from manyseed.orchestrator.results.aggregates import COUNT, require
from manyseed.orchestrator.results.coverage import COVERAGE
from manyseed.orchestrator.results.grouping import grouped
from manyseed.orchestrator.results.record import Analysis
from manyseed.orchestrator.results.shown import NUMBERED, everything, main_columns, rows_of
from manyseed.orchestrator.results.tables import (
    ALL_TABLES,
    DEE,
    EFFECTS,
    FURTHER,
    OF_EFFECT,
    TACE,
    UNCERTAINTY,
    Results,
    further,
)

SWEEP = "sweep"
"""The column that says which of several sweeps a row comes from."""


@dataclass(frozen=True)
class Question:
    """A query of a result table.

    Attributes
    ----------
    table : str
        One of `ALL_TABLES`.
    where : str or None
        An SQL condition over the table's columns: ``classifier = 'mlp' AND accuracy > 0.9``.
    columns : sequence of str
        Columns to show; by default those that describe a cell, and the main metrics.
    by : sequence of str or bool
        Columns to group by (`grouping.grouped`; for effects `effects.grouped`, which gives them new
        intervals). True: by everything but the seeds, that is, over repeats and runs; so does `agg`
        alone. Of several snapshots each cell's last is taken, unless `by` has `epoch` or the
        condition uses it.
    sort : str or None
        A column, with a minus in front for descending order.
    agg : sequence of str
        Functions of each group's columns to show instead of means: mean, sd, median, min, max,
        count, and quantiles of two or three digits: q05 is the 5 % quantile, q975 the 97.5 %
        quantile (`aggregates`).
    """

    table: str = "cells"
    where: str | None = None
    columns: Sequence[str] = ()
    by: Sequence[str] | bool = ()
    sort: str | None = None
    agg: Sequence[str] = ()

    @property
    def is_grouped(self) -> bool:
        """Whether rows are grouped."""
        return bool(self.by) or bool(self.agg)


def query(tables: Results, table: str = "cells", **options: Any) -> pl.DataFrame:
    """Return rows of one sweep's result table; `options` are the other fields of `Question`."""
    return ask({"": tables}, Question(table, **options))


def ask(sweeps: Mapping[str, Results], question: Question) -> pl.DataFrame:
    """Return rows of a table of one or several sweeps; with several, `SWEEP` is the first column.

    Sweeps are never averaged together. A column that a sweep lacks is null there. Only the columns
    and rows that are asked for are read.

    Raises
    ------
    UserError
        For an unknown table or column, or a condition that cannot be read.
    """
    require(question.agg)
    frames = named_rows(sweeps, question.table)
    schema = next(iter(frames.values())).collect_schema()
    by = [] if isinstance(question.by, bool) else list(question.by)
    for name in (*question.columns, *by):
        option = "--columns" if name in question.columns else "--by"
        if name != COVERAGE or not question.is_grouped:
            require_column(name, schema.names(), option)
    if question.is_grouped and (reasons := records()[question.table].not_averaged):
        raise UserError(reasons[0], key="--by", value=by, remedy=reasons[1])
    where = question.where
    meets = wanted(where, schema, "--where")
    with damage_named(sweeps, [question.table]):
        chosen, single = {}, False
        for name, frame in frames.items():
            last_only = bool(by) and "epoch" not in by and _several(sweeps[name], schema)
            chosen[name] = at_one_snapshot(frame, meets) if last_only else frame.filter(meets)
            single |= last_only
        together = pl.concat(list(chosen.values()), how="vertical")
        shown = list(dict.fromkeys(question.columns)) or main_columns(question.table, together)
        if not question.is_grouped:
            first = [SWEEP] if len(sweeps) > 1 else []
            result = together.select(list(dict.fromkeys([*first, *shown]))).collect()
        else:
            by = by or everything(question.table, together)
            if question.table == DEE and "metric" not in by:
                remedy = f"--by {','.join([*by, 'metric'])}"
                raise UserError("metrics are not averaged", key="--by", value=by, remedy=remedy)
            columns = _numbers(question, shown, by, schema)
            columns = [*(["epoch"] if single and "epoch" not in columns else []), *columns]
            parts = [
                _grouped(
                    question, sweeps[name], frame, by, columns, meets if where is not None else None
                )
                for name, frame in chosen.items()
            ]
            if len(parts) > 1:
                parts = [
                    part.select(pl.lit(name).alias(SWEEP), pl.exclude(SWEEP))
                    for name, part in zip(chosen, parts, strict=True)
                ]
            result = pl.concat(parts, how="diagonal_relaxed")
    if question.sort:
        name = question.sort.removeprefix("-")
        require_column(name, result.columns, "--sort")
        down = question.sort.startswith("-")
        result = result.sort(name, descending=down, nulls_last=True, maintain_order=True)
    return result


@contextmanager
def damage_named(sweeps: Mapping[str, Results], names: Iterable[str]) -> Iterator[None]:
    """Name the damaged table, if there is one, when polars fails on tables of some sweeps."""
    try:
        yield
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException):
        for tables in sweeps.values():
            for name in names:
                if name in tables:
                    tables[name]  # reading all of it raises DamagedFile
        raise


def require_column(name: str, columns: Sequence[str], option: str) -> None:
    """Raise a UserError for an unknown column; it suggests the nearest name."""
    if name not in columns:
        remedy = nearest(name, columns)
        raise UserError("unknown column", key=option, value=name, remedy=remedy)


def named_rows(sweeps: Mapping[str, Results], table: str) -> dict[str, pl.LazyFrame]:
    """Return each sweep's table lazily; several get the same columns, and `SWEEP`."""
    frames = {}
    for name, tables in sweeps.items():
        require_table(tables, table)
        frames[name] = rows_of(tables, table)
    if len(sweeps) == 1:
        return frames
    return _alike({n: f.with_columns(pl.lit(n).alias(SWEEP)) for n, f in frames.items()})


def require_table(tables: Results, table: str, option: str = "--table") -> None:
    """Raise a UserError for a table that is absent or unknown; it says how to get it."""
    if table in FURTHER and table not in tables:
        where = None if tables.plan is None else tables.plan.directory
        remedy = how(tables.plan, table)
        raise UserError("there is none yet", file=where, key=option, value=table, remedy=remedy)
    if table not in tables:
        remedy = nearest(table, ALL_TABLES)
        raise UserError("unknown table", key=option, value=table, remedy=remedy)


def how(paths: SweepPaths | None, table: str) -> str:
    """Say how to get an absent table, or why a sweep (None: none) can't have it."""
    if paths is not None and table in (UNCERTAINTY, DEE, TACE):
        from manyseed.orchestrator.results.caveats import of_probabilities

        if reasons := of_probabilities(Analysis.read(paths)):
            return " ".join(reasons)
    return further(table, paths)


def _alike(frames: Mapping[str, pl.LazyFrame]) -> dict[str, pl.LazyFrame]:
    """Return tables of several sweeps with the same columns: null if a sweep lacks them."""
    none = pl.concat([frame.clear() for frame in frames.values()], how="diagonal_relaxed")
    schema = none.collect_schema()
    return {
        name: pl.concat([none, frame], how="diagonal_relaxed").select(*schema)
        for name, frame in frames.items()
    }


def _numbers(
    question: Question, shown: Sequence[str], by: Sequence[str], schema: pl.Schema
) -> list[str]:
    """Return the numeric columns that groups show; raise a UserError if one asked for is not."""
    chosen = [name for name in shown if name not in (*by, SWEEP, COVERAGE)]
    for name in question.columns if question.agg != (COUNT,) else ():
        if name in chosen and not schema[name].is_numeric() and name not in OF_EFFECT:
            remedy = "group by it, too: --by"
            raise UserError("not a number", key="--columns", value=name, remedy=remedy)
    left = {*AXES, SAME_AS, *(NUMBERED if not question.columns else ())}
    return [name for name in chosen if name not in left and schema[name].is_numeric()]


def _grouped(
    question: Question,
    tables: Results,
    frame: pl.LazyFrame,
    by: Sequence[str],
    columns: Sequence[str],
    where: pl.Expr | None,
) -> pl.DataFrame:
    if question.table != EFFECTS:
        return grouped(tables, question.table, frame, by, columns, question.agg, where)
    if question.agg:
        remedy = "they are averaged with their own intervals: use --by alone"
        raise UserError("not for effects", key="--agg", value=list(question.agg), remedy=remedy)
    from manyseed.orchestrator.results.effects import grouped as of_effects

    within = [name for name in by if name != SWEEP]
    averaged = of_effects(tables, frame, within)
    shown = list(question.columns) or ["n_pairs", "n_test_sets", *main_columns(EFFECTS, frame)]
    order = dict.fromkeys([*within, *OF_EFFECT, *shown])
    return averaged.select(name for name in order if name in averaged.columns)


def _several(tables: Results, schema: pl.Schema) -> bool:
    """Return whether a table with this schema has rows of several snapshots."""
    if "epoch" not in schema:
        return False
    cells = tables.scan("cells")
    known = "epoch" in cells.collect_schema().names()
    return known and several(cells.select(CELL_KEY).collect())
