"""Counts of things, and how numbers are written."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def counted(n: int, noun: str) -> str:
    """Return a number and its noun: ``1 run``, ``2,000 batches``, ``3 sets of hparams``."""
    if n != 1:
        head, of, rest = noun.partition(" of ")
        has_es = head.endswith(("s", "ch")) and not head.endswith("epoch")
        noun = f"{head}{'es' if has_es else 's'}{of}{rest}"
    return f"{n:,} {noun}"


def are(n: int, noun: str) -> str:
    """Return a number and its noun as a subject: ``1 run is``, ``2 runs are``."""
    return f"{counted(n, noun)} {'is' if n == 1 else 'are'}"


def some(names: Sequence[str], most: int, noun: str = "") -> str:
    """Return the first `most` names and how many more there are: ``a, b and 2 more``."""
    more = len(names) - most
    return ", ".join(names[:most]) + (f" and {more:,} more{noun}" if more > 0 else "")


def unbroken(name: str) -> str:
    """Return a name for a list or a sentence: in quotation marks if it has commas of its own."""
    return f'"{name}"' if "," in name or ";" in name else name


def duration(seconds: float) -> str:
    """Format a duration."""
    if 0 < seconds < 0.001:
        return "<0.001 s"
    if seconds < 60:
        return f"{seconds:.2g} s" if seconds < 10 else f"{seconds:.0f} s"
    minutes, seconds = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {seconds:02d} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min"


def below(alpha_hat: float | None, delta: float | None) -> str:
    """Write an α̂ below the resolution δ as that: less is not seen; empty elsewhere."""
    if alpha_hat is None or delta is None or alpha_hat >= delta:
        return ""
    return f"< {fixed(delta, 2)}" if delta >= 0.01 else f"< {delta:.1g}"


def fixed(value: float, places: int = 4) -> str:
    """Write a number with fixed decimals, alike however its terms were added up.

    0.86375 as a mean is 0.8637499999999999 in one order of its terms: such an error is rounded
    away first, or the same mean would be 0.8637 in one table and 0.8638 in another.
    """
    return f"{round(value, _EXACT):.{places}f}"


def signed(value: float, places: int = 4) -> str:
    """Write a difference as `fixed` does, with its sign."""
    return f"{round(value, _EXACT):+.{places}f}"


EQUAL = 1e-12  # the standard deviation of equal values, rounded
_EXACT = 12  # decimals beyond which the order of terms decides


def masked(values: Any) -> int:
    """Return how many values of a NumPy array, or of arrays in a list, are masked."""
    import numpy as np

    if isinstance(values, np.ma.MaskedArray):
        return int(np.count_nonzero(np.ma.getmaskarray(values)))
    return sum(map(masked, values)) if isinstance(values, list | tuple) else 0
