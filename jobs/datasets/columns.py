"""A table's columns: the kind that each is taken as, what a user should check, their samples."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from manyseed.jobs.checks import Refused, spelling
from manyseed.jobs.datasets.info import ColumnInfo, Looks, Samples, Tells
from manyseed.jobs.run import Feature

Doubt = tuple[Looks, tuple[str, ...]]
"""What else a column looks like as it is written, and some of its values."""

_ID = re.compile(
    r"(^|[_\W])(id|uuid|guid|identifier|index)$|[a-z]I[Dd]$"
    r"|^(unnamed: 0|__index_level_0__)?$",  # as pandas writes an index
    re.IGNORECASE,
)
_DATE = re.compile(
    r"\d{4}-\d{1,2}(-\d{1,2})?([T ]\d{1,2}:\d{2}.*)?|\d{4}/\d{1,2}/\d{1,2}.*"
    r"|\d{1,2}[./-]\d{1,2}[./-](\d{2}|\d{4})( \d{1,2}:\d{2}.*)?"
)
_FEW = 10  # different numbers at most, each ten times or more on average
_FEWEST = 20  # rows; with fewer, whole numbers may all differ by chance
_WORDS = 4  # and more in most labels: these are sentences
_SHARE = 0.5  # of the rows; a category with more labels says nothing about the class
_NUMBERS = 0.9  # of the rows; with as many, a column was meant to hold numbers
_ROUNDING = 2.0**-44  # of a number; smaller differences are errors of float64
_AFTER_DAYS = 22000101
_CHANCE = math.log(1e-6)  # that values which tell nothing of classes have one class each
_ENOUGH = 30  # rows; with fewer, a feature that is wrong in one of ten rows may seem to tell all
_RARE = 5  # rows; numbers that are in fewer may be amounts
_FIRST = 1000  # rows that rule most columns out
_OFTEN = 0.01  # of the rows; a number that is far from the others and as frequent marks something
_MEASURED = re.compile(
    r"(?:[$€£¥₹] ?)?[+\-−]?\d{1,3}(?:[ \u00a0\u202f',.]?\d+)*"
    r"[ \u00a0\u202f]?(?P<unit>%|‰|[$€£¥₹]|°?[A-Za-zµ]{0,3})"
)
_MARKS = {
    *("-", "--", "---", ".", "..", "?", "*", "na", "n/a", "n.a.", "n.a", "#na", "#n/a", "<na>"),
    *("k.a.", "k. a.", "n.d.", "n. d.", "n.b.", "n. b.", "s.o."),
    *("nan", "-nan", "null", "(null)", "nil", "none", "missing", "unknown"),
    *("#null!", "#div/0!", "#value!", "1.#qnan", "-1.#qnan", "1.#ind", "-1.#ind"),
}
"""What other programs write where a value is missing."""

LEAVE_EMPTY = (
    "leave cells of missing values empty (null in Parquet), or write ?, NA or NaN in a CSV"
)


def column_info(
    name: str,
    values: NDArray[Any],
    *,
    is_declared: bool = False,
    doubt: Doubt = ("", ()),
) -> ColumnInfo:
    """Describe a feature.

    `values`, float64 array or object array (sample,): numbers, NaN where missing; or labels as
    text, None where missing. `is_declared`: whether labels are meant to be labels.
    """
    looks: Looks
    shown: tuple[str, ...] = ()
    if values.dtype != np.object_:
        known = values[np.isfinite(values)]
        distinct = np.unique(known)
        is_constant = _is_constant(distinct.size, known.size, values.size)
        looks = "constant" if is_constant else _of_numbers(name, known)
        merged = _merged_in_single(distinct)
        if doubt[0] == "id" or (doubt[0] and not looks):
            looks, shown = doubt
        elif merged and (not looks or len(merged) == 1):
            looks, shown = "single", merged
        elif not looks and _are_few(distinct, known.size):
            looks, shown = "few", tuple(f"{number:.0f}" for number in distinct)
        elif not looks and (far := _far(distinct, known)):
            looks, shown = "far", far
        return ColumnInfo(name, "continuous", looks=looks, shown=shown)
    labels = [value for value in values.tolist() if value is not None]
    different = {*labels}
    others = None if is_declared else _beside_numbers(labels)
    looks = ""
    if _is_constant(len(different), len(labels), values.size):
        looks = "constant"
    elif all(_DATE.fullmatch(label) for label in different):
        looks = "date"
    elif _is_id(name, len(different), len(labels)):
        looks = "id"
    elif others is not None:
        looks, shown = "numbers", others
    elif not is_declared and (measured := _measured(different)):
        looks, shown = "numbers", measured
    elif len(labels) >= _FEWEST and len(different) > _SHARE * len(labels):
        looks = "text" if _are_texts(different) else "distinct"
    else:
        looks, shown = _of_labels(different, doubt)
    return ColumnInfo(name, "categorical", len(different), looks, shown)


def _are_texts(labels: Collection[str]) -> bool:
    """Return whether labels are of several words each, as sentences are."""
    return sum(len(label.split()) >= _WORDS for label in labels) > len(labels) / 2


def told_by(
    column: ColumnInfo, values: NDArray[np.float64], y: NDArray[np.integer[Any]]
) -> ColumnInfo:
    """Describe what a feature's values tell of the rows that share them.

    `values`, float64 array (sample,): codes of labels or numbers, NaN where missing. `y`, integer
    array (sample,): class indices. Numbers in whose order classes are sorted are a feature that
    tells much, and no names of groups, unless all are as frequent.
    """
    is_known = np.isfinite(values)
    known, classes = values[is_known], y[is_known]
    few = max(_FEW, 2 * (int(y.max()) + 1))
    is_label = column.kind == "categorical"
    is_whole = is_label or bool(np.equal(known, np.round(known)).all())
    is_name = column.looks == "id"
    if is_label and not is_name and _are_many(groups := np.unique(known, return_counts=True)[1]):
        column = replace(column, rows=(groups.size, int(groups.min()), int(groups.max())))
    if not is_name and (
        known.size < max(_ENOUGH, y.size / 2)
        or (not is_whole and np.unique(known[:_FIRST]).size > few)
        or _classes_of_values(known[:_FIRST], classes[:_FIRST]) is None
    ):
        return column
    distinct, counts = np.unique(known, return_counts=True)
    if not distinct.size:
        return column
    rows = (distinct.size, int(counts.min()), int(counts.max()))
    of_value = _classes_of_values(known, classes)
    if (
        of_value is None
        or not 1 < distinct.size <= known.size / 2
        or _log_chance(counts, np.bincount(classes)) > _CHANCE
    ):
        return replace(column, rows=rows) if column.looks == "id" else column
    tells: Tells = "target" if distinct.size <= few else "group"
    if tells == "group" and not is_label and (not is_whole or _are_sorted(of_value, counts)):
        return replace(column, rows=rows) if column.looks == "id" else column
    return replace(column, tells=tells, rows=rows)


def _are_many(rows: NDArray[np.int64]) -> bool:
    """Return whether a label's rows, of each label, are as many as those of a farm or a patient."""
    return rows.size >= _FEWEST and rows.min() >= 2 and rows.max() <= _FEWEST


