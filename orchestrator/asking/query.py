"""Query the result tables: rows, columns by default, groups, an order, and what columns mean."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from manyseed.analysis.axes import AXES
from manyseed.analysis.questions.question import NAMES, UNKNOWN
from manyseed.analysis.tables.rows import CELL_KEY, IS_TWIN, SAME_AS, several
from manyseed.analysis.tables.schema import records, table_names
from manyseed.orchestrator.asking.grouping import COUNT, COVERAGE, grouped, require
from manyseed.orchestrator.computing.tables import (
    DEE,
    EFFECTS,
    OF_EFFECT,
    POINTS,
    REJECTION,
    TACE,
    UNCERTAINTY,
    Analysis,
    Results,
    further,
    may_be_absent,
    of_probabilities,
)
from manyseed.orchestrator.conditions import at_one_snapshot, wanted
from manyseed.orchestrator.errors import MOST_NAMED, UserError, command, require_one_of
from manyseed.orchestrator.paths import SweepPaths
from manyseed.orchestrator.plans.ids import names_of as names_of
from manyseed.orchestrator.plans.plan import Plan

ADDRESSES = {"address": "run_index", "address_i": "run_i", "address_j": "run_j"}
"""Columns with a run's address, as `show` and `rerun` take it, by the column they require."""


def rows_of(tables: Results, table: str) -> pl.LazyFrame:
    """Return a table lazily, with the addresses of its runs, or the files or ids of its points."""
    frame = tables.scan(table)
    if table == POINTS:
        return with_names(frame, tables)
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
    main = [name for name in record.shown if name in names]  # earlier versions had fewer
    at = main.index("index") + 1 if "index" in main else 0
    main[at:at] = [name for name in NAMES if name in names and at]
    twins = [SAME_AS] if SAME_AS in names and frame.filter(IS_TWIN).collect().height else []
    optional = [name for name in record.where_kept if name in names]
    found = frame.select(pl.col(name).is_not_null().any() for name in optional).collect()
    kept = [name for name in optional if found[name].any()]
    return [*what_varies(frame), *twins, *main, *kept]


def of_paper(sweeps: Mapping[str, Results], question: Query) -> list[str]:
    """Return the columns of a table for a paper, if none are asked for; empty for those of `ask`.

    What tells the rows apart, dataset and classifier alone if they differ, and the main numbers.
    """
    few = records()[question.table].paper if question.table in table_names() else ()
    if not few or question.columns or question.agg:
        return []
    frames = named_rows(sweeps, question.table)
    rows = pl.concat(list(frames.values()), how="vertical")
    order = [question.sort.removeprefix("-")] if question.sort else []
    if question.is_grouped:  # whose n is that of its cells
        schema = rows.collect_schema()
        order = [name for name in order if name in schema and schema[name].is_numeric()]
        few = tuple(name for name in few if name not in ("n_runs", *NUMBERED))
        return list(dict.fromkeys([*few, *order]))
    rows = rows.filter(wanted(question.where, rows.collect_schema(), "--where"))
    apart = what_varies(rows)
    counts = rows.select(pl.col(apart).n_unique()).collect()
    several_of = [name for name in apart if counts[name][0] > 1]
    return list(dict.fromkeys([*(several_of or apart), *few, *order]))


def of_file(sweeps: Mapping[str, Results], question: Query) -> list[str]:
    """Return the columns of a file, if none are asked for; empty for those of `ask`.

    What tells rows apart as columns that programs group by: dataset, classifier, other axes that
    vary and `vary`, repeat_index, the run (run_index, or run_i and run_j), the rest of the key,
    then those of `ask`.
    """
    if question.table not in table_names() or question.columns or question.is_grouped:
        return []
    rows = pl.concat(list(named_rows(sweeps, question.table).values()), how="vertical")
    names = rows.collect_schema().names()
    key = [name for name in records()[question.table].key if name not in (*CELL_KEY, SWEEP)]
    if "repeat_index" not in key:
        return []
    wanted_rows = rows.filter(wanted(question.where, rows.collect_schema(), "--where"))
    first = [*what_varies(wanted_rows), "vary", "repeat_index", *ADDRESSES.values(), *key]
    order = [question.sort.removeprefix("-")] if question.sort else []
    shown = main_columns(question.table, wanted_rows)
    return list(dict.fromkeys(name for name in (*first, *shown, *order) if name in names))


