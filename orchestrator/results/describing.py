"""Computed tables → tables to write: joined with what plan and store say about each cell."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import polars as pl

from manyseed.analysis.axes import AXES
from manyseed.analysis.questions.effects import effects
from manyseed.analysis.questions.ranking import COMPARED, HELD_OUT, ranked, sources
from manyseed.analysis.questions.variance import variance
from manyseed.analysis.tables.keys import CELL_KEY, REPEAT, RUN
from manyseed.analysis.tables.schema import Tables
from manyseed.analysis.tables.snapshots import at_last, side_by_side
from manyseed.analysis.tables.twins import IS_TWIN, once, paired, same_as
from manyseed.orchestrator.plans.anchors import PREFIX, with_anchors
from manyseed.orchestrator.plans.plan import Plan
from manyseed.orchestrator.plans.twins import fits, sources_drawn
from manyseed.orchestrator.results.inputs import KEY
from manyseed.orchestrator.results.tables import EFFECTS, TABLES, VARIANCE
from manyseed.orchestrator.store.encoding import Array


def of_runs(numbers: Mapping[str, Array], runs: pl.DataFrame) -> pl.DataFrame:
    """Return what the store holds about runs besides predictions: fit_seconds and recipe."""
    rows = runs["row"].to_numpy()
    return (
        runs.select("cell", "repeat_index", "run_index")
        .with_columns(
            pl.Series("fit_seconds", numbers["fit_seconds"][rows]).fill_nan(None),
            pl.Series("recipe", numbers["recipe"][rows]),
        )
        .with_columns(pl.col("fit_seconds").replace(0, None))
    )  # 0: of imported runs, unknown


def effects_of_cells(tables: Tables) -> pl.DataFrame:
    """Return the effects of each cell on its reference cell; repeats must have the `AXES`."""
    return (
        effects(tables, ["cell", "reference_cell"])
        .rename({"delta_lo": "delta"})
        .select(
            *("cell", "axis", "level", "reference", "reference_cell", "metric", "difference", "sd"),
            *("n_test_sets", "n_identical", "over", "freedom", "low", "high", "p", "comparisons"),
            *("p_holm", "probe", "delta"),
        )
    )


def described(
    merged: Tables, extras: pl.DataFrame, plan: Plan, close: float
) -> dict[str, pl.LazyFrame]:
    """Return all tables, joined lazily with the descriptions of their cells.

    Parameters
    ----------
    merged : Tables
        As they were computed.
    extras : frame
        Facts about the runs, as `of_runs` returns them.
    plan : Plan
    close : float
        The level of α̂ up to which a run is close.
    """
    # α̂ is never shown without its resolution
    resolution = merged.repeats.select(*KEY, "delta", "choosing_delta")
    recipes = extras.group_by(REPEAT).agg(mixed_recipes=pl.col("recipe").n_unique() > 1)
    runs = merged.runs.join(extras, on=RUN, how="left", maintain_order="left").join(
        resolution, on=KEY, how="left", maintain_order="left"
    )
    held = plan.cells.join(merged.cells, on="cell", how="semi", maintain_order="left")
    drawn = held.select("cell", sources_drawn(held), fits=fits(held))
    twins = same_as(drawn, merged.cells)
    planned = plan.extents.select("cell", planned=pl.col("repeats") * pl.col("runs"))
    share = (pl.col("n_runs") / pl.col("planned")).alias("coverage")
    whole = merged.cells.join(planned, on="cell", how="left", maintain_order="left")
    merged = replace(merged, cells=whole.with_columns(share).drop("planned"))
    of_cells, of_sources = (
        part.join(twins, on="cell", how="left", maintain_order="left")
        for part in (merged.cells, side_by_side(lambda here: sources(here, close), merged))
    )
    distinct_runs = runs.join(twins.filter(~IS_TWIN), on="cell", how="semi", maintain_order="left")
    place = ("rank", "repeat_index", "run_index", "close")
    shown = (*CELL_KEY, *place, *COMPARED, "delta", *HELD_OUT)
    cells = with_anchors(plan.cells).lazy().select("cell", "cell_id", *AXES, f"^{PREFIX}.*$")
    parts = (
        runs,
        merged.pairs,
        merged.repeats.join(recipes, on=REPEAT, how="left", maintain_order="left"),
        of_cells,
        of_sources,
        side_by_side(
            lambda here: ranked(here.runs, close).select(shown),
            replace(merged, runs=distinct_runs, pairs=merged.pairs.clear()),
        ),
    )
    tables = dict(zip(TABLES, parts, strict=True))
    latest = at_last(merged)
    axes = plan.cells.select("cell", "cell_id", *AXES)
    latest_cells = of_cells.join(latest.cells, on=CELL_KEY, how="semi", maintain_order="left")
    distinct = replace(
        latest,
        repeats=latest.repeats.join(axes, on="cell", how="left", maintain_order="left"),
        cells=axes.join(latest_cells, on="cell", how="inner", maintain_order="right"),
    )
    epochs = latest.cells.select(CELL_KEY)
    for name, table in (
        (EFFECTS, effects_of_cells(paired(distinct))),
        (VARIANCE, variance(once(distinct))),
    ):
        tables[name] = table.join(epochs, on="cell", how="left", maintain_order="left")
    return {
        name: cells.lazy().join(part.lazy(), on="cell", how="inner", maintain_order="right")
        for name, part in tables.items()
    }
