"""Copies among samples, and between the parts of a data set."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Copies:
    """How many samples are copies of earlier ones.

    `n_other`: how many of them are in another class; `shown`: files of two that are.
    """

    n: int = 0
    n_other: int = 0
    shown: tuple[str, ...] = ()


NO_COPIES = Copies()


def copied(rows: Sequence[str | int], y: Sequence[int], names: Sequence[str] = ()) -> Copies:
    """Count samples with equal content; `rows`: what stands for their contents; `names`: files."""
    first: dict[str | int, int] = {}
    n, other = 0, list[tuple[int, int]]()
    for number, row in enumerate(rows):
        of = first.setdefault(row, number)
        n += of != number
        if y[of] != y[number]:
            other.append((of, number))
    shown = tuple(names[one] for one in other[0]) if names and other else ()
    return Copies(n, len(other), shown)


def copies(X: NDArray[np.float64], y: Sequence[int], continuous: Sequence[int]) -> Copies:
    """Count rows that repeat an earlier one's features, which no chance makes equal.

    `continuous`: the features that are.

    That is so where two continuous features have hardly a value twice among the different rows, or
    one, of which far fewer rows would be equal in it and in one other feature.
    """
    rows = [hash(row.tobytes()) for row in X]
    found = copied(rows, y)
    if not found.n:
        return found
    different = X[np.unique(rows, return_index=True)[1]]
    telling = [k for k in continuous if np.unique(different[:, k]).size >= len(different) / 2]
    n = found.n
    if not telling or (len(telling) == 1 and n < max(3, 3 * _equal_by_chance(X, telling[0]))):
        return Copies()
    return found


_BINS = 50  # in which a feature's values are counted
_COMPARED = 50  # other features


def _equal_by_chance(X: NDArray[np.float64], k: int) -> float:
    """Return how many pairs of rows are expected to be equal in feature k and in another one.

    Values of k are taken as smooth on the grid that they are on; the other feature is that which
    agrees least often between rows with similar values of k.
    """
    X = X[np.isfinite(X[:, k])]
    if X.shape[1] < 2 or len(X) < 2:
        return math.inf
    values = X[:, k]
    low, high = float(values.min()), float(values.max())
    step = float(np.quantile(np.diff(np.unique(values)), 0.05))
    shares = np.histogram(values, _BINS)[0] / len(X)
    pairs = len(X) * (len(X) - 1) / 2
    equal = pairs * float((shares**2).sum()) * min(1.0, step * _BINS / (high - low))
    order = np.argsort(values, kind="stable")
    others = [j for j in range(X.shape[1]) if j != k][:_COMPARED]
    return equal * min(_agreement(X[order, j]) for j in others)


def _agreement(values: NDArray[np.float64]) -> float:
    """Return how often two values agree that are in the same of some runs of equal length."""
    found = []
    for part in np.array_split(values, min(_BINS, len(values) // 2)):
        counts = np.unique(part, return_counts=True)[1]
        found.append(float((counts * (counts - 1)).sum()) / (len(part) * (len(part) - 1)))
    return float(np.mean(found))


def leaked(rows: Sequence[str], y: NDArray[np.integer[Any]], n_train: int) -> tuple[int, int]:
    """Count rows of a test part that are in the training part, and those in other classes alone."""
    classes: dict[str, set[int]] = {}
    for row, of in zip(rows[:n_train], y[:n_train].tolist(), strict=True):
        classes.setdefault(row, set()).add(of)
    found = [
        of not in classes[row]
        for row, of in zip(rows[n_train:], y[n_train:].tolist(), strict=True)
        if row in classes
    ]
    return len(found), sum(found)