def every_column(sweeps: Mapping[str, Results], question: Query) -> list[str]:
    """Return the names of all columns of a table; of groups, of all that can be averaged."""
    schema = next(iter(named_rows(sweeps, question.table).values())).collect_schema()
    if not question.is_grouped:
        return schema.names()
    return [name for name, kind in schema.items() if kind.is_numeric() and name not in NUMBERED]


def listed(names: str | Sequence[str]) -> Sequence[str]:
    """Return names as a list; they may be given as text, with commas as at the command line."""
    return [one.strip() for one in names.split(",")] if isinstance(names, str) else names


SWEEP = "sweep"  # the column that says which of several sweeps a row comes from


@dataclass(frozen=True)
class Query:
    """A query of a result table, as `Sweep.query` describes it.

    Rows are grouped by `grouping.grouped`; those of effects by `averaging`, which gives them new
    intervals. `agg` alone groups by everything but the seeds, as `by` does if true. Of several
    snapshots, each cell's last is taken, unless `by` has ``epoch`` or the condition uses it.
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
    """Return rows of one sweep's result table; `options` are the other fields of `Query`."""
    return ask({"": tables}, Query(table, **options))


def ask(sweeps: Mapping[str, Results], question: Query) -> pl.DataFrame:
    """Return rows of a table of one or several sweeps; with several, `SWEEP` is the first column.

    Sweeps are never averaged together. A column that a sweep lacks is null there. Only the columns
    and rows that are asked for are read.
    """
    require(question.agg)
    frames = named_rows(sweeps, question.table)
    schema = next(iter(frames.values())).collect_schema()
    by = [] if isinstance(question.by, bool) else list(question.by)
    for name in (*question.columns, *by):
        option = "--columns" if name in question.columns else "--by"
        if name != COVERAGE or not question.is_grouped:
            if not any(one == name or one.startswith(f"{name}_") for one in schema):
                of_cells = question.table == "cells" and name.endswith(("_min", "_max"))
                if option == "--columns" and (question.is_grouped or of_cells):
                    _require_of_runs(question, sweeps, name)
                _require_elsewhere(name, sweeps, option)
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
            result = _side_by_side(pl.concat(parts, how="diagonal_relaxed"), by)
    if question.sort:
        name = question.sort.removeprefix("-")
        require_column(name, result.columns, "--sort")
        down = question.sort.startswith("-")
        result = result.sort(name, descending=down, nulls_last=True, maintain_order=True)
    return result


def _side_by_side(rows: pl.DataFrame, by: Sequence[str]) -> pl.DataFrame:
    """Return rows in their order, but those of equal first columns of `by` together."""
    first = [SWEEP] if SWEEP in rows.columns and SWEEP not in by else []
    by = [*first, *by]
    if len(by) < 2:
        return rows
    keys = [pl.col("_at").min().over(by[:n]) for n in range(1, len(by))]
    return rows.with_row_index("_at").sort([*keys, "_at"]).drop("_at")


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


_EQUAL = re.compile(r"\b(\w+)\s*==?\s*(?:'([^']*)'|([\d.]+)(?!\w))")
"""A column, and the text or number that a condition says it equals."""


def values_instead(sweeps: Mapping[str, Results], question: Query) -> list[str]:
    """Name the values of each column of which a condition asks for a value that it never has."""
    rows = pl.concat(list(named_rows(sweeps, question.table).values()), how="vertical")
    schema, told = rows.collect_schema(), []
    for name, text, number in dict.fromkeys(_EQUAL.findall(question.where or "")):
        if name not in schema or schema[name].is_numeric() != bool(number):
            continue
        found = rows.select(pl.col(name).drop_nulls().unique().sort()).collect()[name]
        asked = float(number) if number else text
        if len(found) <= MOST_NAMED and asked not in found.to_list():
            near = f"{text}_mean" in found.to_list()  # of effects, metrics are means
            meant = f"did you mean {name} = '{text}_mean'? Others: " if near else f"{name}: "
            told.append(f"{meant}{', '.join(map(str, found)) or 'no value'}")
    return told


