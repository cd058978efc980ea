"""Summaries of a column over the runs or pairs of a repeat."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

MEANINGS = {
    "n": "How many are defined",
    "mean": "Mean",
    "std": "Standard deviation (n - 1)",
    "min": "Smallest",
    "max": "Largest",
    "range": "Largest minus smallest",
    "q05": "5 % quantile",
    "median": "Median",
    "q95": "95 % quantile",
}
QUANTILES = {"q05": 0.05, "median": 0.5, "q95": 0.95}


def dtype(summary: str) -> type[pl.DataType]:
    """Return the column type of a summary."""
    return pl.UInt32 if summary == "n" else pl.Float64


def summarise(values: NDArray[np.floating[Any]], names: Sequence[str]) -> dict[str, float]:
    """Summarise the defined values of a column.

    Parameters
    ----------
    values : float array (n,)
        NaN where undefined.
    names : sequence of str
        Keys of `MEANINGS`.

    Returns
    -------
    dict of name to value
        NaN where too few values are defined: one is needed, two for `std`.
    """
    defined = values[~np.isnan(values)]
    result: dict[str, float] = dict.fromkeys(names, np.nan)
    if "n" in result:
        result["n"] = float(defined.size)
    if defined.size == 0:
        return result
    lowest, highest = float(defined.min()), float(defined.max())
    quantiles = [name for name in names if name in QUANTILES]
    known = {
        "n": float(defined.size),
        # Equal values have that mean exactly, not up to rounding.
        "mean": lowest if lowest == highest else float(defined.mean()),
        "min": lowest,
        "max": highest,
        "range": highest - lowest,
    }
    if "std" in result and defined.size > 1:
        known["std"] = 0.0 if lowest == highest else float(defined.std(ddof=1))
    if quantiles:
        levels = np.quantile(defined, [QUANTILES[name] for name in quantiles])
        known.update(zip(quantiles, levels.tolist(), strict=True))
    return {name: known.get(name, np.nan) for name in names}
