"""Deep ensemble equivalent: how many independent models a prediction is worth."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Real = NDArray[np.float64]
Spread = Literal["draws", "independent"]

LESS_IS_BETTER = (
    *("error", "brier", "brier_per_class", "ece", "tace", "aurc"),
    *("c_brier", "c_ece", "c_tace", "c_aurc"),
)
COMPARABLE = ("cll", "log_likelihood", *LESS_IS_BETTER)
"""Metrics by which models can be compared."""


@dataclass(frozen=True, slots=True)
class Equivalent:
    """How many models an equally good deep ensemble has; None if more than there are.

    Attributes
    ----------
    dee : float or None
        From the mean over the ensembles of each size.
    lower, upper : float or None
        From a mean that is one standard deviation better, or worse.
    """

    dee: float | None
    lower: float | None
    upper: float | None


def equivalent(value: float, mean: Real, std: Real, *, less_is_better: bool) -> Equivalent:
    """Return the deep ensemble equivalent of a value (PIT, eq. 5).

    DEE = min{l ≥ 1 : μ(l) ≥ value}, μ linear between natural numbers: the first crossing, even if
    μ is not monotone. PIT's published code keeps one pointer into the curve for all values, so that
    DEE can never fall, and returns the largest size if none reaches the value.

    Parameters
    ----------
    value : float
    mean, std : float array (M,)
        Over the ensembles of 1…M models; bounds are unknown where `std` is NaN.
    less_is_better : bool
    """
    sign = -1.0 if less_is_better else 1.0
    mean = sign * mean
    return Equivalent(
        _crossing(sign * value, mean),
        _crossing(sign * value, mean + std),
        _crossing(sign * value, mean - std),
    )


def _crossing(value: float, curve: Real) -> float | None:
    reached = np.flatnonzero(curve >= value)
    if reached.size == 0:
        return None
    first = int(reached[0])
    if first == 0:
        return 1.0
    before, here = curve[first - 1], curve[first]
    if not np.isfinite(before):
        return first + 1.0
    return float(first + (value - before) / (here - before))


def size_for(share: float, mean: Real) -> float | None:
    """Return how many models give a share of the gain of all over one; None if there is no gain.

    `mean`, a float array (M,), is over the ensembles of 1…M models; larger is better.
    """
    gain = mean[-1] - mean[0]
    return _crossing(mean[0] + share * gain, mean) if gain > 0 else None


def spread(std: Real, kind: Spread) -> Real:
    """Return the standard deviation for the bounds.

    Draws share a pool of M models, so ensembles of l models differ less than independent ones, by a
    factor of about √(1 - l/M). ``"independent"`` divides by it for l ≤ M/2 and gives NaN beyond;
    ``"draws"``, as in the source, returns `std` unchanged.
    """
    if kind == "draws":
        return std
    size, pool = np.arange(1, std.size + 1), std.size
    factor = np.where(size <= pool / 2, np.sqrt(1 - np.minimum(size / pool, 0.5)), np.nan)
    return np.asarray(std / factor)
