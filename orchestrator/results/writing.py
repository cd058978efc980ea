"""Result tables → Parquet files that say what their columns hold."""

from __future__ import annotations

import json
from typing import Any

import polars as pl

from manyseed.analysis.axes import AXES
from manyseed.analysis.metrics.registry import schema
from manyseed.analysis.options import Options
from manyseed.analysis.tables.columns import Meaning, describe
from manyseed.orchestrator.disk.parquet import write_parquet
from manyseed.orchestrator.paths import SweepPaths
from manyseed.orchestrator.plans.anchors import PREFIX, meaning
from manyseed.orchestrator.results.conventions import to_json
from manyseed.orchestrator.results.tables import CURVES
from manyseed.orchestrator.store.layout.arrays import CURVES as CURVE_MEANINGS

_FURTHER: dict[str, Meaning] = {
    "cell_id": ("", "Identity of the cell, the same in every sweep that has it."),
    **dict.fromkeys(AXES, ("", "What the cell is, in the sweep file's words.")),
    "fit_seconds": ("s", "Time of the fit, null where it is not known."),
    "recipe": ("", "How the run was made: number of the file in plan/recipes."),
    "mixed_recipes": ("", "Whether the runs were made in several ways."),
    "digest": ("", "What the row was computed from."),
}
"""Columns that are joined to what `analysis` computes."""

OF_CURVES: dict[str, Meaning] = {
    "trained_epoch": ("", "Number of the epoch, from 1."),
    "n_runs": ("runs", "Runs, copies left out."),
    **{
        name: (
            "nats" if name.endswith("loss") else "share of points",
            f"Mean over runs of the {meaning}.",
        )
        for name, meaning in CURVE_MEANINGS.items()
    },
}
"""Columns of the learning curves."""


def write_result(paths: SweepPaths, table: str, frame: pl.LazyFrame, options: Options) -> None:
    """Write a result table; its schema's metadata give units, meanings and conventions.

    It is written as it is computed, so that the longest need not be in memory once more.

    They are JSON under two keys: ``columns`` (unit and meaning by name) and ``conventions`` (the
    options of the analysis).

    Parameters
    ----------
    paths : SweepPaths
    table : str
    frame : polars.LazyFrame
    options : Options
        What it was computed with.
    """
    further = _FURTHER | OF_CURVES if table == CURVES else _FURTHER
    names = frame.collect_schema().names()
    further = further | {name: meaning(name) for name in names if name.startswith(PREFIX)}
    described = describe(table, names, schema(options.metrics), further)
    columns = {
        name: {"unit": unit, "meaning": meaning} for name, (unit, meaning) in described.items()
    }
    metadata = {"columns": _json(columns), "conventions": _json(to_json(options))}
    # Stronger compression takes twice the time and saves a twelfth.
    write_parquet(paths.table(table), frame, metadata, compression_level=1)


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