def _classes_of_values(
    values: NDArray[np.float64], y: NDArray[np.integer[Any]]
) -> NDArray[np.integer[Any]] | None:
    """Return the class of each value, in ascending order; None if some have several."""
    order = np.lexsort((y, values))
    values, y = values[order], y[order]
    is_same = values[1:] == values[:-1]
    if (is_same & (y[1:] != y[:-1])).any():
        return None
    of_value: NDArray[np.integer[Any]] = y[np.append(True, ~is_same)[: y.size]]
    return of_value


def _log_chance(rows: NDArray[np.int64], of_class: NDArray[np.int64]) -> float:
    """Return the logarithm of the probability that rows, dealt at random, agree in every value."""
    shares = of_class[of_class > 0] / of_class.sum()
    sizes, number = np.unique(rows, return_counts=True)
    agree = (shares[:, np.newaxis] ** np.minimum(sizes, 1000)).sum(axis=0)
    return float(number @ np.log(agree))


def _are_sorted(of_value: NDArray[np.integer[Any]], rows: NDArray[np.int64]) -> bool:
    """Return whether the class changes less often from value to value than in random order."""
    shares = np.bincount(of_value) / of_value.size
    changes = np.count_nonzero(np.diff(of_value.astype(np.int64)))
    expected = (of_value.size - 1) * (1 - (shares**2).sum())
    return bool(changes < expected / 2 and rows.min() < rows.max())


