"""Functions that summarise groups of rows when a user names them: `--agg mean,sd,q05`."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence

import polars as pl

from manyseed.analysis.tables.keys import CELL_KEY, REPEAT_KEY
from manyseed.analysis.tables.means import mean_of, pooled, std_of
from manyseed.orchestrator.errors import UserError, nearest

MEAN, SD, COUNT = "mean", "sd", "count"
FUNCTIONS: Mapping[str, Callable[[pl.Expr], pl.Expr]] = {
    MEAN: mean_of,
    SD: std_of,
    "median": lambda column: column.quantile(0.5, "linear"),
    "min": lambda column: column.min(),
    "max": lambda column: column.max(),
    COUNT: lambda column: column.count(),
}
"""By name. Quantiles come on top: q05 is the 5 % quantile, q975 the 97.5 % quantile."""

_QUANTILES = "q05 is the 5 % quantile, q50 the median, q975 the 97.5 % quantile"

WITHIN: Mapping[str, Sequence[str]] = {
    **dict.fromkeys(("runs", "pairs", "ranking"), REPEAT_KEY),
    "repeats": CELL_KEY,
}
"""Keys of the units within which a table's rows vary: runs in a repeat, repeats in a cell."""


def require(names: Sequence[str]) -> None:
    """Raise a UserError for a name that is not a function."""
    for name in names:
        if re.fullmatch(r"q\d+", name, re.ASCII) and _quantile(name) is None:
            raise UserError("not a quantile", key="--agg", value=name, remedy=_QUANTILES)
        if name not in FUNCTIONS and _quantile(name) is None:
            remedy = nearest(name, (*FUNCTIONS, "q05", "q95"))
            raise UserError("unknown function", key="--agg", value=name, remedy=remedy)


def aggregate(name: str, column: pl.Expr) -> pl.Expr:
    """Return the named function of a column's values within a group."""
    quantile = _quantile(name)
    return FUNCTIONS[name](column) if quantile is None else column.quantile(quantile, "linear")


def spreads(
    frame: pl.LazyFrame, by: Sequence[str], within: Sequence[str], values: Mapping[str, pl.Expr]
) -> pl.LazyFrame:
    """Return standard deviations within units, pooled over the units of each group.

    Parameters
    ----------
    frame : LazyFrame
    by, within : sequence of str
        Key columns of the groups, and of the units.
    values : mapping of str to Expr
        The values of a unit that count, by the name of the result.
    """
    units = frame.group_by(list(dict.fromkeys([*by, *within])), maintain_order=True).agg(
        *(std_of(value).alias(name) for name, value in values.items()),
        *(
            (value.count().cast(pl.Int64) - 1).alias(f"{name}_free")
            for name, value in values.items()
        ),
    )
    return units.group_by(by, maintain_order=True).agg(
        pooled(pl.col(name), pl.col(f"{name}_free")).alias(name) for name in values
    )


def _quantile(name: str) -> float | None:
    # Not q5, which could mean 5 % or 50 %, nor q100, which could mean 10 % or 100 %.
    match = re.fullmatch(r"q(\d{2}|\d{2}[1-9])", name, re.ASCII)
    return None if match is None else float(f"0.{match[1]}")
