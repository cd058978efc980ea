"""Runs unlike the others, and the likely cause: sentences from the α̂ of planted scores."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from functools import cache, partial

import numpy as np
import polars as pl
from numpy.typing import NDArray

from benchmarks.claims.record import (
    OPTIONS,
    Claim,
    Tally,
    interval,
    miss,
)
from benchmarks.claims.tabled import NAMES, sentence_on
from manyseed.analysis.graph.chunks import analyze_group, compute
from manyseed.analysis.options import Options
from manyseed.analysis.questions import caveats
from manyseed.analysis.tables.rows import Tables
from tests.analysis.planted import Noise, long_tailed, normal, planted
from tests.analysis.samples import predictions, regular

Real = NDArray[np.float64]


POINTS, RUNS = 4400, 6
_ALPHA = Options(metrics=("alpha_hat",), resamples=20, alpha_bootstrap=0)
_WITH_INTERVAL = replace(_ALPHA, alpha_bootstrap=40)


@cache
def levels(seed: int, apart: tuple[float, ...], options: Options = _ALPHA) -> Tables:
    """Return the analysis of six runs; `apart` are shares of the points moved, by run.

    They are moved far off, each run's to their own place; if all six have some, among the others.
    """
    rng = np.random.default_rng([abs(seed), seed < 0, 17])
    gap = rng.normal(size=POINTS) + 0.5 * rng.normal(size=(RUNS, POINTS))
    for run, share in enumerate(apart):
        moved = rng.permutation(POINTS)[: round(share * POINTS)]
        place = 0.5 * run - 1.25 if len(apart) == RUNS else 20 + 5 * run
        gap[run, moved] = place + 0.1 * rng.normal(size=moved.size)
    score = np.zeros((RUNS, 1, POINTS, 2), np.float32)
    score[:, 0, :, 1] = gap
    y_true = rng.integers(0, 2, (1, POINTS)).astype(np.uint16)
    (found,) = compute([analyze_group(predictions(score, y_true, regular(1, 1, RUNS)), options)])
    own = {"dataset": pl.lit("data-00"), "classifier": pl.lit("a")}
    return replace(
        found, runs=found.runs.with_columns(**own), repeats=found.repeats.with_columns(**own)
    )


def _alike(seed: int, apart: tuple[float, ...], options: Options = _ALPHA) -> str:
    """Return the sentence on runs that are unlike the others."""
    return _on([levels(seed, apart, options)], seed)


def _on(sets: list[Tables], seed: int) -> str:
    """Return the sentence on a cell of some test sets."""
    counted = [
        {
            name: getattr(one, name).with_columns(repeat_index=pl.lit(number, pl.UInt16))
            for name in ("runs", "repeats")
        }
        for number, one in enumerate(sets)
    ]
    found = replace(
        sets[0], **{name: pl.concat([one[name] for one in counted]) for name in counted[0]}
    )
    tables = planted(1, NAMES[:1], repeats=len(sets), runs=RUNS, seed=seed)
    key = ["cell", "repeat_index", "run_index"]
    names = [name for name in found.runs.columns if name.startswith("alpha_hat")]
    runs = tables.runs.drop("alpha_hat").join(found.runs.select(*key, *names), on=key)
    delta = float(found.repeats["delta"][0])
    return sentence_on(
        replace(tables, runs=runs, repeats=tables.repeats.with_columns(delta=pl.lit(delta))),
        "levels",
    )


NONE = (0.0,) * RUNS
FARTHER = (0.0, 0.0, 0.15, 0.25)
ONE, COLLAPSED, DIVIDED = (0.0, 0.0, 0.0, 0.2), (0.0, 0.0, 1.0), (1.0, 1.0, 1.0)
SCATTERED = (0.25,) * RUNS


def _level(
    apart: tuple[float, ...], pattern: str, options: Options = _ALPHA
) -> Callable[[int], Tally]:
    return lambda seed: Tally(bool(re.search(pattern, _alike(seed, apart, options))))


def _unlike(seed: int) -> Tally:
    """Return how many of six like runs are said to be unlike."""
    found = re.search(r"^(\d) of 6 runs", _alike(seed, NONE))
    return Tally(int(found[1]) if found else 0, RUNS)


def _differing(seed: int, *, collapsed: bool = False) -> Tally:
    """Return how many of 18 runs are said to be unlike, or whether the collapsed one alone is.

    By chance, some differ from the others at few points and some at many.
    """
    rng = np.random.default_rng([seed, 45])
    sets = []
    for number in range(3):
        shares = [*np.minimum(rng.exponential(0.03 if collapsed else 0.2, RUNS), 0.9)]
        if collapsed and not number:
            shares[3] = 1.0
        sets.append(levels(3 * seed + number, tuple(float(share) for share in shares)))
    text = _on(sets, seed)
    if collapsed:
        return Tally(
            bool(re.search(r"^\d+ of 18 runs .* is that of run 3 of cell 0 .*, repeat 0\.", text))
        )
    found = re.search(r"^(\d+) of 18 runs", text)
    return Tally(int(found[1]) if found else 0, 3 * RUNS)


ALPHA_OF_SCATTERED = (0.2545, 0.2411, 0.2330, 0.2330, 0.2411, 0.2545)
"""Mean α̂ of each run over 60 test sets, those in the same place on either side together."""


def _level_interval(seed: int, *, power: bool = False) -> Tally:
    text = _alike(seed, SCATTERED, _WITH_INTERVAL)
    found = re.search(r"\((\d\.\d+) to (\d\.\d+), 95 % for new.*? run (\d) of cell", text)
    if not found:
        return Tally(0, 0)
    low, high = float(found[1]), float(found[2])
    return Tally(
        low > OPTIONS.close if power else miss(low, ALPHA_OF_SCATTERED[int(found[3])], high, 0.005)
    )


def _suspects(apart: tuple[float, ...], pattern: str) -> Callable[[int], Tally]:
    def count(seed: int) -> Tally:
        found = levels(seed, apart)
        notes = caveats.suspect_notes(found.repeats.lazy(), found.runs.lazy(), _ALPHA)
        return Tally(bool(re.search(pattern, " ".join(notes))))

    return count


def _in_accuracy(
    pattern: str, noise: Noise = normal, *, reverse: bool = False
) -> Callable[[int], Tally]:
    """Return whether it is said of 30 runs without α̂, one of them reversed if `reverse`."""

    def count(seed: int) -> Tally:
        tables = planted(1, NAMES[:1], repeats=5, runs=RUNS, noise=noise, seed=seed)
        one = pl.lit(reverse) & (pl.col("repeat_index") == 2) & (pl.col("run_index") == 3)
        runs = tables.runs.with_columns(
            accuracy=pl.when(one).then(1 - pl.col("accuracy")).otherwise("accuracy"),
            alpha_hat=pl.lit(None, pl.Float64),
        )
        return Tally(bool(re.search(pattern, sentence_on(replace(tables, runs=runs), "levels"))))

    return count


CLAIMS: tuple[Claim, ...] = (
    *(
        Claim(
            f"1 of 30 runs is unlike the others in accuracy{more}",
            "answers",
            r"\{\} the others (of \{\} )?in accuracy|\{\} of \{\} runs \{\} unlike$",
            0.05,
            "sweeps",
            _in_accuracy(".", noise),
            _in_accuracy(r"^1 of 30 runs .* run 3 of cell 0 .*, repeat 2,", noise, reverse=True),
            f"{values}5 test sets of 6 runs without α̂, that vary by 0.01",
            "one run reversed: it is named, alone",
        )
        for noise, more, values in (
            (normal, "", ""),
            (long_tailed, " (skewed)", "accuracies of skewness −1; "),
        )
    ),
    Claim(
        "1 of 6 runs is unlike the others (α̂ > 0.05)",
        "answers",
        r"unlike the others (of {} repeat|\()|those that are close to each other",
        0.01,
        "runs",
        _unlike,
        _level(ONE, r"^1 of 6 runs is unlike .* run 3 of"),
        f"six runs of one distribution, {POINTS:,} points",
        "a fifth of the scores of one run elsewhere: it is named",
    ),
    Claim(
        "… of a classifier whose runs merely differ among themselves",
        "answers",
        r"unlike the others (of {} repeat|\()",
        0.01,
        "runs",
        _differing,
        partial(_differing, collapsed=True),
        "shares of scores that are elsewhere, exponential, of mean 0.2; 3 test sets of 6 runs",
        "0.03 on average, and one collapsed run: it is named the farthest",
    ),
    Claim(
        "Runs of a differ among themselves (α̂ up to 0.70)",
        "answers",
        r"differ among themselves|no majority of the runs is close|the outer fence",
        0.05,
        "sweeps",
        _level(NONE, "no majority"),
        _level(SCATTERED, "no majority"),
        "six runs of one distribution",
        "a quarter of the scores of each run elsewhere",
    ),
    Claim(
        "No run is seen to differ by more than 5 %",
        "answers",
        r"No run is seen to differ",
        0.05,
        "sweeps",
        _level(ONE, r"^No run is seen"),
        _level(NONE, r"^No run is seen"),
        "a fifth of the scores of one run elsewhere",
        "six runs of one distribution",
    ),
    Claim(
        "No majority is close to each other, so which are unlike cannot be told",
        "answers",
        r"no majority of the runs is close",
        0.05,
        "sweeps",
        _level(ONE, "no majority"),
        _level(DIVIDED, "no majority"),
        "one run of six apart",
        "three runs of six apart",
    ),
    interval(
        "The largest α̂, 0.20 (0.18 to 0.23)",
        "answers",
        r"95 % for new test points",
        _level_interval,
        partial(_level_interval, power=True),
        "a quarter of the scores of each run elsewhere; the largest of six",
        "excludes 0.05",
    ),
    Claim(
        "… is that of run 3 (or: see run 3)",
        "answers",
        r"the largest α̂, |^\{\} runs, the first $",
        0.05,
        "sweeps",
        _level(FARTHER, r"the largest α̂, .* that of (?!run 3 )"),
        _level(FARTHER, r"the largest α̂, .* that of run 3 of"),
        "0.15 and 0.25 of the scores of two runs elsewhere: another run than the second is named",
        "the second is",
    ),
    Claim(
        "Without run 3, no resample is rejected at every level",
        "page",
        r"rejects some resamples|^Without run |out of references, because",
        0.01,
        "sweeps",
        _suspects(NONE, "."),
        _suspects(COLLAPSED, r"Without run 2 \(cell 0, repeat 0\),"),
        "six runs of one distribution",
        "one collapsed run, alone to be named",
    ),
    Claim(
        "No majority of the runs agrees, so no run is named as the cause",
        "page",
        r"no majority of the runs agrees|In {} of these repeats",
        0.05,
        "sweeps",
        _suspects(COLLAPSED, "no majority"),
        _suspects(DIVIDED, "no majority"),
        "one collapsed run of six",
        "three collapsed runs of six",
    ),
)
