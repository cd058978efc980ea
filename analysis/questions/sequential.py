"""When has a cell enough runs: an interval for a mean that holds at every number of runs.

A confidence sequence covers the mean at all numbers of runs at once, so that one may look after
each block of runs and stop whenever the interval is narrow enough. One that is as good at every
number of runs pays for it (2.4 times as many runs as an interval of a number fixed beforehand with
known variance). Here the precision is asked for before, so most of the error is spent where that is
reached; the sequence is made of two, which miss with probability .8 α and .2 α:

1. At the first look n at which t(n - 1) s / √n is at most the half width h asked for, the mean is
   frozen: mean_n ± h, from then on (Chow and Robbins 1965, with quantiles of Student's t). When to
   stop depends on the standard deviations s alone, and for normal values these are independent of
   the mean (Anscombe 1953). That s is small by chance when one stops adds little to .8 α, which the
   tests measure.
2. At every n: the t-test's confidence sequence, with a normal prior of the standardized mean
   (Lai 1976; Wang and Ramdas 2025, section 4): those means whose Bayes factor (Gönen et al. 2005)
   is below 1 / (.2 α). It is a martingale, so that Ville's inequality bounds the probability that
   it ever excludes the true mean.

Both assume independent values that are about normal. Values on a grid, such as accuracies, may
agree by chance: s is never taken to be less than that of rounding to the grid (step / √12).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.stats import t

from manyseed.analysis.options import CONFIDENCE

Real = NDArray[np.float64]

FIRST = 10  # runs before the first look: of few runs it is hardly known how much they differ
BLOCK = 10  # runs between looks
_AT_TARGET = 0.8  # share of the error that is spent where the precision is reached
_TUNED = 30  # runs at which the second part is narrowest


@dataclass(frozen=True, slots=True)
class Decision:
    """What is known of a cell after some runs.

    Attributes
    ----------
    runs : int
        How many were looked at: the last look.
    mean : float
        Of all of them; where it is enough, of those at which it became so.
    low, high : float
        The interval; infinite before the first look.
    enough : int or None
        After how many runs the precision was reached; None where it was not.
    predicted : int or None
        About how many it takes, from how much runs differ so far.
    """

    runs: int
    mean: float
    low: float
    high: float
    enough: int | None
    predicted: int | None

    @property
    def half_width(self) -> float:
        """Half the width of the interval."""
        return (self.high - self.low) / 2


def running(n: int, std: float, alpha: float) -> float:
    """Return the half width of the t-test's confidence sequence after n ≥ 2 values.

    The Bayes factor of the mean μ, with t = √n (mean - μ) / std, ν = n - 1 and a N(0, g) prior of
    the standardized mean, is (1 + n g)^(-1/2) ((1 + t²/ν) / (1 + t²/(ν (1 + n g))))^(n/2); the
    interval is where it is below 1 / alpha. Infinite where n is too small to exclude anything.

    Parameters
    ----------
    n : int
    std : float
        Standard deviation of the values (n - 1).
    alpha : float
        Probability that the true mean is ever excluded.
    """
    level = -2 * math.log(alpha)
    more = 1 + n * (level + math.log(level) + 1) / _TUNED
    ratio = math.exp((math.log(more) + level) / n)  # ((1 + x) / (1 + x / more)) at the limit
    if ratio >= more:
        return math.inf
    return std * math.sqrt((ratio - 1) / (1 - ratio / more) * (n - 1) / n)


def decide(
    values: Real,
    half_width: float,
    *,
    confidence: float = CONFIDENCE,
    first: int = FIRST,
    block: int = BLOCK,
    step: float = 0.0,
) -> Decision:
    """Look at what there is, after `first` values and every `block` more.

    What was decided with fewer values is decided again: more of them change nothing.

    Parameters
    ----------
    values : float array (run,)
        In the order in which they were made; independent of each other.
    half_width : float
        The precision asked for: ±.
    confidence : float
        That the interval holds the mean at all looks at once.
    first, block : int
    step : float
        Of the grid on which values lie; 0 where they lie on none.
    """
    if not half_width > 0:
        raise ValueError(f"± {half_width!r} has no answer; it must be positive")
    alpha = 1 - confidence
    quantile = 1 - _AT_TARGET * alpha / 2
    seen, mean, predicted = 0, float(values.mean()) if values.size else math.nan, None
    low, high = -math.inf, math.inf
    for n in range(first, values.size + 1, block):
        own = values[:n]
        seen, mean = n, float(own.mean())
        std = max(float(own.std(ddof=1)), step / math.sqrt(12))
        wide = running(n, std, (1 - _AT_TARGET) * alpha)
        low, high = max(low, mean - wide), min(high, mean + wide)
        reached = float(t.ppf(quantile, n - 1)) * std / math.sqrt(n)
        if reached <= half_width:
            low, high = max(low, mean - half_width), min(high, mean + half_width)
            return Decision(n, mean, low, high, n, n)
        predicted = math.ceil(n * (reached / half_width) ** 2)
        if high - low <= 2 * half_width:  # the second part got there before
            return Decision(n, mean, low, high, n, n)
    return Decision(seen, mean, low, high, None, predicted)
