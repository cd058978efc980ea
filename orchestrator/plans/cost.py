"""What a plan costs in hours, before anything is submitted.

The plan holds how long a fit of each cell is expected to take on one core. Durations of finished
fits correct it: those of the same dataset and classifier or, if there are none, of the classifier.
"""

from __future__ import annotations

import numpy as np
import polars as pl

from manyseed.jobs.scales import NETWORKS
from manyseed.orchestrator.paths import SweepPaths
from manyseed.orchestrator.plans.groups import Groups
from manyseed.orchestrator.plans.plan import WITH_METHOD, Plan
from manyseed.orchestrator.store.arrays import DONE
from manyseed.orchestrator.store.groups import find_group
from manyseed.orchestrator.store.reader import read_array

GPU_SPEEDUP = 20.0
"""How many cores train as fast as one GPU with many seeds at once (a choice)."""

OBSERVED = pl.Schema({"cell": pl.UInt32(), "n": pl.UInt32(), "observed": pl.Float64()})
"""Columns of `observed_seconds`: how many fits of a cell finished, and their total seconds."""

MEASURING = pl.Schema({"cell": pl.UInt32(), "measuring": pl.Float64()})
"""Columns of `plans.measuring.planned_seconds`: how many seconds measuring the response curves of a
trained model takes, which the duration of its fit excludes."""

FITS = pl.col("repeats").cast(pl.Int64) * pl.when("identical").then(1).otherwise(
    pl.col("runs").cast(pl.Int64)
)
"""How many fits a cell with repeats and runs needs: identical runs are fitted once per repeat."""

_PAIR = ["dataset", "classifier"]


def seconds(
    plan: Plan, observed: pl.DataFrame | None = None, measuring: pl.DataFrame | None = None
) -> pl.DataFrame:
    """Return how long a run of each cell takes: its fit and the measurements after it.

    Parameters
    ----------
    observed : DataFrame, optional
        As returned by `observed_seconds`; corrects the expected durations.
    measuring : DataFrame, optional
        Columns `MEASURING`.

    Returns
    -------
    DataFrame
        A row per cell that was not dropped: cell, seconds (of a run, on one core or one GPU),
        device ("cpu" or "gpu", the requested resource class).
    """
    whole = pl.col("seconds") + pl.col("measuring")
    return _priced(plan.cells, observed, measuring).select("cell", whole, "device")


def beyond(
    plan: Plan,
    hours: float,
    observed: pl.DataFrame | None = None,
    measuring: pl.DataFrame | None = None,
) -> pl.DataFrame:
    """Return the classifiers whose fits cannot finish in jobs of `hours`, even by continuing.

    Networks save a checkpoint after each epoch but the last and continue in the next job; fits
    without epochs start over, and so do measurements.

    Parameters
    ----------
    observed, measuring
        As in `seconds`.

    Returns
    -------
    DataFrame
        Columns classifier, dataset, hours (of the longest fit, or epoch of a network, with the
        measurements after it); the longest first.
    """
    last_epoch = pl.col("snapshots").list.last().fill_null(1)
    return (
        _priced(plan.cells, observed, measuring)
        .with_columns(stretch=pl.col("seconds") / last_epoch + pl.col("measuring"))
        .group_by("classifier", "dataset", maintain_order=True)
        .agg(hours=pl.col("stretch").max() / 3600)
        .filter(pl.col("hours") > hours)
        .sort("hours", descending=True, maintain_order=True)
    )


def estimate(cells: pl.DataFrame, draws: int, observed: pl.DataFrame) -> pl.DataFrame:
    """Return fits and hours of each dataset and classifier.

    Parameters
    ----------
    cells : DataFrame
        A plan's cells with repeats and runs.
    draws : int
        Fits of the search of a pair with tuned hparams; a search for a scale has its own number.
    observed : DataFrame
        As returned by `observed_seconds`.

    Returns
    -------
    DataFrame
        Columns dataset, classifier, fits, fit_seconds (mean), longest_seconds, core_hours,
        gpu_hours; in the order of the cells.
    """
    search = pl.when((pl.col("hparams") == "tuned").any()).then(draws).otherwise(0)
    scaled = pl.col("canonical").str.contains('"scale":"tuned"', literal=True)
    search += NETWORKS * pl.col("canonical").filter(scaled).n_unique()
    per_pair = (
        _priced(cells, observed)
        .with_columns(fits=FITS)
        .group_by(_PAIR, maintain_order=True)
        .agg(
            pl.col("device").first(),
            fits=pl.col("fits").sum() + search,
            total=(pl.col("seconds") * pl.col("fits")).sum() + search * pl.col("seconds").max(),
            longest_seconds=pl.col("seconds").max(),
        )
    )
    hours, on_gpu = pl.col("total") / 3600, pl.col("device") == "gpu"
    return per_pair.select(
        *_PAIR,
        "fits",
        (pl.col("total") / pl.col("fits")).alias("fit_seconds"),
        "longest_seconds",
        pl.when(on_gpu).then(0.0).otherwise(hours).alias("core_hours"),
        pl.when(on_gpu).then(hours).otherwise(0.0).alias("gpu_hours"),
    )


def _priced(
    cells: pl.DataFrame, observed: pl.DataFrame | None, measuring: pl.DataFrame | None = None
) -> pl.DataFrame:
    """Add the columns seconds (of a fit, corrected) and measuring, both on the requested device.

    The column classifier becomes `WITH_METHOD`.
    """
    if measuring is None:
        measuring = pl.DataFrame(schema=MEASURING)
    cells = cells.join(measuring, on="cell", how="left", maintain_order="left")
    cells = cells.with_columns(pl.col("measuring").fill_null(0.0))
    on_gpu = pl.col("device") == "gpu"
    expected = cells.with_columns(
        WITH_METHOD,
        seconds=pl.col("core_seconds") / pl.when(on_gpu).then(GPU_SPEEDUP).otherwise(1.0),
    )
    if observed is None or observed.is_empty():
        return expected
    ran = expected.join(observed, on="cell")
    ratio = pl.col("observed").sum() / (pl.col("seconds") * pl.col("n")).sum()
    of_pair = ran.group_by(_PAIR).agg(of_pair=ratio)
    of_classifier = ran.group_by("classifier").agg(of_classifier=ratio)
    return (
        expected.join(of_pair, on=_PAIR, how="left", maintain_order="left")
        .join(of_classifier, on="classifier", how="left", maintain_order="left")
        .with_columns(pl.col("seconds") * pl.coalesce("of_pair", "of_classifier", 1.0))
        .drop("of_pair", "of_classifier")
    )


def observed_seconds(paths: SweepPaths, plan: Plan, groups: Groups) -> pl.DataFrame:
    """Return the durations of published fits: columns `OBSERVED`."""
    frames = [pl.DataFrame(schema={"cell": pl.UInt32, "observed": pl.Float64})]
    for spec in groups.specs:
        if (group := find_group(paths.store, spec)) is None:
            continue
        took = read_array(group, "fit_seconds").astype(np.float64)
        trained = (read_array(group, "status") == DONE) & np.isfinite(took)
        cell = read_array(group, "cell")[trained].astype(np.uint32)
        frames.append(pl.DataFrame({"cell": cell, "observed": took[trained]}))
    known = pl.concat(frames).filter(pl.col("cell") < len(plan.all_cells))
    return known.group_by("cell").agg(pl.len().alias("n"), pl.col("observed").sum())
