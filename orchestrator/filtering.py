"""Rows of a frame that meet a user's condition."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import polars as pl

from manyseed.analysis.tables.snapshots import IS_LAST
from manyseed.orchestrator.conditions import NoCondition, UnknownColumn, condition
from manyseed.orchestrator.errors import UserError, first_line, nearest

_SHOWN = 200  # characters of a condition that is refused


def matching(frame: pl.DataFrame, where: str, option: str = "--where") -> pl.DataFrame:
    """Return the rows that meet a condition in SQL, given by an option of the command.

    Raises
    ------
    UserError
        For an unknown column, or an invalid condition.
    """
    with refusing(where, frame.columns, option):
        return frame.filter(condition(where, frame.columns))


def at_one_snapshot(frame: pl.LazyFrame, wanted: pl.Expr) -> pl.LazyFrame:
    """Return rows of a result table that are wanted, of one snapshot of each cell.

    It is the cell's last, and where the condition asks for epochs, the last of these that its
    dataset and classifier have.
    """
    if "epoch" not in frame.collect_schema().names():  # of an earlier version: there is one
        return frame.filter(wanted)
    if "epoch" not in wanted.meta.root_names():
        return frame.filter(IS_LAST).filter(wanted)
    newest = pl.col("epoch").max().over("dataset", "classifier")
    return frame.filter(wanted).filter(pl.col("epoch") == newest)


@contextmanager
def refusing(where: str | None, columns: Sequence[str], option: str) -> Iterator[None]:
    """Report a condition that cannot be read, or applied, as an error of its option."""
    shown = where and where[:_SHOWN]
    try:
        yield
    except UnknownColumn as error:
        remedy = nearest(error.name, columns)
        raise UserError("unknown column", key=option, value=shown, remedy=remedy) from None
    except (NoCondition, pl.exceptions.PolarsError, pl.exceptions.PanicException) as error:
        # polars compares: a number with a text, for instance
        raise UserError(
            f"not a condition: {first_line(error)}",
            key=option,
            value=shown,
            remedy="write SQL, such as: classifier = 'mlp' AND accuracy > 0.9",
        ) from None
