"""The share of planned runs that are finished, for groups of cells."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from manyseed.analysis.axes import AXES
from manyseed.analysis.tables.keys import REPEAT
from manyseed.orchestrator.paths import SweepPaths
from manyseed.orchestrator.plans.plan import Plan

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

    Parameters
    ----------
    plan : polars frame
        As `planned` returns it.
    repeats : polars frame, lazy
        The table of repeats.
    rows : polars frame, lazy
        The rows that are grouped, with the columns in `by` and cell.
    by : sequence of str
    where : Expr or None
        The condition that chose the rows.

    Returns
    -------
    polars frame
        Columns `by` and coverage. If `by` and `where` use only columns of the plan, cells and
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
