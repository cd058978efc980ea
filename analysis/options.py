"""Which metrics are computed, and by which conventions."""

from __future__ import annotations

import math
from dataclasses import dataclass

DEFAULT_METRICS = ("accuracy", "agreement", "alpha_hat")


@dataclass(frozen=True, slots=True)
class Options:
    """Conventions of one analysis; equal options and predictions give equal tables, bit for bit.

    Attributes
    ----------
    metrics : tuple of str
        Names of the metrics to compute (`analysis.metrics.METRICS`).
    epoch : int
        Position on the epoch axis; negative counts from the last.
    empty_union : float
        Local error consistency of two runs that make no error at all: NaN (undefined, null in the
        tables), 0 or 1.
    epsilon : float
        Probability that the threshold δ of α̂ is exceeded by chance.
    resamples : int
        Random splits of a test set for α̂ (B); 100 in the authors' code (RKS).
    max_pair_runs : int
        Pairs of a repeat are listed up to this many runs; above it they are only summarised.
    block_bytes : int
        Predictions that one task loads, in bytes; a larger repeat is loaded alone.
    """

    metrics: tuple[str, ...] = DEFAULT_METRICS
    epoch: int = -1
    empty_union: float = math.nan
    epsilon: float = 0.01
    resamples: int = 100
    max_pair_runs: int = 200
    block_bytes: int = 64_000_000

    def __post_init__(self) -> None:
        """Refuse what has no meaning."""
        if not (math.isnan(self.empty_union) or self.empty_union in (0.0, 1.0)):
            raise ValueError(f"empty_union is {self.empty_union!r}; it can be nan, 0 or 1")
        if not 0 < self.epsilon < 1:
            raise ValueError(f"epsilon is {self.epsilon!r}; it lies between 0 and 1")
        if self.resamples < 2:
            raise ValueError(f"resamples is {self.resamples!r}; at least 2 are needed")
        if self.max_pair_runs < 0:
            raise ValueError(f"max_pair_runs is {self.max_pair_runs!r}; it can't be negative")
        if self.block_bytes < 1:
            raise ValueError(f"block_bytes is {self.block_bytes!r}; it must be positive")
