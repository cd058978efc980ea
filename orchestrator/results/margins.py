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
from manyseed.analysis.questions.margins import SCHEMA, build, combine
from manyseed.analysis.tables.keys import REPEAT
from manyseed.orchestrator.paths import SweepPaths
from manyseed.orchestrator.results.inputs import KEY, still_held
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
    held = still_held(paths, MARGINS, SCHEMA)
    tasks, kept = [], []
    for predictions, same in groups:
        for position in predictions.positions(options):
            epoch = predictions.trained[position]
            known = same.filter(epoch=epoch) if held is not None else same.clear()
            runs = predictions.runs.join(known, on=REPEAT, how="anti", maintain_order="left")
            of_epoch = replace(options, snapshots=(epoch,))
            tasks += build(replace(predictions, runs=runs), of_epoch)
            if held is not None:
                kept.append(held.join(known, on=KEY, how="semi", maintain_order="left"))
    return combine([*kept, *compute_all(tasks, scheduler=scheduler, workers=workers)])


def described(counted: pl.DataFrame, repeats: pl.DataFrame, cells: pl.DataFrame) -> pl.DataFrame:
    """Return the table: what cells are beside what was counted, of repeats without a problem."""
    sound = repeats.filter(pl.col("problem").is_null()).select(KEY)
    own = counted.join(sound, on=KEY, how="semi", maintain_order="left")
    of_cells = cells.select("cell", "cell_id", *AXES)
    return of_cells.join(own, on="cell", how="inner", maintain_order="right")
