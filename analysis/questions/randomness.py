"""Sources of randomness compared: RKS, Tables II and III."""

from __future__ import annotations

import polars as pl

from manyseed.analysis.options import CLOSE
from manyseed.analysis.questions.intervals import total
from manyseed.analysis.tables.rows import REPEAT, VARIES, Tables

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
    runs may or may not be close. Runs with an α̂ are judged: where half of the runs are the
    reference, those of the other half, the candidates, which are all that the tables of RKS have.

    Parameters
    ----------
    tables : Tables
    close : float
        Largest α̂ of a run that is close to the others.

    Returns
    -------
    polars frame
        `cell`; for Table II the columns `OF_CELLS`, `accuracy_min`, `accuracy_max` (over the runs
        of all repeats), `n_judged` and the same of judged runs (`accuracy_mean_judged`, …),
        `n_close`, `accuracy_min_close` and `accuracy_max_close` (over runs with α̂ at most
        `close`); for Table III `n_pairs`, `churn_min`, `churn_max` (shares of test points),
        `n_pairs_judged` and the same of pairs of judged runs, `n_pairs_close`, `churn_min_close`
        and `churn_max_close` (both runs close). Null if undefined.
    """
    varying = tables.repeats.select(*REPEAT, VARIES.alias("varies"), "delta")
    runs = tables.runs.filter(~pl.col("identical")).join(varying, on=REPEAT, how="left")
    small = pl.col("varies") & (pl.col("alpha_hat") <= close)
    near = pl.col("accuracy").filter(small)
    known = pl.col("alpha_hat").is_not_null() & pl.col("varies")
    judged = pl.col("accuracy").filter(known)
    of_runs = runs.group_by("cell").agg(
        pl.col("accuracy").min().alias("accuracy_min"),
        pl.col("accuracy").max().alias("accuracy_max"),
        judged.len().alias("n_judged"),
        judged.min().alias("accuracy_min_judged"),
        judged.max().alias("accuracy_max_judged"),
        near.len().alias("n_close"),
        near.min().alias("accuracy_min_close"),
        near.max().alias("accuracy_max_close"),
        (small & (pl.col("delta") > close)).any().alias("unsaid"),
    )
    return (
        tables.cells.select("cell", *OF_CELLS)
        .join(of_runs, on="cell", how="left")
        .join(_spread(runs.filter(known)), on="cell", how="left")
        .join(_churn(tables, close), on="cell", how="left")
        .with_columns(
            pl.when(~pl.col("unsaid")).then(pl.col(name)).alias(name)
            for name in ("n_close", "accuracy_min_close", "accuracy_max_close", *_PAIRS_CLOSE)
        )
        .drop("unsaid")
        .sort("cell")
    )


def _spread(judged: pl.DataFrame) -> pl.DataFrame:
    """Return mean and pooled standard deviation of the accuracies of judged runs."""
    freedom, variance = pl.col("n") - 1, pl.col("variance")
    pooled = (total((freedom * variance).fill_null(0.0)) / total(freedom)).sqrt().fill_nan(None)
    return (
        judged.sort(*REPEAT, "run_index")
        .group_by(REPEAT, maintain_order=True)
        .agg(
            pl.len().cast(pl.Float64).alias("n"),
            pl.col("accuracy").mean(),
            pl.col("accuracy").var().alias("variance"),
        )
        .group_by("cell", maintain_order=True)
        .agg(
            pl.col("accuracy").mean().alias("accuracy_mean_judged"),
            pooled.alias("accuracy_std_judged"),
        )
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
    known = pl.col("alpha_run_i").is_not_null() & pl.col("alpha_run_j").is_not_null()
    judged = pl.col("churn").filter(known)
    compared = pairs.group_by("cell").agg(
        pl.len().alias("n_pairs"),
        pl.col("churn").min().alias("churn_min"),
        pl.col("churn").max().alias("churn_max"),
        judged.len().alias("n_pairs_judged"),
        judged.min().alias("churn_min_judged"),
        judged.max().alias("churn_max_judged"),
        near.len().alias("n_pairs_close"),
        near.min().alias("churn_min_close"),
        near.max().alias("churn_max_close"),
    )
    return compared.collect(engine="streaming")
