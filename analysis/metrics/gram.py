"""Compiled counts and moments: Gram matrices of error bits and labels, quantiles of columns."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numba
import numpy as np
from numpy.typing import NDArray

WORD = 64  # test points in a word of error bits

Counts = NDArray[np.int64]
Words = NDArray[np.uint64]


@lru_cache(maxsize=4)
def above(n_runs: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Return positions i and j of all pairs i < j, i first; cached: most repeats share a size."""
    i, j = np.triu_indices(n_runs, k=1)
    i.flags.writeable = j.flags.writeable = False
    return i, j


def pack(bits: NDArray[np.bool_]) -> Words:
    """Pack rows of bits, (run, sample), into words, (run, word); the last word is padded with 0."""
    n_runs, n_samples = bits.shape
    packed = np.zeros((n_runs, -(-n_samples // WORD) * WORD // 8), dtype=np.uint8)
    packed[:, : -(-n_samples // 8)] = np.packbits(bits, axis=1)
    return packed.view(np.uint64)


def count(words: Words) -> Counts:
    """Count the bits of packed rows: int64 array (run,)."""
    total: Counts = np.bitwise_count(words).sum(axis=-1, dtype=np.int64)
    return total


def both_wrong(own: Words, others: Words) -> Counts:
    """Count the test points that two runs both get wrong: a Gram matrix of error bits.

    Parameters
    ----------
    own, others : uint64 arrays (run, word)
        Packed bits, set where the run is wrong.

    Returns
    -------
    int64 array (own run, other run)
    """
    return _mirrored(_common_bits(own, others, others is own), others is own)


@numba.njit(cache=True, nogil=True)
def _common_bits(own: Words, others: Words, symmetric: bool) -> Counts:
    total = np.zeros((own.shape[0], others.shape[0]), dtype=np.int64)
    for i in range(own.shape[0]):
        first = i if symmetric else 0
        for j in range(first, others.shape[0]):
            total[i, j] = _common(own[i], others[j])
    return total


@numba.njit(cache=True, nogil=True)
def _common(left: Words, right: Words) -> np.uint64:
    found = np.uint64(0)
    for word in range(left.size):
        # Add up bits in pairs, fours and bytes; compiles to one instruction where there is one.
        bits = left[word] & right[word]
        bits -= (bits >> np.uint64(1)) & np.uint64(0x5555555555555555)
        bits = (bits & np.uint64(0x3333333333333333)) + (
            (bits >> np.uint64(2)) & np.uint64(0x3333333333333333)
        )
        bits = (bits + (bits >> np.uint64(4))) & np.uint64(0x0F0F0F0F0F0F0F0F)
        found += (bits * np.uint64(0x0101010101010101)) >> np.uint64(56)
    return found


def same_label(own: NDArray[Any], others: NDArray[Any]) -> Counts:
    """Count the test points to which two runs give the same label.

    Parameters
    ----------
    own, others : integer arrays (run, sample)

    Returns
    -------
    int64 array (own run, other run)
    """
    return _mirrored(_same_labels(own, others, others is own), others is own)


@numba.njit(cache=True, nogil=True)
def _same_labels(own: NDArray[Any], others: NDArray[Any], symmetric: bool) -> Counts:
    total = np.zeros((own.shape[0], others.shape[0]), dtype=np.int64)
    for i in range(own.shape[0]):
        first = i if symmetric else 0
        for j in range(first, others.shape[0]):
            total[i, j] = _same(own[i], others[j])
    return total


@numba.njit(cache=True, nogil=True)
def _same(left: NDArray[Any], right: NDArray[Any]) -> np.int32:
    count = np.int32(0)  # narrow, so that more points are compared at once
    for point in range(left.size):
        count = np.int32(count + np.int32(left[point] == right[point]))
    return count


def _mirrored(total: Counts, symmetric: bool) -> Counts:
    """Fill the lower triangle of a symmetric matrix."""
    return total + np.triu(total, k=1).T if symmetric else total


@numba.njit(cache=True, nogil=True)
def class_counts(label: NDArray[Any], n_classes: int) -> Counts:
    """Count how often each run gives each label, int64 (run, class)."""
    total = np.zeros((label.shape[0], n_classes), dtype=np.int64)
    for run in range(label.shape[0]):
        for point in range(label.shape[1]):
            total[run, label[run, point]] += 1
    return total


Real = NDArray[np.float64]


@numba.njit(cache=True, nogil=True)
def moments(values: Real, levels: Real) -> tuple[int, float, float, float, float, Real]:
    """Return count, mean, standard deviation, extremes and quantiles of the defined values.

    Compiled, because a sweep has a dozen columns for each of its repeats.
    """
    quantiles = np.full(levels.size, np.nan)
    defined = values[~np.isnan(values)]
    n = defined.size
    if n == 0:
        return 0, np.nan, np.nan, np.nan, np.nan, quantiles
    if levels.size:
        defined.sort()
    lowest, highest = defined.min(), defined.max()
    mean = lowest if lowest == highest else defined.mean()  # exact for equal values
    std = np.nan if n < 2 else np.sqrt(((defined - mean) ** 2).sum() / (n - 1))
    for index in range(levels.size):  # between the two neighbours, as NumPy does by default
        place = levels[index] * (n - 1)
        below = int(place)
        low, high, share = defined[below], defined[min(below + 1, n - 1)], place - below
        step = high - low
        quantiles[index] = low + step * share if share < 0.5 else high - step * (1 - share)
    return n, mean, std, lowest, highest, quantiles


@numba.njit(cache=True, nogil=True)
def add_points(
    label: NDArray[Any], margin: NDArray[Any], counts: NDArray[Any], moments: NDArray[Any]
) -> None:
    """Add runs to what is known of each test point, in their order.

    `label`: (run, sample). `margin`: likewise, or empty. `counts`, int32 array (sample, class):
    runs that predict each class. `moments`, float64 array (sample, 3): the first run's margin, and
    sums of the differences from it and of their squares; begins with NaN.
    """
    for run in range(label.shape[0]):
        for point in range(label.shape[1]):
            counts[point, label[run, point]] += 1
    for run in range(margin.shape[0]):
        for point in range(margin.shape[1]):
            value = np.float64(margin[run, point])
            if np.isnan(moments[point, 0]) and moments[point, 1] == 0:
                moments[point, 0] = value
            apart = value - moments[point, 0]
            moments[point, 1] += apart
            moments[point, 2] += apart * apart


@numba.njit(cache=True, nogil=True)
def add_repeat(
    counts: NDArray[Any],
    moments: NDArray[Any],
    sign: NDArray[Any],
    y_true: NDArray[Any],
    place: NDArray[Any],
    totals: NDArray[Any],
) -> None:
    """Add a repeat to the totals of a cell: float64 array (place, 7), see `questions.points`.

    `sign`: 1 or -1 for each test point, of the true class's margin. `place`: its row of `totals`.
    """
    for point in range(counts.shape[0]):
        runs, alike = 0, 0
        for n in counts[point]:
            runs += n
            alike += n * (n - 1) // 2
        total = totals[place[point]]
        total[0] += runs
        total[1] += runs - counts[point, y_true[point]]
        total[2] += runs * (runs - 1) // 2
        total[3] += runs * (runs - 1) // 2 - alike
        first, apart = moments[point, 0], moments[point, 1]
        squares = moments[point, 2] - apart * apart / runs
        total[4] += sign[point] * (runs * first + apart)
        total[5] += (squares if squares > 0 else 0.0) + 0.0 * (first + apart)  # NaN stays
        total[6] += runs - 1
