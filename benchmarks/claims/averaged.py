"""What averaging runs gains, and how many runs another cell is worth."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache

import numpy as np
import polars as pl

from benchmarks.claims.record import Claim, Tally, miss
from manyseed.analysis.axes import AXES
from manyseed.analysis.questions.dee import compared, gains, worths

REPEATS, RUNS, DRAWS, QUALITY = 4, 10, 50, 0.01
GAIN = 0.1
"""Of infinitely many runs over one: an ensemble of m has all of it but 1/m."""
WORTH = 3.0  # runs of the deep cell


@cache
def _measured(seed: int, gain: float, better: float) -> pl.DataFrame:
    """Return what deep ensembles of two cells measure, the second's by `better` more."""
    rng = np.random.default_rng([seed, 59])
    rows = []
    for cell, repeat in np.ndindex(2, REPEATS):
        quality = QUALITY * rng.normal(size=RUNS) + better * cell - 0.5
        for draw in range(DRAWS):
            mean = np.cumsum(rng.permutation(quality)) / np.arange(1, RUNS + 1)
            rows += [
                (cell, repeat, draw, size, RUNS, value - gain / size)
                for size, value in enumerate(mean.tolist(), start=1)
            ]
    types = {"cell": pl.UInt32, "repeat_index": pl.UInt16, "draw": pl.UInt32}
    more = {"members": pl.UInt32, "pool": pl.UInt32, "cll": pl.Float64}
    return pl.DataFrame(rows, schema={**types, **more}, orient="row")


def _gains(gain: float, pattern: str) -> Callable[[int], Tally]:
    def count(seed: int) -> Tally:
        found = gains(_measured(seed, gain, 0.0).filter(cell=0), "cll")
        return Tally(found is not None and bool(re.search(pattern, found.words)))

    return count


def _worth(seed: int, better: float) -> str:
    """Return how many runs of the first cell a run of the second is worth."""
    same = {name: [value, value] for name, value in dict.fromkeys(AXES, "none").items()}
    cells = pl.DataFrame({**same, "cell": [0, 1], "classifier": ["a", "b"]})
    cells = cells.with_columns(pl.col("cell").cast(pl.UInt32))
    rows = compared(_measured(seed, GAIN, better), cells, ["cll"])
    found = worths(rows.filter(pl.col("cell") == 1), cells, 1)
    return " ".join(one.words for one in found)


def _says(better: float, pattern: str) -> Callable[[int], Tally]:
    return lambda seed: Tally(bool(re.search(pattern, _worth(seed, better))))


def _within(value: float) -> Callable[[int], Tally]:
    """Return whether the range of one standard deviation misses a number of runs."""

    def count(seed: int) -> Tally:
        text = _worth(seed, GAIN * (1 - 1 / WORTH))
        found = re.search(r"\((\d+\.\d) to (?:(\d+\.\d)|more than)", text)
        if not found:
            return Tally(0, 0)
        return Tally(miss(float(found[1]), value, float(found[2] or "inf"), 0.05))

    return count


CLAIMS: tuple[Claim, ...] = (
    Claim(
        "cll: 1.8 runs bring half of the gain (or: no gain by averaging is seen)",
        "dee",
        r"no gain by averaging is seen|bring half of|where that is a gain|half of the gain",
        0.05,
        "sweeps",
        _gains(0.0, "bring half of"),
        _gains(GAIN, r"; 1\.\d bring half of"),
        "averages are as good as their runs; 4 test sets of 10 runs, 50 draws",
        "10 times the sd of runs is gained; half of it with 1.8 runs",
    ),
    Claim(
        "b: 1 run is worth more, as measured, than 10 independent runs of a",
        "dee",
        r"worth more, as measured",
        0.05,
        "sweeps",
        _says(0.0, "worth more, as measured"),
        _says(2 * GAIN, "worth more, as measured, than 10"),
        "runs of a and b are alike; 4 test sets of 10 runs",
        "a run of b is better than any ensemble of a",
    ),
    Claim(
        "b: 1 run is worth 3.0 (2.1 to 4.9 within one sd) independent runs of a",
        "dee",
        r"within one sd",
        0.32,
        "ranges",
        _within(WORTH),
        _within(1.0),
        "a run of b is as good as 3 averaged runs of a; 4 test sets of 10 runs",
        "excludes 1",
    ),
)
