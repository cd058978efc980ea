"""What tests of imports ask of a sweep."""

from __future__ import annotations

import polars as pl

from manyseed.orchestrator.computing.inputs import published
from manyseed.orchestrator.plans.plan import Plan
from manyseed.orchestrator.store.reader import read_array
from manyseed.orchestrator.sweep import Sweep
from manyseed.orchestrator.upkeep import publish_finished


def runs_of(sweep: Sweep) -> pl.DataFrame:
    """Return the runs with their accuracy, counted from what is stored: an analysis takes longer.

    Rows are in the order of the store.
    """
    publish_finished(sweep.paths)
    plan, tables = Plan.read(sweep.paths), []
    for group in published(sweep.paths, plan):
        runs = group.predictions.runs
        label = read_array(group.group, "label")[runs["row"].to_numpy(), -1]
        right = label == group.predictions.y_true[runs["repeat_index"].to_numpy()]
        tables.append(runs.with_columns(accuracy=right.mean(axis=1)))
    axes = plan.cells.select("cell", "dataset", "classifier", "train_fraction", "hparams")
    return pl.concat(tables).join(axes, on="cell", maintain_order="left")
