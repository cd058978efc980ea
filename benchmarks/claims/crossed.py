"""Crossed cells: parts of their variance, and differences between them."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from functools import cache

import numpy as np
import polars as pl
from numpy.typing import NDArray

from benchmarks.claims.record import CHEAP, Claim, Tally, interval, miss
from manyseed.analysis.axes import AXES
from manyseed.analysis.questions.comparison import Side, compare
from manyseed.analysis.questions.crossed import places
from manyseed.analysis.questions.ranking import outlying
from manyseed.analysis.questions.variance import INTERACTION, OWN, variance
from manyseed.analysis.tables.rows import Tables
from manyseed.orchestrator.results.answers.variance import sentence
from tests.analysis.planted import Noise, normal

Real = NDArray[np.float64]
VALUES = 5
EQUAL = "5 × 5 crossed runs on one test set; init, batch and interaction of equal variance"
ALIKE = (1.0, 1.0, 1.0)
_LOW_HIGH = r"\((-?[\d.e-]+) to (-?[\d.e+-]+), 95 %"


def _runs(
    seed: int,
    parts: tuple[float, float, float],
    repeats: int,
    k: int = VALUES,
    noise: Noise = normal,
) -> Real:
    """Return accuracies (repeat, run) of k × k values, parts in units of 0.01."""
    rng = np.random.default_rng([seed, 41])
    init, batch, both = parts
    made = init * noise(rng, (repeats, k, 1)) + batch * noise(rng, (repeats, 1, k))
    made = 0.9 + 0.01 * (made + both * noise(rng, (repeats, k, k)))
    return np.stack([made[:, i, j] for i, j in places(2, k)], axis=1)


@cache
def _sentences(
    seed: int, parts: tuple[float, float, float], noise: Noise
) -> Mapping[tuple[str, str], str]:
    """Return what is said of each part, on one test set."""
    key = {"cell": 0, "repeat_index": 0}
    axes = dict.fromkeys(AXES, "none") | {"train_fraction": 1.0, "vary": "init*batch"}
    repeats = pl.DataFrame([{**key, **axes, "n_runs": VALUES**2}])
    (drawn,) = _runs(seed, parts, 1, noise=noise)
    rows = [{**key, "run_index": n, "accuracy": x} for n, x in enumerate(drawn)]
    ends = {"run_i": pl.Int64, "run_j": pl.Int64, "ec_local": pl.Float64, "ec_global": pl.Float64}
    pairs = pl.DataFrame(schema={**dict.fromkeys(key, pl.Int64), **ends})
    found = variance(Tables(pl.DataFrame(rows), pairs, repeats, pl.DataFrame()))
    return {(row["source"], row["part"]): sentence(row) for row in found.iter_rows(named=True)}


def missed(source: str, part: str, noise: Noise = normal) -> Callable[[int], Tally]:
    def count(seed: int) -> Tally:
        text = _sentences(seed, ALIKE, noise)[source, part]
        found = re.search(_LOW_HIGH, text)
        if not found:
            return Tally(0, 0)
        truth = 0.01 if ": sd" in text else 1e-4
        return Tally(miss(float(found[1]), truth, float(found[2]), 5e-3 * truth))

    return count


def told(
    source: str, part: str, parts: tuple[float, float, float], noise: Noise = normal
) -> Callable[[int], Tally]:
    return lambda seed: Tally(": sd" in _sentences(seed, parts, noise)[source, part])


def over_seeds(difference: float, noise: Noise = normal) -> Callable[[int], Tally]:
    """Return whether the interval over seeds excludes 0, of two cells on three test sets."""

    def count(seed: int) -> Tally:
        one, other = (_runs(2 * seed + side, ALIKE, 3, noise=noise) for side in (0, 1))
        sides = [
            [Side(own + shift, crossed=2) for own in of]
            for of, shift in ((one, difference), (other, 0.0))
        ]
        found = compare(*sides, paired=False).seeds
        return Tally(found is not None and not found[0] <= 0 <= found[1])

    return count


def unlike(parts: tuple[float, float, float], fallen: float) -> Callable[[int], Tally]:
    """Return whether a run is called unlike the others, of which one is worse by `fallen`."""

    def count(seed: int) -> Tally:
        (drawn,) = _runs(seed, parts, 1)
        drawn[11] -= fallen
        facts = {"cell": 0, "repeat_index": 0, "identical": False, "n_test": 10_000}
        rows = [{**facts, "run_index": n, "accuracy": x} for n, x in enumerate(drawn)]
        return Tally(outlying(pl.DataFrame(rows)).height > 0)

    return count


CLAIMS: tuple[Claim, ...] = (
    Claim(
        "1 of 25 crossed runs is unlike the others in accuracy",
        "answers, howmany",
        r"\{\} the others (of \{\} )?in accuracy",
        0.01,
        "sweeps",
        unlike(ALIKE, 0.0),
        unlike(ALIKE, 0.3),
        f"{EQUAL}; 10,000 test points",
        "one run is worse by 0.3",
        CHEAP,
    ),
    interval(
        "interaction of init × batch: sd 0.010 (0.008 to 0.014)",
        "variance",
        r"interaction of \{\}",
        missed("init*batch", INTERACTION),
        told("init*batch", INTERACTION, ALIKE),
        EQUAL,
        "is told from 0",
    ),
    interval(
        "init by itself, of crossed runs",
        "variance",
        "by itself",
        missed("init", OWN),
        told("init", OWN, (3.0, 1.0, 1.0)),
        EQUAL,
        "sd 3 times that of the others: is told from 0",
    ),
    Claim(
        "Too few runs; 5 × 5 crossed runs tell a source that makes half of the variance",
        "sources, variance",
        r"^With crossed sources|^Too few runs: by itself|does a source vary apart|"
        r"^Nothing differs: on each|more that differ, so nothing has a share",
        0.05,
        "sweeps",
        told("init", OWN, (0.0, 1.0, 1.0)),
        told("init", OWN, (math.sqrt(2), 1.0, 1.0)),
        "5 × 5 crossed runs on one test set; init by itself does nothing",
        "init makes half of the variance, batch and interaction a quarter each",
    ),
    interval(
        "A - B over seeds, of crossed cells",
        "compare",
        "Over seeds, at",
        over_seeds(0.0),
        over_seeds(0.03),
        "3 test sets of 5 × 5 crossed runs, no difference on average",
        f"0.03 (sd of a run: {0.01 * math.sqrt(3):.3f}): excludes 0",
        sweeps=CHEAP,
    ),
)
