"""The result tables on disk, and what every one of them says of a cell."""

from __future__ import annotations

import polars as pl

from orchestrator.errors import UserError
from orchestrator.paths import SweepPaths

TABLES = ("runs", "pairs", "repeats", "cells")

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


def read_results(paths: SweepPaths) -> dict[str, pl.DataFrame]:
    """Read the result tables.

    Raises
    ------
    UserError
        Where there are none yet.
    """
    files = {name: paths.results / f"{name}.parquet" for name in TABLES}
    if not all(file.exists() for file in files.values()):
        raise UserError(
            "there are no results yet",
            file=paths.results,
            remedy=f"compute them with: manyseed analyze {paths.directory}",
        )
    return {name: pl.read_parquet(file) for name, file in files.items()}
