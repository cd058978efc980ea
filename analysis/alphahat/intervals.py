"""An interval for α̂ over new test points: a bootstrap over points, the splits nested within it.

A bootstrap sample of the test points is split like the test set itself, a few times (`SPLITS`), and
α̂ taken of each. The plain percentile interval fails near 0: α̂ of a sample is larger than α̂, as α̂
is larger than the level at endless points, for noise separates eCDFs, and a sample has more of it.
So the shift of the bootstrap is taken off at the lower end, as in the basic interval, and not at
the upper end; both use the larger of the two deviations, since α̂ varies more where it is larger.

Means over few splits vary more than α̂ over test points does, which is left as a margin. Where the
resamples of α̂ itself are as few, deviations are scaled up to the variance over test points (what
differs between samples more than their splits explain: one-way analysis of variance) plus the
Monte-Carlo error of α̂.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from manyseed.analysis.alphahat.resampling import Resamples

Real = NDArray[np.float64]

SPLITS = 4
"""Of each bootstrap sample."""


def composed(bits: np.random.PCG64, n_test: int, split: Resamples) -> Resamples:
    """Return the resamples of a bootstrap sample, as counts of the test points.

    Parameters
    ----------
    bits : PCG64
        Draws the sample: `n_test` points with replacement.
    n_test : int
    split : Resamples
        Of the places of a sample.
    """
    points = (bits.random_raw(n_test) % np.uint64(n_test)).astype(np.int64)

    def counted(sides: NDArray[np.uint8]) -> NDArray[np.uint8]:
        counts = [np.bincount(points, weights=side, minlength=n_test) for side in sides]
        return np.stack(counts).astype(np.uint8)

    return Resamples(counted(split.candidate), counted(split.reference), split.n_side)


def joined(parts: list[Resamples]) -> Resamples:
    """Return the resamples of several samples, one sample after the other."""
    return Resamples(
        np.concatenate([part.candidate for part in parts]),
        np.concatenate([part.reference for part in parts]),
        parts[0].n_side,
    )


def interval(levels: Real, bootstrapped: Real, confidence: float) -> tuple[Real, Real]:
    """Return the ends of the interval of each candidate.

    Parameters
    ----------
    levels : float64 array (candidate, resample)
        Levels of the test set's resamples; α̂ is their mean.
    bootstrapped : float64 array (candidate, sample × SPLITS)
        Levels of the splits of bootstrap samples, one sample after the other.
    confidence : float

    Returns
    -------
    float64 arrays (candidate,)
        Lower and upper end, within 0 and 1; NaN where levels are.
    """
    centre = levels.mean(axis=1)
    of_splits = levels.var(axis=1, ddof=1) / levels.shape[1]
    split: NDArray[Any] = bootstrapped.reshape(len(levels), -1, SPLITS)
    means = split.mean(axis=2)
    between, within = means.var(axis=1, ddof=1), split.var(axis=2, ddof=1).mean(axis=1)
    over_points = np.maximum(between - within / SPLITS, 0)
    scale = np.sqrt((over_points + of_splits) / np.where(between > 0, between, 1)).clip(min=1)
    shift = means.mean(axis=1) - centre
    tail = (1 - confidence) / 2
    low, high = np.quantile(means, [tail, 1 - tail], axis=1) - means.mean(axis=1)
    deviation = np.maximum(high, -low) * scale
    lower = centre - np.maximum(shift, 0) - deviation
    upper = centre + np.maximum(-shift, 0) + deviation
    return np.clip(lower, 0, 1), np.clip(upper, 0, 1)