def _far(distinct: NDArray[np.float64], known: NDArray[np.float64]) -> tuple[str, ...]:
    """Return a number that repeats farther from all others than these from each other, if any."""
    if distinct.size <= _FEW:
        return ()
    for far, low, high in (
        (distinct[0], distinct[1], distinct[-1]),
        (distinct[-1], distinct[0], distinct[-2]),
    ):
        n = int(np.count_nonzero(known == far))
        if n >= max(2, _OFTEN * known.size) and max(low - far, far - high) > high - low:
            return (f"{far:g}", f"{n:,}", f"{low:g}", f"{high:g}")
    return ()


def _of_labels(labels: set[str], doubt: Doubt) -> Doubt:
    """Return what labels look like that may be one: some that are alike, or one number."""
    if same := alike(labels):
        return "alike", same[0]
    if doubt[0] == "merged":
        return doubt
    same = same_numbers(labels)
    return ("same", same[0]) if same else ("", ())


def set_aside(name: str, column: DataColumn | None) -> ColumnInfo:
    """Describe a column that is no feature, of which values are only used to group or sort rows."""
    if column is None:
        return ColumnInfo(name, "ignored")
    labels = {each for each in column.values.tolist() if isinstance(each, str)}
    looks, shown = _of_labels(labels, column.doubt)
    return ColumnInfo(name, "ignored", looks=looks, shown=shown)


def target_info(column: DataColumn) -> tuple[ColumnInfo, ...]:
    """Describe the column of classes, if its names are not as they are written."""
    looks, shown = column.doubt
    is_doubtful = looks in ("zeros", "merged")
    return (ColumnInfo(column.name, "target", looks=looks, shown=shown),) if is_doubtful else ()


def alike(labels: Iterable[str]) -> list[tuple[str, ...]]:
    """Return the labels that differ only in `spelling` or case, by what they share."""
    same: dict[str, list[str]] = {}
    for label in sorted(labels):
        same.setdefault(spelling(spelling(label).casefold()), []).append(label)
    return [tuple(each) for each in same.values() if len(each) > 1]


def same_numbers(labels: Iterable[str]) -> list[tuple[str, ...]]:
    """Return the labels that are one number, written in several ways."""
    same: dict[float, list[str]] = {}
    for label in sorted(labels):
        if is_number(label):
            same.setdefault(float(label.replace(",", ".", 1)), []).append(label)
    return [tuple(each) for each in same.values() if len(each) > 1]


def merged(labels: Iterable[str]) -> Mapping[str, list[str]]:
    """Return classes in which labels that are alike are one, as a dataset's ``classes``."""
    labels = [*labels]
    first = {label: each[-1] for each in alike(labels) for label in each}
    classes: dict[str, list[str]] = {}
    for label in labels:
        classes.setdefault(spelling(first.get(label, label)), []).append(label)
    return classes


def is_mark(label: str) -> bool:
    """Return whether a label is what some program writes where a value is missing."""
    return label.strip().casefold() in _MARKS


def is_number(label: str) -> bool:
    """Return whether a label is a number, perhaps between blanks or with a decimal comma.

    Only of ASCII digits: others that Python reads are labels to what reads tables.
    """
    try:
        is_finite = math.isfinite(float(label.replace(",", ".", 1)))
    except ValueError:
        return False
    return is_finite and "_" not in label and label.strip().isascii()


def _beside_numbers(labels: list[str]) -> tuple[str, ...] | None:
    """Return the labels of a column of numbers that are none; None if it is not such a column."""
    numbers = {label for label in {*labels} if is_number(label)}
    others = [label for label in labels if label not in numbers]
    is_rare = len(others) <= (1 - _NUMBERS) * len(labels)
    if not numbers or not (is_rare or all(map(is_mark, {*others}))):
        return None
    return tuple(sorted({*others} or {label for label in numbers if "," in label}))


def is_measured(label: str) -> bool:
    """Return whether a label is a number that is written with a unit, a sign or blanks."""
    return not is_number(label) and _MEASURED.fullmatch(label.strip()) is not None


