"""Is what is missing missing at random: if slow or bad runs fail, what is left looks too good."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray
from scipy.stats import norm, rankdata

SIGNIFICANT = 0.05
"""How probable it is that a sweep whose runs are missing at random is warned of at all."""

FEWEST = 8  # repeats or runs below which a correlation says nothing

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Correlation:
    """A rank correlation within strata.

    Attributes
    ----------
    value : float
        -1 to 1; 0 where nothing can be known.
    p : float
        Two-sided; 1 where nothing can be known.
    """

    value: float = 0.0
    p: float = 1.0


def notes(runs: pl.DataFrame, repeats: pl.DataFrame) -> list[str]:
    """Say where runs are missing and whether that goes with accuracy.

    Two signs are looked for in each dataset and classifier. Within a cell, repeats with fewer
    finished runs differ in accuracy (what a test set does to all cells is taken off). Or within a
    cell slow repeats have fewer finished runs, and within a repeat slow runs differ in accuracy. No
    cell is compared with another: one that is slow, or bad, may lack runs for that reason alone.
    All are rank correlations, stratified; the tests of a sweep are corrected together (Holm 1979),
    so that `SIGNIFICANT` is the rate of sweeps that are warned of by chance.

    Parameters
    ----------
    runs, repeats : polars frames
        The tables with `dataset` and `classifier` joined; `fit_seconds` of runs is used if it is
        there.

    Returns
    -------
    list of str
        A sentence each; empty where nothing is missing.
    """
    key = ["dataset", "classifier"]
    short = repeats.filter(pl.col("coverage") < 1)
    if short.is_empty():
        return []
    finished = float(repeats["coverage"].drop_nulls().to_numpy().mean())
    result = [
        f"{short.height:,} of {repeats.height:,} repeats lack runs (coverage {finished:.1%}): "
        "their means, ranges and quantiles are of what is finished."
    ]
    found: list[tuple[float, str]] = []
    for group in short.select(key).unique().sort(key).iter_rows():
        here = pl.all_horizontal(
            pl.col(name) == value for name, value in zip(key, group, strict=True)
        )
        found += _signs(" × ".join(group), runs.filter(here), repeats.filter(here))
    return result + [text for text, significant in _holm(found) if significant]


def _signs(name: str, runs: pl.DataFrame, repeats: pl.DataFrame) -> Iterator[tuple[float, str]]:
    """Yield the tests of one group: how probable by chance, and what it would say."""
    known = repeats.drop_nulls(["coverage", "accuracy_mean"]).with_columns(
        accuracy=pl.col("accuracy_mean") - pl.col("accuracy_mean").mean().over("repeat_index")
        if repeats["cell"].n_unique() > 1
        else pl.col("accuracy_mean")
    )
    goes = correlation(known, "coverage", "accuracy", ("cell",))
    yield (
        goes.p,
        f"{name}: runs are not missing at random. Within a cell, accuracy goes with coverage (rank "
        f"correlation {goes.value:+.2f}), so comparisons of its cells may be biased.",
    )
    if "fit_seconds" not in runs.columns:
        return
    timed = runs.drop_nulls(["fit_seconds", "accuracy"])
    seconds = timed.group_by("cell", "repeat_index").agg(pl.col("fit_seconds").mean())
    slow = correlation(
        known.join(seconds, on=["cell", "repeat_index"]), "coverage", "fit_seconds", ("cell",)
    )
    goes = correlation(timed, "fit_seconds", "accuracy", ("cell", "repeat_index"))
    more = "more" if slow.value < 0 else "less"
    yield (
        max(slow.p, goes.p),
        f"{name}: runs are not missing at random. Within a cell, where fits take long, {more} are "
        f"missing (rank correlation of coverage with fit time {slow.value:+.2f}), and within a "
        f"repeat accuracy goes with fit time ({goes.value:+.2f}), so its mean accuracy is biased.",
    )


def correlation(frame: pl.DataFrame, one: str, other: str, strata: Sequence[str]) -> Correlation:
    """Return the rank correlation of two columns within strata.

    Ranks are taken within each stratum; the sum of their products is compared with its mean and
    variance over all orders within strata (as van Elteren 1960 does for two samples).

    Parameters
    ----------
    frame : polars frame
    one, other : str
        Columns of numbers, without nulls.
    strata : sequence of str
        Columns; none for one stratum.
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
    return Correlation(total / scale, float(2 * norm.sf(abs(total) / math.sqrt(variance))))


def _ranks(values: Floats) -> Floats:
    ranks: Floats = rankdata(values)
    centred: Floats = ranks - ranks.mean()
    return centred


def _holm(found: Sequence[tuple[float, str]]) -> list[tuple[str, bool]]:
    """Return what each test says and whether it may, in the order in which they are given."""
    order = sorted(range(len(found)), key=lambda number: found[number][0])
    said, going = [False] * len(found), True
    for rank, number in enumerate(order):
        going = going and found[number][0] * (len(found) - rank) < SIGNIFICANT
        said[number] = going
    return [(text, may) for (_, text), may in zip(found, said, strict=True)]
