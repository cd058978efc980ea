"""Convert other libraries' frames to polars."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import polars as pl


def is_frame(value: Any) -> bool:
    """Return whether an object is a frame of polars, pandas or a similar library."""
    return hasattr(value, "columns") and hasattr(value, "dtypes")


def to_polars(frame: Any) -> pl.DataFrame:
    """Convert a frame of polars or pandas to polars, without its index.

    Raises
    ------
    ValueError
        Where columns have the same name.
    """
    import polars as pl

    if isinstance(frame, pl.LazyFrame):
        frame = frame.collect()
    if isinstance(frame, pl.DataFrame):
        return frame
    try:
        return pl.from_pandas(frame.reset_index(drop=True))
    except ImportError:  # without pyarrow polars takes only numbers
        names = [*map(str, frame.columns)]
        if len({*names}) < len(names):
            twice = next(name for name in names if names.count(name) > 1)
            raise ValueError(f"two columns are called {twice!r}") from None
        return pl.DataFrame(
            [_column(name, frame.iloc[:, place]) for place, name in enumerate(names)]
        )


def _column(name: str, series: Any) -> pl.Series:
    import polars as pl

    kind = getattr(series.dtype, "kind", "O")
    if isinstance(series.dtype, np.dtype) and kind in "biuf":
        return pl.Series(name, series.to_numpy(), nan_to_null=True)
    if kind in "biufM":
        plain: Any = (lambda value: value.to_pydatetime()) if kind == "M" else lambda value: value
    else:
        plain = str
    missing = series.isna().to_numpy()
    values = [
        None if is_missing else plain(value)
        for value, is_missing in zip(series.to_list(), missing, strict=True)
    ]
    return pl.Series(name, values, strict=False)
