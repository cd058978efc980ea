"""The distribution of very many values, added up from parts in any order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from manyseed.analysis.metrics.summaries import QUANTILES

UNIT = 2.0**-40  # sums are whole multiples of this, so that the order of adding changes no bit
BINS = 1 << 13  # over [-1, 1]: a bin is 1/4096 wide


@dataclass(frozen=True, slots=True)
class Spread:
    """Count, sum, extremes and histogram of values between -1 and 1.

    Attributes
    ----------
    n : int
        Number of defined values.
    total : int
        Their sum in units of 2**-40.
    low, high : float
    histogram : int64 array (8192,)
        Counts in bins of equal width over [-1, 1].
    scale : float
        Factor of every summary except the count.
    """

    n: int
    total: int
    low: float
    high: float
    histogram: NDArray[np.int64]
    scale: float = 1.0

    @classmethod
    def of(cls, values: NDArray[np.floating[Any]]) -> Spread:
        """Describe the values that are not NaN."""
        defined = values[~np.isnan(values)]
        if defined.size == 0:
            return cls(0, 0, np.inf, -np.inf, np.zeros(BINS, dtype=np.int64))
        bins = np.minimum(((defined + 1) * (BINS / 2)).astype(np.int64), BINS - 1)
        return cls(
            n=int(defined.size),
            total=int(np.rint(defined / UNIT).astype(np.int64).sum()),
            low=float(defined.min()),
            high=float(defined.max()),
            histogram=np.bincount(bins, minlength=BINS),
        )

    def __add__(self, other: Spread) -> Spread:
        return Spread(
            self.n + other.n,
            self.total + other.total,
            min(self.low, other.low),
            max(self.high, other.high),
            self.histogram + other.histogram,
        )

    def scaled(self, scale: float) -> Spread:
        """Return the distribution of the values times `scale`."""
        return replace(self, scale=self.scale * scale)

    def summary(self, names: Sequence[str]) -> dict[str, float]:
        """Summarise the values as `analysis.metrics.summaries.summarise` does.

        Quantiles are exact to half a bin, 1/8192; the standard deviation is NaN.
        """
        if self.n == 0:
            return {name: 0.0 if name == "n" else np.nan for name in names}
        known = {
            "mean": self.low if self.low == self.high else self.total * UNIT / self.n,
            "min": self.low,
            "max": self.high,
            "range": self.high - self.low if self.n > 1 else np.nan,
            **{name: self._quantile(level) for name, level in QUANTILES.items()},
        }
        return {
            name: float(self.n) if name == "n" else known.get(name, np.nan) * self.scale
            for name in names
        }

    def _quantile(self, level: float) -> float:
        """Interpolate between the two neighbouring values, as NumPy does by default."""
        rank = level * (self.n - 1)
        below, above = (self._ordered(k) for k in (int(rank), min(int(rank) + 1, self.n - 1)))
        return below + (above - below) * (rank - int(rank))

    def _ordered(self, index: int) -> float:
        """Return the value at this index in ascending order, exact to half a bin."""
        bin_ = np.searchsorted(np.cumsum(self.histogram), index, side="right")
        return float(np.clip((bin_ + 0.5) * (2 / BINS) - 1, self.low, self.high))
