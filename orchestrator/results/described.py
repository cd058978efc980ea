"""What the columns of a result table mean, including those that a query adds."""

from __future__ import annotations

import json
from collections.abc import Mapping

import polars as pl

from manyseed.orchestrator.results.query import SWEEP, require_table
from manyseed.orchestrator.results.shown import ADDRESSES, rows_of
from manyseed.orchestrator.results.tables import Results

_MEANINGS: Mapping[str, tuple[str, str]] = {
    "address": ("", "CELL:REPEAT:RUN, as manyseed status and rerun take it."),
    "address_i": ("", "CELL:REPEAT:RUN of the first run of the pair."),
    "address_j": ("", "CELL:REPEAT:RUN of the second run of the pair."),
    SWEEP: ("", "Directory of the row's sweep."),
}
_OF_GROUPS: Mapping[str, tuple[str, str]] = {
    "n": ("rows", "Rows in the group."),
    "n_twins": ("rows", "Rows of cells whose fits are another cell's; left out if both are here."),
    "n_identical": ("rows", "Rows of repeats of identical runs."),
    "coverage": ("share of runs", "Planned runs that are finished."),
    "…_ci_low": ("", "Lower end of the 95 % interval of a mean."),
    "…_ci_high": ("", "Upper end of the 95 % interval of a mean."),
    "over": ("", "What the intervals are over: test sets, or seeds on one test set."),
    "delta_lo": ("difference of eCDFs", "Smallest δ, where it differs: α̂ is not averaged then."),
    "delta_hi": ("difference of eCDFs", "Largest δ, where it differs."),
}


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
    meanings: dict[str, tuple[str, str]] = dict(_OF_GROUPS) if grouped else {}
    if len(sweeps) > 1:
        meanings[SWEEP] = _MEANINGS[SWEEP]
    for tables in sweeps.values():
        require_table(tables, table)
        names = rows_of(tables, table).collect_schema().names()
        stored = json.loads(tables.metadata(table).get("columns", "{}"))
        for name in (*(n for n in ADDRESSES if n in names), *names):
            column = stored.get(name, {})
            known = _MEANINGS.get(name, (column.get("unit", ""), column.get("meaning", "")))
            if name not in meanings or (any(known) and not (grouped and name in _OF_GROUPS)):
                meanings[name] = known
    rows = [(name, *meaning) for name, meaning in meanings.items()]
    return pl.DataFrame(rows, schema=["column", "unit", "meaning"], orient="row")
