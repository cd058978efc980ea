"""Group the rows of a result table: means, pooled spreads, sums, functions, coverage."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence

import polars as pl

from manyseed.analysis.axes import AXES
from manyseed.analysis.tables.rows import (
    CELL_KEY,
    IS_TWIN,
    REPEAT,
    REPEAT_KEY,
    SAME_AS,
    VARIES,
    compares_runs,
    counted,
    is_count,
    is_level,
    last,
    mean_of,
    pooled,
    same_of,
    std_of,
)
from manyseed.analysis.tables.schema import records
from manyseed.orchestrator.computing.tables import (
    CURVES,
    ENSEMBLES,
    RESPONSE_CURVES,
    Results,
)
from manyseed.orchestrator.errors import UserError, require_one_of
from manyseed.orchestrator.paths import SweepPaths
from manyseed.orchestrator.plans.plan import Plan

MEAN, SD, COUNT = "mean", "sd", "count"
FUNCTIONS: Mapping[str, Callable[[pl.Expr], pl.Expr]] = {
    MEAN: mean_of,
    SD: std_of,
    "median": lambda column: column.quantile(0.5, "linear"),
    "min": lambda column: column.min(),
    "max": lambda column: column.max(),
    COUNT: lambda column: column.count(),
}
"""By name. Quantiles come on top: q05 is the 5 % quantile, q975 the 97.5 % quantile."""

_QUANTILES = "q05 is the 5 % quantile, q50 the median, q975 the 97.5 % quantile"

WITHIN: Mapping[str, Sequence[str]] = {
    **dict.fromkeys(("runs", "pairs", "ranking"), REPEAT_KEY),
    "repeats": CELL_KEY,
}
"""Keys of the units within which a table's rows vary: runs in a repeat, repeats in a cell."""


def require(names: Sequence[str]) -> None:
    """Raise a UserError for a name that is not a function."""
    for name in names:
        if re.fullmatch(r"q\d+", name, re.ASCII) and _quantile(name) is None:
            raise UserError("not a quantile", key="--agg", value=name, remedy=_QUANTILES)
        if _quantile(name) is None:
            require_one_of(name, (*FUNCTIONS, "q05", "q95"), "unknown function", key="--agg")


def aggregate(name: str, column: pl.Expr) -> pl.Expr:
    """Return the named function of a column's values within a group."""
    quantile = _quantile(name)
    return FUNCTIONS[name](column) if quantile is None else column.quantile(quantile, "linear")


def spreads(
    frame: pl.LazyFrame, by: Sequence[str], within: Sequence[str], values: Mapping[str, pl.Expr]
) -> pl.LazyFrame:
    """Return standard deviations within units, pooled over the units of each group.

    `by` and `within`: key columns of the groups, and of the units. `values`: the values of a unit
    that count, by the name of the result.
    """
    units = frame.group_by(list(dict.fromkeys([*by, *within])), maintain_order=True).agg(
        *(std_of(value).alias(name) for name, value in values.items()),
        *(
            (value.count().cast(pl.Int64) - 1).alias(f"{name}_free")
            for name, value in values.items()
        ),
    )
    return units.group_by(by, maintain_order=True).agg(
        pooled(pl.col(name), pl.col(f"{name}_free")).alias(name) for name in values
    )


def _quantile(name: str) -> float | None:
    # Not q5, which could mean 5 % or 50 %, nor q100, which could mean 10 % or 100 %.
    match = re.fullmatch(r"q(\d{2}|\d{2}[1-9])", name, re.ASCII)
    return None if match is None else float(f"0.{match[1]}")


COVERAGE = "coverage"
KNOWN = ("cell", "cell_id", *AXES, "repeat_index")
"""Columns that the plan has of runs that are not finished."""


def planned(paths: SweepPaths) -> pl.DataFrame:
    """Return the repeats of a plan: columns `KNOWN` and planned (number of runs)."""
    plan = Plan.read(paths)
    repeats = (
        plan.extents.with_columns(repeat_index=pl.int_ranges(0, pl.col("repeats")))
        .explode("repeat_index")
        .select("cell", pl.col("repeat_index").cast(pl.UInt16), planned=pl.col("runs"))
    )
    cells = plan.cells.select("cell", "cell_id", *AXES)
    return cells.join(repeats, on="cell", maintain_order="left").select(*KNOWN, "planned")


