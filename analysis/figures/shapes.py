"""The shapes of several values: the outline of a violin, or dots side by side."""

from __future__ import annotations

import numpy as np
from matplotlib.mlab import GaussianKDE
from numpy.typing import NDArray

Real = NDArray[np.float64]

FEWEST = 6  # fewest values of a violin
DOTTED = 30  # most values drawn as dots
OUTLINE = 24  # points on each side of a violin


def outline(values: Real, y: float, height: float = 0.45) -> Real | None:
    """Return the outline of a violin at y: (point, 2); None if the ascending values are equal."""
    if values[0] == values[-1]:
        return None
    over = np.linspace(values[0], values[-1], OUTLINE)
    density = GaussianKDE(values).evaluate(over)
    up = height * density / density.max()
    return np.column_stack(
        [
            np.concatenate([over, over[::-1], over[:1]]),
            np.concatenate([y - up, (y + up)[::-1], y - up[:1]]),
        ]
    )


def scattered(n: int) -> Real:
    """Return offsets that fill a row evenly and without randomness; 0 for a single value."""
    if n == 1:
        return np.zeros(1)
    golden = (np.sqrt(5) - 1) / 2
    return np.asarray(0.6 * ((np.arange(1, n + 1) * golden) % 1 - 0.5))
