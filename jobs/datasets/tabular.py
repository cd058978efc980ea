"""From columns of a table to samples: encode labels, refuse data that no study could use."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from manyseed.jobs.checks import Refused
from manyseed.jobs.datasets.columns import Looks
from manyseed.jobs.datasets.source import Samples

MAX_CLASSES = np.iinfo(np.uint16).max


@dataclass(frozen=True, slots=True)
class DataColumn:
    """One column of a table.

    Attributes
    ----------
    values : float64 array or object array (sample,)
        Numbers, NaN where missing; of a categorical column labels as text, None where missing.
    is_declared : bool
        Whether its kind was given, by the user or by the column's type.
    doubt : tuple of Looks and str
        What else its numbers look like as they are written, and one of them.
    """

    name: str
    values: NDArray[np.float64] | NDArray[np.object_]
    is_declared: bool = False
    doubt: tuple[Looks, str] = ("", "")

    @property
    def is_categorical(self) -> bool:
        """Whether the values are labels."""
        return self.values.dtype == np.object_


def to_samples(what: str, features: Sequence[DataColumn], target: DataColumn) -> Samples:
    """Encode a table: labels become their places in natural order, missing values NaN.

    Parameters
    ----------
    what : str
        The source, for messages.

    Raises
    ------
    Refused
        Option ``source`` for no rows, no features and infinite numbers; option ``target`` as
        `classes_of`.
    """
    n = target.values.size
    if n == 0 or not features:
        raise Refused("source", what, f"is empty: {n} samples with {len(features)} features")
    names, y = classes_of(target)
    X = np.empty((n, len(features)))
    cardinality = np.zeros(len(features), dtype=np.int32)
    for j, column in enumerate(features):
        if column.is_categorical:
            labels, codes = encode(column.values)
            X[:, j] = np.where(codes < 0, np.nan, codes)
            cardinality[j] = max(1, len(labels))  # 0 would say that it is continuous
        else:
            X[:, j] = column.values
            if np.isinf(X[:, j]).any():
                reason = f"holds infinite numbers in column {column.name!r}; leave it out, or mark"
                raise Refused("source", what, f"{reason} them as missing")
    return Samples(X, y, cardinality, names)


def classes_of(target: DataColumn) -> tuple[tuple[str, ...], NDArray[np.int64]]:
    """Return a target's classes in natural order, and the place of each sample's class.

    Raises
    ------
    Refused
        For missing values, a single class, more than half as many classes as samples, and more
        than `MAX_CLASSES`.
    """
    n = target.values.size
    names, y = encode(target.values)
    if not names:
        raise Refused("target", target.name, f"is empty: all {n:,} values are missing")
    if missing := int((y < 0).sum()):
        reason = f"{missing} of {n} values are missing; leave these rows out"
        raise Refused("target", target.name, reason)
    if len(names) < 2:
        reason = f"has a single class, {names[0]!r}; a classifier needs two"
        raise Refused("target", target.name, reason)
    if 2 * len(names) > n or len(names) > MAX_CLASSES:
        raise Refused(
            "target",
            target.name,
            f"has {len(names)} classes in {n} samples; there must be at least two samples "
            f"per class on average, and at most {MAX_CLASSES:,} classes. Is it a number to "
            "predict rather than a class?",
        )
    return names, y


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
