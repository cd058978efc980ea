"""What a plan costs in hours, before anything is submitted.

The plan holds what a fit of each cell is expected to take on one core; what has run corrects it,
for its own dataset and classifier or, where these have not run, for the classifier.
"""

from __future__ import annotations

import numpy as np
import polars as pl

from manyseed.jobs.scales import NETWORKS
from manyseed.orchestrator.paths import SweepPaths
from manyseed.orchestrator.plans.groups import Groups
from manyseed.orchestrator.plans.plan import WITH_METHOD, Plan
from manyseed.orchestrator.store.layout.arrays import DONE
from manyseed.orchestrator.store.layout.groups import find_group
from manyseed.orchestrator.store.reading.reader import read_array

GPU_SPEEDUP = 20.0
"""How many cores train as much as one GPU does with many seeds at once (a choice)."""

OBSERVED = pl.Schema({"cell": pl.UInt32(), "n": pl.UInt32(), "observed": pl.Float64()})
"""Columns of `observed_seconds`: how many fits of a cell ran, and the seconds of all together."""

MEASURING = pl.Schema({"cell": pl.UInt32(), "measuring": pl.Float64()})
"""Columns of `plans.measuring.planned_seconds`: what asking a trained model for its response curves
takes, which no fit's time holds."""

_PAIR = ["dataset", "classifier"]


def seconds(
    plan: Plan, observed: pl.DataFrame | None = None, measuring: pl.DataFrame | None = None
) -> pl.DataFrame:
    """Return what a run of each cell takes: the fit, and what is measured of it afterwards.

    Parameters
    ----------
    plan : Plan
    observed : DataFrame, optional
        As `observed_seconds` returns it; corrects what was expected of fits.
    measuring : DataFrame, optional
        Columns `MEASURING`.

    Returns
    -------
    DataFrame
        Of the cells that were not dropped, by number: cell, seconds (a run's, on one core or on
        one GPU), device ("cpu" or "gpu", the resource class requested).
    """
    whole = pl.col("seconds") + pl.col("measuring")
    return _priced(plan.cells, observed, measuring).select("cell", whole, "device")


def beyond(
    plan: Plan,
    hours: float,
    observed: pl.DataFrame | None = None,
    measuring: pl.DataFrame | None = None,
) -> pl.DataFrame:
    """Return the classifiers whose fits end in no job of `hours`, and cannot go on in a next one.

    Networks save themselves after each epoch but the last and go on; what is not trained in epochs
    starts anew, and so does measuring.

    Parameters
    ----------
    plan : Plan
    hours : float
    observed, measuring
        As `seconds` takes them.

    Returns
    -------
    DataFrame
        Columns classifier, dataset, hours (the longest that a fit, or a network's epoch, takes,
        with what is measured afterwards); the longest first.
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
        Fits of the search that a pair with tuned hparams needs; one for a scale has its own.
    observed : DataFrame
        As `observed_seconds` returns it.

    Returns
    -------
    DataFrame
        Columns dataset, classifier, fits, fit_seconds (mean), longest_seconds, core_hours,
        gpu_hours; in the order of the cells.
    """
    repeats, runs = pl.col("repeats").cast(pl.Int64), pl.col("runs").cast(pl.Int64)
    search = pl.when((pl.col("hparams") == "tuned").any()).then(draws).otherwise(0)
    scaled = pl.col("canonical").str.contains('"scale":"tuned"', literal=True)
    search += NETWORKS * pl.col("canonical").filter(scaled).n_unique()
    per_pair = (
        _priced(cells, observed)
        .with_columns(fits=repeats * pl.when("identical").then(1).otherwise(runs))
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
    """Return cells with the columns seconds (of a fit, as corrected) and measuring.

    Both on the requested device. The classifier is as `WITH_METHOD` has it.
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
    own = ran.group_by(_PAIR).agg(own=ratio)
    alike = ran.group_by("classifier").agg(alike=ratio)
    return (
        expected.join(own, on=_PAIR, how="left", maintain_order="left")
        .join(alike, on="classifier", how="left", maintain_order="left")
        .with_columns(pl.col("seconds") * pl.coalesce("own", "alike", 1.0))
        .drop("own", "alike")
    )


def observed_seconds(paths: SweepPaths, plan: Plan, groups: Groups) -> pl.DataFrame:
    """Return what published fits took: columns `OBSERVED`."""
    found = [pl.DataFrame(schema={"cell": pl.UInt32, "observed": pl.Float64})]
    for spec in groups.specs:
        if (group := find_group(paths.store, spec)) is None:
            continue
        took = read_array(group, "fit_seconds").astype(np.float64)
        trained = (read_array(group, "status") == DONE) & np.isfinite(took)
        cell = read_array(group, "cell")[trained].astype(np.uint32)
        found.append(pl.DataFrame({"cell": cell, "observed": took[trained]}))
    known = pl.concat(found).filter(pl.col("cell") < len(plan.all_cells))
    return known.group_by("cell").agg(pl.len().alias("n"), pl.col("observed").sum())
