"""Effects with intervals: of each cell as a table, of groups as answers, and for the page."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from manyseed.analysis.axes import AXES
from manyseed.analysis.questions.effects import OF_PAIRS, OF_RUNS, effects, with_one_test_set
from manyseed.analysis.tables.keys import REPEAT, RUN
from manyseed.analysis.tables.schema import Tables
from manyseed.analysis.tables.snapshots import last
from manyseed.analysis.tables.twins import paired
from manyseed.orchestrator.errors import UserError, nearest
from manyseed.orchestrator.results.tables import OF_EFFECT, Results

_OF_CELL = ["cell", "reference_cell"]


def of_cells(tables: Tables) -> pl.DataFrame:
    """Return the effects of each cell against the one that it is compared with.

    Parameters
    ----------
    tables : Tables
        With the columns of `AXES` in the repeats.
    """
    found = effects(tables, _OF_CELL)
    return found.rename({"delta_lo": "delta"}).select(
        *("cell", "axis", "level", "reference", "reference_cell", "metric", "difference", "sd"),
        *("n_test_sets", "n_identical", "over", "freedom", "low", "high", "p", "comparisons"),
        *("p_holm", "probe", "delta"),
    )


def compared(results: Results) -> Tables:
    """Return what effects are of, the same fits once: of runs and pairs what has one test set."""
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
        of_runs = runs.collect()
    with results.damage_named("pairs"):
        return Tables(of_runs, pairs.collect(), repeats, pl.DataFrame())


def grouped(results: Results, rows: pl.LazyFrame, by: Sequence[str]) -> pl.DataFrame:
    """Return effects averaged within groups, with intervals of their own.

    Parameters
    ----------
    results : Results
    rows : LazyFrame
        Of the table of effects: which comparisons to average.
    by : sequence of str
        Columns that say what a cell is, and any of `OF_EFFECT`.

    Raises
    ------
    UserError
        For another column.
    """
    for name in by:
        if name not in (*AXES, "cell", *OF_EFFECT):
            remedy = nearest(name, (*AXES, "cell", *OF_EFFECT))
            raise UserError("no effects are grouped by it", key="--by", value=name, remedy=remedy)
    within = [name for name in by if name not in OF_EFFECT]
    among = rows.select("cell", "axis", "metric").collect()
    return effects(compared(results), within, among=among)
