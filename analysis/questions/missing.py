"""Are runs missing at random: if slow or bad runs fail, the rest looks too good."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from manyseed.analysis.questions.intervals import holm
from manyseed.analysis.questions.quantiles import average_ranks, normal_above

SIGNIFICANT = 0.05
"""Probability of any warning for a sweep whose runs are missing at random."""

FEWEST = 8  # repeats or runs below which a correlation says nothing

Floats = NDArray[np.float64]


class Correlation(NamedTuple):
    """A rank correlation within strata, -1 to 1, and its two-sided p; 0 and 1 if unknown."""

    value: float = 0.0
    p: float = 1.0


def notes(runs: pl.DataFrame, repeats: pl.DataFrame) -> list[str]:
    """Say where runs are missing and whether that is correlated with accuracy.

    Each dataset and classifier is tested for two signs. Either repeats with fewer finished runs
    differ in accuracy within a cell (after removing the test set's mean over cells). Or slow
    repeats have fewer finished runs within a cell, and slow runs differ in accuracy within a
    repeat. Cells are not compared with each other: a slow or bad one may lack runs for that reason
    alone. All tests are stratified rank correlations, corrected together (Holm 1979), so that
    `SIGNIFICANT` is the rate of sweeps warned about by chance.

    Parameters
    ----------
    runs, repeats : polars frames
        The tables with `dataset` and `classifier` joined; `fit_seconds` of runs is used if present.

    Returns
    -------
    list of str
        Sentences; empty if nothing is missing.
    """
    key = ["dataset", "classifier"]
    short = repeats.filter(pl.col("coverage") < 1)
    if short.is_empty():
        return []
    finished = float(repeats["coverage"].drop_nulls().to_numpy().mean())
    result = [
        f"{short.height:,} of {repeats.height:,} repeats lack runs (on average, {finished:.1%} are "
        "finished): their means, ranges and quantiles cover the finished runs alone."
    ]
    tests: list[tuple[float, str]] = []
    for group in short.select(key).unique().sort(key).iter_rows():
        in_group = dict(zip(key, group, strict=True))
        tests += _signs(" × ".join(group), runs.filter(**in_group), repeats.filter(**in_group))
    corrected = holm(np.array([p for p, _ in tests]))
    return result + [text for (_, text), p in zip(tests, corrected, strict=True) if p < SIGNIFICANT]


def _signs(name: str, runs: pl.DataFrame, repeats: pl.DataFrame) -> Iterator[tuple[float, str]]:
    """Yield p and the sentence of each test of one group."""
    known = repeats.drop_nulls(["coverage", "accuracy_mean"]).with_columns(
        accuracy=pl.col("accuracy_mean") - pl.col("accuracy_mean").mean().over("repeat_index")
        if repeats["cell"].n_unique() > 1
        else pl.col("accuracy_mean")
    )
    with_coverage = correlation(known, "coverage", "accuracy", ("cell",))
    yield (
        with_coverage.p,
        f"{name}: runs are not missing at random. Within a cell, accuracy varies with coverage "
        f"(rank correlation {with_coverage.value:+.2f}), so comparisons of its cells may be "
        "biased.",
    )
    if "fit_seconds" not in runs.columns:
        return
    timed = runs.drop_nulls(["fit_seconds", "accuracy"])
    seconds = timed.group_by("cell", "repeat_index").agg(pl.col("fit_seconds").mean())
    slow = correlation(
        known.join(seconds, on=["cell", "repeat_index"]), "coverage", "fit_seconds", ("cell",)
    )
    with_time = correlation(timed, "fit_seconds", "accuracy", ("cell", "repeat_index"))
    more = "more" if slow.value < 0 else "fewer"
    yield (
        max(slow.p, with_time.p),
        f"{name}: runs are not missing at random. Within a cell, {more} runs are missing where "
        f"fits take longer (rank correlation of coverage with fit time {slow.value:+.2f}), and "
        f"within a repeat, accuracy varies with fit time ({with_time.value:+.2f}), so its mean "
        "accuracy is biased.",
    )


def correlation(frame: pl.DataFrame, one: str, other: str, strata: Sequence[str]) -> Correlation:
    """Return the rank correlation of two columns within strata.

    Ranks are taken within each stratum. The sum of their products is compared with its mean and
    variance over all permutations within strata (as van Elteren 1960 does for two samples).

    Parameters
    ----------
    frame : polars frame
    one, other : str
        Columns of numbers, without nulls.
    strata : sequence of str
        Columns; empty for a single stratum.
    """
    parts = frame.partition_by(strata) if strata else [frame]
    total = variance = scale = 0.0
    n = 0
    for part in parts:
        if part.height < 2:
            continue
        a, b = (_ranks(part[name].to_numpy()) for name in (one, other))
        total += float(a @ b)
        variance += float(a @ a) * float(b @ b) / (part.height - 1)
        scale += math.sqrt(float(a @ a) * float(b @ b))
        n += part.height
    if n < FEWEST or variance == 0:
        return Correlation()
    return Correlation(total / scale, float(2 * normal_above(abs(total) / math.sqrt(variance))))


def _ranks(values: Floats) -> Floats:
    ranks: Floats = average_ranks(values)
    centred: Floats = ranks - ranks.mean()
    return centred