def coverage(
    plan: pl.DataFrame,
    repeats: pl.LazyFrame,
    rows: pl.LazyFrame,
    by: Sequence[str],
    where: pl.Expr | None,
) -> pl.DataFrame:
    """Return the share of planned runs that are finished, for each group.

    `plan`: as `planned` returns it. `repeats`: the table of repeats. `rows`: the rows that are
    grouped, with the columns in `by` and cell. `where`: the condition that chose the rows.

    Returns columns `by` and coverage. If `by` and `where` use only columns of the plan, cells and
    repeats without a finished run count, too; else only cells that have rows count.
    """
    finished = repeats.group_by(REPEAT).agg(pl.col("n_runs").max()).collect()
    states = plan.join(finished, on=list(REPEAT), how="left")
    share = (pl.col("n_runs").fill_null(0).sum() / pl.col("planned").sum()).alias(COVERAGE)
    asked = {*by, *([] if where is None else where.meta.root_names())}
    if asked <= set(KNOWN):
        chosen = states if where is None else states.filter(where)
        return chosen.group_by(by, maintain_order=True).agg(share)
    key = ["cell", *(["repeat_index"] if "repeat_index" in by else [])]
    those = rows.select(list(dict.fromkeys([*by, *key]))).unique().collect()
    others = [name for name in by if name not in key]
    joined = those.join(states.drop(others, strict=False), on=key)
    return joined.group_by(by, maintain_order=True).agg(share)


_BETWEEN_RUNS = (pl.col("n_distinct") - pl.col("n_repeats")).cast(pl.Int64)
_FREEDOM: Mapping[str, pl.Expr] = {
    "repeats": pl.col("n_distinct") - 1,
    "cells": _BETWEEN_RUNS,
    "sources": _BETWEEN_RUNS,
    ENSEMBLES: pl.col("draws") - 1,
    CURVES: pl.col("n_runs") - 1,
    RESPONSE_CURVES: pl.col("n_runs") - 1,
}
"""By table, the degrees of freedom of its standard deviations: n - 1 per repeat, or the draws'."""

TWINS = "n_twins"  # counts rows of cells whose fits are another cell's, in the group or not

_RESOLUTION = ("delta", "n_side", "n_test", "smallest_class", "epoch")
_SIDES = ("delta_lo", "delta_hi")


