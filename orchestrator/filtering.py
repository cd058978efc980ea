"""Rows of a frame that meet a user's condition."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import polars as pl

from manyseed.analysis.tables.snapshots import IS_LAST
from manyseed.orchestrator.conditions import NoCondition, UnknownColumn, condition
from manyseed.orchestrator.errors import UserError, first_line, nearest

_SHOWN = 200  # characters of a condition that is refused
_COMPARED = re.compile(
    r"\b(\w+)\s*(==|=|!=|<>|(?:NOT\s+)?I?LIKE\b|(?:NOT\s+)?IN\b\s*\()\s*"
    r"(\"[^\"]*\"|[^\s'\"(),]+)",
    re.IGNORECASE,
)
"""A column, how it is compared, and with what, where that is no text in single quotes."""
_CONSTANT = re.compile(r"[\d.+-]|(true|false|null)$", re.IGNORECASE)


def matching(frame: pl.DataFrame, where: str, option: str = "--where") -> pl.DataFrame:
    """Return the rows that meet a condition in SQL, given by an option of the command.

    Raises
    ------
    UserError
        For an unknown column, or an invalid condition.
    """
    with refusing(where, frame.schema, option):
        return frame.filter(condition(where, frame.columns))


def chosen(
    cells: pl.DataFrame, where: str | None, option: str = "--where", *, one_snapshot: bool = False
) -> pl.DataFrame:
    """Return the cells that meet a condition in SQL, or all where there is none.

    Parameters
    ----------
    cells : polars frame
        A row per cell, or per cell and snapshot.
    where : str or None
        The condition.
    option : str
        That gave it, for messages.
    one_snapshot : bool
        Whether `cells` are a result table's: of each the rows that `at_one_snapshot` returns.

    Raises
    ------
    UserError
        As `matching`, and where no cell meets it.
    """
    with refusing(where, cells.schema, option):
        wanted = pl.lit(value=True) if where is None else condition(where, cells.columns)
        found = cells.lazy()
        found = at_one_snapshot(found, wanted) if one_snapshot else found.filter(wanted)
        met = found.collect()
    if met.is_empty():
        raise UserError("no cell meets the condition", key=option, value=where)
    return met


def at_one_snapshot(frame: pl.LazyFrame, wanted: pl.Expr) -> pl.LazyFrame:
    """Return rows of a result table that are wanted, of one snapshot of each cell.

    It is the cell's last, and where the condition asks for epochs, the last of these that its
    dataset and classifier have.
    """
    if "epoch" not in frame.collect_schema().names():  # of an earlier version: there is one
        return frame.filter(wanted)
    if "epoch" not in wanted.meta.root_names():
        return frame.filter(IS_LAST).filter(wanted)
    own = [
        name for name in ("dataset", "classifier", "ensembling") if name in frame.collect_schema()
    ]
    newest = pl.col("epoch").max().over(own)
    return frame.filter(wanted).filter(pl.col("epoch") == newest)


@contextmanager
def refusing(where: str | None, columns: Mapping[str, pl.DataType], option: str) -> Iterator[None]:
    """Report a condition that cannot be read, or applied, as an error of its option.

    `columns` are those that it may be about, with their types.
    """
    shown = where and where[:_SHOWN]
    try:
        yield
    except UnknownColumn as error:
        remedy = quotes(where, columns) or nearest(error.name, columns)
        raise UserError(
            f"unknown column {error.name}", key=option, value=shown, remedy=remedy
        ) from None
    except (NoCondition, pl.exceptions.PolarsError, pl.exceptions.PanicException) as error:
        # polars compares: a number with a text, for instance
        raise UserError(
            f"not a condition: {first_line(error)}",
            key=option,
            value=shown,
            remedy=quotes(where, columns)
            or "write SQL, such as: classifier = 'mlp' AND accuracy > 0.9",
        ) from None


def quotes(where: str | None, columns: Mapping[str, pl.DataType]) -> str | None:
    """Return a remedy where a column of texts is compared with a text without single quotes."""
    for name, how, value in _COMPARED.findall(where or ""):
        text = value.strip('"')
        if columns.get(name) == pl.String and text not in columns and not _CONSTANT.match(text):
            compared = f"{how.rstrip('(').strip()} " + (
                f"('{text}')" if "(" in how else f"'{text}'"
            )
            return f"write '{text}' in single quotes: {name} {compared}"
    return None
