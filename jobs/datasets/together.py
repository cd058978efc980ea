"""Rows that belong together: a group lies in the training part or in the test set, never in both.

Frozen like splits: the sizes that whole groups can make, and the groups chosen for a size.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from manyseed.jobs.checks import Refused, quoted, same_spelling
from manyseed.jobs.datasets.tabular import encode

GROUP = "group"

Sizes = NDArray[np.int64]


def read(given: Mapping[str, Any]) -> dict[str, str]:
    """Return a table's key for groups, checked.

    Raises
    ------
    Refused
    """
    if GROUP not in given:
        return {}
    if not isinstance(given[GROUP], str) or not given[GROUP]:
        raise Refused(GROUP, given[GROUP], allowed="the name of a column")
    return {GROUP: given[GROUP]}


def codes(name: str, values: NDArray[np.object_] | NDArray[np.float64]) -> NDArray[np.int64]:
    """Return the group of each sample, numbered from 0 in the natural order of their names.

    Parameters
    ----------
    name : str
        The column's.
    values : object array or float64 array (sample,)
        Text or numbers; None or NaN where missing.

    Raises
    ------
    Refused
        For missing values, groups that only look the same, and a single group.
    """
    names, group = encode(values)
    if missing := int((group < 0).sum()):
        reason = f"is missing in {missing} rows; leave these out, or give each a group of its own"
        raise Refused(GROUP, name, reason)
    if same := same_spelling(names):
        shown = " and ".join(map(quoted, same[0]))
        reason = f"holds groups that look the same, {shown}: write them alike"
        raise Refused(GROUP, name, reason)
    require_several(name, len(names))
    return group


def require_several(name: str, n_groups: int) -> None:
    """Refuse a column with a single group.

    Raises
    ------
    Refused
    """
    if n_groups < 2:
        reason = "has the same value in all rows: a single group cannot be both in training part "
        raise Refused(GROUP, name, f"{reason}and test set")


def require_whole(name: str, groups: NDArray[np.int64], n_train: int) -> None:
    """Refuse a split (training part first) that tears groups apart.

    Raises
    ------
    Refused
    """
    torn = np.intersect1d(groups[:n_train], groups[n_train:]).size
    if torn:
        groups_have = "1 group has" if torn == 1 else f"{torn} groups have"
        reason = f"is torn apart by the file's own split: {groups_have} rows in both parts"
        raise Refused(GROUP, name, reason)


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


def near(sizes: Sizes, wanted: int) -> tuple[int | None, int | None]:
    """Return the sizes of a test set of whole groups that are nearest to `wanted`.

    Parameters
    ----------
    sizes : int64 array (group,)
        Rows of each group.
    wanted : int

    Returns
    -------
    tuple of int or None
        The largest up to `wanted`, and the smallest from `wanted` on, with at least two rows in
        both parts; None where there is none.
    """
    n = int(sizes.sum())
    sums = _sums(sizes, n - 2) & ~0b11
    below = (sums & ((1 << (wanted + 1)) - 1)).bit_length() - 1
    above = sums >> wanted
    least = wanted + (above & -above).bit_length() - 1
    return (None if below < 0 else below), (least if above else None)


def nearest(sizes: Sizes, wanted: int) -> int | None:
    """Return the nearest of these sizes, the smaller of two; None where there is none."""
    possible = [size for size in near(sizes, wanted) if size is not None]
    return min(possible, key=lambda size: (abs(size - wanted), size), default=None)


def fill(sizes: Sizes, order: NDArray[np.int64], n: int) -> NDArray[np.int64]:
    """Choose groups with `n` rows in total, the earliest in the order first.

    A group is taken if some of the groups behind it can make up the rest, else it is left out.

    Parameters
    ----------
    sizes : int64 array (group,)
    order : int64 array (group,)
        A permutation of the groups.
    n : int

    Returns
    -------
    int64 array
        The chosen groups, in their order.

    Raises
    ------
    ValueError
        Where no groups have that many rows.
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
