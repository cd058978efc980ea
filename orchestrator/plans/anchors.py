"""Columns of cells for the hparams that grids vary."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import polars as pl

from manyseed.jobs.hparams.grid import is_written, names

PREFIX = "hparam_"


def with_anchors(cells: pl.DataFrame) -> pl.DataFrame:
    """Add a column ``hparam_NAME`` for each hparam that a grid among these cells varies.

    It holds the anchor of every cell, also of those outside a grid: null if the classifier has no
    such hparam, or if a search finds it. Cells without grids are returned unchanged.

    Parameters
    ----------
    cells : DataFrame
        With the columns hparams and canonical.
    """
    written = filter(is_written, cells["hparams"].unique())
    varied = sorted({name for text in written for name in names(text)})
    if not varied:
        return cells
    anchors = [json.loads(canonical)["hparams"] for canonical in cells["canonical"]]
    values_of = {name: [each.get(name) for each in anchors] for name in varied}
    return cells.with_columns(
        _column(f"{PREFIX}{name}", values)
        for name, values in values_of.items()
        if any(value is not None for value in values)  # imported cells may have such names
    )


def _column(name: str, values: Sequence[Any]) -> pl.Series:
    """Return a column of one type: booleans or numbers if all values are, else strings."""
    kinds = {type(value) for value in values if value is not None}
    for whole, dtype in (({bool}, pl.Boolean), ({int}, pl.Int64), ({int, float}, pl.Float64)):
        if kinds <= whole:
            return pl.Series(name, values, dtype=dtype)
    texts = [value if value is None else str(value) for value in values]
    return pl.Series(name, texts, dtype=pl.String)


def meaning(name: str) -> tuple[str, str]:
    """Return the unit and the meaning of such a column."""
    hparam = name.removeprefix(PREFIX)
    return "", f"The cell's anchor of the hparam {hparam}; null if it has none or searches for it."
