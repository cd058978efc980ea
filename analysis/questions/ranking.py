"""Which run should I keep: RKS, Tables IV and V."""

from __future__ import annotations

import polars as pl

from manyseed.analysis.options import CLOSE

COMPARED = ("accuracy", "alpha_hat", "ece", "churn_ensemble", "churn_mean")
REPEAT = ("cell", "repeat_index")


def ranked(runs: pl.DataFrame, close: float = CLOSE, within: float | None = None) -> pl.DataFrame:
    """Rank the runs of each repeat by the source's rule: small α̂ first, then high accuracy.

    A run is close where its α̂ is at most `close`. Close runs come before the others and those
    without α̂; within either, the more accurate one, then the one of smaller α̂, then of smaller run
    index. Copies of a run are left out.

    Parameters
    ----------
    runs : polars frame
        The table of runs.
    close : float
        α̂ up to which a run stands for the training.
    within : float or None
        Keep only runs whose accuracy is at most this below the best of their repeat, as Table IV
        compares models of similar accuracy.

    Returns
    -------
    polars frame
        The columns of `runs`, in order of `cell`, `repeat_index` and `rank` (1 is best), and
        `close`.
    """
    near = pl.col("alpha_hat").le(close).fill_null(False)
    shown = runs.filter(~pl.col("identical")).with_columns(near.alias("close"))
    if within is not None:
        best = pl.col("accuracy").max().over(REPEAT)
        shown = shown.filter(pl.col("accuracy") >= best - within)
    return shown.sort(
        *REPEAT,
        "close",
        "accuracy",
        "alpha_hat",
        "run_index",
        descending=[False, False, True, True, False, False],
        nulls_last=True,
    ).with_columns(rank=pl.int_range(1, pl.len() + 1, dtype=pl.UInt32).over(REPEAT))
