"""Tables of deep ensembles and margins: uncertainty, dee, tace, margins."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain, islice
from typing import Any

import polars as pl
from dask.delayed import Delayed

from manyseed.analysis.axes import AXES
from manyseed.analysis.graph.chunks import compute_all
from manyseed.analysis.graph.predictions import Predictions, unavailable
from manyseed.analysis.options import CALIBRATION, Options
from manyseed.analysis.questions import margins, members, tace
from manyseed.analysis.questions.dee import compared
from manyseed.analysis.tables.rows import CELL_KEY, IS_METHOD, REPEAT, RUN
from manyseed.analysis.tables.schema import together
from manyseed.orchestrator.computing.inputs import KEY, parted
from manyseed.orchestrator.computing.tables import DEE, MARGINS, TACE, UNCERTAINTY
from manyseed.orchestrator.paths import SweepPaths


def measured(
    paths: SweepPaths,
    groups: Sequence[tuple[Predictions, pl.DataFrame]],
    options: Options,
    *,
    scheduler: Any,
    workers: int | None,
) -> dict[str, pl.DataFrame]:
    """Measure ensembles and margins of all groups, except those whose rows on disk are current.

    `groups`, sequence of (Predictions, frame): the finished runs, and the repeats (columns `KEY`)
    that have not changed since they were analysed. `scheduler` and `workers`: as in
    `analysis.graph.group.compute`.

    Returns the tables uncertainty, tace and margins, with the columns `SCHEMA` of `deep`, `tace`
    and `margins`; empty if calibrated metrics, or α̂, were not asked for.
    """
    makers = {UNCERTAINTY: members, TACE: tace, MARGINS: margins}
    tasks: dict[str, list[Delayed]] = {}
    kept: dict[str, list[pl.DataFrame]] = {}
    for name, table in makers.items():
        newest = name != MARGINS
        kept[name], rest = parted(paths, name, table.SCHEMA, groups, options, newest=newest)
        tasks[name] = [
            task
            for epoch, predictions in rest
            for task in table.build(predictions, replace(options, snapshots=(epoch,)))
        ]
    computed = iter(compute_all([*chain(*tasks.values())], scheduler=scheduler, workers=workers))
    return {
        name: together(
            [*kept[name], *islice(computed, len(tasks[name]))], table.SCHEMA, table.ORDER
        )
        for name, table in makers.items()
    }


def of_cells(
    measured: Mapping[str, pl.DataFrame],
    repeats: pl.DataFrame,
    cells: pl.DataFrame,
    runs: pl.DataFrame,
    options: Options,
) -> dict[str, pl.DataFrame]:
    """Return the tables that have rows, joined with the descriptions of their cells.

    `measured`: as `measured` returns them. `repeats`: the table of repeats; those with a problem
    are left out. `cells`: the plan's. `runs`: `fit_seconds` of each run.
    """
    sound = repeats.filter(pl.col("problem").is_null()).select(KEY)
    tables = {
        name: table.join(sound, on=KEY, how="semi", maintain_order="left")
        for name, table in measured.items()
    }
    uncertainty = tables[UNCERTAINTY]
    described = cells.select("cell", "cell_id", *AXES)
    with_ensembles = described.join(uncertainty, on="cell", how="semi")
    epochs = uncertainty.select(CELL_KEY).unique()
    worth = compared(uncertainty, with_ensembles, kind=options.dee_std).join(
        epochs, on="cell", how="left", maintain_order="left"
    )
    tables[UNCERTAINTY], tables[DEE] = timed(uncertainty, worth, runs)
    return {
        name: described.join(table, on="cell", how="inner", maintain_order="right")
        for name, table in tables.items()
        if not table.is_empty()
    }


def without_deep(
    predictions: Predictions, tables: Mapping[str, pl.DataFrame], options: Options
) -> Iterator[str]:
    """Yield why a group has no deep ensemble equivalents, if it has none.

    `predictions`: the finished runs of the group. `tables`: the tables of all groups, as `of_cells`
    returns them.
    """
    if CALIBRATION not in options.metrics or CALIBRATION in unavailable(predictions, options):
        return
    cells = set(predictions.runs["cell"].unique().to_list())
    if predictions.ensembled is None:
        if UNCERTAINTY not in tables:
            yield "needs at least 2 runs in the same repeat that are not copies"
        return
    lacking = len(cells)
    if DEE in tables:
        lacking -= len(cells & {*tables[DEE].filter(axis="ensembling")["cell"].to_list()})
    if lacking:
        which = f" for {lacking} of its {len(cells)} cells" if lacking < len(cells) else ""
        yield (
            'needs ensembling = "none" with at least 2 runs in the same repeat, all else equal: '
            f"there is no such cell{which}"
        )


def timed(
    uncertainty: pl.DataFrame, worth: pl.DataFrame, runs: pl.DataFrame
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return both tables with the training time of their ensembles.

    A run with members counts in full, however few of them are averaged; other runs count with the
    mean of their repeat.

    `uncertainty` and `worth`: the tables uncertainty and dee. `runs`: `fit_seconds` of each run,
    null if unknown.
    """
    seconds = runs.select(*RUN, pl.col("fit_seconds").cast(pl.Float64))
    means = seconds.group_by(REPEAT).agg(_mean=pl.col("fit_seconds").mean())
    uncertainty = uncertainty.join(seconds, on=RUN, how="left", maintain_order="left")
    uncertainty = uncertainty.join(means, on=REPEAT, how="left", maintain_order="left")
    whole = pl.when(IS_METHOD).then("fit_seconds").otherwise(pl.col("members") * pl.col("_mean"))
    uncertainty = uncertainty.with_columns(whole.alias("fit_seconds")).drop("_mean")
    key = [*REPEAT, "members"]
    sizes = uncertainty.group_by(key).agg(pl.col("fit_seconds").mean())
    worth = worth.join(sizes, on=key, how="left", maintain_order="left")
    of_deep = means.rename({"cell": "deep_cell", "_mean": "deep_fit_seconds"})
    by = ["deep_cell", "repeat_index"]
    return uncertainty, worth.join(of_deep, on=by, how="left", maintain_order="left")
