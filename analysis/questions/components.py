"""Variances estimated from each repeat, and intervals of their mean.

Of two intervals the wider counts. One assumes that runs differ equally on every test set: χ² for a
variance, `difference_limits` for a covariance, t with the jackknife over runs for the rest. The
other is the t interval over repeats, which also holds if test sets, or what is held fixed on each,
matter. With two repeats it is extremely wide: it is used only if they differ by more than the
jackknife expects, and the first counts both repeats as one. Quantities that cannot be negative have
intervals on the scale of the logarithm, which is less skewed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from manyseed.analysis.questions.quantiles import chi2_quantile, f_quantile, t_quantile

_ROUNDING = 1e-15  # equal values below 1 may seem to differ by this much

FEWEST_COMPARED = 3  # repeats that show whether variances differ

Real = NDArray[np.float64]
Kind = Literal["variance", "positive", "covariance", "other"]
Limits = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Estimates:
    """An unbiased estimate from each repeat.

    Attributes
    ----------
    own : float array (repeat,)
    left_out : tuple of float arrays (run,), one per repeat
        The estimate without each run.
    """

    own: Real
    left_out: tuple[Real, ...]

    @property
    def freedom(self) -> Real:
        """Runs of each repeat minus one."""
        return np.array([values.size - 1.0 for values in self.left_out])

    @property
    def weights(self) -> Real:
        """Weight of each repeat: its share of the degrees of freedom."""
        result: Real = self.freedom / self.freedom.sum()
        return result

    @property
    def value(self) -> float:
        """Mean over repeats."""
        return float(self.weights @ self.own)

    @property
    def within(self) -> float:
        """Variance of `value` by the jackknife over runs."""
        each = [(1 - 1 / one.size) * np.square(one - one.mean()).sum() for one in self.left_out]
        return float(self.weights**2 @ np.array(each))

    @property
    def between(self) -> float:
        """Variance of `value` from the differences between repeats; 0 with one repeat."""
        n = self.own.size
        squares = float(self.weights**2 @ np.square(self.own - self.value))
        return squares * n / (n - 1) if n > 1 else 0.0

    @property
    def unequal(self) -> float:
        """Standard deviation over repeats of the log variance, beyond that of normal values."""
        known = (self.own > 0) & (self.freedom > 0)
        if known.sum() < FEWEST_COMPARED:
            return 0.0
        half = self.freedom[known] / 2
        sampling = (1 / half + 1 / (2 * half**2) + 1 / (6 * half**3)).mean()  # trigamma
        return float(max(np.log(self.own[known]).var(ddof=1) - sampling, 0.0) ** 0.5)

    def plus(self, other: Estimates, times: float = 1.0) -> Estimates:
        """Return self + times · other, estimated from the same runs."""
        pairs = zip(self.left_out, other.left_out, strict=True)
        left_out = tuple(first + times * second for first, second in pairs)
        return Estimates(self.own + times * other.own, left_out)

    def limits(self, confidence: float, kind: Kind, scale: Limits | None = None) -> Limits:
        """Return the confidence interval.

        Parameters
        ----------
        confidence : float
        kind : Kind
        scale : (float, float) or None
            For a covariance: the mean squares of the sum and the difference of the standardized
            sides, times the product of their standard deviations.
        """
        n = self.own.size
        share = 1 / 2 if n == 2 else 1.0
        value, freedom, within = self.value, share * float(self.freedom.sum()), self.within / share
        tail = (1 - confidence) / 2
        if kind == "variance":
            low, high = (freedom * value / chi2_quantile(freedom, p) for p in (1 - tail, tail))
        elif scale is not None:
            plus, minus = (mean / 4 for mean in scale)
            low, high = difference_limits(plus, freedom, minus, freedom, confidence)
        else:
            low, high = _around(value, t_quantile(freedom, 1 - tail) * within**0.5, kind)
        if n > 2 or (n > 1 and self.between > self.within):
            ends = _around(value, t_quantile(n - 1, 1 - tail) * self.between**0.5, kind)
            low, high = min(low, ends[0]), max(high, ends[1])
        return float(low), float(high)


def _around(value: float, half: float, kind: Kind) -> Limits:
    if kind in ("variance", "positive") and value > 0:
        with np.errstate(over="ignore"):
            return float(value * np.exp(-half / value)), float(value * np.exp(half / value))
    return value - half, value + half


def covariances(one: Sequence[Real], two: Sequence[Real]) -> tuple[Estimates, Limits]:
    """Estimate the covariance between two cells over runs that share streams.

    Parameters
    ----------
    one, two : sequence of float arrays (run,)
        One per repeat, of three runs or more each, in the same order.

    Returns
    -------
    Estimates
    tuple of float
        The `scale` of `Estimates.limits`. Equal sides give the variance.
    """
    own, left_out = [], []
    for x, y in zip(one, two, strict=True):
        products = (x - x.mean()) * (y - y.mean())
        n = x.size
        own.append(products.sum() / (n - 1))
        left_out.append((products.sum() - n / (n - 1) * products) / (n - 2))
    freedom = np.array([x.size - 1.0 for x in one])

    def pooled(values: Sequence[Real]) -> float:
        each = np.array([x.var(ddof=1) for x in values])
        return float(freedom @ each / freedom.sum())

    scales = pooled(one) ** 0.5, pooled(two) ** 0.5
    if min(scales) <= _ROUNDING:
        return Estimates(np.array(own), tuple(left_out)), (0.0, 0.0)
    product = scales[0] * scales[1]
    plus, minus = (
        product
        * pooled([x / scales[0] + sign * y / scales[1] for x, y in zip(one, two, strict=True)])
        for sign in (1, -1)
    )
    return Estimates(np.array(own), tuple(left_out)), (plus, minus)


def difference_limits(
    one: float, freedom_1: float, two: float, freedom_2: float, confidence: float
) -> Limits:
    """Return the interval of the difference between two expected mean squares.

    Modified large-sample limits of Ting, Burdick, Graybill, Jeyaratnam and Lu (1990), which are
    exact if either is 0, and may be negative.

    Parameters
    ----------
    one, two : float
        Independent multiples of χ² with the degrees of freedom below; not both 0.
    freedom_1, freedom_2 : float
    confidence : float
    """
    tail, value = (1 - confidence) / 2, one - two

    def side(p: float) -> float:
        first = 1 - freedom_1 / chi2_quantile(freedom_1, p)
        second = freedom_2 / chi2_quantile(freedom_2, 1 - p) - 1
        ratio = f_quantile(freedom_1, freedom_2, p)
        both = ((ratio - 1) ** 2 - (first * ratio) ** 2 - second**2) / ratio
        squares = (first * one) ** 2 + (second * two) ** 2 + both * one * two
        return float(max(squares, 0.0) ** 0.5)

    return value - side(1 - tail), value + side(tail)
