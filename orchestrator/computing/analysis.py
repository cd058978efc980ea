"""Predictions → result tables: analyse finished runs, describe them, write Parquet files."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from datetime import UTC, datetime
from typing import Any

import numpy as np
import polars as pl

from manyseed.analysis import Refused
from manyseed.analysis.axes import AXES
from manyseed.analysis.graph.chunks import GroupAnalysis, ReportProgress, analyze_group, compute
from manyseed.analysis.graph.predictions import Predictions, unavailable
from manyseed.analysis.metrics.alpha_hat import ALPHA_HAT, fewest_runs
from manyseed.analysis.metrics.registry import select
from manyseed.analysis.options import Options
from manyseed.analysis.questions.effects import effects
from manyseed.analysis.questions.points import sets_of
from manyseed.analysis.questions.ranking import COMPARED, HELD_OUT, ranked, sources
from manyseed.analysis.questions.variance import variance
from manyseed.analysis.tables.rows import (
    CELL_KEY,
    IS_TWIN,
    REPEAT,
    RUN,
    Tables,
    at_last,
    mean_of,
    once,
    paired,
    same_as,
    side_by_side,
    std_of,
)
from manyseed.analysis.tables.schema import records, without
from manyseed.orchestrator import provenance
from manyseed.orchestrator.calls import warn
from manyseed.orchestrator.computing import ensembles
from manyseed.orchestrator.computing.conventions import why_not
from manyseed.orchestrator.computing.inputs import (
    KEY,
    Held,
    Published,
    check_checksums,
    digests,
    published,
)
from manyseed.orchestrator.computing.optionaltables import (
    measured,
    of_cells,
    of_points,
    responses,
    spectra_of,
    without_deep,
)
from manyseed.orchestrator.computing.tables import (
    CMI,
    CURVES,
    DEE,
    EFFECTS,
    MARGINS,
    POINTS,
    REJECTION,
    RESPONSE_CURVES,
    RESPONSE_DRAWS,
    RESPONSES,
    SPECTRA,
    TABLES,
    TACE,
    UNCERTAINTY,
    VARIANCE,
    Analysis,
    Results,
    Unavailable,
    failed,
    read_results,
    to_json,
    write_result,
)
from manyseed.orchestrator.disk.parquet import checksum
from manyseed.orchestrator.errors import DamagedFile, refused, toml_value
from manyseed.orchestrator.paths import SweepPaths
from manyseed.orchestrator.plans.plan import IS_IMPORTED, PREFIX, Plan, with_anchors
from manyseed.orchestrator.plans.twins import fits, sources_drawn
from manyseed.orchestrator.store import arrays
from manyseed.orchestrator.store.encoding import Array
from manyseed.orchestrator.store.reader import read_array
from manyseed.orchestrator.submissions.retries import nothing_finished
from manyseed.orchestrator.survey import survey


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
        .select("cell", *records()[EFFECTS].columns, "probe", "delta")
    )


def described(
    merged: Tables, extras: pl.DataFrame, plan: Plan, close: float
) -> dict[str, pl.LazyFrame]:
    """Return all tables, joined lazily with the descriptions of their cells.

    `merged`: as they were computed. `extras`: facts about the runs, as `of_runs` returns them.
    `close`: the level of α̂ up to which a run is close.
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


CURVE_KEY = records()[CURVES].key
CURVE_ARRAYS = (*arrays.CURVES, "trained_epoch")


def learning_curves(stored: Mapping[str, Array], runs: pl.DataFrame) -> pl.DataFrame:
    """Summarise the curves of each repeat of a group, without copies of runs.

    `stored`: the arrays `CURVE_ARRAYS` of a group; those in `arrays.CURVES` are (run,
    trained_epoch). `runs`: its finished runs, as `analysis.graph.predictions.Predictions` has them.

    Returns columns `CURVE_KEY`, n_runs, and for each curve the mean over runs and, with the
    suffixes ``_std`` (n - 1), ``_min`` and ``_max``, the spread.
    """
    distinct = runs.filter(~pl.col("identical"))
    rows, epochs = distinct["row"].to_numpy(), stored["trained_epoch"]
    long = pl.DataFrame(
        {
            "cell": np.repeat(distinct["cell"].to_numpy(), len(epochs)),
            "repeat_index": np.repeat(distinct["repeat_index"].to_numpy(), len(epochs)),
            "trained_epoch": np.tile(epochs, len(rows)),
            **{name: stored[name][rows].reshape(-1).astype(float) for name in arrays.CURVES},
        }
    ).with_columns(pl.col(*arrays.CURVES).fill_nan(None))
    summaries = [
        summary
        for name in arrays.CURVES
        for summary in (
            mean_of(pl.col(name)),
            std_of(pl.col(name)).alias(f"{name}_std"),
            pl.col(name).min().alias(f"{name}_min"),
            pl.col(name).max().alias(f"{name}_max"),
        )
    ]
    return (
        long.group_by(CURVE_KEY, maintain_order=True)
        .agg(pl.len().cast(pl.UInt32).alias("n_runs"), *summaries)
        .sort(CURVE_KEY)
    )


