"""What the columns of a result table mean, including those that a query adds."""

from __future__ import annotations

import json
from collections.abc import Mapping

import polars as pl

from manyseed.analysis.tables.records import records
from manyseed.orchestrator.results.query import SWEEP, require_table
from manyseed.orchestrator.results.shown import ADDRESSES, rows_of
from manyseed.orchestrator.results.tables import Results


def described(sweeps: Mapping[str, Results], table: str, *, grouped: bool = False) -> pl.DataFrame:
    """Return the columns of a table.

    Parameters
    ----------
    sweeps : mapping of str to Results
    table : str
    grouped : bool
        Whether rows are grouped: the columns that only groups have come first.

    Returns
    -------
    DataFrame
        Columns column, unit and meaning, which is empty if an earlier version wrote the table.

    Raises
    ------
    UserError
        For an unknown table.
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
