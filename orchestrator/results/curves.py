"""Learning curves: how the runs of a repeat do, epoch after epoch."""

from __future__ import annotations

import numpy as np
import polars as pl
import xarray as xr

from analysis.means import mean_of, std_of
from orchestrator.store.arrays import CURVES

KEY = ["cell", "repeat_index", "trained_epoch"]


def learning_curves(data: xr.Dataset, runs: pl.DataFrame) -> pl.DataFrame:
    """Describe the curves of each repeat of a group, copies of a run left out.

    Parameters
    ----------
    data : Dataset
        A group whose store has `CURVES`, (run, trained_epoch).
    runs : DataFrame
        Its finished runs, as `analysis.predictions.Predictions` has them.

    Returns
    -------
    DataFrame
        Columns `KEY`, n_runs, and of each curve the mean, and ending in ``_std`` (n - 1), ``_min``
        and ``_max`` the spread over runs.
    """
    distinct = runs.filter(~pl.col("identical"))
    rows, epochs = distinct["row"].to_numpy(), data["trained_epoch"].to_numpy()
    long = pl.DataFrame(
        {
            "cell": np.repeat(distinct["cell"].to_numpy(), len(epochs)),
            "repeat_index": np.repeat(distinct["repeat_index"].to_numpy(), len(epochs)),
            "trained_epoch": np.tile(epochs, len(rows)),
            **{name: data[name].to_numpy()[rows].reshape(-1).astype(float) for name in CURVES},
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
        long.group_by(KEY, maintain_order=True)
        .agg(pl.len().cast(pl.UInt32).alias("n_runs"), *summaries)
        .sort(KEY)
    )
