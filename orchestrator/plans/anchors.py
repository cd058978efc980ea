"""What hparam grids vary, as columns beside what cells are."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import polars as pl

from manyseed.jobs.hparams.grid import is_written, names

PREFIX = "hparam_"


def with_anchors(cells: pl.DataFrame) -> pl.DataFrame:
    """Return cells with a column ``hparam_NAME`` for each hparam that a grid among them varies.

    It holds the cell's anchor, whatever the cell's own name: null where the classifier has no such
    hparam, or where a search finds it. Cells without grids come back as they are.

    Parameters
    ----------
    cells : DataFrame
        Columns hparams and canonical.
    """
    written = filter(is_written, cells["hparams"].unique())
    varied = sorted({name for text in written for name in names(text)})
    if not varied:
        return cells
    anchors = [json.loads(canonical)["hparams"] for canonical in cells["canonical"]]
    found = {name: [each.get(name) for each in anchors] for name in varied}
    return cells.with_columns(
        _column(f"{PREFIX}{name}", values)
        for name, values in found.items()
        if any(value is not None for value in values)  # an import may name its cells so
    )


def _column(name: str, values: Sequence[Any]) -> pl.Series:
    """Return values of one type: numbers where all are, else texts as configurations have them."""
    kinds = {type(value) for value in values if value is not None}
    for whole, dtype in (({bool}, pl.Boolean), ({int}, pl.Int64), ({int, float}, pl.Float64)):
        if kinds <= whole:
            return pl.Series(name, values, dtype=dtype)
    texts = [value if value is None else str(value) for value in values]
    return pl.Series(name, texts, dtype=pl.String)


def meaning(name: str) -> tuple[str, str]:
    """Return unit and meaning of one of these columns."""
    of = name.removeprefix(PREFIX)
    return "", f"The cell's anchor of the hparam {of}; null where it has none, or searches for it."
