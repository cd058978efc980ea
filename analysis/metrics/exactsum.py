"""Sums of scores that are the same bit for bit in any order and grouping.

A score is split into digits of 46 bits, the lowest of which counts multiples of `UNIT`, and each
digit is summed in integers. Scores below 2**14 have the lowest digit alone.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

UNIT = 2.0**-32
"""Scores are rounded to multiples of this."""
BITS = 46  # of a digit; 2**17 digits can be summed in 64 bits
INFINITE = 1 << 16  # place of the digit for infinite scores, above all others

Digits = Mapping[int, NDArray[np.int64]]
"""Integers by the place of their digit, 0 the lowest; missing places are zero."""


def digits(values: NDArray[np.floating[Any]]) -> Digits:
    """Return the digits of scores without NaN; opposite infinities cancel in a sum."""
    rest = values.astype(np.float64)
    by_place: dict[int, NDArray[np.int64]] = {}
    infinite = np.isinf(rest)
    if infinite.any():
        by_place[INFINITE] = np.where(infinite, np.sign(rest), 0).astype(np.int64)
        rest[infinite] = 0
    largest = float(np.abs(rest).max(initial=0))
    exponent = math.frexp(largest)[1] + 32  # largest < 2**exponent units
    for place in range(max((exponent - 1) // BITS, 0), 0, -1):
        unit = 2.0 ** (BITS * place) * UNIT
        digit = np.trunc(rest / unit)
        rest -= digit * unit  # exact: only removes leading bits
        by_place[place] = digit.astype(np.int64)
    by_place[0] = np.rint(rest / UNIT).astype(np.int64)
    return by_place


def added(sums: Iterable[Digits]) -> Digits:
    """Return the sum of sums."""
    total: dict[int, NDArray[np.int64]] = {}
    for each in sums:
        for place, digit in each.items():
            if place in total:
                total[place] += digit
            else:
                total[place] = digit.copy()
    return total


def without(total: Digits, own: Digits) -> Digits:
    """Return sums (…) minus each run's own part of them (run, …)."""
    none = np.zeros(1, dtype=np.int64)
    return {place: total.get(place, none) - own.get(place, none) for place in {*total, *own}}


def labels(total: Digits, *, gaps: bool | None = None) -> NDArray[np.int64]:
    """Return the class that sums of gaps (…, sample) or of scores (…, sample, class) predict.

    As for single scores, a tie is the positive class of two, or the first of more. Without `gaps`,
    sums with one axis are sums of gaps.
    """
    finite = {place: digit for place, digit in total.items() if place != INFINITE}
    ordered = _carried(finite)
    infinite = total.get(INFINITE)
    if ordered[0].ndim == 1 if gaps is None else gaps:  # the sign is that of the highest digit
        highest = ordered[0]
        leading = highest if infinite is None else np.where(infinite != 0, infinite, highest)
        positive: NDArray[np.int64] = (leading >= 0).astype(np.int64)
        return positive
    leads = np.ones(ordered[0].shape, dtype=np.bool_)
    for digit in ordered if infinite is None else [infinite, *ordered]:
        best = np.where(leads, digit, np.iinfo(np.int64).min)
        leads &= digit == best.max(axis=-1, keepdims=True)
    first: NDArray[np.int64] = leads.argmax(axis=-1).astype(np.int64)
    return first


def _carried(total: Digits) -> list[NDArray[np.int64]]:
    """Return the digits, highest first; all but the highest are in 0 … 2**46 - 1."""
    carried = []
    carry = np.zeros_like(total[0])
    for place in range(max(total)):
        digit = total.get(place, 0) + carry
        carry = digit >> BITS
        carried.append(digit - (carry << BITS))
    carried.append(total[max(total)] + carry)
    return carried[::-1]