def analyze(
    paths: SweepPaths,
    options: Options,
    *,
    scheduler: Any = "threads",
    workers: int | None = None,
    progress: ReportProgress | None = None,
    before_writing: Callable[[], None] = lambda: None,
) -> Results:
    """Compute and write all result tables from the published runs.

    Repeats whose inputs have not changed since their rows on disk were computed are not computed
    again; the tables are bit for bit the same as if they were.

    `scheduler`, `workers` and `progress`: as in `analysis.graph.chunks.compute`. `before_writing`:
    called before anything on disk changes; may raise. Returns the tables on disk.
    """
    plan, held = Plan.read(paths), Held(paths)
    lazy: list[GroupAnalysis] = []
    owners: list[Published] = []
    extras, inputs, same, missing, curves = [], [], [], [], []
    failed_before = _failed(paths)
    imported = plan.cells.select(IS_IMPORTED.any()).item()
    groups = list(published(paths, plan))
    check_checksums(paths, groups, scheduler=scheduler, workers=workers, remember=True)
    for group in groups:
        names = group.spec.dataset, group.spec.named
        with users_mistake():
            inputs.append(digests(group.numbers, group.predictions, group.spec, options))
            known = inputs[-1].clear() if names in failed_before else inputs[-1]
            same.append(held.same(known))
            for position in group.predictions.positions(options):
                epoch = group.predictions.trained[position]
                known = same[-1].filter(epoch=epoch)
                runs = group.predictions.runs.join(known, on=REPEAT, how="anti")
                left = replace(group.predictions, runs=runs)
                lazy.append(analyze_group(left, replace(options, snapshots=(epoch,))))
                owners.append(group)
        extras.append(of_runs(group.numbers, group.predictions.runs))
        if group.spec.curves:
            stored = {name: read_array(group.group, name) for name in CURVE_ARRAYS}
            curves.append(learning_curves(stored, group.predictions.runs))
        for metric, reason in unavailable(group.predictions, options).items():
            missing.append(Unavailable(*names, metric, why_not(reason, imported=imported)))
        if few := _too_few(group.predictions, options):
            missing.append(Unavailable(*names, ALPHA_HAT.name, few))
    if not lazy:
        raise nothing_finished(paths)
    computed = compute(lazy, scheduler=scheduler, workers=workers, progress=progress)
    wanted = pl.concat(inputs)
    unchanged = [(group.predictions, known) for group, known in zip(groups, same, strict=True)]
    sets = sets_of(plan.cells, [group.predictions for group in groups])
    deep_tables = measured(paths, unchanged, sets, options, scheduler=scheduler, workers=workers)
    points = of_points(deep_tables.pop(POINTS), sets, plan.cells)
    merged = held.merged(computed, pl.concat(same))
    for group, tables_of_group in zip(owners, computed, strict=True):
        merged = _without_failed(merged, group.predictions, tables_of_group, options)
        failures = [
            Unavailable(group.spec.dataset, group.spec.named, metric, reason, failed=True)
            for metric, reason in tables_of_group.failures.items()
        ]
        missing += [failure for failure in failures if failure not in missing]
    del computed, lazy, tables_of_group  # the largest in memory
    tables = described(merged, pl.concat(extras), plan, options.close)
    before_writing()
    held.forget()
    tables[POINTS] = points
    for name, table in tables.items():
        write_result(paths, name, table, options)
    outdated = ensembles.keep(paths, wanted, options)
    further = of_cells(deep_tables, merged.repeats, plan.cells, pl.concat(extras), options)
    for group in groups:
        names = group.spec.dataset, group.spec.named
        for refusal in without_deep(group.predictions, further, options):
            missing.append(Unavailable(*names, DEE, refusal))
    _write_optional(paths, (UNCERTAINTY, DEE, TACE, REJECTION, MARGINS), further, options)
    of_epochs = {}
    if curves:
        cells = with_anchors(plan.cells).select("cell", "cell_id", *AXES, f"^{PREFIX}.*$")
        joined = cells.join(pl.concat(curves), on="cell", how="inner")
        of_epochs[CURVES] = joined.sort(CURVE_KEY)
    _write_optional(paths, (CURVES,), of_epochs, options)
    of_models, conditions = responses(paths, groups, plan)
    names_of_models = (RESPONSES, RESPONSE_CURVES, CMI, RESPONSE_DRAWS)
    _write_optional(paths, names_of_models, of_models, options, asdict(conditions))
    of_models |= (of_spectra := spectra_of(paths, groups, plan, options))
    _write_optional(paths, (SPECTRA,), of_spectra, options)
    written = [*tables, *of_epochs, *further, *of_models]
    record = Analysis(
        options=to_json(options),
        unavailable=missing,
        packages=provenance.package_versions(),
        analysed=datetime.now(UTC).isoformat(timespec="seconds"),
        tables={name: checksum(paths.table(name)) for name in written},
        runs=_amounts(paths, sum(group.predictions.runs.height for group in groups)),
        outdated=outdated,
    )
    record.write(paths)
    for sentence in failed(record):
        warn(sentence)
    held.remember(wanted)
    return read_results(paths)


