"""Distributions of the margins of all repeats: the table margins."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import polars as pl

from manyseed.analysis.axes import AXES
from manyseed.analysis.graph.group import compute_all
from manyseed.analysis.graph.predictions import Predictions
from manyseed.analysis.options import Options
from manyseed.analysis.questions.margins import ORDER, SCHEMA, build
from manyseed.analysis.tables.schema import together
from manyseed.orchestrator.paths import SweepPaths
from manyseed.orchestrator.results.inputs import KEY, parted
from manyseed.orchestrator.results.tables import MARGINS


def distributions(
    paths: SweepPaths,
    groups: Sequence[tuple[Predictions, pl.DataFrame]],
    options: Options,
    *,
    scheduler: Any,
    workers: int | None,
) -> pl.DataFrame:
    """Count the margins of all repeats, those that lie on disk already apart.

    Parameters
    ----------
    paths : SweepPaths
    groups : sequence of (Predictions, frame)
        The finished runs, and which repeats (columns `KEY`) are as they were analysed.
    options : Options
    scheduler, workers
        As in `analysis.graph.group.compute`.

    Returns
    -------
    frame
        Columns `analysis.questions.margins.SCHEMA`; empty where α̂ was not asked for.
    """
    kept, rest = parted(paths, MARGINS, SCHEMA, groups, options)
    tasks = [
        task
        for epoch, predictions in rest
        for task in build(predictions, replace(options, snapshots=(epoch,)))
    ]
    found = compute_all(tasks, scheduler=scheduler, workers=workers)
    return together([*kept, *found], SCHEMA, ORDER)


def described(counted: pl.DataFrame, repeats: pl.DataFrame, cells: pl.DataFrame) -> pl.DataFrame:
    """Return the table: what cells are beside what was counted, of repeats without a problem."""
    sound = repeats.filter(pl.col("problem").is_null()).select(KEY)
    own = counted.join(sound, on=KEY, how="semi", maintain_order="left")
    of_cells = cells.select("cell", "cell_id", *AXES)
    return of_cells.join(own, on="cell", how="inner", maintain_order="right")
