"""Counts of test points for every two runs: Gram matrices of error bits and of labels."""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
from numpy.typing import NDArray

WORD = 64  # test points in a word of error bits

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
    left = _packed(own)
    return _common_bits(left, left if others is own else _packed(others))


def _packed(wrong: NDArray[np.bool_]) -> NDArray[np.uint64]:
    """Pack rows of bits into words, uint64 (run, word); what fills the last word is 0."""
    n_runs, n_samples = wrong.shape
    packed = np.zeros((n_runs, -(-n_samples // WORD) * WORD // 8), dtype=np.uint8)
    packed[:, : -(-n_samples // 8)] = np.packbits(wrong, axis=1)
    return packed.view(np.uint64)


@numba.njit(cache=True, nogil=True)
def _common_bits(own: NDArray[np.uint64], others: NDArray[np.uint64]) -> Counts:
    total = np.zeros((own.shape[0], others.shape[0]), dtype=np.int64)
    for i in range(own.shape[0]):
        for j in range(others.shape[0]):
            count = np.uint64(0)
            for word in range(own.shape[1]):
                # Bits are added up in pairs, fours and bytes; the compiler knows this as one
                # instruction where the processor has it.
                bits = own[i, word] & others[j, word]
                bits -= (bits >> np.uint64(1)) & np.uint64(0x5555555555555555)
                bits = (bits & np.uint64(0x3333333333333333)) + (
                    (bits >> np.uint64(2)) & np.uint64(0x3333333333333333)
                )
                bits = (bits + (bits >> np.uint64(4))) & np.uint64(0x0F0F0F0F0F0F0F0F)
                count += (bits * np.uint64(0x0101010101010101)) >> np.uint64(56)
            total[i, j] = np.int64(count)
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
            count = np.int32(0)  # narrow, so that more points are compared at once
            for point in range(own.shape[1]):
                count = np.int32(count + np.int32(own[i, point] == others[j, point]))
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
