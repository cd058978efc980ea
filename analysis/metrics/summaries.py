"""Summaries of a column over the runs or pairs of a repeat."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numba
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
    n, mean, std, lowest, highest, at_levels = _moments(contiguous, levels)
    known = {
        "mean": mean,
        "std": std,
        "min": lowest,
        "max": highest,
        "range": highest - lowest if n > 1 else np.nan,
        **dict(zip(quantiles, at_levels.tolist(), strict=True)),
    }
    return {name: float(n) if name == "n" else known.get(name, np.nan) for name in names}


@numba.njit(cache=True, nogil=True)
def _moments(values: Real, levels: Real) -> tuple[int, float, float, float, float, Real]:
    """Return count, mean, standard deviation, extremes and quantiles of the defined values.

    Compiled, because a sweep has a dozen columns for each of its repeats.
    """
    quantiles = np.full(levels.size, np.nan)
    defined = values[~np.isnan(values)]
    n = defined.size
    if n == 0:
        return 0, np.nan, np.nan, np.nan, np.nan, quantiles
    if levels.size:
        defined.sort()
    lowest, highest = defined.min(), defined.max()
    mean = lowest if lowest == highest else defined.mean()  # exact for equal values
    std = np.nan if n < 2 else np.sqrt(((defined - mean) ** 2).sum() / (n - 1))
    for index in range(levels.size):  # between the two neighbours, as NumPy does by default
        place = levels[index] * (n - 1)
        below = int(place)
        low, high, share = defined[below], defined[min(below + 1, n - 1)], place - below
        step = high - low
        quantiles[index] = low + step * share if share < 0.5 else high - step * (1 - share)
    return n, mean, std, lowest, highest, quantiles
