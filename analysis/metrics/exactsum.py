"""Sums of scores that are the same bit for bit in whatever order and parts they are added up.

A score is written in digits of 46 bits, the lowest of which counts multiples of `UNIT`, and each
digit is summed in whole numbers. Scores below 2**14 have the lowest digit alone.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

UNIT = 2.0**-32
"""What scores are rounded to."""
BITS = 46  # of a digit; 2**17 of them can be added up in 64
INFINITE = 1 << 16  # the digit of infinite scores, above all others

Digits = Mapping[int, NDArray[np.int64]]
"""Whole numbers by the place of their digit, 0 the lowest; places that lack are zero."""


def digits(values: NDArray[np.floating[Any]]) -> Digits:
    """Return the digits of scores without NaN; opposite infinities cancel in a sum."""
    rest = values.astype(np.float64)
    found: dict[int, NDArray[np.int64]] = {}
    infinite = np.isinf(rest)
    if infinite.any():
        found[INFINITE] = np.where(infinite, np.sign(rest), 0).astype(np.int64)
        rest[infinite] = 0
    exponent = (
        math.frexp(float(np.abs(rest).max(initial=0)))[1] + 32
    )  # in units, 2**exponent is more
    for place in range(max((exponent - 1) // BITS, 0), 0, -1):
        unit = 2.0 ** (BITS * place) * UNIT
        digit = np.trunc(rest / unit)
        rest -= digit * unit  # exact: a part of its bits
        found[place] = digit.astype(np.int64)
    found[0] = np.rint(rest / UNIT).astype(np.int64)
    return found


def added(sums: Iterable[Digits]) -> Digits:
    """Return the sum of sums."""
    total: dict[int, NDArray[np.int64]] = {}
    for one in sums:
        for place, digit in one.items():
            if place in total:
                total[place] += digit
            else:
                total[place] = digit.copy()
    return total


def without(total: Digits, own: Digits) -> Digits:
    """Return what sums (…) are without each of some parts of them (run, …)."""
    none = np.zeros(1, dtype=np.int64)
    return {place: total.get(place, none) - own.get(place, none) for place in {*total, *own}}


def labels(total: Digits, *, gaps: bool | None = None) -> NDArray[np.int64]:
    """Return the class that sums of gaps (…, sample) or of scores (…, sample, class) predict.

    As of single scores: of two classes a tie is the positive one, of more the first. Without
    `gaps`, sums of one axis are of gaps.
    """
    finite = {place: digit for place, digit in total.items() if place != INFINITE}
    ordered = _carried(finite)
    infinite = total.get(INFINITE)
    if ordered[0].ndim == 1 if gaps is None else gaps:  # digits but the highest are 0 or more
        highest = ordered[0]
        leading = highest if infinite is None else np.where(infinite != 0, infinite, highest)
        positive: NDArray[np.int64] = (leading >= 0).astype(np.int64)
        return positive
    still = np.ones(ordered[0].shape, dtype=np.bool_)
    for digit in ordered if infinite is None else [infinite, *ordered]:
        best = np.where(still, digit, np.iinfo(np.int64).min)
        still &= digit == best.max(axis=-1, keepdims=True)
    first: NDArray[np.int64] = still.argmax(axis=-1).astype(np.int64)
    return first


def _carried(total: Digits) -> list[NDArray[np.int64]]:
    """Return the digits, the highest first, of which all others are from 0 to 2**46 - 1."""
    found = []
    carry = np.zeros_like(total[0])
    for place in range(max(total)):
        digit = total.get(place, 0) + carry
        carry = digit >> BITS
        found.append(digit - (carry << BITS))
    found.append(total[max(total)] + carry)
    return found[::-1]
