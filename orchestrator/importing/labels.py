"""Labels of arrays as others save them: numbered from 1, or as whole floats."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from manyseed.orchestrator.calls import warn
from manyseed.orchestrator.importing.classes import whole

_BLOCK = 2**24  # values that are looked at together


@dataclass(frozen=True, slots=True)
class LessOne:
    """An array that is read by positions, less 1."""

    array: Any
    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    def __getitem__(self, positions: NDArray[Any]) -> NDArray[Any]:
        return np.asarray(self.array[positions] - 1)


def are_from_one(arrays: Sequence[tuple[Any, Mapping[str, Any]]]) -> bool:
    """Return whether all labels of a data set are whole numbers from 1: none is 0.

    `arrays`: of each file, what is read by positions, or None, and its other entries.
    """
    least = []
    for array, given in arrays:
        if array is None or "class_names" in given or "y_true" not in given:
            return False
        y_true = np.asarray(given["y_true"])
        if not array.shape or {y_true.dtype.kind, array.dtype.kind} - {*"iuf"} or not y_true.size:
            return False
        if not y_true.min() >= 1:  # most files are not looked at further
            return False
        step = max(1, _BLOCK // max(1, int(np.prod(array.shape[1:]))))
        for start in range(0, array.shape[0], step):
            block = array[np.arange(start, min(start + step, array.shape[0]))]
            if not (block >= 1).all():
                return False
            least += [block.min()] if block.size else []
        least.append(y_true.min())
    return min(least, default=0) == 1


def from_zero(
    array: Any, given: Mapping[str, Any], key: str, path: Path, *, is_one: bool, is_first: bool
) -> tuple[Any, NDArray[Any], int]:
    """Return predictions and true classes as indices from 0, and the number of the first class.

    `is_one`: whether all labels are numbered from 1. True classes from 1 to the number of classes
    that scores have are so for sure; `is_first`: whether to tell it.
    """
    y_true = np.asarray(given["y_true"])
    if y_true.dtype.kind == "f":
        y_true = whole(y_true, "y_true", path)
    if key == "labels":
        return (
            (LessOne(array, array.shape, array.dtype), y_true - 1, 1)
            if is_one
            else (array, y_true, 0)
        )
    n = array.shape[2] if len(array.shape) == 3 else 2
    numbers = np.unique(y_true) if y_true.dtype.kind in "iu" else np.arange(0)
    if "class_names" in given or not np.array_equal(numbers, np.arange(1, n + 1)):
        return array, y_true, 0
    if is_first:
        warn(
            f"{path.name}: true classes are numbered from 1 to {n}, so scores are read as those of "
            f"classes 1 to {n}, in this order."
        )
    return array, y_true - 1, 1
