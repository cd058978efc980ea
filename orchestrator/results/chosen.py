"""Runs that meet a condition on the table of runs, or are the best of their cells."""

from __future__ import annotations

import polars as pl

from manyseed.orchestrator.conditions import at_one_snapshot, wanted
from manyseed.orchestrator.errors import UserError, command
from manyseed.orchestrator.results.shown import rows_of
from manyseed.orchestrator.results.tables import Results


def chosen_runs(tables: Results, where: str | None = None, best: int | None = None) -> list[str]:
    """Return the addresses of runs, ordered by cell, repeat and run.

    If all runs of a repeat are the same fit, the first stands for all. Of several snapshots the
    last counts, unless the condition uses epochs.

    Parameters
    ----------
    tables : Results
    where : str, optional
        An SQL condition over the table of runs.
    best : int, optional
        At most this many runs of each cell: the most accurate on their test sets, the first among
        equals.

    Raises
    ------
    UserError
        For a condition that cannot be read, a number below 1, and if no run is left.
    """
    if best is not None and best < 1:
        raise UserError("must be at least 1", key="--best", value=best)
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
