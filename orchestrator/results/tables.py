"""The result tables on disk, and what every one of them says of a cell."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import polars as pl

from analysis.columns import Meaning, describe
from analysis.metrics import schema
from analysis.options import Options
from analysis.tables import Tables
from orchestrator.errors import UserError
from orchestrator.paths import SweepPaths
from orchestrator.results.conventions import to_json
from orchestrator.store.arrays import CURVES as CURVE_MEANINGS
from orchestrator.store.files import placing

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


def write_result(paths: SweepPaths, table: str, frame: pl.LazyFrame, options: Options) -> None:
    """Write a result table; its schema's metadata tell units, meanings and conventions.

    It is written as it is computed, so that the longest need not be in memory once more.

    They are JSON under two keys: ``columns`` (unit and meaning by name) and ``conventions`` (the
    options of the analysis).
    """
    further = _FURTHER | OF_CURVES if table == CURVES else _FURTHER
    told = describe(table, frame.collect_schema().names(), schema(options.metrics), further)
    columns = {name: {"unit": unit, "meaning": meaning} for name, (unit, meaning) in told.items()}
    metadata = {"columns": _json(columns), "conventions": _json(to_json(options))}
    with placing(result_file(paths, table)) as partial:
        # Stronger compression takes twice the time and saves a twelfth.
        frame.sink_parquet(partial, compression="zstd", compression_level=1, metadata=metadata)


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


class Results(Mapping[str, pl.DataFrame]):
    """The result tables of a sweep by name, each read from disk whenever it is asked for."""

    def __init__(self, files: Mapping[str, Path]) -> None:
        self._files = dict(files)

    def __getitem__(self, table: str) -> pl.DataFrame:
        return pl.read_parquet(self._files[table])

    def __iter__(self) -> Iterator[str]:
        return iter(self._files)

    def __len__(self) -> int:
        return len(self._files)

    def scan(self, table: str) -> pl.LazyFrame:
        """Return a table lazily: only the columns and rows that are needed are read."""
        return pl.scan_parquet(self._files[table])

    def of_analysis(self, pair_columns: Sequence[str]) -> Tables:
        """Return the tables that `analysis` knows; of the pairs, which are many, some columns."""
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
