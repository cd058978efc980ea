"""CSV files: separated by commas, or as spreadsheets write them where the comma is decimal."""

from __future__ import annotations

import io
from collections.abc import Collection
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import polars as pl

MISSING = ["", "?", "NA", "NaN", "nan"]
"""Cells that hold no value."""

_DECIMAL = r"^\s*[+-]?\d+(,\d+)?([eE][+-]?\d+)?\s*$"


def read(content: bytes, labels: Collection[str] = (), n_rows: int | None = None) -> pl.DataFrame:
    """Read a file's bytes.

    Where the first line has no comma, semicolons or else tabs separate; then columns of numbers
    with a decimal comma throughout are numbers, too.

    Parameters
    ----------
    content : bytes
    labels : collection of str
        Columns that hold classes, whose values stay as they are written.
    n_rows : int, optional
        How many rows, from the first; by default all.

    Raises
    ------
    polars.exceptions.PolarsError
        Where it is no CSV file.
    """
    import polars as pl

    first = content.partition(b"\n")[0]
    separator = next((one for one in ",;\t" if one.encode() in first), ",")
    frame = pl.read_csv(
        io.BytesIO(content),
        separator=separator,
        null_values=MISSING,
        infer_schema_length=None,
        n_rows=n_rows,
    )
    if separator == ",":
        return frame
    texts = [name for name, kind in frame.schema.items() if kind == pl.String]
    decimal = [
        name
        for name in texts
        if name not in labels and frame[name].str.contains(_DECIMAL).all() and frame[name].count()
    ]
    return frame.with_columns(
        pl.col(decimal).str.strip_chars().str.replace(",", ".", literal=True).cast(pl.Float64)
    )
