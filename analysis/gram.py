"""Counts of test points for every two runs: Gram matrices of error bits and of labels."""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
from numpy.typing import NDArray

# Test points in one matrix product: bounds the float32 copy; counts below 2**24 are exact.
SLAB = 1 << 14

Counts = NDArray[np.int64]


def both_wrong(own: NDArray[np.bool_], others: NDArray[np.bool_]) -> Counts:
    """Count the test points that two runs both get wrong: a Gram matrix of error bits.

    Parameters
    ----------
    own, others : bool arrays (run, sample)
        True where the run is wrong.

    Returns
    -------
    int64 array (own run, other run)
    """
    total = np.zeros((own.shape[0], others.shape[0]), dtype=np.int64)
    for start in range(0, own.shape[1], SLAB):
        left = own[:, start : start + SLAB].astype(np.float32)
        right = left if others is own else others[:, start : start + SLAB].astype(np.float32)
        total += (left @ right.T).astype(np.int64)
    return total


@numba.njit(cache=True, nogil=True)
def same_label(own: NDArray[Any], others: NDArray[Any]) -> Counts:
    """Count the test points to which two runs give the same label.

    Parameters
    ----------
    own, others : integer arrays (run, sample)

    Returns
    -------
    int64 array (own run, other run)
    """
    total = np.zeros((own.shape[0], others.shape[0]), dtype=np.int64)
    for i in range(own.shape[0]):
        for j in range(others.shape[0]):
            count = 0
            for point in range(own.shape[1]):
                count += own[i, point] == others[j, point]
            total[i, j] = count
    return total


@numba.njit(cache=True, nogil=True)
def class_counts(label: NDArray[Any], n_classes: int) -> Counts:
    """Count how often each run gives each label, int64 (run, class)."""
    total = np.zeros((label.shape[0], n_classes), dtype=np.int64)
    for run in range(label.shape[0]):
        for point in range(label.shape[1]):
            total[run, label[run, point]] += 1
    return total
