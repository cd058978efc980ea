"""Whether runs are missing at random, and whether those made in several ways differ."""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np
import polars as pl
from numpy.typing import NDArray

from benchmarks.claims.record import (
    Claim,
    Tally,
)
from manyseed.analysis.questions import caveats
from manyseed.orchestrator.results.caveats import mixed
from tests.analysis.planted import Noise, normal

Real = NDArray[np.float64]


def _lacking(seed: int, pattern: str, *, slow: float = 0.0, bad: bool = False) -> Tally:
    """Return whether a warning is given of two groups of four cells whose runs are missing."""
    rng = np.random.default_rng([seed, 19])
    groups, cells, repeats, runs = 2, 4, 6, 8
    grid = np.indices((groups, cells, repeats, runs)).reshape(4, -1)
    group, cell, repeat, run = grid
    noise = rng.normal(size=(2, run.size))
    easy, long = rng.normal(size=(2, groups, repeats))[:, group, repeat]
    of_run = 0.8 * noise[0] + noise[1]
    gone = rng.random(run.size) < 0.1
    if slow:
        gone = noise[0] + long > slow
    if bad:  # where bad runs fail
        gone = (rng.random((groups, cells, repeats)) < 0.5)[group, cell, repeat] & (of_run < 0)
    gone[0] = True
    whole = pl.DataFrame(
        {
            "dataset": [f"data {number}" for number in group],
            "classifier": "mlp",
            "cell": cell + cells * group,
            "repeat_index": repeat,
            "fit_seconds": 1.0 + cell + long + noise[0],
            "accuracy": 0.5 + 0.1 * cell + easy + of_run,
        }
    ).filter(pl.Series(~gone))
    key = ["dataset", "classifier", "cell", "repeat_index"]
    repeats_left = whole.group_by(key, maintain_order=True).agg(
        coverage=pl.len() / runs, accuracy_mean=pl.col("accuracy").mean()
    )
    return Tally(bool(re.search(pattern, " ".join(caveats.missing_notes(whole, repeats_left)))))


def recipes(moved: float, pattern: str, noise: Noise = normal) -> Callable[[int], Tally]:
    """Return what is said of runs of two recipes on 4 test sets of 12 runs."""

    def count(seed: int) -> Tally:
        rng = np.random.default_rng([seed, 41])
        place = np.repeat(np.arange(4), 12)
        recipe = rng.integers(1, 3, place.size)
        drawn = 0.01 * noise(rng, place.shape)
        runs = pl.DataFrame(
            {
                "dataset": "d",
                "classifier": "c",
                "cell": 0,
                "repeat_index": place,
                "recipe": recipe,
                "accuracy": 0.9 + 0.02 * place + drawn + moved * (recipe == 2),
                "identical": False,
            }
        )
        return Tally(bool(re.search(pattern, " ".join(mixed(runs)))))

    return count


CLAIMS: tuple[Claim, ...] = (
    Claim(
        "Runs are not missing at random: accuracy varies with coverage",
        "page, analyze",
        r"not missing at random. Within a cell, accuracy",
        0.05,
        "sweeps",
        lambda seed: _lacking(seed, "accuracy varies with coverage"),
        lambda seed: _lacking(seed, "accuracy varies with coverage", bad=True),
        "a tenth of the runs missing at random",
        "bad runs fail in half of the repeats",
    ),
    Claim(
        "Runs are not missing at random: slow fits",
        "page, analyze",
        r"not missing at random. Within a cell, {} runs are missing",
        0.05,
        "sweeps",
        lambda seed: _lacking(seed, "fits take longer"),
        lambda seed: _lacking(seed, "more runs are missing where fits take longer", slow=1.0),
        "a tenth of the runs missing at random",
        "slow runs fail",
    ),
    Claim(
        "Runs were made in several ways; these differ beyond chance (or: is not established)",
        "answers, page",
        r"these differ beyond chance|no difference between these is established",
        0.05,
        "sweeps",
        recipes(0.0, "differ beyond chance"),
        recipes(0.01, "differ beyond chance: by"),
        "two recipes that are alike, 4 test sets of 12 runs",
        "recipes that differ by 0.01 (1 sd)",
    ),
)
