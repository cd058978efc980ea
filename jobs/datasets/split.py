"""Splits, subsamples and bootstraps, from raw 64-bit draws alone.

Frozen: NumPy may change what its Generator's methods return, never the raw words of PCG64. So are
the sizes of test sets that whole groups can make, and the groups chosen for a size.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from manyseed.jobs.datasets.info import OFFICIAL
from manyseed.jobs.run import raw, stream

Index = NDArray[np.int64]
Sizes = NDArray[np.int64]  # rows of each group

TRAIN, TEST = 1, 2
"""Roles of a row in an official test set and its training part; 0 where it is in neither."""

Roles = NDArray[np.uint8]  # (set, sample)


@dataclass(frozen=True, slots=True)
class Split:
    """Training part and test set of a repeat: ascending indices into the prepared dataset."""

    train: Index
    test: Index

    @property
    def nbytes(self) -> int:
        """Memory of the arrays, in bytes."""
        return self.train.nbytes + self.test.nbytes


def n_points(share: float | int, n: int) -> int:
    """Return how many of `n` points a share is; a whole number is returned as it is.

    The share counts as the decimal number that is written, and the product is rounded half up:
    0.145 of 100 is 15, although the nearest float is below.
    """
    if isinstance(share, int):
        return share
    return int(Fraction(repr(share)) * n + Fraction(1, 2))


def stratified_order(y: NDArray[np.integer[Any]], words: NDArray[np.uint64]) -> Index:
    """Order samples at random so that every prefix is stratified.

    Among the n_c samples of its class c, a sample has the rank r of its word (ties: the earlier
    sample first) and the key (r + 1/2) / n_c. Samples are sorted by key, ties by class index. So a
    prefix holds the same share of every class, to within half a sample, and prefixes are nested.

    `y`, integer array (n,): class indices. `words`, uint64 array (n,): raw draws, one per sample.
    Returns int64 array (n,): a permutation of the positions 0 … n - 1.
    """
    by_class = np.lexsort((words, y))
    classes, starts, counts = np.unique(y[by_class], return_index=True, return_counts=True)
    rank = np.arange(y.size) - np.repeat(starts, counts)
    key = (rank + 0.5) / np.repeat(counts, counts)
    return by_class[np.lexsort((np.repeat(classes, counts), key))].astype(np.int64)


def split(
    seed: int,
    dataset: str,
    repeat: int,
    y: NDArray[np.integer[Any]],
    test: float | int | str,
    official: Index | None = None,
    groups: Index | None = None,
    roles: Roles | None = None,
) -> Split:
    """Return the split of a repeat (stream ``split``), or the official one.

    `seed`: the sweep's seed. `dataset`: the dataset's identity. `repeat`: repeat index. `y`,
    integer array (n,): classes of the prepared dataset. `test`: share or number of points of the
    test set. `official`: with ``"official"`` the test set itself, `Dataset.official_test`.
    `groups`, int64 array (n,): the group of each row: test sets are of whole groups, `held_out`.
    `roles`, uint8 array (set, n): with ``"official"``, several test sets (`Roles`), one a repeat.
    All are cut to the size of the smallest, and training parts to that of the smallest training
    part, by stratified draws, first the test set's.
    """
    if test == OFFICIAL and roles is not None:
        if repeat >= len(roles):
            raise ValueError(f"{len(roles)} official test sets; there is no repeat {repeat}")
        generator, parts = stream(seed, "split", dataset, repeat), []
        for role in (TEST, TRAIN):
            rows, n = np.flatnonzero(roles[repeat] == role), int((roles == role).sum(axis=1).min())
            parts.append(rows[held_out(y[rows], generator, n)])
        return Split(train=parts[1], test=parts[0])
    if isinstance(test, str):
        if test != OFFICIAL or official is None:
            raise ValueError(f"test = {test!r} needs a dataset with an official test part")
        if repeat != 0:
            raise ValueError(f"the official test set makes one repeat; there is no repeat {repeat}")
        return Split(train=np.setdiff1d(np.arange(y.size), official), test=official)
    chosen = held_out(y, stream(seed, "split", dataset, repeat), n_points(test, y.size), groups)
    return Split(train=np.setdiff1d(np.arange(y.size), chosen), test=chosen)


def held_out(
    y: NDArray[np.integer[Any]],
    generator: np.random.Generator,
    n: int,
    groups: Index | None = None,
) -> Index:
    """Choose `n` of the samples at random, stratified.

    With groups, whole groups are chosen, of the nearest size that they can make (`nearest_size`). A
    group counts as one sample of its most frequent class (of several the first) with one word;
    `groups_of_size` takes groups in `stratified_order`.

    `y`, integer array (sample,): class indices. `generator`: one raw word is drawn for each sample,
    or for each group. `groups`, int64 array (sample,): the group of each. Returns positions,
    ascending.
    """
    if groups is None:
        return np.sort(stratified_order(y, raw(generator, y.size))[:n])
    _, group, sizes = np.unique(groups, return_inverse=True, return_counts=True)
    size = nearest_size(sizes, n)
    if size is None:
        raise ValueError(f"{len(sizes)} groups of {y.size} rows make no two parts of 2 or more")
    order = stratified_order(_most_frequent(group, y), raw(generator, len(sizes)))
    chosen = groups_of_size(sizes, order, size)
    return np.flatnonzero(np.isin(group, chosen))


def _most_frequent(group: Index, y: NDArray[np.integer[Any]]) -> Index:
    """Return the most frequent class of each group (group,), the first of several."""
    k = int(y.max()) + 1
    pairs, counts = np.unique(group * k + y, return_counts=True)
    groups, classes = np.divmod(pairs, k)
    order = np.lexsort((classes, -counts, groups))
    _, first = np.unique(groups[order], return_index=True)
    return np.asarray(classes[order][first], dtype=np.int64)


def subsample(
    seed: int,
    dataset: str,
    repeat: int,
    run: int,
    y_train: NDArray[np.integer[Any]],
    fraction: float | int,
) -> Index:
    """Return which points of the training part a run uses (stream ``subsample``), ascending.

    A run's subsamples are nested over fractions.

    `y_train`, integer array (n_train,): classes of the repeat's training part. `fraction`: share
    (at least one point) or number of points. Returns int64 array (m,): positions in the training
    part.
    """
    n = max(1, n_points(fraction, y_train.size))
    if n >= y_train.size:
        return np.arange(y_train.size)
    order = stratified_order(
        y_train, raw(stream(seed, "subsample", dataset, repeat, run), y_train.size)
    )
    return np.sort(order[:n])


def resample(seed: int, dataset: str, repeat: int, run: int, points: Index) -> Index:
    """Bootstrap points (stream ``resample``): as many, with replacement, in the order drawn.

    `seed`: the sweep's. `dataset`: the dataset's identity. `points`, int64 array (n,): indices of
    rows. Returns int64 array (n,).
    """
    return bootstrapped(points, stream(seed, "resample", dataset, repeat, run))


def bootstrapped(points: Index, generator: np.random.Generator) -> Index:
    """Draw as many of the points (n,), with replacement, by one raw word each."""
    words = raw(generator, points.size)
    return points[(words % np.uint64(points.size)).astype(np.int64)]


def _sums(sizes: Sizes, most: int) -> int:
    """Return the row counts, up to `most`, that subsets of the groups have: bit n for n rows."""
    sums, mask = 1, (1 << (most + 1)) - 1
    for size, count in zip(*np.unique(sizes, return_counts=True), strict=True):
        left, at_once = int(count), 1
        while left and size <= most:
            taken = min(at_once, left)
            if taken * int(size) <= most:
                sums |= (sums << (taken * int(size))) & mask
            left, at_once = left - taken, 2 * at_once
    return sums


def sizes_near(sizes: Sizes, wanted: int) -> tuple[int | None, int | None]:
    """Return the sizes of a test set of whole groups that are nearest to `wanted`.

    `sizes`, int64 array (group,): rows of each group. Returns the largest up to `wanted`, and the
    smallest from `wanted` on, with at least two rows in both parts; None where there is none.
    """
    n = int(sizes.sum())
    sums = _sums(sizes, n - 2) & ~0b11
    below = (sums & ((1 << (wanted + 1)) - 1)).bit_length() - 1
    above = sums >> wanted
    least = wanted + (above & -above).bit_length() - 1
    return (None if below < 0 else below), (least if above else None)


def nearest_size(sizes: Sizes, wanted: int) -> int | None:
    """Return the nearest of these sizes, the smaller of two; None where there is none."""
    possible = [size for size in sizes_near(sizes, wanted) if size is not None]
    return min(possible, key=lambda size: (abs(size - wanted), size), default=None)


def groups_of_size(sizes: Sizes, order: NDArray[np.int64], n: int) -> NDArray[np.int64]:
    """Choose groups with `n` rows in total, the earliest in the order first.

    A group is taken if some of the groups behind it can make up the rest, else it is left out.

    `sizes`, int64 array (group,). `order`, int64 array (group,): a permutation of the groups.
    Returns the chosen groups, in their order.
    """
    if n and not _can(sizes, n):
        raise ValueError(f"no whole groups have {n} rows together")
    chosen, lacking, left = [order[:0]], n, order
    while lacking:
        left = left[sizes[left] <= lacking]
        ends = np.cumsum(sizes[left])
        # If the first k groups can be taken, so can fewer: bisection finds the largest k.
        low, high = 0, int(np.searchsorted(ends, lacking, side="right"))
        while low < high:
            k = (low + high + 1) // 2
            if _can(sizes[left[k:]], lacking - int(ends[k - 1])):
                low = k
            else:
                high = k - 1
        chosen.append(left[:low])
        lacking -= int(ends[low - 1]) if low else 0
        left = left[low:]
        if lacking:  # a size that cannot be taken now cannot be taken later
            left = left[sizes[left] != sizes[left[0]]]
    return np.concatenate(chosen)


def _can(sizes: Sizes, n: int) -> bool:
    return bool(_sums(sizes, n) >> n & 1)