def grouped(
    tables: Results,
    table: str,
    frame: pl.LazyFrame,
    by: Sequence[str],
    columns: Sequence[str],
    agg: Sequence[str] = (),
    where: pl.Expr | None = None,
) -> pl.DataFrame:
    """Group rows: means with intervals, pooled spreads, sums of counts.

    Metrics that compare runs are averaged over repeats whose runs vary, all others over all, so
    that cells count by their runs; functions other than means leave out copies of runs. α̂ is null
    if probes or δ differ within a group.

    `table`: the table that the rows in `frame` come from. `columns`: numeric columns to show.
    `agg`: functions of these to show instead (`aggregates`), a column each: ``accuracy_q05``.
    `where`: the condition that chose the rows.

    Returns columns `by`, n (rows), n_identical (rows of repeats of identical runs, in tables with
    rows of runs), n_twins (rows of cells whose fits are another cell's, if the sweep has any; they
    count nowhere else if that cell is in the group), coverage (share of planned runs that are
    finished, if the plan is known) and `columns`. Means of values known for each repeat are
    followed by the ends of their intervals (``accuracy_ci_low``, ``accuracy_ci_high``); the last
    column, `over`, says whether intervals are over test sets or seeds. δ, N and the size of the
    test set are null if they differ. With α̂, `delta_lo` and `delta_hi` are added if δ differs, and
    `probe` names the probes if they differ.
    """
    from manyseed.orchestrator.asking.averaging import HIGH, LOW, OVER, Averages

    names = frame.collect_schema().names()
    if table == "sources" and "n_repeats" not in names:
        raise UserError(
            "the table was written by an earlier version",
            key="--table",
            value=table,
            remedy="write it again: manyseed analyze DIR",
        )
    asked = frame
    of_repeats = "repeat_index" in names
    if of_repeats:
        facts = [name for name in ("n_distinct", "probe") if name not in names]
        repeats = tables.scan("repeats")
        if "epoch" not in names:
            repeats = last(repeats)
        schema = repeats.collect_schema()  # earlier versions lack columns, also beside other sweeps
        key = [name for name in REPEAT_KEY if name in names and name in schema]
        described = repeats.select(*key, *facts, same=pl.col("identical"))
        frame = frame.join(described, on=key, how="left", maintain_order="left")
    frame, twins = _once(tables, frame, by)
    facts_of = [name for name in columns if name in _RESOLUTION]
    functions = {name: tuple(agg) if agg and name not in facts_of else (None,) for name in columns}
    levels = [name for name in columns if is_level(name)]
    if levels and "delta" not in (*columns, *by):
        functions["delta"] = (None,)
    values = [
        _together(table, name, names)
        if function is None
        else aggregate(function, _values(table, name, names, function)).alias(f"{name}_{function}")
        for name, chosen in functions.items()
        for function in chosen
        if function != SD or table not in WITHIN
    ]
    if levels:
        known = pl.any_horizontal(pl.col(name).is_not_null() for name in levels)
        delta, probe = (pl.col(name).filter(known) for name in ("delta", "probe"))
        values += [delta.min().alias("delta_lo"), delta.max().alias("delta_hi")]
        values.append(probe.drop_nulls().unique().sort().str.join("+").alias("_probe"))
    copies = of_repeats and records()[table].of_copies
    count = [pl.len().alias("n"), *([pl.col("same").sum().alias("n_identical")] * copies)]
    result = frame.group_by(by, maintain_order=True).agg(*count, *values).collect()
    further = [frame for frame in (twins, _finished(tables, asked, by, where)) if frame is not None]
    if SD in agg and table in WITHIN:
        further.append(_spreads(table, frame, by, names, [n for n in columns if n not in facts_of]))
    averaged = [name for name, chosen in functions.items() if None in chosen or MEAN in chosen]
    averaged = [name for name in averaged if _is_mean(table, name)]
    ends = Averages(tables, table, frame, by, averaged).intervals()
    for other in (*further, ends):
        result = result.join(other, on=by, how="left", maintain_order="left", nulls_equal=True)
    order = [*by, "n", TWINS, "n_identical", COVERAGE]
    for name, chosen in functions.items():
        order += [name if function is None else f"{name}_{function}" for function in chosen]
        order += [f"{name}{LOW}", f"{name}{HIGH}"]
    order += [*_SIDES, "_probe", OVER]
    result = result.select(n for n in dict.fromkeys(order) if n in result.columns)
    result = _of_one_kind(result, levels, by)
    if levels and (result["delta_lo"] == result["delta_hi"]).fill_null(True).all():
        result = result.drop(_SIDES)
    if levels and "probe" not in by and result["_probe"].str.contains("+", literal=True).any():
        return result.rename({"_probe": "probe"})
    return result.drop("_probe", strict=False)


def _of_one_kind(result: pl.DataFrame, levels: Sequence[str], by: Sequence[str]) -> pl.DataFrame:
    """Return groups with α̂ set to null if it has two probes or two δ; counts of it stay."""
    if not levels:
        return result
    one = (pl.col("delta_lo") == pl.col("delta_hi")).fill_null(value=True)
    one &= ~pl.col("_probe").str.contains("+", literal=True)
    return result.with_columns(
        pl.when(one).then(pl.col(name)).alias(name)
        for name in result.columns
        if is_level(name) and name not in by and not name.endswith(f"_{COUNT}")
    )


def _finished(
    tables: Results, rows: pl.LazyFrame, by: Sequence[str], where: pl.Expr | None
) -> pl.DataFrame | None:
    """Return the coverage of groups; None if the plan is unknown."""
    if tables.plan is None or COVERAGE in by:
        return None
    return coverage(planned(tables.plan), tables.scan("repeats"), rows, by, where)


def _spreads(
    table: str, frame: pl.LazyFrame, by: Sequence[str], names: Sequence[str], columns: Sequence[str]
) -> pl.DataFrame:
    within = [name for name in WITHIN[table] if name in names]
    values = {f"{name}_{SD}": _values(table, name, names, SD) for name in columns}
    return spreads(frame, by, within, values).collect()


