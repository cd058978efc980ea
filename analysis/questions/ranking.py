"""Which run should I keep: RKS, Tables IV and V."""

from __future__ import annotations

import polars as pl

from manyseed.analysis.options import CLOSE
from manyseed.analysis.tables.rows import REPEAT

COMPARED = ("accuracy", "alpha_hat", "ece", "churn_ensemble", "churn_mean")
HELD_OUT = ("choosing_accuracy", "choosing_alpha_hat", "choosing_delta", "holdout_accuracy")


def close_or_not(alpha_hat: pl.Expr, delta: pl.Expr, close: float) -> pl.Expr:
    """Return whether runs are close; null if unknown.

    A run is close if its α̂ is at most `close` and the resolution δ is, too: with a larger δ,
    contamination of size `close` isn't seen. An α̂ above `close` shows at any δ that the run is not
    close. Without α̂ it is unknown.
    """
    return (
        pl.when(alpha_hat > close)
        .then(pl.lit(value=False))
        .when(delta <= close)
        .then(alpha_hat <= close)
    )


def ranked(runs: pl.DataFrame, close: float = CLOSE, within: float | None = None) -> pl.DataFrame:
    """Rank the runs of each repeat by the rule of RKS: small α̂ first, then high accuracy.

    Runs whose α̂ is at most `close` come before all others; within both groups runs are ordered by
    descending accuracy, ascending α̂, then run index. Copies of a run are left out. The accuracy of
    the first run is optimistic, as it was chosen by it. If the analysis held out points
    (`HELD_OUT`), runs are chosen by α̂ and accuracy on the other points, and `holdout_accuracy` is
    not optimistic.

    Parameters
    ----------
    runs : polars frame
        The table of runs with `delta`, and with `choosing_delta` if points were held out.
    close : float
        Largest α̂ of a run that stands for the training.
    within : float or None
        Keep only runs whose accuracy is at most this much below the best of their repeat; Table IV
        compares models of similar accuracy.

    Returns
    -------
    polars frame
        The columns of `runs`, `rank` (1 is best) and `close` (`close_or_not`), sorted by `cell`,
        `repeat_index` and `rank`.
    """
    held_out = "choosing_accuracy" in runs.columns and runs["choosing_accuracy"].count() > 0
    accuracy, level, delta = (
        f"choosing_{name}" if held_out else name for name in ("accuracy", "alpha_hat", "delta")
    )
    shown = runs.filter(~pl.col("identical")).with_columns(
        pl.col(level).le(close).fill_null(value=False).alias("_near"),
        close_or_not(pl.col(level), pl.col(delta), close).alias("close"),
    )
    if within is not None:
        best = pl.col(accuracy).max().over(REPEAT)
        shown = shown.filter(pl.col(accuracy) >= best - within)
    ordered = shown.sort(
        *REPEAT,
        *("_near", accuracy, level, "run_index"),
        descending=[False, False, True, True, False, False],
        nulls_last=True,
    )
    rank = pl.int_range(1, pl.len() + 1, dtype=pl.UInt32).over(REPEAT)
    return ordered.drop("_near").with_columns(rank=rank)
