"""The result tables on disk, and what every one of them says of a cell."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl

from orchestrator.errors import UserError
from orchestrator.parquet import read_parquet, scan_parquet
from orchestrator.paths import SweepPaths

if TYPE_CHECKING:
    from analysis.tables import Tables

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


class Results(Mapping[str, pl.DataFrame]):
    """The result tables of a sweep by name, each read from disk whenever it is asked for."""

    def __init__(self, files: Mapping[str, Path]) -> None:
        self._files = dict(files)

    def __getitem__(self, table: str) -> pl.DataFrame:
        return read_parquet(self._files[table])

    def __iter__(self) -> Iterator[str]:
        return iter(self._files)

    def __len__(self) -> int:
        return len(self._files)

    def scan(self, table: str) -> pl.LazyFrame:
        """Return a table lazily: only the columns and rows that are needed are read."""
        return scan_parquet(self._files[table])

    def of_analysis(self, pair_columns: Sequence[str]) -> Tables:
        """Return the tables that `analysis` knows; of the pairs, which are many, some columns."""
        from analysis.tables import Tables

        pairs = self.scan("pairs").select(pair_columns).collect()
        return Tables(self["runs"], pairs, self["repeats"], self["cells"])


def read_results(paths: SweepPaths) -> Results:
    """Return the result tables: `TABLES`, and `ENSEMBLES` and `CURVES` where there are any.

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
    return Results(files | {name: file for name, file in further.items() if file.exists()})
