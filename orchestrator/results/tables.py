"""The result tables on disk, and what every one of them says of a cell."""

from __future__ import annotations

from pathlib import Path

import polars as pl

from analysis.tables import Tables
from orchestrator.errors import UserError
from orchestrator.paths import SweepPaths

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


def result_file(paths: SweepPaths, table: str) -> Path:
    """Return the file of a result table."""
    return paths.results / f"{table}.parquet"


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
