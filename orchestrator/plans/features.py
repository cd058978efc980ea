"""The hours that features of frozen backbones take, besides the fits that use them."""

from __future__ import annotations

import polars as pl

from manyseed.orchestrator.grids.expansion import Expansion
from manyseed.orchestrator.plans.cost import GPU_SPEEDUP


def feature_hours(cells: pl.DataFrame, expansion: Expansion) -> pl.DataFrame:
    """Return the hours that features of frozen backbones take; durations of fits exclude them.

    Features of a dataset are computed once, those of perturbed rows for each run.

    Parameters
    ----------
    cells : DataFrame
        A plan's cells with repeats and runs.
    expansion : Expansion
        Describes their datasets and classifiers.

    Returns
    -------
    DataFrame
        Columns dataset, classifier, feature_hours (of the requested device); only pairs that use
        such features.
    """
    rows = []
    known = set()
    for (dataset, classifier), own in cells.group_by("dataset", "classifier", maintain_order=True):
        data = expansion.datasets[str(dataset)]
        model = expansion.classifiers[str(classifier), str(dataset)]
        if model.record.image_seconds is not None:
            each = model.record.image_seconds(model.canonical)
            kept = (data.id, model.canonical["weights"])
            images = _perturbed_rows(own, data.n_train) + (0 if kept in known else data.n_samples)
            known.add(kept)
            speed = GPU_SPEEDUP if model.device == "gpu" else 1.0
            rows.append((dataset, classifier, images * each / speed / 3600))
    schema = {"dataset": pl.String, "classifier": pl.String, "feature_hours": pl.Float64}
    return pl.DataFrame(rows, schema=schema, orient="row")


def _perturbed_rows(cells: pl.DataFrame, n_train: int) -> float:
    """Return the total number of training rows of all fits on perturbed data."""
    fraction = pl.col("train_fraction")
    rows = pl.when(fraction > 1).then(fraction).otherwise(fraction * n_train)
    runs = pl.when("identical").then(1).otherwise(pl.col("runs").cast(pl.Int64))
    fits = pl.col("repeats").cast(pl.Int64) * runs
    data = pl.col("perturb_continuous", "perturb_categorical")
    total: float = (
        cells.filter(pl.any_horizontal(data != "none")).select((rows * fits).sum()).item()
    )
    return total
