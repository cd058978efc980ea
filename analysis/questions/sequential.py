"""Whether a cell has enough runs, asked while runs are added.

A confidence sequence covers the mean at all numbers of runs
at once, so one may look after each block of runs and stop as soon as the interval is narrow enough.
A sequence that is equally good at every number of runs is expensive (2.4 times as many runs as an
interval at a number fixed in advance, with known variance). Here the precision is fixed in advance,
so most of the error is spent where it is reached. The sequence combines two, which miss with
probability .8 α and .2 α:

1. At the first look n at which t(n - 1) s / √n is at most the half-width h asked for, the mean is
   frozen: mean_n ± h, from then on (Chow and Robbins 1965, with quantiles of Student's t). When to
   stop depends on the standard deviations s alone, which for normal values are independent of the
   mean (Anscombe 1953). Stopping when s is small by chance adds little to .8 α, which the tests
   measure.
2. At every n: the t-test's confidence sequence, with a normal prior on the standardized mean
   (Lai 1976; Wang and Ramdas 2025, section 4): the means whose Bayes factor (Gönen et al. 2005) is
   below 1 / (.2 α). The Bayes factor is a martingale, so Ville's inequality bounds the probability
   that the true mean is ever excluded.

Both assume independent, approximately normal values. Values on a grid, such as accuracies, may
agree by chance, so s is at least that of rounding to the grid (step / √12).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from manyseed.analysis.options import CONFIDENCE
from manyseed.analysis.questions import quantiles
from manyseed.analysis.questions.intervals import skewness_of

Real = NDArray[np.float64]

FIRST = 10  # runs before the first look: few runs hardly show how much they differ
BLOCK = 10  # runs between looks
_AT_TARGET = 0.8  # share of the error spent where the precision is reached
_TUNED = 30  # number of runs at which the second sequence is narrowest


@dataclass(frozen=True, slots=True)
class Decision:
    """What is known of a cell after some runs.

    `runs`: number of runs at the last look. `mean`: of these runs; if they are enough, the last
    look is the one that reached the precision. `low` and `high`: the interval; infinite before the
    first look. `enough`: number of runs at which the precision was reached; None if it was not.
    `predicted`: about how many runs it takes, judged from how much they differ so far. `skewness`:
    of the values at the last look.
    """

    runs: int
    mean: float
    low: float
    high: float
    enough: int | None
    predicted: int | None
    skewness: float = 0.0

    @property
    def half_width(self) -> float:
        """Half-width of the interval."""
        return (self.high - self.low) / 2


def running(n: int, std: float, alpha: float) -> float:
    """Return the half-width of the t-test's confidence sequence after n ≥ 2 values.

    The Bayes factor of the mean μ, with t = √n (mean - μ) / std, ν = n - 1 and a N(0, g) prior on
    the standardized mean, is (1 + n g)^(-1/2) ((1 + t²/ν) / (1 + t²/(ν (1 + n g))))^(n/2); the
    interval is where it is below 1 / alpha. Infinite if n is too small to exclude any mean.

    `std`: standard deviation of the values (n - 1). `alpha`: probability that the true mean is ever
    excluded.
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
    """Look at the values after the first `first` of them and after every further `block`.

    A decision made with fewer values stands: more values do not change it.

    `values`, float array (run,): independent values in the order in which they were made.
    `half_width`: the precision (±) asked for. `confidence`: probability that the interval contains
    the mean at all looks. `step`: step of the grid that values lie on; 0 without a grid.
    """
    if not half_width > 0:
        raise ValueError(f"± {half_width!r} has no answer; it must be positive")
    alpha = 1 - confidence
    quantile = 1 - _AT_TARGET * alpha / 2
    skewness, looked, mean, predicted = (
        0.0,
        0,
        float(values.mean()) if values.size else math.nan,
        None,
    )
    low, high = -math.inf, math.inf
    for n in range(first, values.size + 1, block):
        seen = values[:n]
        looked, mean, skewness = n, float(seen.mean()), skewness_of([seen])
        std = max(float(seen.std(ddof=1)), step / math.sqrt(12))
        wide = running(n, std, (1 - _AT_TARGET) * alpha)
        low, high = max(low, mean - wide), min(high, mean + wide)
        reached = float(quantiles.t_quantile(n - 1, quantile)) * std / math.sqrt(n)
        if reached <= half_width:
            low, high = max(low, mean - half_width), min(high, mean + half_width)
            return Decision(n, mean, low, high, n, n, skewness)
        predicted = math.ceil(n * (reached / half_width) ** 2)
        if high - low <= 2 * half_width:  # the second sequence got there first
            return Decision(n, mean, low, high, n, n, skewness)
    return Decision(looked, mean, low, high, None, predicted, skewness)
