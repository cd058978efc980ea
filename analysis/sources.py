"""Sources of randomness compared: RKS, Tables II and III."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from analysis.ensembles import CLOSE
from analysis.means import mean_of, std_of
from analysis.tables import Tables

BY = ("dataset", "classifier", "vary")


def sources(tables: Tables, by: Sequence[str] = BY, close: float = CLOSE) -> pl.DataFrame:
    """Compare what different sources of randomness do to accuracy and churn.

    Identical runs count once, and pairs of identical runs don't.

    Parameters
    ----------
    tables : Tables
        With the columns `by` joined.
    by : sequence of str
        Columns that say what is compared; `vary` is the source of randomness.
    close : float
        α̂ up to which a run is close to the others.

    Returns
    -------
    polars frame
        Columns of `by`; of Table II `n_runs`, `accuracy_mean`, `accuracy_std` (n - 1),
        `accuracy_min`, `accuracy_max`, `ensemble_accuracy` (mean over repeats), `n_close`,
        `accuracy_min_close` and `accuracy_max_close` (of runs with α̂ at most `close`); of Table III
        `n_pairs`, `churn_min`, `churn_max` (shares of test points), `n_pairs_close`,
        `churn_min_close` and `churn_max_close` (both runs close). Null where nothing is defined.
    """
    runs = tables.runs.filter(~pl.col("identical"))
    near = pl.col("accuracy").filter(pl.col("alpha_hat") <= close)
    of_runs = runs.group_by(by).agg(
        pl.len().alias("n_runs"),
        mean_of(pl.col("accuracy")).alias("accuracy_mean"),
        std_of(pl.col("accuracy")).alias("accuracy_std"),
        pl.col("accuracy").min().alias("accuracy_min"),
        pl.col("accuracy").max().alias("accuracy_max"),
        near.len().alias("n_close"),
        near.min().alias("accuracy_min_close"),
        near.max().alias("accuracy_max_close"),
    )
    of_repeats = tables.repeats.group_by(by).agg(mean_of(pl.col("ensemble_accuracy")))
    return (
        of_runs.join(of_repeats, on=by, how="left")
        .join(_churn(tables, by, close), on=by, how="left")
        .sort(by)
    )


def _churn(tables: Tables, by: Sequence[str], close: float) -> pl.DataFrame:
    repeat = ["cell", "repeat_index"]
    same = tables.repeats.filter(pl.col("identical")).select(repeat)
    # Pairs are many: one pass over them, of the columns that are used.
    pairs = tables.pairs.lazy().join(same.lazy(), on=repeat, how="anti")
    for side in ("run_i", "run_j"):
        levels = tables.runs.lazy().select(
            *repeat, pl.col("run_index").alias(side), pl.col("alpha_hat").alias(f"alpha_{side}")
        )
        pairs = pairs.join(levels, on=[*repeat, side], how="left")
    both = (pl.col("alpha_run_i") <= close) & (pl.col("alpha_run_j") <= close)
    near = pl.col("churn").filter(both)
    compared = pairs.group_by(by).agg(
        pl.len().alias("n_pairs"),
        pl.col("churn").min().alias("churn_min"),
        pl.col("churn").max().alias("churn_max"),
        near.len().alias("n_pairs_close"),
        near.min().alias("churn_min_close"),
        near.max().alias("churn_max_close"),
    )
    return compared.collect(engine="streaming")
