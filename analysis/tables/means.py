"""How rows of result tables are aggregated: one function per number, wherever it is shown.

Columns that compare the runs of a repeat (consistency, churn, range, spread, α̂) are aggregated over
repeats whose runs vary; repeats of identical runs are left out and counted separately. Standard
deviations are pooled. α̂ of two probes is never averaged.
"""

from __future__ import annotations

import polars as pl

VARIES = pl.col("n_distinct") > 1
"""Whether the runs of a repeat differ: at least two are distinct."""

_COMPARING = (
    *("ec_", "churn", "agreement", "label_kappa"),
    *("alpha_hat", "ks_distance", "ks_rejected", "below_resolution", "wasserstein"),
)
_FACTS = ("n_test", "n_side", "n_wrong_by_any")


def mean_of(column: pl.Expr) -> pl.Expr:
    """Return a column's mean within a group; polars' own depends on the number of threads."""
    return column.implode().list.mean()


def std_of(column: pl.Expr) -> pl.Expr:
    """Return a column's standard deviation (n - 1) within a group, as `mean_of` does."""
    return column.implode().list.std()


def pooled(std: pl.Expr, freedom: pl.Expr) -> pl.Expr:
    """Return the pooled standard deviation of a group's rows; null without a degree of freedom.

    √(Σ f s² / Σ f), s the standard deviation of a row (n - 1) and f its degrees of freedom. Pooled
    values can be pooled again, with the sums of their degrees of freedom, to the same result.
    """
    known = pl.when(std.is_not_null()).then(freedom.cast(pl.Float64))
    total = known.implode().list.sum()
    squares = (known * std**2).implode().list.sum()
    return pl.when(total > 0).then((squares / total).sqrt())


def compares_runs(name: str) -> bool:
    """Return whether a column compares the runs of a repeat, so identical runs are left out."""
    return name.startswith(_COMPARING) or name.endswith(("_range", "_std"))


def is_level(name: str) -> bool:
    """Return whether a column holds α̂: comparable within one probe only, and read with δ."""
    return name.startswith("alpha_hat")


def is_count(name: str) -> bool:
    """Return whether a column is a count, to be summed."""
    return (name.startswith("n_") or name.endswith("_n")) and name not in _FACTS


def of_one_probe(value: pl.Expr) -> pl.Expr:
    """Return a value computed from a group's α̂, null if they rest on several probes."""
    return pl.when(pl.col("probe").drop_nulls().n_unique() <= 1).then(value)


def same_of(column: pl.Expr) -> pl.Expr:
    """Return the value that all rows of a group share, null where they differ."""
    known = column.drop_nulls()
    return pl.when(known.n_unique() == 1).then(known.first())
