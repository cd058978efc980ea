"""What a plan costs in hours, before anything is submitted.

A fit's time is a table's entry for its classifier and size, times the share of the training
part that it uses; what has run corrects the table, for its own dataset and classifier or, where
these have not run, for the classifier. ``docs/sweep-file.md`` says where the table comes from.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import polars as pl

from jobs.classifiers import ClassifierInfo
from jobs.datasets import DatasetInfo
from orchestrator.groups import Groups
from orchestrator.paths import SweepPaths
from orchestrator.plan import Plan
from orchestrator.store.arrays import DONE
from orchestrator.store.groups import METADATA, open_group
from orchestrator.store.reader import read_array

MANY_CLASSES = 300
GPU_SPEEDUP = 20.0
"""How many cores train as much as one GPU does with many seeds at once (a choice)."""

ROWS: Mapping[str, int] = {"small": 634, "medium": 10_000, "large": 190_000}
"""Training rows that an entry of `SECONDS` stands for; between them times follow a power law."""

SECONDS: Mapping[str, Mapping[str, float]] = {
    "lr-sgd": {"small": 0.01, "medium": 4.6, "large": 42.3, "many classes": 2712.0},
    "svm-sgd": {"small": 0.006, "medium": 2.8, "large": 25.1, "many classes": 1920.0},
    "xgb": {"small": 0.07, "medium": 4.9, "large": 59.3, "many classes": 312.0},
    "mlp": {"small": 1.5, "medium": 38.0, "large": 216.0, "many classes": 180.0},
}
"""Seconds a fit on one core. Small: measured, in a warm worker, on vehicle's shape. The others are
the tabular study's (MV, Runtime considerations): median and 95th percentile over its datasets, at
the sizes that have these ranks, and the mean of its "VerySlow" ones, aloi and dionis."""

_MLP_EPOCHS = 20
IMAGE_SECONDS: Mapping[str, float] = {"cnn": 2e-7, "vit": 1.2e-6, "vit-transfer": 1.6e-8}
"""Seconds an epoch, a training row and a pixel value, on one core (measured on 32 × 32 × 3)."""


def seconds(dataset: DatasetInfo, classifier: ClassifierInfo) -> float:
    """Return the expected time of a fit on the whole training part: of a core, or of a GPU."""
    name = str(classifier.canonical["name"])
    if name in SECONDS:
        expected = _tabular(SECONDS[name], dataset)
        expected *= (classifier.epochs or _MLP_EPOCHS) / _MLP_EPOCHS
    else:
        values = dataset.n_train * dataset.n_features * (classifier.epochs or 1)
        expected = IMAGE_SECONDS[name] * values
    return expected / GPU_SPEEDUP if classifier.device == "gpu" else expected


def _tabular(entries: Mapping[str, float], dataset: DatasetInfo) -> float:
    """Return an entry at a dataset's rows: proportional outside of the table, else between two."""
    rows = dataset.n_train
    if len(dataset.class_names) >= MANY_CLASSES:
        return entries["many classes"]
    if rows <= ROWS["small"]:
        return entries["small"] * rows / ROWS["small"]
    if rows >= ROWS["large"]:
        return entries["large"] * rows / ROWS["large"]
    known = list(ROWS)
    sizes = np.log([ROWS[size] for size in known])
    times = np.log([entries[size] for size in known])
    return float(np.exp(np.interp(np.log(rows), sizes, times)))


def estimate(
    cells: pl.DataFrame,
    datasets: Mapping[str, DatasetInfo],
    classifiers: Mapping[tuple[str, str], ClassifierInfo],
    draws: int,
    observed: pl.DataFrame,
) -> pl.DataFrame:
    """Return fits and hours of each dataset and classifier.

    Parameters
    ----------
    cells : DataFrame
        A plan's cells with repeats and runs.
    datasets, classifiers
        By name, and by (classifier, dataset).
    draws : int
        Fits of the search that a pair with tuned hparams needs.
    observed : DataFrame
        As `observed_seconds` returns it.

    Returns
    -------
    DataFrame
        Columns dataset, classifier, fits, fit_seconds (mean), longest_seconds, core_hours,
        gpu_hours; in the order of the cells.
    """
    by = ["dataset", "classifier"]
    pairs = cells.select(by).unique(maintain_order=True)
    seeds = pairs.with_columns(
        pl.Series(
            "seed",
            [seconds(datasets[d], classifiers[c, d]) for d, c in pairs.iter_rows()],
            dtype=pl.Float64,
        ),
        pl.Series("n_train", [datasets[d].n_train for d, _ in pairs.iter_rows()], dtype=pl.Int64),
        pl.Series(
            "device", [classifiers[c, d].device for d, c in pairs.iter_rows()], dtype=pl.String
        ),
    )
    fraction = pl.col("train_fraction")
    share = pl.when(fraction > 1).then(fraction / pl.col("n_train")).otherwise(fraction)
    repeats = pl.col("repeats").cast(pl.Int64)
    fits = repeats * pl.when("identical").then(1).otherwise(pl.col("runs"))
    priced = (
        cells.drop("device")
        .join(seeds, on=by, maintain_order="left")
        .join(observed, on="cell", how="left", maintain_order="left")
        .with_columns(expected=pl.col("seed") * share, fits=fits)
    )
    ratio = pl.col("observed").sum() / (pl.col("expected") * pl.col("n")).sum()
    ran = priced.filter(pl.col("n") > 0)
    own = ran.group_by(by).agg(own=ratio)
    alike = ran.group_by("classifier").agg(alike=ratio)
    search = pl.when((pl.col("hparams") == "tuned").any()).then(draws).otherwise(0)
    per_pair = (
        priced.join(own, on=by, how="left", maintain_order="left")
        .join(alike, on="classifier", how="left", maintain_order="left")
        .with_columns(each=pl.col("expected") * pl.coalesce("own", "alike", 1.0))
        .group_by(by, maintain_order=True)
        .agg(
            pl.col("device").first(),
            fits=pl.col("fits").sum() + search,
            total=(pl.col("each") * pl.col("fits")).sum() + search * pl.col("each").max(),
            longest_seconds=pl.col("each").max(),
        )
    )
    hours, on_gpu = pl.col("total") / 3600, pl.col("device") == "gpu"
    return per_pair.select(
        *by,
        "fits",
        (pl.col("total") / pl.col("fits")).alias("fit_seconds"),
        "longest_seconds",
        pl.when(on_gpu).then(0.0).otherwise(hours).alias("core_hours"),
        pl.when(on_gpu).then(hours).otherwise(0.0).alias("gpu_hours"),
    )


def observed_seconds(paths: SweepPaths, plan: Plan, groups: Groups) -> pl.DataFrame:
    """Return what published fits took: columns cell, n, observed (seconds of all n together)."""
    found = [pl.DataFrame(schema={"cell": pl.UInt32, "observed": pl.Float64})]
    for spec in groups.specs:
        if not (paths.store / spec.path / METADATA).exists():
            continue
        group = open_group(paths.store, spec.path)
        took = read_array(group, "fit_seconds").astype(np.float64)
        trained = (read_array(group, "status") == DONE) & np.isfinite(took)
        cell = read_array(group, "cell")[trained].astype(np.uint32)
        found.append(pl.DataFrame({"cell": cell, "observed": took[trained]}))
    known = pl.concat(found).filter(pl.col("cell") < len(plan.all_cells))
    return known.group_by("cell").agg(pl.len().alias("n"), pl.col("observed").sum())