def require_column(name: str, columns: Sequence[str], option: str) -> None:
    """Raise a UserError for an unknown column; it suggests the nearest name."""
    more = "; --columns '?' lists all" if len(columns) > MOST_NAMED else ""
    require_one_of(name, columns, "unknown column", key=option, more=more)


_INDEXES = {"seed": "run_index", "run": "run_index", "repeat": "repeat_index"}
"""Columns that number what users may call otherwise."""


_SUMMARY = re.compile(r"_(mean|std|min|max)$")


def _require_of_runs(question: Query, sweeps: Mapping[str, Results], name: str) -> None:
    """Raise a UserError for a mean, spread or end of a metric of runs; it has the command for it.

    That asks for all columns, if all are such.
    """
    known = [tables.scan("runs").collect_schema() for tables in sweeps.values() if "runs" in tables]
    values = [one for one in question.columns if one not in AXES]
    metrics = dict.fromkeys(_SUMMARY.sub("", one) for one in values)
    if not _SUMMARY.search(name) or not known or not all(one in known[0] for one in metrics):
        return
    where = [tables.plan.directory for tables in sweeps.values() if tables.plan is not None]
    by = [",".join(question.by)] if not isinstance(question.by, bool) and question.by else []
    agg = "mean,sd" + ",min,max" * any(one.endswith(("_min", "_max")) for one in values)
    shown = ("-t", "runs", "--by", *by, "--columns", ",".join(metrics), "--agg", agg)
    meets = ("--where", question.where) if question.where else ()
    remedy = command("query", *(where or [Path("DIR")]), *shown, *meets)
    raise UserError("not in this table", key="--columns", value=name, remedy=remedy)


def _require_elsewhere(name: str, sweeps: Mapping[str, Results], option: str) -> None:
    """Raise a UserError for a column of other tables, named as there or as its mean; name these."""
    if index := _INDEXES.get(name.removesuffix("s")):
        remedy = f"{index} numbers them: -t runs {option} {index}"
        raise UserError("unknown column", key=option, value=name, remedy=remedy)
    for column in dict.fromkeys((name, name.removesuffix("_mean"), name.removesuffix("_std"))):
        having = [
            table
            for table in table_names()
            for tables in sweeps.values()
            if table in tables and column in tables.scan(table).collect_schema()
        ]
        if having:
            tables_told = " or ".join(f"-t {table}" for table in list(dict.fromkeys(having))[:3])
            remedy = f"{column} is in another table: {tables_told}"
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
    if table not in tables and may_be_absent(table):
        where = None if tables.plan is None else tables.plan.directory
        remedy = how(tables.plan, table)
        raise UserError("there is none yet", file=where, key=option, value=table, remedy=remedy)
    if table not in tables:
        require_one_of(table, table_names(), "unknown table", key=option)


def how(paths: SweepPaths | None, table: str) -> str:
    """Say how to get an absent table, or why a sweep (None: none) can't have it."""
    calibrated = table in (UNCERTAINTY, DEE, TACE, REJECTION)
    if calibrated and paths and (reasons := of_probabilities(Analysis.read(paths))):
        return " ".join(reasons)
    return further(table, paths)


