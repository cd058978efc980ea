"""Checks of values from a sweep file, with messages that name the value and the remedy."""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterable

_LISTED = 20


def unknown(what: str, value: object, options: Iterable[str]) -> ValueError:
    """Return the error for a name that is none of the options, with the nearest one."""
    names = list(options)
    near = difflib.get_close_matches(str(value), names, n=1)
    hint = f"did you mean {near[0]!r}? " if near else ""
    listed = ", ".join(names[:_LISTED]) + (", …" if len(names) > _LISTED else "")
    return ValueError(f"unknown {what} {value!r}: {hint}there are {listed or 'none'}")


def integer(what: str, value: object, *, least: int, most: int | None = None) -> int:
    """Return a whole number within bounds (both included).

    Raises
    ------
    ValueError
        For another type, a truth value or a number out of bounds.
    """
    if (
        isinstance(value, bool)
        or not isinstance(value, int)
        or value < least
        or (most is not None and value > most)
    ):
        bounds = f"at least {least}" if most is None else f"from {least} to {most}"
        raise ValueError(f"{what} is a whole number {bounds}, not {value!r}")
    return value


def number(
    what: str,
    value: object,
    *,
    least: float = -math.inf,
    above: float = -math.inf,
    most: float = math.inf,
    below: float = math.inf,
) -> float:
    """Return a finite number as a float, within bounds of which `above` and `below` are open.

    Raises
    ------
    ValueError
        For another type, a truth value, NaN, infinities or a number out of bounds.
    """
    if (
        isinstance(value, bool)
        or not isinstance(value, int | float)
        or not math.isfinite(value)
        or not (least <= value <= most and above < value < below)
    ):
        limits = {"at least": least, "above": above, "at most": most, "below": below}
        bounds = [f"{word} {limit:g}" for word, limit in limits.items() if math.isfinite(limit)]
        raise ValueError(f"{what} is a number {' and '.join(bounds)}, not {value!r}")
    return float(value)
