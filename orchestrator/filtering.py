"""Filter the rows of a frame by a user's condition."""

from __future__ import annotations

import re
from collections.abc import Mapping

import polars as pl

from manyseed.analysis.tables.rows import IS_LAST
from manyseed.orchestrator.conditions import NoCondition, UnknownColumn, condition
from manyseed.orchestrator.errors import UserError, first_line, nearest

_SHOWN = 200  # characters shown of a refused condition
_COMPARED = re.compile(
    r"\b(\w+)\s*(==|=|!=|<>|(?:NOT\s+)?I?LIKE\b|(?:NOT\s+)?IN\b\s*\()\s*"
    r"(\"[^\"]*\"|[^\s'\"(),]+)",
    re.IGNORECASE,
)
"""A column, its comparison, and the other side if that is not a text in single quotes."""
_VALUE = re.compile(r"\w[\w.-]*")
_CONSTANT = re.compile(r"[\d.+-]|(true|false|null)$", re.IGNORECASE)


def matching(frame: pl.DataFrame, where: str, option: str = "--where") -> pl.DataFrame:
    """Return the rows that meet an SQL condition, which came from an option of the command.

    Raises
    ------
    UserError
        For an unknown column, or an invalid condition.
    """
    return frame.filter(wanted(where, frame.schema, option))


def chosen(
    cells: pl.DataFrame, where: str | None, option: str = "--where", *, one_snapshot: bool = False
) -> pl.DataFrame:
    """Return the cells that meet an SQL condition, or all if there is none.

    Parameters
    ----------
    cells : polars frame
        A row per cell, or per cell and snapshot.
    where : str or None
        The condition.
    option : str
        The option that it came from, for messages.
    one_snapshot : bool
        Whether to return rows of one snapshot of each cell, as `at_one_snapshot`.

    Raises
    ------
    UserError
        As `matching`, and if no cell meets the condition.
    """
    meets, rows = wanted(where, cells.schema, option), cells.lazy()
    met = (at_one_snapshot(rows, meets) if one_snapshot else rows.filter(meets)).collect()
    if met.is_empty():
        raise UserError("no cell meets the condition", key=option, value=where)
    return met


def at_one_snapshot(frame: pl.LazyFrame, wanted: pl.Expr) -> pl.LazyFrame:
    """Return the wanted rows of a result table, at one snapshot of each cell.

    That is the cell's last or, if the condition uses epochs, the last wanted one that its dataset,
    classifier and ensembling method have.
    """
    names = frame.collect_schema().names()
    if "epoch" not in names:  # earlier versions had one snapshot
        return frame.filter(wanted)
    if "epoch" not in wanted.meta.root_names():
        return frame.filter(IS_LAST).filter(wanted)
    key = [name for name in ("dataset", "classifier", "ensembling") if name in names]
    newest = pl.col("epoch").max().over(key)
    return frame.filter(wanted).filter(pl.col("epoch") == newest)


def wanted(where: str | None, columns: Mapping[str, pl.DataType], option: str) -> pl.Expr:
    """Return an SQL condition as an expression that is true or false in rows of these columns.

    All conditions of users pass through here, before any row is read: an error in reading rows is
    then never the condition's.

    Parameters
    ----------
    where : str or None
        The condition; None is met by all rows.
    columns : mapping
        The table's schema.
    option : str
        The option that it came from, for messages.

    Raises
    ------
    UserError
        For an unknown column, an invalid condition, or one that does not suit the columns.
    """
    if where is None:
        return pl.lit(value=True)
    shown = where[:_SHOWN]
    try:
        met = condition(where, columns)
        # polars raises when, for instance, a number is compared with a text
        pl.LazyFrame(schema=dict(columns)).filter(met).collect()
        return met
    except UnknownColumn as error:
        near = nearest(error.name, columns)
        if "classifier" in columns and _VALUE.fullmatch(where or "") and near.startswith("valid"):
            near = f"name its column, such as: classifier = '{where}'"
        remedy = quotes(where, columns) or near
        raise UserError(
            f"unknown column {error.name}", key=option, value=shown, remedy=remedy
        ) from None
    except (NoCondition, pl.exceptions.PolarsError, pl.exceptions.PanicException) as error:
        raise UserError(
            f"not a condition: {first_line(error)}",
            key=option,
            value=shown,
            remedy=quotes(where, columns)
            or "write SQL, such as: classifier = 'mlp' AND accuracy > 0.9",
        ) from None


def quotes(where: str | None, columns: Mapping[str, pl.DataType]) -> str | None:
    """Return a remedy if a text column is compared with a text without single quotes."""
    for name, how, value in _COMPARED.findall(where or ""):
        text = value.strip('"')
        if columns.get(name) == pl.String and text not in columns and not _CONSTANT.match(text):
            quoted = f"('{text}')" if "(" in how else f"'{text}'"
            return f"write '{text}' in single quotes: {name} {how.rstrip('(').strip()} {quoted}"
    return None
