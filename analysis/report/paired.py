"""What metrics of two runs measure, in the words of the page and of a methods section."""

from __future__ import annotations

import math
from collections.abc import Collection

from manyseed.analysis.options import Options

ALPHA_HAT = "alpha_hat"
PAIRED = ("ec_local", "ec_global", "churn", ALPHA_HAT)
"""Metrics that compare runs."""

_BOTH = "the number of test points that both runs of a pair get wrong, divided by "
_NO_MEASURE = "all test points, so it does not measure disagreement"


def in_words(options: Options, metrics: Collection[str] = PAIRED) -> str:
    """Say what these metrics of equal errors and labels are, α̂ aside; empty if they are none."""
    local, of_all, churn = (name in metrics for name in PAIRED[:3])
    told = []
    if local:
        told.append(f"Local error consistency is {_BOTH}the number that at least one gets wrong")
        told[0] += f"; global error consistency divides by {_NO_MEASURE}." if of_all else "."
    elif of_all:
        told.append(f"Global error consistency is {_BOTH}{_NO_MEASURE}.")
    if churn:
        starts = "Churn does: the share" if of_all else "Churn is the share"
        which = "the two runs" if told else "the two runs of a pair"
        told.append(f"{starts} of test points to which {which} give different labels.")
    if local:
        empty = (
            "is left undefined"
            if math.isnan(options.empty_union)
            else f"counts as {options.empty_union:.0f}"
        )
        told.append(f"Local error consistency of a pair without any error {empty}.")
    return " ".join(told)
