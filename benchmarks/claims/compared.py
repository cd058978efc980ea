"""Two cells compared."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from itertools import combinations

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from benchmarks.claims.record import (
    CHEAP,
    SIGNED,
    Claim,
    Tally,
    interval,
    miss,
    number,
)
from manyseed.analysis.axes import AXES
from manyseed.analysis.questions.comparison import Side, compare, compare_apart
from manyseed.analysis.questions.howmany import PRECISE
from manyseed.orchestrator.results.answers.comparison import (
    A,
    B,
    Compared,
    OneCell,
    holds_together,
    told,
    verdict,
    words,
)
from tests.analysis.planted import Noise, normal

Real = NDArray[np.float64]


_CELL = OneCell("sweep", 0, "", 0, dict.fromkeys(AXES, ""))
SEED, SHARED, MOVES, EASY = 0.005, 0.006, 0.004, 0.02  # standard deviations


@cache
def compared(
    seed: int,
    better: float,
    *,
    paired: bool,
    sets: int = 5,
    apart: bool = False,
    noise: Noise = normal,
) -> tuple[Compared, Real]:
    """Return the comparison of A and B of 6 runs on each test set, and A - B of each test set."""
    rng = np.random.default_rng([seed, 7])
    runs = 6
    easy, moves = EASY * rng.normal(size=(2, sets, 1)), MOVES * rng.normal(size=(sets, 1))
    shared = SHARED * noise(rng, (sets, runs)) * paired
    a = 0.9 + better + easy[0] + moves + shared + SEED * noise(rng, (sets, runs))
    b = 0.9 + easy[int(apart)] + shared + SEED * noise(rng, (sets, runs))
    sides = [Side(own) for own in a], [Side(own) for own in b]
    result = compare_apart(*sides) if apart else compare(*sides, paired=paired)
    found = Compared(
        _CELL, _CELL, {}, "accuracy", True, 0.95, not apart, (0, 0), ("init",) * paired, result
    )
    return found, better + moves[:, 0]


_ENDS = {
    "seeds": rf"Over seeds, at these.*?: {SIGNED} to {SIGNED} ",
    "sets": rf"Over seeds and new test sets.*?: {SIGNED} to {SIGNED} ",
    "better": r"P\(A better than B\) = [\d.]+ \((\d\.\d+) to (\d\.\d+) over seeds",
    "better sets": r"(\d\.\d+) to (\d\.\d+) over new test sets, too",
    "runs": r"Pairing runs saves .*?, (-?\d+) to (-?\d+) %",
    "test sets": r"Sharing test sets saves .*?, (-?\d+) to (-?\d+) %",
}


@cache
def _differences(noise: Noise, *, paired: bool) -> Real:
    """Return many differences of two runs that share nothing, sorted."""
    rng = np.random.default_rng(53)
    values = SEED * noise(rng, (2, 200_000)) + SHARED * paired * noise(rng, (2, 200_000))
    found: Real = np.sort(values[0] - values[1])
    return found


def _better(moved: Real, noise: Noise, *, paired: bool) -> float:
    """Return the probability that a run of A is better than one of B, mean over test sets."""
    if noise is normal:
        wide = math.hypot(SEED, SHARED * paired) * math.sqrt(2)
        return float(stats.norm.cdf(moved / wide).mean())
    found = _differences(noise, paired=paired)
    return float(np.searchsorted(found, moved).mean()) / found.size


def _truth(of: str, moved: Real, *, paired: bool, noise: Noise) -> float:
    if of == "better sets":
        return 0.5
    return {
        "seeds": float(moved.mean()),
        "sets": 0.0,
        "better": _better(moved, noise, paired=paired),
        "runs": 100 * SHARED**2 / (SHARED**2 + SEED**2),
        "test sets": 100
        * (
            1
            - (MOVES**2 + 2 * SEED**2 / 6)
            / (2 * EASY**2 + MOVES**2 + 2 * (SEED**2 + SHARED**2) / 6)
        ),
    }[of]


def misses(
    of: str,
    *,
    paired: bool,
    better: float = 0.0,
    power: float | None = None,
    apart: bool = False,
    noise: Noise = normal,
) -> Callable[[int], Tally]:
    """Return whether an interval misses the truth or, given `power`, excludes that value."""
    rounded = {"better": 0.005, "better sets": 0.005, "runs": 0.5, "test sets": 0.5}.get(of, 5e-5)

    def count(seed: int) -> Tally:
        result, moved = compared(seed, better, paired=paired, apart=apart, noise=noise)
        found = re.search(_ENDS[of], " ".join(words(result)))
        if not found:
            return Tally(0, 0)
        low, high = map(number, found.groups())
        if power is not None:
            return Tally(miss(low, power, high))
        return Tally(miss(low, _truth(of, moved, paired=paired, noise=noise), high, rounded))

    return count


def judged(pattern: str, better: float, noise: Noise = normal) -> Callable[[int], Tally]:
    def count(seed: int) -> Tally:
        return Tally(pattern in verdict(compared(seed, better, paired=True, noise=noise)[0]))

    return count


def together(better: float) -> Callable[[int], Tally]:
    """Return whether any verdict on pairs of four cells holds for all six pairs together."""

    def count(seed: int) -> Tally:
        rng = np.random.default_rng([seed, 65])
        cells = 0.9 + EASY * rng.normal(size=(1, 5, 1)) + MOVES * rng.normal(size=(4, 5, 1))
        cells = cells + SEED * rng.normal(size=(4, 5, 6))
        cells[0] += better
        held = []
        for pair in combinations(cells, 2):
            sides = [[Side(own) for own in cell] for cell in pair]
            single, six = (
                compare(*sides, paired=False, confidence=1 - 0.05 / n)
                for n in (1, math.comb(len(cells), 2))
            )
            one = Compared(_CELL, _CELL, {}, "accuracy", True, 0.95, True, (0, 0), (), single)
            one = replace(one, together=six.sets)
            held.append(told(one, single.sets) in (A, B) and holds_together(one))
        return Tally(any(held))

    return count


CLAIMS: tuple[Claim, ...] = (
    Claim(
        "A > B, of a single comparison (or: not told)",
        "compare",
        r"{}, {}: not told",
        0.05,
        "comparisons",
        judged(" > ", 0.0),
        judged("A > B", 0.01),
        "5 test sets of 6 runs, no difference on average",
        "0.01",
        sweeps=CHEAP,
    ),
    Claim(
        "For all 6 together, 2 of 3 verdicts hold (each that says A > B)",
        "compare",
        r"[Ff]or all {} ((such )?pairs )?together|For the {} pairs of {} together",
        0.05,
        "sweeps",
        together(0.0),
        together(0.015),
        "4 classifiers that differ by test set alone, 5 test sets of 6 runs",
        "one better by 0.015",
        sweeps=CHEAP,
    ),
    Claim(
        "A ≈ B: they differ by less than 0.005",
        "compare",
        r"{} ≈ {}|they differ by less than {}\.",
        0.05,
        "comparisons",
        judged("≈", PRECISE),
        judged("≈", 0.0),
        "5 test sets of 6 runs, a difference of 0.005 on average",
        "no difference",
        sweeps=CHEAP,
    ),
    *(
        interval(
            f"{name} ({how})",
            "compare",
            wording,
            misses(of, paired=paired),
            misses(of, paired=paired, better=0.01, power=value),
            "5 test sets of 6 runs, no difference on average",
            effect,
            sweeps=CHEAP,
        )
        for paired, how in ((True, "paired"), (False, "unpaired"))
        for name, of, wording, value, effect in (
            (
                "A - B over seeds, at these test sets",
                "seeds",
                r"{} over seeds|Over seeds and new",
                0.0,
                "0.01: excludes 0",
            ),
            (
                "A - B over seeds and new test sets",
                "sets",
                "and new test sets",
                0.0,
                "0.01: excludes 0",
            ),
            ("P(A better than B) over seeds", "better", r"P\(A better", 0.5, "0.01: excludes 0.5"),
            (
                "P(A better than B) over new test sets",
                "better sets",
                "over new test sets, too",
                0.5,
                "0.01: excludes 0.5",
            ),
        )
    ),
    interval(
        "A - B over new test sets, which differ",
        "compare",
        "Unpaired: the test sets differ",
        misses("sets", paired=False, apart=True),
        misses("sets", paired=False, apart=True, better=0.08, power=0.0),
        "5 test sets of 6 runs each",
        "0.08 (4 sd between test sets): excludes 0",
        sweeps=CHEAP,
    ),
    interval(
        "Pairing runs saves 59 % of them (20 to 80 %)",
        "compare",
        r"are as precise as|saves nothing",
        misses("runs", paired=True),
        misses("runs", paired=True, power=0.0),
        "correlation 0.59",
        "excludes 0",
        sweeps=CHEAP,
    ),
    interval(
        "Sharing test sets saves 95 % of them (70 to 99 %)",
        "compare",
        r"are as precise as|saves nothing",
        misses("test sets", paired=True),
        misses("test sets", paired=True, power=0.0),
        "correlation 0.97 over 5 test sets",
        "excludes 0",
        sweeps=CHEAP,
    ),
)
