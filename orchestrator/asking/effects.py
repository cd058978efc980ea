"""Effects with intervals: a table by cell, averages by group, and the tables for the page."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from manyseed.analysis.axes import AXES
from manyseed.analysis.questions.effects import OF_PAIRS, OF_RUNS, effects, with_one_test_set
from manyseed.analysis.tables.rows import REPEAT, RUN, Tables, last, paired
from manyseed.orchestrator.computing.tables import OF_EFFECT, Results
from manyseed.orchestrator.errors import UserError, nearest


def compared(results: Results) -> Tables:
    """Return the tables that effects are computed from, twins counted once.

    Runs and pairs are only of cells with one test set.
    """
    empty = pl.DataFrame()
    tables = Tables(empty, empty, last(results["repeats"]), last(results["cells"]))
    repeats = paired(tables).repeats
    alone = pl.col("cell").is_in(with_one_test_set(repeats).implode())
    runs = last(results.scan("runs")).filter(alone).select(*RUN, *OF_RUNS.values())
    pairs = last(results.scan("pairs")).filter(alone)
    names = pairs.collect_schema().names()
    pairs = pairs.select(
        *REPEAT, "run_i", "run_j", *(name for name in OF_PAIRS.values() if name in names)
    )
    with results.damage_named("runs"):
        collected = runs.collect()
    with results.damage_named("pairs"):
        return Tables(collected, pairs.collect(), repeats, empty)


def grouped(results: Results, rows: pl.LazyFrame, by: Sequence[str]) -> pl.DataFrame:
    """Return effects averaged within groups, with their own intervals.

    Parameters
    ----------
    results : Results
    rows : LazyFrame
        Rows of the table of effects: the comparisons to average.
    by : sequence of str
        Axes, cell, and any of `OF_EFFECT`.

    Raises
    ------
    UserError
        For any other column.
    """
    allowed = (*AXES, "cell", *OF_EFFECT)
    for name in by:
        if name not in allowed:
            remedy = nearest(name, allowed)
            raise UserError("no effects are grouped by it", key="--by", value=name, remedy=remedy)
    within = [name for name in by if name not in OF_EFFECT]
    among = rows.select("cell", "axis", "metric").collect()
    return effects(compared(results), within, among=among)