def _once(
    tables: Results, frame: pl.LazyFrame, by: Sequence[str]
) -> tuple[pl.LazyFrame, pl.DataFrame | None]:
    """Return rows without those of cells with a twin in their group, and the number of twins' rows.

    The number is None if the sweep has no twins, or an earlier version did not record them.
    """
    cells = tables.scan("cells") if "cells" in tables else pl.LazyFrame()
    if SAME_AS not in cells.collect_schema().names():
        return frame, None
    known = cells.select("cell", SAME_AS).unique().collect()
    if known[SAME_AS].null_count() == known.height:
        return frame, None
    if SAME_AS not in frame.collect_schema().names():
        frame = frame.join(known.lazy(), on="cell", how="left", maintain_order="left")
    twins = frame.group_by(by).agg(IS_TWIN.sum().alias(TWINS)).collect()
    return frame.filter(counted(by)), twins


def _together(table: str, name: str, names: Sequence[str]) -> pl.Expr:
    """Return how a group's rows of a column are summarised."""
    if name in _RESOLUTION:
        return same_of(pl.col(name)).alias(name)
    if is_count(name):
        return pl.col(name).sum()
    free = _freedom(table, name)
    if free is None:
        return mean_of(_values(table, name, names)).alias(name)
    free = free.filter(VARIES) if _only_varying(table, name, names) else free
    return pooled(_values(table, name, names), free).alias(name)


def _is_mean(table: str, name: str) -> bool:
    """Return whether groups show a column's mean, not a sum, a pooled value or a shared one."""
    return not is_count(name) and name not in _RESOLUTION and _freedom(table, name) is None


def _values(table: str, name: str, names: Sequence[str], function: str = MEAN) -> pl.Expr:
    """Return the values of a column that count; copies of a run do so in means alone."""
    column = pl.col(name)
    if _only_varying(table, name, names):
        return column.filter(VARIES)
    return column.filter(~pl.col("identical")) if table == "runs" and function != MEAN else column


def _only_varying(table: str, name: str, names: Sequence[str]) -> bool:
    """Return whether a column says nothing about repeats of identical runs."""
    return "repeat_index" in names and not records()[table].of_all_repeats and compares_runs(name)


def _freedom(table: str, name: str) -> pl.Expr | None:
    """Return the degrees of freedom of a column of standard deviations, None for others."""
    if name.endswith("_sd"):
        repeats = f"{name.removesuffix('_sd')}_n" if table == "cells" else "n_repeats"
        return pl.col(repeats) - 1
    return _FREEDOM.get(table) if name.endswith("_std") else None


def notes(frame: pl.DataFrame, by: Sequence[str]) -> Iterator[str]:
    """Return notes on what `grouped` did not average, or chose one of."""
    if not by:
        return
    if "epoch" in frame.columns and "epoch" not in by:
        yield "Only the last snapshot of each cell is shown: for the others, group by epoch, too."
    if TWINS in frame.columns:
        yield (
            f"{TWINS}: rows of cells whose fits are those of another cell (same_as in the table of "
            "cells). Where both are in a group, one counts."
        )
    two = pl.lit(value=False)
    if "probe" in frame.columns and "probe" not in by:
        yield "α̂ is not averaged over probes: group by probe or dataset, too."
        two = pl.col("probe").str.contains("+", literal=True)
    if not set(_SIDES) <= set(frame.columns):
        return
    if not frame.filter(pl.col("delta_lo") < pl.col("delta_hi"), ~two).is_empty():
        yield "α̂ is not averaged over δ (delta_lo to delta_hi): group by delta or dataset, too."


def few_test_sets(tables: Results, frame: pl.DataFrame, by: Sequence[str]) -> str:
    """Say that intervals of some group rest on too few test sets; empty if none does.

    As datasets are strata, one test set of each is not counted.
    """
    from manyseed.analysis.questions.intervals import TEST_SETS, USEFUL, too_few  # imports scipy

    if "over" not in frame.columns or TEST_SETS not in frame["over"]:
        return ""
    cells = last(tables["cells"])
    known = [name for name in by if name in (*AXES, "cell")]
    shown = frame.filter(pl.col("over") == TEST_SETS).select(known)
    if known:
        cells = cells.join(shown, on=known, how="semi", nulls_equal=True)
    sets = pl.col("n_repeats").max().alias("sets")
    groups = (
        cells.group_by(list(dict.fromkeys([*known, "dataset"])))
        .agg(sets)
        .group_by(known or pl.lit(0))
        .agg(pl.col("sets").max(), free=(pl.col("sets").cast(pl.Int64) - 1).sum())
        .filter(pl.col("sets") > 1, pl.col("free") < USEFUL - 1)
    )
    return too_few(int(groups["sets"].min())) if groups.height else ""  # type: ignore[arg-type]
