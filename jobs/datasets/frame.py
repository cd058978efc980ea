"""Convert other libraries' frames to polars, and arrays and series to NumPy."""

from __future__ import annotations

import datetime
from numbers import Real
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import polars as pl

_PLAIN = (str, Real, np.bool_, datetime.date)


def is_frame(value: Any) -> bool:
    """Return whether an object is a frame of polars, pandas or a similar library."""
    return hasattr(value, "columns") and hasattr(value, "dtypes")


def to_polars(frame: Any) -> pl.DataFrame:
    """Convert a frame of polars or pandas to polars, without its index."""
    import polars as pl

    if isinstance(frame, pl.LazyFrame):
        frame = frame.collect()
    if isinstance(frame, pl.DataFrame):
        return frame
    names = [*map(str, frame.columns)]
    if len({*names}) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"two columns are called {twice!r}; rename one, or leave it out")
    try:
        return pl.from_pandas(frame.reset_index(drop=True))
    except ImportError:  # without pyarrow polars takes only numbers
        return pl.DataFrame(
            [_column(name, frame.iloc[:, place]) for place, name in enumerate(names)]
        )


def other_rows(name: str, values: Any, of: str, rows: Any) -> tuple[str, str] | None:
    """Return how pandas' indexes show that values are not those of the rows, and a remedy.

    None where they agree, or where the index of one side is absent, or only counts its rows and has
    no label of the other.

    `name` and `of`: what the user calls the two.
    """
    given: Any = getattr(values, "index", None)
    wanted: Any = getattr(rows, "index", None)
    if not (hasattr(given, "equals") and hasattr(wanted, "equals")) or len(given) != len(wanted):
        return None
    if given.equals(wanted):
        return None
    as_they_are = f"if they are row by row those of {of} all the same: {name}.to_numpy()"
    one_frame = f"sort, sample or split the frame before {name} and {of} are taken from it"
    lacking = len(wanted)
    if given.nlevels == wanted.nlevels:
        lacking = int((~wanted.isin(given)).sum())
    if not lacking:
        remedy = f"{name} = {name}.loc[{of}.index]" if given.is_unique else one_frame
        return f"has the index of {of} in another order", f"{remedy}; {as_they_are}"
    counts = any(index.tolist() == [*range(len(index))] for index in (given, wanted))
    if counts and lacking == len(wanted):
        return None
    reason = f"has no row for {lacking:,} of the {len(wanted):,} labels in the index of {of}"
    return reason, f"{one_frame}; {as_they_are}"


def to_numpy(values: Any) -> NDArray[Any]:
    """Convert an array, a list or a series to NumPy; objects that are text or numbers to these.

    The array is one of objects if a value is missing, or is neither text nor a number. Masked
    numbers are NaN, and other masked values None.
    """
    if is_masked(values):
        masked = np.ma.asarray(values)
        is_number = masked.dtype.kind in "biuf"
        known: NDArray[Any] = masked.data.astype(np.float64 if is_number else object)
        known[np.ma.getmaskarray(masked)] = np.nan if is_number else None
        return known
    try:
        array = np.asarray(values)
    except ValueError:  # lists of different lengths
        return np.empty(0, dtype=object)
    if array.dtype.kind == "U" and isinstance(values, list | tuple):
        given = np.asarray(values, dtype=object)  # beside text, NaN has become "nan"
        return given if missing(given) else array
    if array.dtype.kind not in "OT":
        return array
    array = array.astype(object)
    each = array.ravel().tolist()
    if missing(array) or not all(isinstance(value, _PLAIN) for value in each):
        return array
    is_text = any(isinstance(value, str | datetime.date) for value in each)
    return array.astype(str) if is_text else np.array(each).reshape(array.shape)


def is_masked(values: Any) -> bool:
    """Return whether an array, or one of a list, masks any of its values."""
    if isinstance(values, np.ma.MaskedArray):
        return bool(np.ma.getmaskarray(values).any())
    return isinstance(values, list | tuple) and any(map(is_masked, values))


def missing(values: NDArray[Any]) -> int:
    """Return how many values are missing: None, NaN, NaT or pandas' NA."""
    if values.dtype.kind not in "OfMm":
        return 0
    if values.dtype.kind != "O":
        return int(np.count_nonzero(values != values))
    each = values.ravel().tolist()
    return sum(
        value is None
        or type(value).__name__ == "NAType"
        or (isinstance(value, _PLAIN) and value != value)
        for value in each
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
