"""Learning curves: what the runs of a repeat reach, epoch by epoch."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import polars as pl

from manyseed.analysis.tables.means import mean_of, std_of
from manyseed.orchestrator.store.arrays import CURVES
from manyseed.orchestrator.store.encoding import Array

CURVE_KEY = ["cell", "repeat_index", "trained_epoch"]
CURVE_ARRAYS = (*CURVES, "trained_epoch")


def learning_curves(stored: Mapping[str, Array], runs: pl.DataFrame) -> pl.DataFrame:
    """Summarise the curves of each repeat of a group, without copies of runs.

    Parameters
    ----------
    stored : mapping
        The arrays `CURVE_ARRAYS` of a group; those in `CURVES` are (run, trained_epoch).
    runs : DataFrame
        Its finished runs, as `analysis.graph.predictions.Predictions` has them.

    Returns
    -------
    DataFrame
        Columns `CURVE_KEY`, n_runs, and for each curve the mean over runs and, with the suffixes
        ``_std`` (n - 1), ``_min`` and ``_max``, the spread.
    """
    distinct = runs.filter(~pl.col("identical"))
    rows, epochs = distinct["row"].to_numpy(), stored["trained_epoch"]
    long = pl.DataFrame(
        {
            "cell": np.repeat(distinct["cell"].to_numpy(), len(epochs)),
            "repeat_index": np.repeat(distinct["repeat_index"].to_numpy(), len(epochs)),
            "trained_epoch": np.tile(epochs, len(rows)),
            **{name: stored[name][rows].reshape(-1).astype(float) for name in CURVES},
        }
    ).with_columns(pl.col(*CURVES).fill_nan(None))
    summaries = [
        summary
        for name in CURVES
        for summary in (
            mean_of(pl.col(name)),
            std_of(pl.col(name)).alias(f"{name}_std"),
            pl.col(name).min().alias(f"{name}_min"),
            pl.col(name).max().alias(f"{name}_max"),
        )
    ]
    return (
        long.group_by(CURVE_KEY, maintain_order=True)
        .agg(pl.len().cast(pl.UInt32).alias("n_runs"), *summaries)
        .sort(CURVE_KEY)
    )
