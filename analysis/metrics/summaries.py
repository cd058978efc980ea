"""Summaries of a column over the runs or pairs of a repeat."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

Real = NDArray[np.float64]

MEANINGS = {
    "n": "How many are defined",
    "mean": "Mean",
    "std": "Standard deviation (n - 1)",
    "min": "Smallest",
    "max": "Largest",
    "range": "Largest minus smallest (of two or more)",
    "q05": "5 % quantile",
    "median": "Median",
    "q95": "95 % quantile",
}
QUANTILES = {"q05": 0.05, "median": 0.5, "q95": 0.95}


def dtype(summary: str) -> type[pl.DataType]:
    """Return the column type of a summary."""
    return pl.UInt32 if summary == "n" else pl.Float64


def summarise(values: NDArray[np.floating[Any]], names: Sequence[str]) -> dict[str, float]:
    """Summarise the values (n,) of a column that are not NaN; `names` are keys of `MEANINGS`.

    Returns
    -------
    dict of name to value
        NaN if no value is defined, or fewer than two for `std` and `range`.
    """
    quantiles = [name for name in names if name in QUANTILES]
    levels = np.array([QUANTILES[name] for name in quantiles], dtype=np.float64)
    contiguous = np.ascontiguousarray(values, dtype=np.float64)
    from manyseed.analysis.metrics.moments import moments  # here, as importing numba is slow

    n, mean, std, lowest, highest, at_levels = moments(contiguous, levels)
    known = {
        "mean": mean,
        "std": std,
        "min": lowest,
        "max": highest,
        "range": highest - lowest if n > 1 else np.nan,
        **dict(zip(quantiles, at_levels.tolist(), strict=True)),
    }
    return {name: float(n) if name == "n" else known.get(name, np.nan) for name in names}
