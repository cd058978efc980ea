"""SQL over all result tables of one or several sweeps, run by polars."""

from __future__ import annotations

import re
from collections.abc import Mapping

import polars as pl

from manyseed.orchestrator.conditions import quotes
from manyseed.orchestrator.errors import UserError, first_line, nearest
from manyseed.orchestrator.results.query import damage_named, named_rows, require_table
from manyseed.orchestrator.results.statements import NoStatement, names_in
from manyseed.orchestrator.results.tables import ALL_TABLES, FURTHER, Results

_SHOWN = 200  # characters shown of a refused statement
_OPTION = "--sql"


def ask_sql(sweeps: Mapping[str, Results], text: str) -> pl.DataFrame:
    """Return the result of a SELECT over the result tables, which go by their names.

    Tables are read lazily: only the columns and rows that are needed. With several sweeps, a table
    has the rows of all, and the column sweep.

    Parameters
    ----------
    sweeps : mapping of str to Results
    text : str
        One SELECT, with or without WITH (`statements` says what it may contain).

    Raises
    ------
    UserError
        For any other statement, an unknown table or an unknown column.
    """
    shown = text[:_SHOWN]
    try:
        words = set(names_in(text))
    except NoStatement as error:
        remedy = "such as: SELECT classifier, AVG(accuracy) AS mean FROM runs GROUP BY classifier"
        raise UserError(str(error), key=_OPTION, value=shown, remedy=remedy) from None
    rows = {name: _rows(sweeps, name) for name in ALL_TABLES if name in words}
    frames = {name: frame for name, frame in rows.items() if frame is not None}
    schema = {n: t for frame in frames.values() for n, t in frame.collect_schema().items()}
    try:
        with (
            damage_named(sweeps, frames),
            pl.SQLContext(frames, register_globals=False) as context,
        ):
            return context.execute(text, eager=False).collect()
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException) as error:
        message = first_line(error)
        if missing := re.match(r"relation '(.*)' was not found", message):
            for tables in sweeps.values():
                require_table(tables, missing[1], _OPTION)
        column = re.search(r"unable to find column \"([^\"]*)\"", message)
        advice = quotes(text, schema)
        if column:
            message = f"unknown column {column[1]}"
            advice = advice or nearest(column[1], schema)
        raise UserError(message, key=_OPTION, value=shown, remedy=advice) from None


def _rows(sweeps: Mapping[str, Results], table: str) -> pl.LazyFrame | None:
    """Return a table of all sweeps; None if one lacks it."""
    if table in FURTHER and any(table not in tables for tables in sweeps.values()):
        return None
    return pl.concat(named_rows(sweeps, table).values(), how="vertical")
