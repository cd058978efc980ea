"""Colours and markers of groups, which colour-blind readers can distinguish."""

from __future__ import annotations

# Okabe and Ito 2008, without black and yellow.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00")
# Beyond six groups, colours repeat with another marker.
MARKERS = ("o", "s", "^", "D", "v", "P")
GREY = "#808080"


def colour(index: int) -> str:
    """Return the colour of the group with this index."""
    return COLOURS[index % len(COLOURS)]


def marker(index: int) -> str:
    """Return the marker of the group with this index; it changes each time colours repeat."""
    return MARKERS[index // len(COLOURS) % len(MARKERS)]