def _measured(labels: set[str]) -> tuple[str, ...]:
    """Return labels that are numbers written so, if that is what almost all labels are."""
    found = sorted(filter(is_measured, labels))
    units = {_MEASURED.fullmatch(label.strip())["unit"] for label in found}  # type: ignore[index]
    n_numbers = len(found) + sum(map(is_number, labels))
    is_unit = len(units - {""}) <= 1 and (
        len(labels) >= _FEWEST or not any(map(str.isalpha, units))
    )
    return tuple(found) if found and is_unit and n_numbers >= _NUMBERS * len(labels) else ()


def _merged_in_single(distinct: NDArray[np.float64]) -> tuple[str, ...]:
    """Return numbers that float32 does not tell apart, if it merges many, or that it cannot hold.

    `distinct`: in ascending order. Differences of the size of rounding errors do not count.
    """
    if not distinct.size:
        return ()
    with np.errstate(over="ignore", under="ignore"):
        single = distinct.astype(np.float32)
    if beyond := distinct[np.isinf(single)].tolist():
        return (repr(beyond[-1]),)
    step = np.diff(distinct)
    is_lost = (single[1:] == single[:-1]) & (step > _ROUNDING * np.abs(distinct[1:]))
    if is_lost.sum() <= (1 - _NUMBERS) * step.size:
        return ()
    first = int(np.argmax(is_lost))
    return tuple(map(repr, distinct[first : first + 2].tolist()))


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


def _are_few(distinct: NDArray[np.float64], n: int) -> bool:
    """Return whether whole numbers repeat as labels do; two of them are the same either way."""
    is_whole = np.equal(distinct, np.round(distinct)).all()
    return bool(2 < distinct.size <= min(_FEW, n / _FEW) and is_whole)


def _is_id(name: str, n_different: int, n: int) -> bool:
    """Return whether a column is called an id and has more values than a category would."""
    return _ID.search(name) is not None and n >= _FEWEST and n_different > n / 10


def _are_days(numbers: NDArray[np.float64]) -> bool:
    """Return whether ascending whole numbers are dates written as 20190131."""
    if numbers[-1] >= _AFTER_DAYS:
        return False
    days = numbers.clip(0).astype(np.int64)
    year, month, day = days // 10000, days // 100 % 100, days % 100
    plausible = (year >= 1800) & (year < 2200)
    return bool((plausible & (month >= 1) & (month <= 12) & (day >= 1) & (day <= 31)).all())


MAX_CLASSES = np.iinfo(np.uint16).max


@dataclass(frozen=True, slots=True)
class DataColumn:
    """One column of a table.

    `values`, float64 array or object array (sample,): numbers, NaN where missing; of a categorical
    column labels as text, None where missing. `is_declared`: whether its kind was given, by the
    user or by the column's type.
    """

    name: str
    values: NDArray[np.float64] | NDArray[np.object_]
    is_declared: bool = False
    doubt: Doubt = ("", ())

    @property
    def is_categorical(self) -> bool:
        """Whether the values are labels."""
        return self.values.dtype == np.object_


def to_samples(
    what: str,
    features: Sequence[DataColumn],
    target: DataColumn,
    *,
    are_listed: bool | None = None,
) -> Samples:
    """Encode a table: labels become their places in natural order, missing values NaN.

    `what`: the source, for messages. `are_listed`: as for `classes_of`.
    """
    n = target.values.size
    if n == 0 or not features:
        raise Refused("source", what, f"is empty: {n} samples with {len(features)} features")
    names, y = classes_of(target, are_listed=are_listed)
    X = np.empty((n, len(features)))
    cardinality = np.zeros(len(features), dtype=np.int32)
    taken = []
    for j, column in enumerate(features):
        labels: tuple[str, ...] = ()
        if column.is_categorical:
            labels, codes = encode(column.values)
            X[:, j] = np.where(codes < 0, np.nan, codes)
            cardinality[j] = max(1, len(labels))  # 0 would say that it is continuous
        else:
            X[:, j] = column.values
            if np.isinf(X[:, j]).any():
                reason = f"holds infinite numbers in column {column.name!r}; leave it out, or mark"
                raise Refused("source", what, f"{reason} them as missing")
        taken.append(Feature(column.name, labels))
    return Samples(X, y, cardinality, names, features=tuple(taken))


