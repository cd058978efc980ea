"""A last row that sums up those above it, as spreadsheets have it."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from manyseed.jobs.datasets.columns import DataColumn, is_number
from manyseed.jobs.datasets.info import ColumnInfo

_WORDS = {
    *("total", "totals", "grand total", "sum", "mean", "average", "count"),
    *("summe", "gesamt", "gesamtsumme", "insgesamt", "mittelwert", "durchschnitt", "anzahl"),
    *("somme", "moyenne", "totale", "somma", "media", "suma", "totaal", "gemiddelde"),
}
_SEEN = 20  # columns of numbers
_FEWEST = 4  # rows
_ROUNDED = 0.005  # of a sum


def last_rows(
    columns: Sequence[DataColumn],
    ends: Sequence[int],
    classes: Sequence[str],
    is_listed: NDArray[np.bool_],
) -> tuple[ColumnInfo, ...]:
    """Describe the last row of each table in which it sums up the others.

    `ends`: how many rows the tables have together, up to each. `classes`, `is_listed`, bool array
    (sample,): each row's class, and whether it counts.
    """
    found = (_totals(columns, slice(*each)) for each in pairwise((0, *ends)))
    return tuple(
        ColumnInfo(
            shown[0],
            "target",
            looks="totals",
            shown=(shown[1], *([classes[end - 1]] if is_listed[end - 1] else [])),
        )
        for shown, end in zip(found, ends, strict=True)
        if shown
    )


def _totals(columns: Sequence[DataColumn], rows: slice) -> tuple[str, str] | None:
    """Return what shows that the last of some rows sums up the others; None if it does not.

    That is the name of a column of numbers, of which it is the sum; or of one of labels, with the
    word that it has there. All other labels must be missing, as totals have none.
    """
    word: tuple[str, str] | None = None
    numbers = list[tuple[str, NDArray[np.float64]]]()
    for column in columns:
        values: NDArray[Any] = column.values[rows]
        if values.size < _FEWEST:
            return None
        if values.dtype != np.object_:
            numbers.append((column.name, values))
        elif values[-1] is None:
            continue
        elif values[-1].strip(" :").casefold() in _WORDS and values[-1] not in values[:-1]:
            word = word or (column.name, values[-1])
        elif is_number(values[-1]) and _are_numbers(values):
            numbers.append((column.name, _as_numbers(values)))
        else:
            return None
    if word:
        return word
    filled = [(name, values) for name, values in numbers if np.isfinite(values[-1])][:_SEEN]
    sums = [name for name, values in filled if _is_sum(values)]
    return (sums[0], "") if sums and 2 * len(sums) >= len(filled) else None


def _are_numbers(values: NDArray[np.object_]) -> bool:
    """Return whether labels are numbers, as those of classes 0 and 1 are; with None for missing."""
    found = {*values.tolist()} - {None}
    return all(is_number(value) and "," not in value for value in found)


def _as_numbers(values: NDArray[np.object_]) -> NDArray[np.float64]:
    return np.array([np.nan if value is None else float(value) for value in values.tolist()])


def _is_sum(values: NDArray[np.float64]) -> bool:
    """Return whether the last number is the sum of the others, and larger than each."""
    *above, last = values[np.isfinite(values)].tolist()
    total = sum(above)
    is_same = abs(last - total) <= _ROUNDED * abs(total)
    return bool(is_same and abs(total) > max(map(abs, above), default=np.inf))
