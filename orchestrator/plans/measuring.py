"""Hours besides those of fits: measuring response curves, and features of frozen backbones."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from manyseed.jobs.hparams.grid import is_written
from manyseed.jobs.response.resolution import response_seconds
from manyseed.orchestrator.errors import UnavailableError, UserError
from manyseed.orchestrator.grids.expansion import Expansion, expand
from manyseed.orchestrator.grids.loading import read_sweep_file
from manyseed.orchestrator.paths import SweepPaths
from manyseed.orchestrator.plans.cost import FITS, GPU_SPEEDUP, MEASURING
from manyseed.orchestrator.plans.own import own_code
from manyseed.orchestrator.plans.plan import Plan
from manyseed.orchestrator.store.schema import GroupSpec


def response_hours(
    cells: pl.DataFrame, expansion: Expansion, specs: Sequence[GroupSpec]
) -> pl.DataFrame:
    """Return the hours that measuring response curves takes; durations of fits exclude them.

    Parameters
    ----------
    cells : DataFrame
        A plan's cells with repeats and runs.
    expansion : Expansion
        Describes their datasets and classifiers.

    Returns
    -------
    DataFrame
        Columns dataset, classifier, response_hours (of the requested device); only pairs whose
        curves are measured.
    """
    return (
        _measured(cells, expansion, specs)
        .group_by("dataset", "classifier", maintain_order=True)
        .agg(response_hours=(FITS * pl.col("measuring")).sum() / 3600)
    )


def feature_hours(cells: pl.DataFrame, expansion: Expansion) -> pl.DataFrame:
    """Return the hours that features of frozen backbones take; durations of fits exclude them.

    Features of a dataset are computed once, those of perturbed rows for each run.

    Parameters
    ----------
    cells, expansion
        As in `response_hours`.

    Returns
    -------
    DataFrame
        Columns dataset, classifier, feature_hours (of the requested device); only pairs that use
        such features.
    """
    rows = []
    known = set()
    pairs = cells.select("dataset", "classifier").unique(maintain_order=True)
    for dataset, classifier in pairs.iter_rows():
        data, model = expansion.datasets[dataset], expansion.classifiers[classifier, dataset]
        if model.record.image_seconds is not None:
            each = model.record.image_seconds(model.canonical)
            kept = (data.id, model.canonical["weights"])
            of_pair = cells.filter(dataset=dataset, classifier=classifier)
            images = _perturbed_rows(of_pair, data.n_train)
            images += 0 if kept in known else data.n_samples
            known.add(kept)
            speed = GPU_SPEEDUP if model.device == "gpu" else 1.0
            rows.append((dataset, classifier, images * each / speed / 3600))
    schema = {"dataset": pl.String, "classifier": pl.String, "feature_hours": pl.Float64}
    return pl.DataFrame(rows, schema=schema, orient="row")


def _perturbed_rows(cells: pl.DataFrame, n_train: int) -> float:
    """Return the total number of training rows of all fits on perturbed data."""
    fraction = pl.col("train_fraction")
    rows = pl.when(fraction > 1).then(fraction).otherwise(fraction * n_train)
    perturbed = pl.any_horizontal(pl.col("perturb_continuous", "perturb_categorical") != "none")
    return float(cells.filter(perturbed).select((rows * FITS).sum()).item())


def planned_seconds(paths: SweepPaths, plan: Plan, specs: Sequence[GroupSpec]) -> pl.DataFrame:
    """Return how long measuring a model takes, for `cost.seconds` and `cost.beyond`.

    Empty if the sweep file can no longer be read as it was planned: this is only an estimate, and
    training does not need it.

    Returns
    -------
    DataFrame
        Columns `cost.MEASURING`; only cells whose models are measured.
    """
    if any(spec.response for spec in specs):
        try:
            file = read_sweep_file(paths.sweep_file)
            own = own_code(paths.sweep_file, paths).as_planned()
            return measuring_seconds(plan.cells, expand(file, paths.sweep_file, own), specs)
        except (UserError, UnavailableError, KeyError):
            pass
    return pl.DataFrame(schema=MEASURING)


def measuring_seconds(
    cells: pl.DataFrame, expansion: Expansion, specs: Sequence[GroupSpec]
) -> pl.DataFrame:
    """Return the same, given the expansion of the sweep file.

    Parameters
    ----------
    cells, expansion, specs
        As in `response_hours`; `cells` need not have repeats and runs.
    """
    return _measured(cells, expansion, specs).select(*MEASURING)


def _measured(
    cells: pl.DataFrame, expansion: Expansion, specs: Sequence[GroupSpec]
) -> pl.DataFrame:
    """Return the cells whose models are measured, and the column measuring: seconds per model."""
    asked = {spec.number: spec.asked for spec in specs if spec.response}
    by = ["group", "dataset", "classifier", "hparams", "train_fraction"]
    measured = cells.filter(pl.col("group").is_in(list(asked)))
    distinct = measured.select(by).unique(maintain_order=True)
    seconds = []
    for group, dataset, classifier, hparams, fraction in distinct.iter_rows():
        data, model = expansion.datasets[dataset], expansion.classifiers[classifier, dataset]
        model = model.at(hparams) if is_written(hparams) else model
        rows = fraction if fraction > 1 else fraction * data.n_train
        questions = asked[group]
        assert questions is not None
        speed = GPU_SPEEDUP if model.device == "gpu" else 1.0
        seconds.append(response_seconds(data, model, questions, rows) / speed)
    each = distinct.with_columns(measuring=pl.Series(seconds, dtype=pl.Float64))
    return measured.join(each, on=by, how="inner", maintain_order="left")
