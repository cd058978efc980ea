"""Reading what SLURM prints: lists of array elements, numbers, states, generic resources.

None of these functions fails: SLURM cuts long texts, sites add lines, versions differ. What cannot
be read is named once per process by a warning, and left out.
"""

from __future__ import annotations

import re
import warnings

CUT = "..."
"""Ends a list that SLURM has cut."""

_SPAN = re.compile(r"(\d+)(?:-(\d+)(?::(\d+))?)?")
_NUMBER = re.compile(r"(\d+(?:\.\d+)?)([KMGT]?)\+?")
_FACTORS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}
_MOST_ELEMENTS = 10_000_000
_named: set[str] = set()


def unreadable(what: str, text: str) -> None:
    """Warn once per process that a text of SLURM's was not understood."""
    if text not in _named:
        _named.add(text)
        warnings.warn(f"SLURM says {text!r} for {what}, which is not understood", stacklevel=3)


def number(text: str, what: str) -> int | None:
    """Return a count such as ``48``, ``2K`` (2,048) or ``16000+`` (at least); None for others."""
    match = _NUMBER.fullmatch(text.strip())
    if match is None:
        unreadable(what, text)
        return None
    return round(float(match[1]) * _FACTORS[match[2]])


def elements(text: str) -> tuple[list[int], bool]:
    """Return the numbers of a list such as ``0,2,4-7,10-18:4%2``, and whether SLURM has cut it.

    Spans may have a step; ``%`` precedes the number of elements that may run at once. A cut list
    ends with `CUT`, and the number before it may be cut, too, so it is left out.
    """
    spans = text.partition("%")[0].split(",")
    is_cut = any(CUT in span for span in spans)
    found: list[int] = []
    for span in spans:
        match = _SPAN.fullmatch(span)
        if match is None:
            if CUT not in span:
                unreadable("the elements of an array", text)
            continue
        low, high, step = int(match[1]), int(match[2] or match[1]), int(match[3] or 1)
        if step < 1 or high - low > _MOST_ELEMENTS:
            unreadable("the elements of an array", text)
            continue
        found += range(low, high + 1, step)
    return found, is_cut


def n_gpus(gres: str) -> int:
    """Return the number of GPUs of a node: 6 for ``gpu:a100:4(S:0-1),gpu:a40:2``, 1 for ``gpu``."""
    total = 0
    for kind in re.sub(r"\(.*?\)", "", gres).split(","):
        name, *more = kind.strip().split(":")
        if name == "gpu":
            total += int(more[-1]) if more and more[-1].isdigit() else 1
    return total
