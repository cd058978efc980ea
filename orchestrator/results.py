"""Predictions → result tables: what is finished is analysed, described and written as Parquet."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

import numpy as np
import polars as pl
import xarray as xr

from analysis.group import Progress, analyze_group, compute
from analysis.options import Options
from analysis.predictions import Predictions
from analysis.tables import Tables
from jobs.datasets import dataset_id
from orchestrator import origin
from orchestrator.errors import UserError
from orchestrator.files import read_json, write_json
from orchestrator.groups import Groups
from orchestrator.paths import SweepPaths
from orchestrator.plan import Plan, write_parquet
from orchestrator.store.arrays import COPY, DONE
from orchestrator.store.groups import open_group
from orchestrator.store.lazy import open_runs
from orchestrator.store.schema import GroupSpec
from orchestrator.tables import DESCRIPTORS, TABLES


def analyze(
    paths: SweepPaths, options: Options, *, workers: int, progress: Progress | None = None
) -> dict[str, pl.DataFrame]:
    """Compute and write all result tables of what is published.

    Returns
    -------
    dict of DataFrame
        By the names of `TABLES`.
    """
    plan, groups = Plan.read(paths), Groups.read(paths)
    lazy, extras = [], []
    for spec in groups.specs:
        if not (paths.store / spec.path).exists():
            continue
        data = open_runs(open_group(paths.store, spec.path))
        predictions = _predictions(data, spec, plan)
        if not predictions.runs.is_empty():
            lazy.append(analyze_group(predictions, options))
            extras.append(_extras(data, predictions.runs))
    if not lazy:
        raise UserError(
            "no run is finished yet",
            file=paths.directory,
            remedy=f"manyseed submit {paths.directory}",
        )
    computed = compute(lazy, scheduler="threads", workers=workers, progress=progress)
    tables = _join(computed, pl.concat(extras), plan)
    for name, table in tables.items():
        write_parquet(paths.results / f"{name}.parquet", table)
    write_json(
        paths.analysis,
        {
            "options": {k: None if v != v else v for k, v in asdict(options).items()},
            "packages": origin.package_versions(),
            "analysed": datetime.now(UTC).isoformat(timespec="seconds"),
        },
    )
    return tables


def read_analysis(paths: SweepPaths) -> tuple[Options, dict[str, Any]]:
    """Return the options that the result tables were computed with, and what else is recorded."""
    value = read_json(paths.analysis)
    options: dict[str, Any] = value.pop("options")
    if options["empty_union"] is None:
        options["empty_union"] = math.nan
    return Options(**options | {"metrics": tuple(options["metrics"])}), value


def _predictions(data: xr.Dataset, spec: GroupSpec, plan: Plan) -> Predictions:
    """Return a group as `analysis` takes it."""
    status = data["status"].to_numpy()
    finished = np.flatnonzero(np.isin(status, (DONE, COPY)))
    runs = pl.DataFrame(
        {
            "row": finished.astype(np.uint32),
            "cell": data["cell"].to_numpy()[finished].astype(np.uint32),
            "repeat_index": data["repeat_index"].to_numpy()[finished].astype(np.uint16),
            "run_index": data["run_index"].to_numpy()[finished].astype(np.uint16),
            "identical": status[finished] == COPY,
        }
    )
    canonical: Mapping[str, Any] = json.loads(
        plan.all_cells.filter(pl.col("group") == spec.number)["canonical"][0]
    )
    planned = plan.all_rows.filter(pl.col("group") == spec.number)["run"].max()
    return Predictions(
        dataset=spec.dataset,
        classifier=spec.classifier,
        dataset_id=dataset_id(canonical["dataset"]),
        seed=canonical["seed"],
        label=data["label"].data,
        margin=data["margin"].data if "margin" in data else None,
        score=data["score"].data if "score" in data else None,
        confidence=data["confidence"].data if "confidence" in data else None,
        y_true=data["y_true"].to_numpy(),
        class_names=spec.class_names,
        probability=spec.probability,
        runs=runs,
        runs_planned=int(str(planned)) + 1,
    )


def _extras(data: xr.Dataset, runs: pl.DataFrame) -> pl.DataFrame:
    """Return what the store tells of runs beside their predictions."""
    rows = runs["row"].to_numpy()
    return runs.select("cell", "repeat_index", "run_index").with_columns(
        pl.Series("fit_seconds", data["fit_seconds"].to_numpy()[rows]).fill_nan(None),
        pl.Series("recipe", data["recipe"].to_numpy()[rows]),
    )


def _join(computed: list[Tables], extras: pl.DataFrame, plan: Plan) -> dict[str, pl.DataFrame]:
    """Put the groups together and say what each cell is."""
    cells = plan.cells.select("cell", "cell_id", *DESCRIPTORS)
    joined, key = {}, ["cell", "repeat_index"]
    for name in TABLES:
        table = pl.concat([getattr(tables, name) for tables in computed])
        if name == "runs":
            table = table.join(extras, on=["cell", "repeat_index", "run_index"], how="left")
            # α̂ is never shown without its resolution
            resolution = pl.concat([tables.repeats for tables in computed]).select(*key, "delta")
            table = table.join(resolution, on=key, how="left")
        elif name == "repeats":
            recipes = extras.group_by(key).agg(mixed_recipes=pl.col("recipe").n_unique() > 1)
            table = table.join(recipes, on=key, how="left")
        described = cells.join(table, on="cell", how="inner")
        order = [c for c in ("repeat_index", "run_index", "run_i", "run_j") if c in table.columns]
        joined[name] = described.sort("cell", *order)
    return joined
