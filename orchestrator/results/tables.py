"""The result tables on disk, and what every one of them says of a cell."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import polars as pl

from analysis.columns import Meaning, describe
from analysis.metrics import schema
from analysis.options import Options
from analysis.tables import Tables
from orchestrator.errors import UserError
from orchestrator.paths import SweepPaths
from orchestrator.plans.plan import write_parquet
from orchestrator.results.conventions import to_json
from orchestrator.store.arrays import CURVES as CURVE_MEANINGS

PARTS = ("runs", "pairs", "repeats")
TABLES = (*PARTS, "cells", "sources", "ranking")
"""What `analyze` writes."""

ENSEMBLES = "ensembles"
"""What `howmany` adds."""

CURVES = "curves"
"""What `analyze` writes where learning curves were kept."""

DESCRIPTORS = (
    "dataset",
    "classifier",
    "train_fraction",
    "perturb_continuous",
    "perturb_categorical",
    "perturb_hparams",
    "hparams",
    "vary",
)
"""What a cell is, in every table, under the names that the sweep file uses."""

_FURTHER: dict[str, Meaning] = {
    "cell_id": ("", "Identity of the cell, the same in every sweep that has it."),
    **dict.fromkeys(DESCRIPTORS, ("", "What the cell is, in the sweep file's words.")),
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


def result_file(paths: SweepPaths, table: str) -> Path:
    """Return the file of a result table."""
    return paths.results / f"{table}.parquet"


def write_result(paths: SweepPaths, table: str, frame: pl.DataFrame, options: Options) -> None:
    """Write a result table; its schema's metadata tell units, meanings and conventions.

    They are JSON under two keys: ``columns`` (unit and meaning by name) and ``conventions`` (the
    options of the analysis).
    """
    further = _FURTHER | OF_CURVES if table == CURVES else _FURTHER
    told = describe(table, frame.columns, schema(options.metrics), further)
    columns = {name: {"unit": unit, "meaning": meaning} for name, (unit, meaning) in told.items()}
    write_parquet(
        result_file(paths, table),
        frame,
        {"columns": _json(columns), "conventions": _json(to_json(options))},
    )


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def read_results(paths: SweepPaths) -> dict[str, pl.DataFrame]:
    """Read the result tables: `TABLES`, and `ENSEMBLES` and `CURVES` where there are any.

    Raises
    ------
    UserError
        Where there are none yet.
    """
    files = {name: result_file(paths, name) for name in TABLES}
    if not all(file.exists() for file in files.values()):
        raise UserError(
            "there are no results yet",
            file=paths.results,
            remedy=f"compute them with: manyseed analyze {paths.directory}",
        )
    further = {name: result_file(paths, name) for name in (ENSEMBLES, CURVES)}
    files |= {name: file for name, file in further.items() if file.exists()}
    return {name: pl.read_parquet(file) for name, file in files.items()}


def of_analysis(tables: dict[str, pl.DataFrame]) -> Tables:
    """Return the tables that `analysis` knows, out of all that there are."""
    return Tables(**{name: tables[name] for name in (*PARTS, "cells")})
