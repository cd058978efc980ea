"""How many runs are needed, and whether there are enough."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from functools import cache
from itertools import product

import numpy as np
import polars as pl
from numpy.typing import NDArray

from benchmarks.claims.record import (
    CHEAP,
    Claim,
    Tally,
    interval,
    miss,
    number,
)
from benchmarks.claims.tabled import NAMES, needs, sd_that_needs, tables_of
from manyseed.analysis.alphahat.references import Reference, alpha_stars
from manyseed.analysis.alphahat.resampling import disjoint_halves, generator
from manyseed.analysis.alphahat.trimming import dkw_threshold
from manyseed.analysis.options import CLOSE, CONFIDENCE
from manyseed.analysis.questions.components import covariances
from manyseed.analysis.questions.ensembles import (
    FIRST_BLOCKS,
    closeness,
    decide_blocks,
    for_alpha,
)
from manyseed.analysis.questions.howmany import PRECISE, fewest_runs, for_mean, howmany
from manyseed.analysis.questions.needed import RunsNeeded
from manyseed.analysis.questions.sequential import decide
from manyseed.orchestrator.results.answers.howmany import GroupAnswers, reply
from manyseed.orchestrator.results.answers.until import CellEstimate
from tests.analysis.planted import Noise, long_tailed, normal, planted

Real = NDArray[np.float64]


def takes(of: int, truth: int, sweep: str = "one cell") -> Callable[[int], Tally]:
    """Return whether the interval of an answer misses the truth."""

    def count(seed: int) -> Tally:
        text = howmany(tables_of(sweep, seed))[of].words
        found = re.search(r"needed \(([\d,]+) (?:to ([\d,]+)|or more), 95 %\)", text)
        if not found:
            return Tally(0, 0)
        high = number(found[2]) if found[2] else math.inf
        return Tally(miss(number(found[1]), truth, high))

    return count


def _of_three(seed: int) -> RunsNeeded:
    values = 0.9 + 0.01 * np.random.default_rng([seed, 61]).normal(size=3)
    return for_mean("x", [values], PRECISE)


def _least_misses(seed: int) -> Tally:
    """Return whether the least number that is told, of three runs, is above the truth."""
    found = _of_three(seed)
    return Tally(found.runs is None and (found.low or 0) > needs(0.01))


def excludes(of: int, truth: int, sweep: str = "one cell") -> Callable[[int], Tally]:
    """Return whether the interval of an answer excludes four times the truth."""

    def count(seed: int) -> Tally:
        answer = howmany(tables_of(sweep, seed))[of]
        return Tally(answer.high is not None and answer.high < 4 * truth)

    return count


DESIGNS = [*product((3, 5, 10), (5, 10, 20))]
"""Test sets and runs on each, where test sets differ in how much runs vary."""
APART = 1.4  # standard deviation of the log variances of test sets
OF_SETS = "3, 5 or 10 test sets of 5, 10 or 20 runs"


def _on_sets(seed: int, apart: float, noise: Noise, *, new: bool) -> Iterator[Real]:
    """Yield accuracies (test set, run) of each design.

    Their variance is 1e-4 on average: over these test sets, or over all that may come (`new`).
    """
    for place, (sets, runs) in enumerate(DESIGNS):
        rng = np.random.default_rng([seed, 47, place])
        variance = np.exp(apart * rng.normal(size=(sets, 1)) - apart**2 / 2)
        variance = variance if new else variance / variance.mean()
        yield 0.9 + 0.01 * np.sqrt(variance) * noise(rng, (sets, runs))


def _here(apart: float, noise: Noise, *, power: bool = False) -> Callable[[int], Tally]:
    """Return in how many designs the interval of `howmany` misses, or excludes four times as many.

    Those of the spread in `answers` and of `variance` come from the same ends.
    """

    def count(seed: int) -> Tally:
        misses = 0
        for values in _on_sets(seed, apart, noise, new=False):
            one = for_mean("x", [*values], PRECISE)
            low, high = one.low or math.inf, one.high or math.inf
            misses += high < 4 * needs(0.01) if power else miss(low, needs(0.01), high)
        return Tally(misses, len(DESIGNS))

    return count


def _new(apart: float, noise: Noise, *, power: bool = False) -> Callable[[int], Tally]:
    """Return in how many designs the wider interval of `variance` misses, or excludes four sd."""

    def count(seed: int) -> Tally:
        misses = 0
        for values in _on_sets(seed, apart, noise, new=True):
            found, _ = covariances([*values], [*values])
            low, high = (end**0.5 for end in found.limits(CONFIDENCE, "variance"))
            misses += high < 0.04 if power else miss(low, 0.01, high)
        return Tally(misses, len(DESIGNS))

    return count


def _has_enough(runs: int) -> Callable[[int], Tally]:
    """Return whether 8 runs are called enough where so many are needed."""
    sd = sd_that_needs(runs)

    def count(seed: int) -> Tally:
        tables = planted(1, NAMES[:1], repeats=3, runs=8, sd=sd, seed=seed)
        answers = tuple(howmany(tables))
        group = GroupAnswers("", 0, "", None, "one", "a", {}, 1, answers, pl.DataFrame())
        return Tally(reply([group]).title.endswith("runs; enough."))

    return count


def _differing(share: float) -> Callable[[int], Tally]:
    """Return whether runs of which `share` differ are said to differ less."""

    def count(seed: int) -> Tally:
        drawn = np.random.default_rng([seed, 3]).random((1, 12)) < share
        answer = for_mean("x", [0.9 + 0.025 * drawn[0]], PRECISE, resolution=1 / 40)
        found = re.search(r"up to (\d+)% of further", answer.words)
        return Tally(bool(found) and share > int(found[1]) / 100 + 0.005)  # type: ignore[index]

    return count


def _says_equal(seed: int) -> Tally:
    same = for_mean("x", [np.full(12, 0.9)], PRECISE, resolution=1 / 40)
    return Tally(same.runs is None and "of further runs may differ" in same.words)


def _of_points(seed: int, sd: float) -> float | None:
    """Return the most that the sd of 5 runs is said to be, in points; None if more is told."""
    drawn = 0.9 + np.round(np.random.default_rng([seed, 47]).normal(0, sd, 5) + 0.5) / 300
    said = for_mean("x", [drawn], PRECISE, resolution=1 / 300).words
    found = re.search(r"sd of further runs is at most ([\d.]+)", said)
    return 300 * float(found[1]) if found else None


def _more_than_said(sd: float) -> Callable[[int], Tally]:
    """Return whether runs vary by more points than they are said to at most."""

    def count(seed: int) -> Tally:
        most = _of_points(seed, sd)
        return Tally(0 if most is None else sd > most)

    return count


def _less_than_said(seed: int) -> Tally:
    most = _of_points(seed, 0.1)
    return Tally(most is not None and most <= 3)


def _ensembles(passing: float) -> Callable[[int], Tally]:
    """Return whether a larger share of ensembles is said to pass than does."""

    def count(seed: int) -> Tally:
        rng = np.random.default_rng([seed, 5])
        draws = 60
        close = rng.binomial(draws, [passing, passing, 1.0], 3) / draws
        table = pl.DataFrame(
            {
                "size": [5, 10, 30],
                "close": close,
                "accepted": close,
                "distinct": draws,
                "models": 60,
                "delta": 0.04,
                "n_side": 4000,
            }
        )
        text = for_alpha(table, made=120, epsilon=0.01)[0].words
        found = re.search(r"needed.*different ensembles .*at least (\d+\.\d)%", text)
        size = re.search(r": (\d+) runs are needed", text)
        if not found or not size:
            return Tally(0)
        truth = 1.0 if size[1] == "30" else passing
        return Tally(100 * truth < float(found[1]) if passing < 1 else size[1] == "5")

    return count


def _closeness(passing: float, runs: int = 40) -> Callable[[int], Tally]:
    """Return whether more ensembles are said to be close than are, at any of four looks."""

    def count(seed: int) -> Tally:
        rng = np.random.default_rng([seed, 61])
        for look in range(1, runs // 10 + 1):
            table = pl.DataFrame(
                {
                    "size": [3, 5],
                    "close": rng.binomial(60, [passing, passing]) / 60,
                    "distinct": 60,
                    "delta": 0.04,
                    "n_side": 4000,
                }
            )
            found = closeness(table, look, runs=10 * look, level=CLOSE, epsilon=0.01)
            if found.share > passing:
                return Tally(1)
        return Tally(0)

    return count


def _all_close(seed: int) -> Tally:
    table = pl.DataFrame(
        {"size": [3], "close": [1.0], "distinct": [120], "delta": [0.04], "n_side": [4000]}
    )
    found = closeness(table, 1 + seed % 2, runs=20, level=CLOSE, epsilon=0.01)
    words = CellEstimate(0, "", "", 1, 20, found, "enough" if found.enough else "more").words
    return Tally("20 runs are enough. At least 9" in words if seed % 2 == 0 else found.size == 3)


UNTIL = 0.003
STEP = 1 / 500
SHARE = 0.07  # of runs that collapse


@cache
def _until(seed: int, most: int = 200, noise: Noise = normal) -> CellEstimate:
    values = 0.9 + 0.01 * noise(np.random.default_rng([seed, 13]), (most,))
    decision = decide(np.round(values / STEP) * STEP, UNTIL, step=STEP)
    state = "enough" if decision.enough else "most"
    return CellEstimate(0, "", "", 1, most, decision, state)


def _unseen(seed: int) -> Tally:
    """Return whether collapsed runs, 7 % of all, are said to be fewer after none was seen."""
    rng = np.random.default_rng([seed, 37])
    collapsed = rng.random(200) < SHARE
    values = np.where(collapsed, 0.5, rng.normal(0.9, 0.01, 200))
    decision = decide(values, UNTIL, step=STEP)
    text = CellEstimate(0, "", "", 1, 200, decision, "enough").words
    found = re.search(r"up to (\d+)% of further runs", text)
    return Tally(bool(found) and int(found[1]) + 0.5 < 100 * SHARE)  # type: ignore[index]


def until_misses(seed: int, noise: Noise = normal) -> Tally:
    """Return whether the interval of any look misses the mean."""
    for most in range(10, 201, 10):
        decision = _until(seed, most, noise).decision
        if miss(decision.low, 0.9, decision.high):
            return Tally(1)
        if decision.enough:
            break
    return Tally(0)


def until_enough(seed: int, noise: Noise = normal) -> Tally:
    return Tally("runs are enough." in _until(seed, noise=noise).words)


OF_BLOCK, N_SIDE = 10, 100


@cache
def _block_means() -> Real:
    """Return the mean α̂ of 400 blocks of ten runs, whose scores differ in place and scale."""
    rng = np.random.default_rng(53)
    halves = disjoint_halves(generator(0, "claims", 53), 2 * N_SIDE, 4)
    points = rng.normal(size=2 * N_SIDE)
    means = np.empty(400)
    for block in range(means.size):
        place, scale = rng.normal(0, 0.2, (OF_BLOCK, 1)), np.exp(rng.normal(0, 0.2, (OF_BLOCK, 1)))
        scores = place + scale * points + rng.normal(0, 0.3, (OF_BLOCK, points.size))
        levels, _ = alpha_stars(
            *(scores, Reference.sort(scores), halves),
            member=True,
            gamma=dkw_threshold(N_SIDE, 0.2),
        )
        means[block] = levels.mean()
    return means


@cache
def _until_mean(seed: int, blocks: int = 40) -> CellEstimate:
    """Look at blocks drawn from these, to a precision that takes about a dozen of them."""
    known = _block_means()
    values = np.random.default_rng([seed, 59]).choice(known, blocks)
    half_width = 1.96 * float(known.std()) / math.sqrt(12)
    decision = decide_blocks(values, half_width, OF_BLOCK)
    state = "enough" if decision.enough else "most"
    return CellEstimate(0, "", "", 1, OF_BLOCK * blocks, decision, state)


def _mean_misses(seed: int) -> Tally:
    """Return whether the interval of any look misses the mean over all blocks."""
    truth = float(_block_means().mean())
    for blocks in range(FIRST_BLOCKS, 41):
        decision = _until_mean(seed, blocks).decision
        if miss(decision.low, truth, decision.high):
            return Tally(1)
        if decision.enough:
            break
    return Tally(0)


BAD, LOSS = 0.1, 0.03  # share of bad runs, and what they lose: ten times the precision


def _misses_with_bad(seed: int) -> Tally:
    """Return whether the interval of any look misses the mean, where one run in ten is bad."""
    rng = np.random.default_rng([seed, 43])
    values = rng.normal(0.9, 0.003, 400) - LOSS * (rng.random(400) < BAD)
    for most in range(10, 401, 10):
        decision = decide(values[:most], UNTIL)
        if miss(decision.low, 0.9 - BAD * LOSS, decision.high):
            return Tally(1)
        if decision.enough:
            break
    return Tally(0)


def _warned(seed: int) -> Tally:
    """Return whether a cell whose seen runs hold bad ones comes with a warning."""
    rng = np.random.default_rng([seed, 43])
    values = rng.normal(0.9, 0.003, 400) - LOSS * (rng.random(400) < BAD)
    decision = decide(values, UNTIL)
    if values[: decision.runs].min() > 0.9 - LOSS / 2:
        return Tally(0, 0)
    return Tally("these are skewed" in CellEstimate(0, "", "", 1, 400, decision, "enough").words)


CLAIMS: tuple[Claim, ...] = (
    *(
        Claim(
            f"{name} ({alike}{skewed})",
            by,
            wording,
            promise,
            "intervals",
            of(apart, noise),
            of(apart, noise, power=True),
            f"{OF_SETS}, {planted}{'' if promise == 0.05 else f'; {1 - promise:.0%} or more'}",
            f"excludes four times {what}",
        )
        for noise, skewed in ((normal, ""), (long_tailed, ", skewed"))
        for apart, alike, planted in (
            (0.0, "test sets of one spread", "whose variances are equal"),
            (APART, "test sets that differ in spread", f"whose log variances have sd {APART}"),
        )
        for name, by, of, wording, what, promise in (
            (
                "… 16 runs (11 to 30), over seeds on these 3 test sets",
                "howmany, answers, variance",
                _here,
                r"is over seeds on these \{\} test sets|\{\}, 95 %, over seeds; ",
                "as many",
                0.16 if skewed else 0.05,
            ),
            (
                "… sd of 0.007 to 0.014 for new test sets, too",
                "variance",
                _new,
                "for new test sets, too|intervals for new test sets (covered|are apart)",
                "the sd",
                0.25 if apart else 0.05,
            ),
        )
    ),
    interval(
        "For accuracy ± 0.005: 16 runs are needed (11 to 30)",
        "howmany",
        r"fixed test set; from {} runs",
        takes(0, needs(0.01)),
        excludes(0, needs(0.01)),
        "3 test sets of 10 runs",
        "excludes four times as many",
    ),
    interval(
        "For local error consistency ± 0.02: 96 runs are needed (65 to 157)",
        "howmany",
        r"fixed test set; from {} runs",
        takes(1, fewest_runs(lambda n: 4 * 0.05**2 / n, 0.02) or 0),
        excludes(1, fewest_runs(lambda n: 4 * 0.05**2 / n, 0.02) or 0),
        "3 test sets of 10 runs, whose parts add up",
        "excludes four times as many",
    ),
    interval(
        "The accuracies of all 12 runs are equal, while up to 24 % of further runs may differ",
        "howmany, answers",
        r"it cannot be told yet, as|by \{\} at most, \{\} runs are enough|"
        r"further runs may differ|runs of \{\} are equal on|^\* If the EC of further",
        _differing(0.25),
        _says_equal,
        "a quarter of the runs differ",
        "all runs are equal",
        sweeps=CHEAP,
    ),
    interval(
        "Between seeds, sd of accuracy: a at most 0.0096 (below one test point so far)",
        "howmany, answers, variance",
        r"sd of further runs is at most|^\{\}( \{\})? \(?at most \{\}\)?|"
        r"seeds at most: spreads so far|sds are at most|"
        r", for which \{\} runs are enough|^\{\} at most\{\}|^[Aa]t most",
        _more_than_said(2.4),
        _less_than_said,
        "5 runs on 300 points, whose sd is 2.4 test points",
        "sd of 0.1 test points: at most 3",
        sweeps=CHEAP,
    ),
    interval(
        "For accuracy ± 0.005 it cannot be told yet; at least 4 are needed",
        "howmany, answers",
        r"yet; at least \{\} are needed|cannot be told yet, at least|cannot be told yet: at least|"
        r"takes at least \{\} seeds|without run \{\}|[Uu]nlike the others and counted|"
        r"^ Of these, run|"
        r"^not told, \{\} or more|, which varies most|^In cell \{\}\{\}, ",
        _least_misses,
        lambda seed: Tally("cannot be told yet; at least" in _of_three(seed).words),
        "3 runs on one test set",
        "is said of them",
        sweeps=CHEAP,
    ),
    Claim(
        "For accuracy ± 0.005: 16 runs; enough: A, B; too few: C",
        "howmany",
        r"For \{\}: \{\} runs; \{\}\.",
        0.05,
        "sweeps",
        _has_enough(16),
        _has_enough(4),
        "twice as many runs are needed as there are",
        "half as many",
    ),
    Claim(
        "At least 95 % of all ensembles of that size are close (α̂ ≤ 0.05)",
        "howmany",
        r"of all ensembles of these runs do|different ensembles of that size|the one ensemble of",
        0.05,
        "answers",
        _ensembles(0.95),
        _ensembles(1.0),
        "95 % of the two smaller sizes, 60 draws",
        "all of all sizes: the smallest",
        sweeps=CHEAP,
    ),
    interval(
        "Accuracy 0.9 ± 0.003: 60 runs are enough (at all looks)",
        "until",
        r"known to ± {} after|: \{\} runs are enough|accuracy not known yet|the most allowed",
        until_misses,
        until_enough,
        "sd 0.01, on a grid of 500 points; looks every 10 runs",
        "is reached within 200 runs",
        sweeps=CHEAP,
    ),
    Claim(
        "All 462 different ensembles of 10 runs are close: 30 runs are enough (at all looks)",
        "until",
        r"of all such ensembles of these runs are close|not all ensembles drawn from|"
        r"different ensembles of \{\} runs drawn from|whether ensembles are|^δ = \{\} with",
        0.05,
        "sweeps",
        _closeness(0.94),
        _all_close,
        "94 % of all ensembles of both sizes, 60 draws at each of four looks",
        "all are",
        sweeps=CHEAP,
    ),
    interval(
        "mean α̂ 0.036 ± 0.013: 140 runs are enough (at all looks)",
        "until",
        r"^mean α̂$|Each run is compared with|normal means of blocks|mean α̂ cannot be known",
        _mean_misses,
        lambda seed: Tally(
            "runs are enough. Each run is compared with the 9" in _until_mean(seed).words
        ),
        "400 blocks of ten runs whose scores differ in place and scale, on 200 points; a look "
        "after each block from the eighth",
        "is reached within 400 runs",
        sweeps=CHEAP,
    ),
    Claim(
        "… with one bad run in ten, it held in 81 to 89 % of simulations",
        "until",
        r"but these are skewed|simulations\.",
        0.19,
        "intervals",
        _misses_with_bad,
        _warned,
        "one run in ten loses ten times the precision; at all looks",
        "the warning, if a bad run was seen",
        sweeps=CHEAP,
    ),
    Claim(
        "… up to 7 % of further runs may be unlike all of these",
        "until",
        r"be unlike all of these",
        0.05,
        "sweeps",
        _unseen,
        lambda seed: Tally("may be unlike all of these" in _until(seed).words),
        "7 % of runs collapse: none is seen, and fewer are said to",
        "no run collapses",
        sweeps=CHEAP,
    ),
)
