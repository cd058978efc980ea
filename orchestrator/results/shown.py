"""What a query shows of each table where no columns are named, and how it names a run."""

from __future__ import annotations

import polars as pl

from manyseed.analysis.axes import AXES
from manyseed.analysis.tables.keys import CELL_KEY
from manyseed.analysis.tables.twins import IS_TWIN, SAME_AS
from manyseed.orchestrator.results.tables import (
    CMI,
    CURVES,
    DEE,
    DRAWS,
    EFFECTS,
    ENSEMBLES,
    MARGINS,
    OF_EFFECT,
    RESPONSE_CURVES,
    RESPONSES,
    TACE,
    UNCERTAINTY,
    VARIANCE,
    Results,
)

_MEANS = ("accuracy_range", "ec_local_mean", "alpha_hat_mean", "delta")
_ACCURACY = ("accuracy_mean", "accuracy_std")
_BETWEEN = "accuracy_mean_sd"
MAIN = {
    "runs": ("address", "accuracy", "alpha_hat", "delta"),
    "pairs": ("address_i", "address_j", "ec_local", "ec_global", "churn"),
    "repeats": ("repeat_index", "n_runs", *_ACCURACY, *_MEANS),
    "cells": ("n_runs", *_ACCURACY, "n_repeats", _BETWEEN, *_MEANS, "n_identical_repeats"),
    "sources": ("n_runs", *_ACCURACY, _BETWEEN, "n_close", "churn_min", "churn_max"),
    "ranking": ("address", "rank", "close", "accuracy", "alpha_hat", "delta"),
    EFFECTS: (*OF_EFFECT, "difference", "low", "high", "over", "p_holm", "comparisons"),
    VARIANCE: ("metric", "source", "part", "variance", "low", "high", "share", "over"),
    RESPONSES: ("address", "transform", "layer", "gi", "mean_accuracy", "gap"),
    RESPONSE_CURVES: ("repeat_index", "transform", "layer", "magnitude", "accuracy"),
    CMI: ("transform", "layer", "measure", "cmi", "cmi_sd", "null_q95", "n_models", "spearman"),
    CURVES: ("repeat_index", "trained_epoch", "train_loss", "test_loss", "test_accuracy"),
    ENSEMBLES: ("models", "size", "draws", "close", "accepted", "accuracy", "churn", "ece"),
    DRAWS: ("size", "draw", "accuracy", "churn", "ece", "alpha_hat", "ks_distance", "delta"),
    MARGINS: ("repeat_index", "values", "low", "high", "share", "share_min", "share_max"),
    UNCERTAINTY: ("repeat_index", "draw", "members", "cll", "c_brier", "c_ece"),
    DEE: ("axis", "deep_value", "repeat_index", "metric", "members", "dee", "beyond"),
    TACE: ("repeat_index", "members", "threshold", "bins", "n_runs", "tace", "c_tace"),
}
"""What is shown of each table beside the columns that say what a cell is."""

_WHERE_KEPT = {
    "runs": ("train_accuracy", "generalization_gap"),
    "repeats": ("train_accuracy_mean", "generalization_gap_mean", "generalization_gap_std"),
    "cells": ("train_accuracy_mean", "generalization_gap_mean", "generalization_gap_std"),
}
"""The same of what is kept only where the sweep file asks for it."""

ADDRESSES = {"address": "run_index", "address_i": "run_i", "address_j": "run_j"}
"""Columns that name a run as `show` and `rerun` take it, in tables that have the other column."""


def rows_of(tables: Results, table: str) -> pl.LazyFrame:
    """Return a table lazily, with the addresses of its runs."""
    frame = tables.scan(table)
    names = frame.collect_schema().names()
    own = {name: run for name, run in ADDRESSES.items() if run in names}
    return frame.with_columns(
        pl.format("{}:{}:{}", "cell", "repeat_index", run).alias(name) for name, run in own.items()
    )


BESIDE = {
    ENSEMBLES: ("models", "size"),
    DRAWS: ("size",),
    CURVES: ("trained_epoch",),
    RESPONSES: ("transform", "layer"),
    RESPONSE_CURVES: ("transform", "layer", "magnitude"),
    UNCERTAINTY: ("members",),
    DEE: ("axis", "deep_value", "metric", "members"),
    TACE: ("members", "threshold", "bins"),
}
"""What rows of a cell differ in beside seeds."""


NUMBERED = (
    *("cell", "repeat_index", "run_index", "run_i", "run_j", "recipe", "draw", "members"),
    *("trained_epoch", "reference_cell", "deep_cell", "threshold", "bins", "bin"),
    *("size", "nearest_run", "furthest_run", "magnitude", "layer"),
)
"""Numbers of things, of which a mean says nothing."""


def everything(table: str, frame: pl.LazyFrame) -> list[str]:
    """Return what rows are grouped by where seeds alone are put together."""
    names = frame.collect_schema().names()
    beside = [name for name in BESIDE.get(table, ()) if name in names]
    return [*what_varies(frame), *beside]


def what_varies(frame: pl.LazyFrame) -> list[str]:
    """Return the columns that vary among those that say what a cell is, and its snapshot."""
    first = [name for name in AXES if name in ("dataset", "classifier")]
    there = frame.collect_schema().names()  # a table may be of cells together
    others = [name for name in AXES if name not in first and name in there]
    counted = [pl.col(name).n_unique() for name in others]
    if "epoch" in frame.collect_schema():
        more = pl.struct(CELL_KEY).n_unique() - pl.col("cell").n_unique()
        counted.append((1 + more).alias("epoch"))
    if not counted:
        return first
    values = frame.select(counted).collect()
    return [*first, *(name for name in values.columns if values[name][0] > 1)]


def main_columns(table: str, frame: pl.LazyFrame) -> list[str]:
    """Return the columns that vary among those that say what a cell is, and the main metrics."""
    names = frame.collect_schema().names()
    main = (name for name in MAIN[table] if name in names)  # earlier versions had fewer
    twins = [SAME_AS] if SAME_AS in names and frame.filter(IS_TWIN).collect().height else []
    optional = [name for name in _WHERE_KEPT.get(table, ()) if name in names]
    found = frame.select(pl.col(name).is_not_null().any() for name in optional).collect()
    kept = [name for name in optional if found[name].any()]
    return [*what_varies(frame), *twins, *main, *kept]
