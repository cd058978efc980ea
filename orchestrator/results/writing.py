"""Result tables → Parquet files that describe their columns."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import polars as pl

from manyseed.analysis.metrics.registry import schema
from manyseed.analysis.options import Options
from manyseed.analysis.tables.schema import describe
from manyseed.orchestrator.disk.parquet import write_parquet
from manyseed.orchestrator.paths import SweepPaths
from manyseed.orchestrator.plans.plan import PREFIX, meaning
from manyseed.orchestrator.results.record import to_json


def write_result(
    paths: SweepPaths,
    table: str,
    frame: pl.LazyFrame,
    options: Options,
    conditions: Mapping[str, object] | None = None,
) -> None:
    """Write a result table, with units, meanings and conventions in the schema's metadata.

    The metadata are JSON under two keys: ``columns`` (unit and meaning by name) and ``conventions``
    (the options of the analysis). Rows are written as they are computed, to save memory.

    Parameters
    ----------
    paths : SweepPaths
    table : str
    frame : polars.LazyFrame
    options : Options
        Options of the analysis.
    conditions : mapping or None
        Further conventions, stored beside the options.
    """
    names = frame.collect_schema().names()
    anchors = {name: meaning(name) for name in names if name.startswith(PREFIX)}
    described = describe(table, names, schema(options.metrics), anchors)
    columns = {
        name: {"unit": unit, "meaning": meaning} for name, (unit, meaning) in described.items()
    }
    metadata = {
        "columns": _json(columns),
        "conventions": _json({**to_json(options), **(conditions or {})}),
    }
    # stronger compression takes twice the time and saves a twelfth
    write_parquet(paths.table(table), frame, metadata, compression_level=1)


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
