"""Means within groups that are the same bit for bit whatever number of threads adds up."""

from __future__ import annotations

import polars as pl


def mean_of(column: pl.Expr) -> pl.Expr:
    """Return the mean of a column within a group: polars' own depends on the number of threads."""
    return column.implode().list.mean()


def std_of(column: pl.Expr) -> pl.Expr:
    """Return the standard deviation (n - 1) of a column within a group."""
    return column.implode().list.std()
