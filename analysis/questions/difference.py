"""How many runs of each of two classifiers tell a difference between them, on one test set.

Both vary like the cell in question, and have n runs each that share no streams. The difference of
their means then has the variance 2 s² / n, with 2 (n - 1) degrees of freedom. Its interval is ± d
from the smallest n on with t(0.975; 2n - 2) · s · √(2 / n) ≤ d. The t test tells a true difference
of d in a share `POWER` of such experiments from about the smallest n on with
(t(0.975; 2n - 2) + t(0.8; 2n - 2)) · s · √(2 / n) ≤ d.
"""

from __future__ import annotations

from collections.abc import Iterator

from manyseed.analysis.questions.intervals import t_quantile

POWER = 0.8
_TOLD = "telling a difference of {:g} between two such in {:g} % of cases"


def purposes(difference: float) -> Iterator[tuple[str, bool]]:
    """Yield what runs are needed for, and whether it takes power."""
    yield f"a difference of two such ± {difference:g}", False
    yield _TOLD.format(difference, 100 * POWER), True


def of_two(confidence: float, power: bool, variance: float, n: int) -> float:
    """Return the variance of a difference of two means of n runs, from that of a run.

    It is scaled so that n - 1 degrees of freedom, as of one mean, give the same half-width.
    """
    quantile = t_quantile(confidence, 2 * n - 2)
    if power:
        quantile += t_quantile(2 * POWER - 1, 2 * n - 2)
    return 2 * variance / n * (quantile / t_quantile(confidence, n - 1)) ** 2
