"""Deep ensembles of the runs that were analysed: the tables uncertainty and dee."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import polars as pl

from manyseed.analysis.axes import AXES
from manyseed.analysis.graph.group import compute_all
from manyseed.analysis.graph.predictions import Predictions
from manyseed.analysis.options import Options
from manyseed.analysis.questions.dee import compared
from manyseed.analysis.questions.deep import ORDER, SCHEMA, build, combine
from manyseed.analysis.tables.keys import CELL_KEY, IS_METHOD, REPEAT, RUN
from manyseed.orchestrator.disk.parquet import checksum, read_parquet, require_intact
from manyseed.orchestrator.errors import DamagedFile
from manyseed.orchestrator.paths import SweepPaths
from manyseed.orchestrator.results.inputs import KEY
from manyseed.orchestrator.results.record import Analysis
from manyseed.orchestrator.results.tables import DEE, UNCERTAINTY


def measured(
    paths: SweepPaths,
    groups: Sequence[tuple[Predictions, pl.DataFrame]],
    options: Options,
    *,
    scheduler: Any,
    workers: int | None,
) -> pl.DataFrame:
    """Measure the deep ensembles of all groups, those that lie on disk already apart.

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
        Columns `SCHEMA`; empty where calibrated metrics were not asked for.
    """
    held = _held(paths)
    tasks, kept = [], []
    for predictions, same in groups:
        newest = predictions.trained[predictions.positions(options)[-1]]
        known = same.filter(epoch=newest) if held is not None else same.clear()
        runs = predictions.runs.join(known, on=REPEAT, how="anti", maintain_order="left")
        tasks += build(replace(predictions, runs=runs), options)
        if held is not None:
            kept.append(held.join(known, on=KEY, how="semi", maintain_order="left"))
    return combine([*kept, *compute_all(tasks, scheduler=scheduler, workers=workers)])


def of_cells(
    measured: pl.DataFrame,
    repeats: pl.DataFrame,
    cells: pl.DataFrame,
    runs: pl.DataFrame,
    options: Options,
) -> dict[str, pl.DataFrame]:
    """Return the tables that there are: ensembles by size, and cells compared with them.

    Parameters
    ----------
    measured : frame
        As `measured` returns it.
    repeats : frame
        The table of repeats: those with a problem are left out.
    cells : frame
        The plan's.
    runs : frame
        `fit_seconds` of each run.
    options : Options
    """
    sound = repeats.filter(pl.col("problem").is_null()).select(KEY)
    own = measured.join(sound, on=KEY, how="semi", maintain_order="left")
    if own.is_empty():
        return {}
    described = cells.select("cell", "cell_id", *AXES)
    here = described.join(own, on="cell", how="semi")
    epochs = own.select(CELL_KEY).unique()
    worth = compared(own, here, kind=options.dee_std).join(
        epochs, on="cell", how="left", maintain_order="left"
    )
    own, worth = timed(own, worth, runs)
    tables = {UNCERTAINTY: own, DEE: worth}
    return {
        name: described.join(table, on="cell", how="inner", maintain_order="right")
        for name, table in tables.items()
        if not table.is_empty()
    }


def timed(
    own: pl.DataFrame, worth: pl.DataFrame, runs: pl.DataFrame
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return both tables with what their ensembles took to train.

    A run with members counts as a whole, however few of them are averaged; runs of a repeat count
    with their mean.

    Parameters
    ----------
    own, worth : frame
        The tables uncertainty and dee.
    runs : frame
        `fit_seconds` of each run, null where it is not known.
    """
    seconds = runs.select(*RUN, pl.col("fit_seconds").cast(pl.Float64))
    means = seconds.group_by(REPEAT).agg(_mean=pl.col("fit_seconds").mean())
    own = own.join(seconds, on=RUN, how="left", maintain_order="left")
    own = own.join(means, on=REPEAT, how="left", maintain_order="left")
    whole = pl.when(IS_METHOD).then("fit_seconds").otherwise(pl.col("members") * pl.col("_mean"))
    own = own.with_columns(whole.alias("fit_seconds")).drop("_mean")
    key = [*REPEAT, "members"]
    sizes = own.group_by(key).agg(pl.col("fit_seconds").mean())
    worth = worth.join(sizes, on=key, how="left", maintain_order="left")
    of_deep = means.rename({"cell": "deep_cell", "_mean": "deep_fit_seconds"})
    by = ["deep_cell", "repeat_index"]
    return own, worth.join(of_deep, on=by, how="left", maintain_order="left")


def _held(paths: SweepPaths) -> pl.DataFrame | None:
    """Return what lies on disk, of the last analysis; None where that is not known."""
    file = paths.table(UNCERTAINTY)
    try:
        require_intact(file)
        if Analysis.read(paths).tables.get(UNCERTAINTY) != checksum(file):
            return None
        return read_parquet(file, SCHEMA, list(SCHEMA)).select(list(SCHEMA)).sort(ORDER)
    except (FileNotFoundError, DamagedFile):
        return None
