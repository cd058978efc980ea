"""A table's columns: the kind that each is taken as, and what a user should check."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

Kind = Literal["continuous", "categorical", "ignored"]
Looks = Literal["", "constant", "id", "date", "distinct"]

_ID = re.compile(
    r"(^|[_\W])(id|uuid|guid|identifier|index)$|^unnamed: 0$|[a-z]I[Dd]$", re.IGNORECASE
)
_DATE = re.compile(
    r"\d{4}-\d{1,2}(-\d{1,2})?([T ]\d{1,2}:\d{2}.*)?|\d{4}/\d{1,2}/\d{1,2}.*"
    r"|\d{1,2}[./-]\d{1,2}[./-](\d{2}|\d{4})( \d{1,2}:\d{2}.*)?"
)
_FEWEST = 20  # rows; with fewer, whole numbers may all differ by chance
_SHARE = 0.5  # of the rows; a category with more labels says nothing about the class


@dataclass(frozen=True, slots=True)
class ColumnInfo:
    """A column of a file, as it is taken.

    Attributes
    ----------
    name : str
    kind : {"continuous", "categorical", "ignored"}
    n_labels : int
        Of a categorical column; else 0.
    looks : {"", "constant", "id", "date", "distinct"}
        What a user should check: one value in all rows, or none; a name or number of rows; dates;
        labels that hardly repeat.
    """

    name: str
    kind: Kind
    n_labels: int = 0
    looks: Looks = ""


def column_info(name: str, values: NDArray[Any]) -> ColumnInfo:
    """Describe a feature.

    Parameters
    ----------
    name : str
    values : float64 array or object array (sample,)
        Numbers, NaN where missing; or labels as text, None where missing.
    """
    looks: Looks
    if values.dtype != np.object_:
        known = values[np.isfinite(values)]
        is_constant = _is_constant(np.unique(known).size, known.size, values.size)
        looks = "constant" if is_constant else _of_numbers(name, known)
        return ColumnInfo(name, "continuous", looks=looks)
    labels = [value for value in values.tolist() if value is not None]
    different = {*labels}
    looks = ""
    if _is_constant(len(different), len(labels), values.size):
        looks = "constant"
    elif all(_DATE.fullmatch(label) for label in different):
        looks = "date"
    elif _is_id(name, len(different), len(labels)):
        looks = "id"
    elif len(labels) >= _FEWEST and len(different) > _SHARE * len(labels):
        looks = "distinct"
    return ColumnInfo(name, "categorical", len(different), looks)


def _is_constant(n_different: int, n_known: int, n: int) -> bool:
    """Return whether a column never changes; a value beside missing ones may be a flag."""
    return n_different <= 1 and n_known in (0, n)


def _of_numbers(name: str, known: NDArray[np.float64]) -> Looks:
    if known.size < _FEWEST or not np.equal(known, np.round(known)).all():
        return ""
    different = np.unique(known)
    if _are_days(different):
        return "date"
    return "id" if different.size == known.size or _is_id(name, different.size, known.size) else ""


def _is_id(name: str, n_different: int, n: int) -> bool:
    """Return whether a column is called an id and has more values than a category would."""
    return _ID.search(name) is not None and n >= _FEWEST and n_different > n / 10


def _are_days(numbers: NDArray[np.float64]) -> bool:
    """Return whether whole numbers are dates written as 20190131."""
    days = numbers.astype(np.int64)
    year, month, day = days // 10000, days // 100 % 100, days % 100
    plausible = (year >= 1800) & (year < 2200)
    return bool((plausible & (month >= 1) & (month <= 12) & (day >= 1) & (day <= 31)).all())
