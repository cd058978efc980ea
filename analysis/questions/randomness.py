"""Sources of randomness compared: RKS, Tables II and III."""

from __future__ import annotations

import polars as pl

from manyseed.analysis.options import CLOSE
from manyseed.analysis.tables.keys import REPEAT
from manyseed.analysis.tables.means import VARIES
from manyseed.analysis.tables.schema import Tables

OF_CELLS = (
    *("n_runs", "n_distinct", "n_repeats", "n_identical_repeats"),
    *("accuracy_mean", "accuracy_std", "accuracy_mean_sd", "ensemble_accuracy"),
)
"""Columns taken from the table of cells."""

_PAIRS_CLOSE = ("n_pairs_close", "churn_min_close", "churn_max_close")


def sources(tables: Tables, close: float = CLOSE) -> pl.DataFrame:
    """Compare what different sources of randomness do to accuracy and churn, one row per cell.

    Copies of a run count once in extremes; repeats of identical runs have neither close runs nor
    pairs. Columns about close runs are null if some α̂ is at most `close` while δ is above it: such
    runs may or may not be close.

    Parameters
    ----------
    tables : Tables
    close : float
        Largest α̂ of a run that is close to the others.

    Returns
    -------
    polars frame
        `cell`; for Table II the columns `OF_CELLS`, `accuracy_min`, `accuracy_max` (over the runs
        of all repeats), `n_close`, `accuracy_min_close` and `accuracy_max_close` (over runs with α̂
        at most `close`); for Table III `n_pairs`, `churn_min`, `churn_max` (shares of test points),
        `n_pairs_close`, `churn_min_close` and `churn_max_close` (both runs close). Null if
        undefined.
    """
    varying = tables.repeats.select(*REPEAT, VARIES.alias("varies"), "delta")
    runs = tables.runs.filter(~pl.col("identical")).join(varying, on=REPEAT, how="left")
    small = pl.col("varies") & (pl.col("alpha_hat") <= close)
    near = pl.col("accuracy").filter(small)
    of_runs = runs.group_by("cell").agg(
        pl.col("accuracy").min().alias("accuracy_min"),
        pl.col("accuracy").max().alias("accuracy_max"),
        near.len().alias("n_close"),
        near.min().alias("accuracy_min_close"),
        near.max().alias("accuracy_max_close"),
        (small & (pl.col("delta") > close)).any().alias("unsaid"),
    )
    return (
        tables.cells.select("cell", *OF_CELLS)
        .join(of_runs, on="cell", how="left")
        .join(_churn(tables, close), on="cell", how="left")
        .with_columns(
            pl.when(~pl.col("unsaid")).then(pl.col(name)).alias(name)
            for name in ("n_close", "accuracy_min_close", "accuracy_max_close", *_PAIRS_CLOSE)
        )
        .drop("unsaid")
        .sort("cell")
    )


def _churn(tables: Tables, close: float) -> pl.DataFrame:
    varying = tables.repeats.filter(VARIES).select(REPEAT)
    # There are many pairs: take one pass over the columns used.
    pairs = tables.pairs.lazy().join(varying.lazy(), on=REPEAT, how="semi")
    for side in ("run_i", "run_j"):
        levels = tables.runs.lazy().select(
            *REPEAT, pl.col("run_index").alias(side), pl.col("alpha_hat").alias(f"alpha_{side}")
        )
        pairs = pairs.join(levels, on=[*REPEAT, side], how="left")
    both = (pl.col("alpha_run_i") <= close) & (pl.col("alpha_run_j") <= close)
    near = pl.col("churn").filter(both)
    compared = pairs.group_by("cell").agg(
        pl.len().alias("n_pairs"),
        pl.col("churn").min().alias("churn_min"),
        pl.col("churn").max().alias("churn_max"),
        near.len().alias("n_pairs_close"),
        near.min().alias("churn_min_close"),
        near.max().alias("churn_max_close"),
    )
    return compared.collect(engine="streaming")
