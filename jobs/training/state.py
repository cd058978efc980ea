"""Convert a trained model's named arrays to one row of numbers and back, without loss.

Numbers are float32, or float64 if any array is. An integer, such as batch norm's count of batches,
takes three of them: the base 2^24 digits of its 64 bits, lowest first, which float32 holds exactly.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

State = Mapping[str, NDArray[Any]]
"""A model's arrays by name, in order."""

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
        """How many numbers of a row the array takes."""
        return prod(self.shape) * (_DIGITS if np.dtype(self.dtype).kind in "biu" else 1)


def described(state: State) -> tuple[StateArray, ...]:
    """Describe the arrays of a model."""
    return tuple(StateArray(name, str(array.dtype), array.shape) for name, array in state.items())


def length(arrays: Iterable[StateArray]) -> int:
    """Return the length of a row."""
    return sum(array.numbers for array in arrays)


def number_type(arrays: Iterable[StateArray]) -> str:
    """Return the dtype of a row's numbers.

    Raises
    ------
    ValueError
        For arrays that neither float32 nor float64 holds exactly.
    """
    row_dtype = "float32"
    for array in arrays:
        dtype = np.dtype(array.dtype)
        if dtype.kind not in "biuf" or dtype.itemsize > 8:
            raise ValueError(f"{array.name} is of {array.dtype}")
        row_dtype = "float64" if dtype == np.float64 else row_dtype
    return row_dtype


def packed(state: State) -> NDArray[Any]:
    """Return a model's arrays as one row of numbers, each array in C order.

    Returns
    -------
    float32 or float64 array (number,)
    """
    arrays = described(state)
    row = np.empty(length(arrays), dtype=number_type(arrays))
    start = 0
    for array in arrays:
        values = np.ascontiguousarray(state[array.name]).ravel()
        if values.dtype.kind in "biu":
            values = _digits(values)
        row[start : start + array.numbers] = values
        start += array.numbers
    return row


def unpacked(arrays: Iterable[StateArray], row: NDArray[Any]) -> dict[str, NDArray[Any]]:
    """Return the arrays that `packed` put into a row; ignore any numbers after them.

    Raises
    ------
    ValueError
        If the row is too short.
    """
    arrays = tuple(arrays)
    if len(row) < length(arrays):
        raise ValueError(f"{len(row)} numbers of {length(arrays)}")
    state, start = {}, 0
    for array in arrays:
        values, dtype = row[start : start + array.numbers], np.dtype(array.dtype)
        exact = _integers(values) if dtype.kind in "biu" else values
        state[array.name] = exact.astype(dtype).reshape(array.shape)
        start += array.numbers
    return state


def _digits(values: NDArray[Any]) -> NDArray[np.float64]:
    words = values.astype(np.uint64 if values.dtype == np.uint64 else np.int64).view(np.uint64)
    shifts = np.arange(_DIGITS, dtype=np.uint64) * np.uint64(_BITS)
    digits = (words[:, None] >> shifts) & np.uint64(2**_BITS - 1)
    return digits.astype(np.float64).ravel()


def _integers(digits: NDArray[Any]) -> NDArray[np.int64]:
    words = digits.reshape(-1, _DIGITS).astype(np.uint64)
    shifts = np.arange(_DIGITS, dtype=np.uint64) * np.uint64(_BITS)
    integers: NDArray[np.uint64] = np.bitwise_or.reduce(words << shifts, axis=1)
    return integers.view(np.int64)
