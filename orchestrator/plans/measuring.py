"""What measuring response curves takes, beside the fits."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from manyseed.jobs.hparams.grid import is_written
from manyseed.jobs.response.cost import response_seconds
from manyseed.orchestrator.grids.expansion import Expansion
from manyseed.orchestrator.plans.cost import GPU_SPEEDUP
from manyseed.orchestrator.store.layout.schema import GroupSpec


def response_hours(
    cells: pl.DataFrame, expansion: Expansion, specs: Sequence[GroupSpec]
) -> pl.DataFrame:
    """Return what measuring response curves takes, which no fit's time holds.

    Parameters
    ----------
    cells : DataFrame
        A plan's cells with repeats and runs.
    expansion : Expansion
        What the plan knows of their datasets and classifiers.
    specs : sequence of GroupSpec

    Returns
    -------
    DataFrame
        Columns dataset, classifier, response_hours (of the device that the classifier requests), of
        the pairs that have any.
    """
    asked = {spec.number: spec.asked for spec in specs if spec.response}
    found: dict[tuple[str, str], float] = {}
    runs = pl.when("identical").then(1).otherwise(pl.col("runs").cast(pl.Int64))
    sizes = (
        cells.filter(pl.col("group").is_in(list(asked)))
        .group_by("group", "dataset", "classifier", "hparams", "train_fraction")
        .agg(fits=(pl.col("repeats").cast(pl.Int64) * runs).sum())
    )
    for group, dataset, classifier, hparams, fraction, fits in sizes.iter_rows():
        data, model = expansion.datasets[dataset], expansion.classifiers[classifier, dataset]
        model = model.at(hparams) if is_written(hparams) else model
        rows = fraction if fraction > 1 else fraction * data.n_train
        own = asked[group]
        assert own is not None
        speed = GPU_SPEEDUP if model.device == "gpu" else 1.0
        hours = fits * response_seconds(data, model, own, rows) / speed / 3600
        found[dataset, classifier] = found.get((dataset, classifier), 0.0) + hours
    schema = {"dataset": pl.String, "classifier": pl.String, "response_hours": pl.Float64}
    return pl.DataFrame(
        [(*key, hours) for key, hours in found.items()], schema=schema, orient="row"
    )
