"""The columns that a query shows by default, and how it names runs."""

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
"""Columns shown of each table, beside those that describe a cell."""

_WHERE_KEPT = {
    "runs": ("train_accuracy", "generalization_gap"),
    "repeats": ("train_accuracy_mean", "generalization_gap_mean", "generalization_gap_std"),
    "cells": ("train_accuracy_mean", "generalization_gap_mean", "generalization_gap_std"),
}
"""Further columns that are shown if they have values: the sweep file must ask for them."""

ADDRESSES = {"address": "run_index", "address_i": "run_i", "address_j": "run_j"}
"""Columns with a run's address, as `show` and `rerun` take it, by the column they require."""


def rows_of(tables: Results, table: str) -> pl.LazyFrame:
    """Return a table lazily, with the addresses of its runs."""
    frame = tables.scan(table)
    names = frame.collect_schema().names()
    return frame.with_columns(
        pl.format("{}:{}:{}", "cell", "repeat_index", run).alias(name)
        for name, run in ADDRESSES.items()
        if run in names
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
"""Columns in which rows of a cell differ beside seeds."""

NUMBERED = (
    *("cell", "repeat_index", "run_index", "run_i", "run_j", "recipe", "draw", "members"),
    *("trained_epoch", "reference_cell", "deep_cell", "threshold", "bins", "bin"),
    *("size", "nearest_run", "furthest_run", "magnitude", "layer"),
)
"""Columns with numbers that are not averaged: indices, sizes and settings."""


def everything(table: str, frame: pl.LazyFrame) -> list[str]:
    """Return the columns to group by if rows that differ only in seeds are grouped."""
    names = frame.collect_schema().names()
    beside = [name for name in BESIDE.get(table, ()) if name in names]
    return [*what_varies(frame), *beside]


def what_varies(frame: pl.LazyFrame) -> list[str]:
    """Return the axes that vary, and epoch if snapshots do; dataset and classifier always."""
    first = [name for name in AXES if name in ("dataset", "classifier")]
    names = frame.collect_schema().names()  # rows may be over several cells
    others = [name for name in AXES if name not in first and name in names]
    counted = [pl.col(name).n_unique() for name in others]
    if "epoch" in names:
        more = pl.struct(CELL_KEY).n_unique() - pl.col("cell").n_unique()
        counted.append((1 + more).alias("epoch"))
    if not counted:
        return first
    values = frame.select(counted).collect()
    return [*first, *(name for name in values.columns if values[name][0] > 1)]


def main_columns(table: str, frame: pl.LazyFrame) -> list[str]:
    """Return the columns that `what_varies` returns, and the main metrics."""
    names = frame.collect_schema().names()
    main = (name for name in MAIN[table] if name in names)  # earlier versions had fewer
    twins = [SAME_AS] if SAME_AS in names and frame.filter(IS_TWIN).collect().height else []
    optional = [name for name in _WHERE_KEPT.get(table, ()) if name in names]
    found = frame.select(pl.col(name).is_not_null().any() for name in optional).collect()
    kept = [name for name in optional if found[name].any()]
    return [*what_varies(frame), *twins, *main, *kept]
