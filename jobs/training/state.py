"""A trained model as named arrays, and these as one row of numbers, both ways without loss.

Numbers are float32, or float64 where an array is. Whole numbers, such as a batch norm's count of
batches, are three of them: the digits of their 64 bits to the base 2^24, the lowest first, each of
which float32 holds exactly.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

State = Mapping[str, NDArray[Any]]
"""The arrays of a model by name, in order."""

_BITS = 24
_DIGITS = 3


@dataclass(frozen=True, slots=True)
class StateArray:
    """An array of a model.

    Attributes
    ----------
    name, dtype : str
    shape : tuple of int
    """

    name: str
    dtype: str
    shape: tuple[int, ...]

    @property
    def numbers(self) -> int:
        """How many numbers of a row it takes."""
        return prod(self.shape) * (_DIGITS if np.dtype(self.dtype).kind in "biu" else 1)


def described(state: State) -> tuple[StateArray, ...]:
    """Return what the arrays of a model are."""
    return tuple(StateArray(name, str(one.dtype), one.shape) for name, one in state.items())


def length(arrays: Iterable[StateArray]) -> int:
    """Return how many numbers a row has."""
    return sum(one.numbers for one in arrays)


def number_type(arrays: Iterable[StateArray]) -> str:
    """Return the dtype of a row's numbers.

    Raises
    ------
    ValueError
        For arrays that neither float32 nor float64 holds exactly.
    """
    found = "float32"
    for one in arrays:
        kind = np.dtype(one.dtype)
        if kind.kind not in "biuf" or kind.itemsize > 8:
            raise ValueError(f"{one.name} is of {one.dtype}")
        found = "float64" if kind == np.float64 else found
    return found


def packed(state: State) -> NDArray[Any]:
    """Return a model's arrays as one row of numbers, each array in C order.

    Returns
    -------
    float32 or float64 array (number,)
    """
    arrays = described(state)
    row = np.empty(length(arrays), dtype=number_type(arrays))
    start = 0
    for one in arrays:
        values = np.ascontiguousarray(state[one.name]).ravel()
        if values.dtype.kind in "biu":
            values = _digits(values)
        row[start : start + one.numbers] = values
        start += one.numbers
    return row


def unpacked(arrays: Iterable[StateArray], row: NDArray[Any]) -> dict[str, NDArray[Any]]:
    """Return the arrays that `packed` made a row of; numbers beyond their end are passed over.

    Raises
    ------
    ValueError
        Where the row is too short.
    """
    arrays = tuple(arrays)
    if len(row) < length(arrays):
        raise ValueError(f"{len(row)} numbers of {length(arrays)}")
    found, start = {}, 0
    for one in arrays:
        values, dtype = row[start : start + one.numbers], np.dtype(one.dtype)
        whole = dtype.kind in "biu"
        found[one.name] = (_whole(values) if whole else values).astype(dtype).reshape(one.shape)
        start += one.numbers
    return found


def _digits(values: NDArray[Any]) -> NDArray[np.float64]:
    words = values.astype(np.uint64 if values.dtype == np.uint64 else np.int64).view(np.uint64)
    shifts = np.arange(_DIGITS, dtype=np.uint64) * np.uint64(_BITS)
    digits = (words[:, None] >> shifts) & np.uint64(2**_BITS - 1)
    return digits.astype(np.float64).ravel()


def _whole(digits: NDArray[Any]) -> NDArray[np.int64]:
    words = digits.reshape(-1, _DIGITS).astype(np.uint64)
    shifts = np.arange(_DIGITS, dtype=np.uint64) * np.uint64(_BITS)
    whole: NDArray[np.uint64] = np.bitwise_or.reduce(words << shifts, axis=1)
    return whole.view(np.int64)