def _too_few(predictions: Predictions, options: Options) -> str:
    """Return why no repeat has enough runs for α̂; empty if one does, or if another reason holds."""
    name, needed = ALPHA_HAT.name, fewest_runs(options)
    if name not in options.metrics or name in unavailable(predictions, options):
        return ""
    most = int(predictions.runs.group_by(REPEAT).len()["len"].max() or 0)  # type: ignore[arg-type]
    if not 0 < most < needed:
        return ""
    return (
        f"needs at least {needed} runs in the same repeat (alpha_reference = "
        f"{toml_value(options.alpha_reference)}), and no repeat has more than {most}"
    )


def _write_optional(
    paths: SweepPaths,
    names: Sequence[str],
    tables: Mapping[str, pl.DataFrame | pl.LazyFrame],
    options: Options,
    conditions: Mapping[str, object] | None = None,
) -> None:
    """Write those of the named tables that exist; remove the files of the others."""
    for name in names:
        if name in tables:
            write_result(paths, name, tables[name].lazy(), options, conditions)
        else:
            paths.table(name).unlink(missing_ok=True)


def check(paths: SweepPaths, options: Options) -> None:
    """Raise a UserError for options that published runs can't meet; computes nothing."""
    for group in published(paths, Plan.read(paths)):
        with users_mistake():
            analyze_group(group.predictions, options)


def _failed(paths: SweepPaths) -> set[tuple[str, str]]:
    """Return the groups for which a user's metric failed last time: it may work by now."""
    try:
        record = Analysis.read(paths)
    except (FileNotFoundError, DamagedFile):
        return set()
    return {(item.dataset, item.classifier) for item in record.unavailable if item.failed}


def _without_failed(
    merged: Tables, predictions: Predictions, computed: Tables, options: Options
) -> Tables:
    """Return the tables without a failed metric's values for other repeats of the group."""
    of_group = pl.col("cell").is_in(predictions.runs["cell"].unique().to_list())
    for metric in select(options.metrics):
        if metric.name in computed.failures:
            merged = replace(
                merged,
                runs=without(metric, merged.runs, of_group),
                repeats=without(metric, merged.repeats, of_group),
            )
    return merged


@contextmanager
def users_mistake() -> Iterator[None]:
    """Turn what `analysis` refuses in options and users' metrics into a UserError."""
    try:
        yield
    except Refused as error:
        raise refused(error) from None


def _amounts(paths: SweepPaths, analysed: int) -> dict[str, int]:
    """Return how many runs are analysed, finished and planned, without those only in journals.

    Counted after the analysis has read the store, so that no fewer are finished than analysed.
    """
    counts = survey(paths).counts
    finished = max(analysed, counts["done"] + counts["copy"])
    return {"analysed": analysed, "finished": finished, "planned": counts["runs"]}