OF_NUMBERS = (
    ". Is it a number to predict rather than a class? There is no regression here: "
    "cut the numbers into classes first, such as with pandas.cut or pandas.qcut"
)
LISTED = 20
"""The most classes that a remedy lists."""
CLASSES = "classes"
"""The key of the classes that count."""
UNKNOWN = "(missing)"
"""The class of rows that have none, where `classes` leaves them out."""


def classes_of(
    target: DataColumn, *, are_listed: bool | None = None
) -> tuple[tuple[str, ...], NDArray[np.int64]]:
    """Return a target's classes in natural order, and the place of each sample's class.

    `are_listed`: whether `classes` lists those that count, so that rows without a class, which then
    are of a last class `UNKNOWN`, are left out; None where it cannot.
    """
    n = target.values.size
    names, y = encode(target.values)
    if not names:
        raise Refused("target", target.name, f"is empty: all {n:,} values are missing")
    is_missing = y < 0
    n_missing = int(is_missing.sum())
    all_numbers = all(map(is_number, names))
    is_refused = n_missing > 0 and (not are_listed or UNKNOWN in names)
    many = all_numbers and len(names) > LISTED and 2 * len(names) > n - n_missing
    if is_refused and not many:
        reason = f"{n_missing} of {n} values are missing; leave these rows out"
        can_list = are_listed is False and 1 < len(names) <= LISTED
        needs = {CLASSES: merged(names)} if can_list else {}
        raise Refused("target", target.name, reason, needs=needs)
    if len(names) < 2:
        reason = f"has a single class, {names[0]!r}; a classifier needs two"
        raise Refused("target", target.name, reason)
    if is_refused or 2 * len(names) > n or len(names) > MAX_CLASSES:
        reason = f"has {len(names)} classes in {n - n_missing} samples"
        if all_numbers:
            reason += OF_NUMBERS
        else:
            reason += (
                "; there must be at least two samples per class on average, and at most "
                f"{MAX_CLASSES:,} classes"
            )
        raise Refused("target", target.name, reason)
    if not n_missing:
        return names, y
    return (*names, UNKNOWN), np.where(is_missing, len(names), y)


def said_of_amounts(names: Sequence[str], counts: Sequence[int]) -> str:
    """Say that classes are amounts, as counts of events are; empty if they are not.

    That is so of many numbers, a quarter of them in few rows each; names have as many of each.
    """
    n_few = sum(count < _RARE for count in counts)
    if len(names) <= LISTED or 4 * n_few < len(names) or len({*counts}) < 2:
        return ""
    if not all(map(is_number, names)):
        return ""
    listed = "if they are classes, classes = {…} lists them"
    few = f"{n_few} of them with fewer than {_RARE}"
    return f"has {len(names)} classes in {sum(counts)} samples, {few}{OF_NUMBERS}; {listed}"


def encode(
    values: NDArray[np.object_] | NDArray[np.float64],
) -> tuple[tuple[str, ...], NDArray[np.int64]]:
    """Return a column's labels in natural order, and each value's place among them.

    Labels are ordered as numbers where all of them are, else as text; numbers become text first. A
    missing value (None or NaN) has place -1.
    """
    if values.dtype != np.object_:
        values = np.array([None if v != v else repr(v) for v in values.tolist()], dtype=object)
    missing = np.array([value is None for value in values], dtype=bool)
    known = [str(value) for value in values[~missing].tolist()]
    different = sorted({*known})
    labels = tuple(different[place] for place in natural_order(different))
    places = {label: place for place, label in enumerate(labels)}
    codes = np.full(values.size, -1, dtype=np.int64)
    codes[~missing] = [places[label] for label in known]
    return labels, codes


def natural_order(labels: Sequence[str]) -> list[int]:
    """Return the places of labels in order: as numbers where all are numbers, else as text."""
    try:
        numbers = [float(label) for label in labels]
    except ValueError:
        numbers = []
    if not numbers or not np.isfinite(numbers).all():  # a label may read "nan"
        return sorted(range(len(labels)), key=labels.__getitem__)
    return sorted(range(len(labels)), key=lambda i: (numbers[i], labels[i]))
