"""Which classifier's accuracy varies most between seeds, on cells shared by all compared ones.

The variance of a classifier is the sum of its runs' squared deviations from the means of their
repeats, divided by the degrees of freedom. Runs with the same number on the same test set share
streams in all cells, so they are one cluster, and repeats are strata. The error of the log variance
is that of `analysis.questions.intervals.clustered`, but at least that of independent normal values,
which few clusters may underestimate.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import polars as pl

from manyseed.analysis.options import CONFIDENCE
from manyseed.analysis.questions.blocks import block
from manyseed.analysis.questions.intervals import clustered, t_quantile, total
from manyseed.analysis.tables.rows import VARIES, Tables

FEWEST = 4  # runs of a repeat: fewer say next to nothing about a variance
FREEDOM = 6  # degrees of freedom of a classifier, likewise

_CLUSTER = ["classifier", "stratum", "cluster"]


@dataclass(frozen=True, slots=True)
class SeedSpread:
    """One classifier's standard deviation between seeds, with an interval, and its number of runs.

    `skewness` is that of the runs' deviations from the means of their repeats.
    """

    classifier: str
    sd: float
    low: float
    high: float
    runs: int
    skewness: float


@dataclass(frozen=True, slots=True)
class Spreads:
    """Spreads of classifiers, the largest first.

    Attributes
    ----------
    rows : tuple of SeedSpread
    contexts : int
        Number of cells of each classifier.
    left : tuple of str
        Classifiers that share too few cells to be compared.
    ratio, low, high : float
        Ratio of the largest to the smallest standard deviation, with an interval that holds for all
        pairs of classifiers together (Bonferroni).
    pairs : int
        Number of these pairs.
    like_first, like_last : tuple of str
        Classifiers whose spread cannot be told from the largest, and from the smallest, likewise.
    """

    rows: tuple[SeedSpread, ...]
    contexts: int
    left: tuple[str, ...]
    ratio: float
    low: float
    high: float
    pairs: int
    like_first: tuple[str, ...]
    like_last: tuple[str, ...]


def spreads(tables: Tables, confidence: float = CONFIDENCE) -> Spreads | None:
    """Compare classifiers; None if fewer than two share cells whose runs vary.

    Parameters
    ----------
    tables : Tables
        With the columns of `AXES` joined, of one snapshot.
    confidence : float
    """
    repeats = tables.repeats.filter(VARIES, pl.col("n_distinct") >= FEWEST)
    cells = tables.cells.join(repeats.select("cell"), on="cell", how="semi", maintain_order="left")
    cells = cells.filter(perturb_hparams="none")  # elsewhere runs differ by more than seeds
    shared = block(cells) if cells.height else None
    if shared is None:
        return None
    key = ["cell", "repeat_index"]
    rows = (
        tables.runs.filter(~pl.col("identical"))
        .select(*key, "run_index", "accuracy")
        .join(repeats.select(key), on=key, how="semi")
        .join(shared.cells, on="cell")
        .drop_nulls("accuracy")
        .sort(*key, "run_index")
    )
    n = pl.len().over(key)
    deviation = pl.col("accuracy") - pl.col("accuracy").mean().over(key)
    squares = deviation**2
    rows = rows.with_columns(
        n=n,
        # deviations from an estimated mean are too small: correct squares, and again their spread
        square=squares * ((n - 1) / (n - 2)).sqrt(),
        plain=squares,
        cube=deviation**3,
        stratum=pl.format("{}/{}", "dataset", "repeat_index"),
        cluster=pl.col("run_index"),
    )
    found = rows.group_by("classifier", maintain_order=True).agg(
        total(pl.col("plain")).alias("squares"),
        total(pl.col("cube")).alias("cubes"),
        pl.len().alias("runs"),
    )
    by_repeat = rows.group_by("classifier", *key, maintain_order=True).agg(
        total(pl.col("plain")).alias("squares"), (pl.len() - 1).cast(pl.Float64).alias("free")
    )
    normal = by_repeat.group_by("classifier", maintain_order=True).agg(
        total(pl.col("free")).alias("freedom"),
        total(2 * pl.col("squares") ** 2 / pl.col("free")).alias("normal"),
    )
    found = found.join(normal, on="classifier").filter(pl.col("squares") > 0)
    if found.height < len(shared.classifiers) or float(found["freedom"].min()) < FREEDOM:  # type: ignore[arg-type]
        return None
    influence = (
        rows.group_by(_CLUSTER, maintain_order=True)
        .agg(total(pl.col("square")).alias("own"))
        .join(found.select("classifier", "squares"), on="classifier")
        .with_columns(own=pl.col("own") - pl.col("own").mean().over("classifier", "stratum"))
        .with_columns(u=pl.col("own") / pl.col("squares"))
        .sort(_CLUSTER)
    )
    alone = clustered(influence.select([*_CLUSTER, "u"]), ["classifier"])
    found = found.join(alone, on="classifier", how="left").with_columns(
        sd=(pl.col("squares") / pl.col("freedom")).sqrt(),
        floor=pl.col("normal") / pl.col("squares") ** 2,
    )
    if found["freedom_right"].null_count():
        return None
    found = found.sort("sd", "classifier", descending=[True, False])
    by_sd = tuple(_spread(row, confidence) for row in found.iter_rows(named=True))
    all_of = found.rows(named=True)
    pairs = len(by_sd) * (len(by_sd) - 1) // 2
    sure = 1 - (1 - confidence) / pairs

    def compared(one: dict[str, Any], other: dict[str, Any]) -> tuple[float, float, float]:
        variance, freedom = _of_ratio(influence, one["classifier"], other["classifier"])
        ratio, floor = one["sd"] / other["sd"], one["floor"] + other["floor"]
        return ratio, *_ends(ratio, max(variance, floor), freedom, sure)

    first, last = all_of[0], all_of[-1]
    like_first = tuple(own["classifier"] for own in all_of[1:] if compared(first, own)[1] <= 1)
    like_last = tuple(own["classifier"] for own in all_of[:-1] if compared(own, last)[1] <= 1)
    return Spreads(
        by_sd, shared.contexts, shared.left, *compared(first, last), pairs, like_first, like_last
    )


def _spread(row: dict[str, float], confidence: float) -> SeedSpread:
    low, high = _ends(
        row["sd"], max(row["variance"], row["floor"]), row["freedom_right"], confidence
    )
    skewness = row["cubes"] / row["runs"] / (row["squares"] / row["runs"]) ** 1.5
    return SeedSpread(str(row["classifier"]), row["sd"], low, high, int(row["runs"]), skewness)


def _ends(sd: float, variance: float, freedom: float, confidence: float) -> tuple[float, float]:
    """Return the interval of a standard deviation, given the variance of the log of its square."""
    half = t_quantile(confidence, freedom) * math.sqrt(variance) / 2
    return sd * math.exp(-half), sd * math.exp(half)


def _of_ratio(influence: pl.DataFrame, one: str, other: str) -> tuple[float, float]:
    """Return the variance and degrees of freedom of the difference of two log variances."""
    sign = pl.when(pl.col("classifier") == one).then(1.0).otherwise(-1.0)
    both = influence.filter(pl.col("classifier").is_in([one, other])).select(
        "stratum", "cluster", (sign * pl.col("u")).alias("u"), key=pl.lit("")
    )
    row = clustered(both, ["key"]).row(0, named=True)
    return row["variance"], row["freedom"]