def with_names(points: pl.LazyFrame, tables: Results) -> pl.LazyFrame:
    """Return rows with the columns dataset and index with each point's file, id or row.

    Without such a column, index is the row; `UNKNOWN` stands for one that is not known here.
    """
    names = points.collect_schema().names()
    if tables.plan is None or not {"dataset", "index"} <= {*names}:
        return points
    plan = Plan.read(tables.plan)
    known, unknown = [], []
    for name in plan.all_cells["dataset"].unique(maintain_order=True):
        if (each := names_of(tables.plan, plan, name)) is not None:
            named = each.to_frame().lazy().with_row_index("index").with_columns(_of=pl.lit(name))
            known.append(named)
            unknown += [name] * each.is_empty()
    if not known:
        return points
    added = pl.concat(known, how="diagonal").cast({"index": pl.Int64})
    at = names.index("index") + 1
    names[at:at] = [name for name in added.collect_schema().names() if name not in ("index", "_of")]
    return (
        points.with_columns(_of=pl.col("dataset").cast(pl.String))
        .join(added, on=["_of", "index"], how="left", maintain_order="left")
        .with_columns(
            pl.when(pl.col("_of").is_in(unknown))
            .then(pl.lit(UNKNOWN))
            .otherwise("row")
            .alias("row")
            for _ in unknown[:1]
        )
        .select(names)
    )


def _alike(frames: Mapping[str, pl.LazyFrame]) -> dict[str, pl.LazyFrame]:
    """Return tables of several sweeps with the same columns: null if a sweep lacks them."""
    none = pl.concat([frame.clear() for frame in frames.values()], how="diagonal_relaxed")
    schema = none.collect_schema()
    return {
        name: pl.concat([none, frame], how="diagonal_relaxed").select(*schema)
        for name, frame in frames.items()
    }


def _numbers(
    question: Query, shown: Sequence[str], by: Sequence[str], schema: pl.Schema
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
    question: Query,
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
    from manyseed.orchestrator.asking.averaging import grouped as of_effects

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


def chosen_runs(tables: Results, where: str | None = None, best: int | None = None) -> list[str]:
    """Return the addresses of runs, ordered by cell, repeat and run.

    If all runs of a repeat are the same fit, the first stands for all. Of several snapshots the
    last counts, unless the condition uses epochs.

    `where` is an SQL condition over the table of runs, `best` at most so many runs of each cell:
    the most accurate on their test sets, the first among equals.
    """
    frame = rows_of(tables, "runs")
    schema = frame.collect_schema()
    met = wanted(where, schema, "--where")
    with tables.damage_named("runs"):
        order = ["cell", "repeat_index", "run_index"]
        rows = (
            at_one_snapshot(frame, met)
            .filter(~pl.col("identical") | (pl.col("run_index") == 0))
            .select(*order, "address", "accuracy")
            .unique(order, keep="any")
            .sort(order)
            .collect()
        )
    if best is not None:
        by = ["accuracy", *order]
        rows = rows.filter(pl.col("accuracy").is_not_null())
        rows = rows.sort(by, descending=[True, False, False, False])
        rows = rows.group_by("cell", maintain_order=True).head(best).sort(order)
    if rows.is_empty():
        directory = "DIR" if tables.plan is None else tables.plan.directory
        raise UserError(
            "no finished run meets it" if where else "no run is analysed",
            key="--where" if where else "--best",
            value=where or best,
            remedy=f"see what there is with: {command('query', directory, '--table', 'runs')}",
        )
    return rows["address"].to_list()


def described(sweeps: Mapping[str, Results], table: str, *, grouped: bool = False) -> pl.DataFrame:
    """Return the columns of a table.

    `grouped`: whether rows are grouped: the columns that only groups have come first. Returns
    columns column, unit and meaning, which is empty if an earlier version wrote the table.
    """
    added, of_groups = records()["added"].columns, records()["grouped"].columns
    meanings = dict(of_groups) if grouped else {}
    if len(sweeps) > 1:
        meanings[SWEEP] = added[SWEEP]
    for tables in sweeps.values():
        require_table(tables, table)
        names = rows_of(tables, table).collect_schema().names()
        stored = json.loads(tables.metadata(table).get("columns", "{}"))
        for name in (*(n for n in ADDRESSES if n in names), *names):
            column = stored.get(name, {})
            known = added.get(name, (column.get("unit", ""), column.get("meaning", "")))
            if name not in meanings or (any(known) and not (grouped and name in of_groups)):
                meanings[name] = known
    rows = [(name, *meaning) for name, meaning in meanings.items()]
    return pl.DataFrame(rows, schema=["column", "unit", "meaning"], orient="row")
