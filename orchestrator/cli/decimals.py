"""With how many decimals the numbers of a column are told, and those of an interval."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from manyseed.orchestrator.cli.output import Decimals

if TYPE_CHECKING:
    import polars as pl

Limits = tuple[float | None, float | None]

_MOST_DECIMALS, _USUAL = 6, 4


def decimals(
    values: Sequence[object], limits: Sequence[Limits], *, of_ends: bool = False
) -> int | None:
    """Return with how many decimals the smallest number of a column keeps two digits.

    None where the usual ones do, or where no reasonable number of them does. `of_ends`: one digit
    does, and the usual ones are told, as an end of an interval may be near 0.
    """
    sizes = []
    for value, (low, high) in zip(values, limits, strict=True):
        half = (high - low) / 2 if low is not None and high is not None else None
        sizes += [abs(one) for one in (value, half) if isinstance(one, float) and one]
    sizes = [one for one in sizes if math.isfinite(one) and one > _ROUNDING]
    if not sizes or max(sizes) >= 1 / _SMALL or (min(sizes) >= _SMALL and not of_ends):
        return None
    if of_ends:
        one_digit = -math.floor(math.log10(min(sizes)))
        return min(max(_USUAL, one_digit), _MOST_DECIMALS)
    places = 1 - math.floor(math.log10(min(sizes)))
    return places if places <= _MOST_DECIMALS else None


_SMALL = 0.001  # below it, `shown` writes two digits
_ROUNDING = 1e-15  # a zero that was computed


_MIDDLE = ("difference", "mean", "estimate")
"""Columns between those of the ends of an interval that have no other name."""


def of_ends(frame: pl.DataFrame, name: str) -> tuple[list[object], list[Limits]] | None:
    """Return the values of a column and of its interval's ends, which are columns beside it."""
    first = {f"{name.removesuffix(end)}" for end in ("low", "high") if name.endswith(end)}
    first |= {"" if name in _MIDDLE else f"{name}_"}
    for stem in first:
        ends = [one for one in (f"{stem}low", f"{stem}high") if one in frame.columns]
        if len(ends) == 2 and all(frame[one].dtype.is_float() for one in ends):
            middle = [one for one in ((stem[:-1],) if stem else _MIDDLE) if one in frame.columns]
            if name in (*ends, *middle):
                found: list[object] = [one for of in (*ends, *middle) for one in frame[of]]
                return found, [(None, None)] * len(found)
    return None


def with_places(values: Sequence[object], places: int | None) -> list[object]:
    """Return values with so many decimals; as they are for None."""
    if places is None:
        return [*values]
    return [Decimals(one, places) if isinstance(one, float) else one for one in values]
