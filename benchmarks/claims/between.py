"""Are A's runs like B's: α̂ and error consistency between two groups of runs."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache

import numpy as np

from benchmarks.claims.record import Claim, Tally, interval, miss
from manyseed.analysis.questions.likeness import (
    AlphaHatBetween,
    ConsistencyBetween,
    alpha_hat_between,
    consistency_between,
)
from tests.analysis.planted import two_groups, wrong_points

CONTAMINATED = 0.3
ALPHA = 0.2688
"""α̂ of so much contamination, mean of 60 pairs of groups."""


@cache
def alpha(seed: int, contaminated: float) -> AlphaHatBetween:
    """Return α̂ of 3 runs of A against 4 of B on 4,400 points, of which a share of A's moved."""
    a, b = two_groups((3, 4), 4400, contaminated, seed)
    return alpha_hat_between([a], [b], resamples=10, bootstrap=40)


def _alike(contaminated: float, pattern: str) -> Callable[[int], Tally]:
    return lambda seed: Tally(bool(re.search(pattern, alpha(seed, contaminated).words)))


def _alpha_interval(seed: int) -> Tally:
    found = alpha(seed, CONTAMINATED)
    return Tally(miss(found.low, ALPHA, found.high))


@cache
def errors(seed: int, apart: float) -> ConsistencyBetween:
    """Return the error consistency of 6 runs of A with 6 of B on 1,000 points."""
    return consistency_between(*([one] for one in wrong_points((6, 6), apart, seed=seed)))


def _unlike(apart: float) -> Callable[[int], Tally]:
    return lambda seed: Tally("A's errors are unlike B's:" in errors(seed, apart).words)


def _consistency(seed: int) -> Tally:
    """Return whether the interval misses what pairs of so hard points have on average."""
    hard = np.random.default_rng(seed).beta(0.3, 2, 1000)  # as `wrong_points` draws them
    both, either = hard**2, hard * (2 - hard)
    truth = both.sum() / either.sum()
    # of a ratio of two sums, to second order
    truth *= 1 + (either @ (1 - either)) / either.sum() ** 2
    truth -= (both @ (1 - either)) / either.sum() ** 2
    found = errors(seed, 0.0)
    if found.low is None or found.high is None:
        return Tally(0, 0)
    return Tally(miss(found.low, truth, found.high))


_GROUPS = "3 runs of A and 4 of B of one distribution, 4,400 points"
_MOVED = "0.3 of A's scores elsewhere"

CLAIMS: tuple[Claim, ...] = (
    Claim(
        "A's runs are unlike B's (α̂ = 0.27; or: cannot be told)",
        "compare --alike",
        r"Whether A's runs are like B's cannot be told|rom below to$|"
        r"for new test points\); \{\} of|"
        r"^A's runs are unlike B's$",
        0.05,
        "comparisons",
        _alike(0.0, "^A's runs are unlike"),
        _alike(CONTAMINATED, "^A's runs are unlike"),
        _GROUPS,
        _MOVED,
    ),
    Claim(
        "A's runs are like B's",
        "compare --alike",
        r"for new test points\); \{\} of|differences up to about {} are not seen",
        0.05,
        "comparisons",
        _alike(CONTAMINATED, "^A's runs are like"),
        _alike(0.0, "^A's runs are like"),
        _MOVED,
        _GROUPS,
    ),
    interval(
        "… α̂ = 0.27 (0.26 to 0.28) between A and B",
        "compare --alike",
        r"for new test points\); \{\} of",
        _alpha_interval,
        lambda seed: Tally(alpha(seed, CONTAMINATED).low > 0.05),
        _MOVED,
        "excludes 0.05",
    ),
    Claim(
        "A's errors are unlike B's (or: not seen)",
        "compare --alike",
        r"A's errors are unlike B's|whether A errs where B does not",
        0.025,
        "comparisons",
        _unlike(0.0),
        _unlike(0.3),
        "6 runs of each err on the same points, 1,000 of them",
        "a third of B's points are others",
    ),
    interval(
        "Local error consistency between A and B is 0.31 (0.30 to 0.33)",
        "compare --alike",
        r"Local error consistency between A and B",
        _consistency,
        lambda seed: Tally((errors(seed, 0.3).high or 1.0) < (errors(seed, 0.3).within_a or 0.0)),
        "6 runs of each err on the same points",
        "a third of B's points are others: excludes that within A",
    ),
)
