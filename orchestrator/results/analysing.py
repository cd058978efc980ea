"""Predictions → result tables: what is finished is analysed, described and written as Parquet."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

import numpy as np
import polars as pl
from dask.delayed import delayed

from manyseed.analysis.axes import AXES
from manyseed.analysis.graph.group import (
    GroupAnalysis,
    Progress,
    analyze_group,
    compute,
    compute_all,
)
from manyseed.analysis.graph.predictions import Predictions, unavailable
from manyseed.analysis.metrics.registry import select
from manyseed.analysis.options import Options
from manyseed.analysis.questions.randomness import sources
from manyseed.analysis.questions.ranking import COMPARED, HELD_OUT, ranked
from manyseed.analysis.questions.variance import variance
from manyseed.analysis.refused import Refused
from manyseed.analysis.tables.keys import CELL_KEY, REPEAT, RUN
from manyseed.analysis.tables.schema import Tables, without
from manyseed.analysis.tables.snapshots import at_last, side_by_side
from manyseed.analysis.tables.twins import IS_TWIN, paired, same_as
from manyseed.analysis.tables.twins import once as counted_once
from manyseed.jobs.datasets import dataset_id
from manyseed.orchestrator import provenance
from manyseed.orchestrator.disk.parquet import checksum, read_parquet
from manyseed.orchestrator.errors import DamagedFile, UserError, refused
from manyseed.orchestrator.grids.sweepfile import read_sweep_file
from manyseed.orchestrator.paths import SweepPaths
from manyseed.orchestrator.plans.plan import Plan
from manyseed.orchestrator.plans.twins import fits, sources_drawn
from manyseed.orchestrator.results.conventions import to_json, why_not
from manyseed.orchestrator.results.curves import KEY as CURVE_KEY
from manyseed.orchestrator.results.curves import NEEDED, learning_curves
from manyseed.orchestrator.results.deep import measured, of_cells
from manyseed.orchestrator.results.effects import of_cells as effects_of_cells
from manyseed.orchestrator.results.inputs import KEY, Held, digests
from manyseed.orchestrator.results.record import Analysis, Unavailable
from manyseed.orchestrator.results.tables import (
    CURVES,
    DEE,
    EFFECTS,
    ENSEMBLES,
    INPUT_COLUMNS,
    TABLES,
    UNCERTAINTY,
    VARIANCE,
    Results,
    read_results,
)
from manyseed.orchestrator.results.writing import write_result
from manyseed.orchestrator.store.journals.index import JournalIndex
from manyseed.orchestrator.store.layout.arrays import COPY
from manyseed.orchestrator.store.layout.groups import Group as StoredGroup
from manyseed.orchestrator.store.layout.schema import GroupSpec
from manyseed.orchestrator.store.reading.reader import (
    StoredArray,
    finished_rows,
    read_array,
    read_numbers,
    test_sets,
)
from manyseed.orchestrator.store.zarrfiles.encoding import Array
from manyseed.orchestrator.stored import Compared, stored_groups
from manyseed.orchestrator.survey import survey


@dataclass(frozen=True, slots=True)
class Published:
    """The finished runs of one group, and the store's numbers of all its rows."""

    group: StoredGroup
    predictions: Predictions
    numbers: Mapping[str, Array]

    @property
    def spec(self) -> GroupSpec:
        """Its layout."""
        return self.group.spec

    def shards(self) -> list[int]:
        """Return the shards that hold its finished runs."""
        rows = self.predictions.runs["row"].to_numpy()
        return [int(shard) for shard in np.unique(rows // self.spec.shard_length)]


def published(paths: SweepPaths, plan: Plan) -> Iterator[Published]:
    """Yield every group that has finished runs.

    Raises
    ------
    DamagedFile, DamagedShard
        Where what is published lacks a file, or differs from the plan.
    """
    extents = plan.extents
    planned = dict(zip(extents["cell"].to_list(), extents["runs"].to_list(), strict=True))
    index, seed = JournalIndex(plan.journals(paths)), read_sweep_file(paths.sweep_file).seed
    for group in stored_groups(paths, plan):
        numbers = read_numbers(group, index.rows(group.spec.number))
        predictions = _predictions(numbers, group, plan, planned, seed)
        if not predictions.runs.is_empty():
            yield Published(group, predictions, numbers)


def compare(
    paths: SweepPaths,
    groups: Sequence[Published],
    *,
    scheduler: Any = "threads",
    workers: int | None = None,
    remember: bool,
) -> None:
    """Compare the finished runs of groups with their checksums, unless that was done before.

    Raises
    ------
    DamagedShard
        Where a file is missing, or holds what was not published there.
    """
    compared = Compared(paths, Plan.read(paths))
    unseen = compared.unseen((group.group, group.shards()) for group in groups)
    tasks = [delayed(one.compare, pure=False)() for one in unseen]
    compute_all(tasks, scheduler=scheduler, workers=workers)
    if unseen and remember:
        compared.remember(unseen)


def analyze(
    paths: SweepPaths,
    options: Options,
    *,
    scheduler: Any = "threads",
    workers: int | None = None,
    progress: Progress | None = None,
    before_writing: Callable[[], None] = lambda: None,
) -> Results:
    """Compute and write all result tables of what is published.

    Repeats whose inputs are those that their rows on disk were computed from are not computed
    again; the tables are the same bit for bit as if they were. `before_writing` may raise: nothing
    on disk has changed by then.

    Returns
    -------
    Results
        Those on disk.

    Raises
    ------
    UserError
        For options that have no meaning here.
    """
    plan, held = Plan.read(paths), Held(paths)
    lazy: list[GroupAnalysis] = []
    owners: list[Published] = []
    extras, inputs, same, missing, curves = [], [], [], [], []
    failed_before = _failed(paths)
    groups = list(published(paths, plan))
    compare(paths, groups, scheduler=scheduler, workers=workers, remember=True)
    for group in groups:
        names = group.spec.dataset, group.spec.classifier
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
        extras.append(_extras(group.numbers, group.predictions.runs))
        if group.spec.curves:
            stored = {name: read_array(group.group, name) for name in NEEDED}
            curves.append(learning_curves(stored, group.predictions.runs))
        for metric, reason in unavailable(group.predictions, options).items():
            missing.append(Unavailable(*names, metric, why_not(reason)))
    if not lazy:
        raise UserError(
            "no run is finished yet",
            file=paths.directory,
            remedy=f"manyseed submit {paths.directory}",
        )
    computed = compute(lazy, scheduler=scheduler, workers=workers, progress=progress)
    wanted = pl.concat(inputs)
    of_groups = [(group.predictions, own) for group, own in zip(groups, same, strict=True)]
    deep = measured(paths, of_groups, options, scheduler=scheduler, workers=workers)
    merged = held.merged(computed, pl.concat(same))
    for group, found in zip(owners, computed, strict=True):
        merged = _without_failed(merged, group.predictions, found, options)
        failures = [
            Unavailable(group.spec.dataset, group.spec.classifier, metric, reason, failed=True)
            for metric, reason in found.failures.items()
        ]
        missing += [failure for failure in failures if failure not in missing]
    tables = _described(merged, pl.concat(extras), plan, options.close)
    before_writing()
    held.forget()
    for name, table in tables.items():
        write_result(paths, name, table, options)
    outdated = _keep_ensembles(paths, wanted, options)
    of_deep = of_cells(deep, merged.repeats, plan.cells, options)
    for name in (UNCERTAINTY, DEE):
        if name in of_deep:
            write_result(paths, name, of_deep[name].lazy(), options)
        else:
            paths.table(name).unlink(missing_ok=True)
    if curves:
        described = plan.cells.select("cell", "cell_id", *AXES)
        of_curves = described.join(pl.concat(curves), on="cell", how="inner").sort(CURVE_KEY)
        write_result(paths, CURVES, of_curves.lazy(), options)
    written = [*tables, *([CURVES] if curves else []), *of_deep]
    Analysis(
        options=to_json(options),
        unavailable=missing,
        packages=provenance.package_versions(),
        analysed=datetime.now(UTC).isoformat(timespec="seconds"),
        tables={name: checksum(paths.table(name)) for name in written},
        runs=_amounts(paths, sum(group.predictions.runs.height for group in groups)),
        outdated=outdated,
    ).write(paths)
    held.remember(wanted)
    return read_results(paths)


def check(paths: SweepPaths, options: Options) -> None:
    """Refuse options that have no meaning for what is published; nothing is computed.

    Raises
    ------
    UserError
    """
    for group in published(paths, Plan.read(paths)):
        with users_mistake():
            analyze_group(group.predictions, options)


def _failed(paths: SweepPaths) -> set[tuple[str, str]]:
    """Return the groups for which a user's metric failed the last time: it may work by now."""
    try:
        record = Analysis.read(paths)
    except (FileNotFoundError, DamagedFile):
        return set()
    return {(item.dataset, item.classifier) for item in record.unavailable if item.failed}


def _without_failed(
    merged: Tables, predictions: Predictions, found: Tables, options: Options
) -> Tables:
    """Return the tables without what a metric that failed gave to other repeats of the group."""
    here = pl.col("cell").is_in(predictions.runs["cell"].unique().to_list())
    for metric in select(options.metrics):
        if metric.name in found.failures:
            merged = replace(
                merged,
                runs=without(metric, merged.runs, here),
                repeats=without(metric, merged.repeats, here),
            )
    return merged


@contextmanager
def users_mistake() -> Iterator[None]:
    """Turn what `analysis` says of options and users' metrics into a user's error."""
    try:
        yield
    except Refused as error:
        raise refused(error) from None


def read_analysis(paths: SweepPaths) -> tuple[Options, Analysis]:
    """Return the options that the result tables were computed with, and what else is recorded."""
    record = Analysis.read(paths)
    return record.conventions(paths), record


def _amounts(paths: SweepPaths, analysed: int) -> dict[str, int]:
    """Return how many runs were analysed, and how many are finished and planned.

    It is asked after the analysis has looked, so that no fewer are finished. What tasks that train
    have in journals alone is left out.
    """
    counts = survey(paths).counts
    finished = max(analysed, counts["done"] + counts["copy"])
    return {"analysed": analysed, "finished": finished, "planned": counts["runs"]}


def _predictions(
    numbers: Mapping[str, Array],
    group: StoredGroup,
    plan: Plan,
    planned: Mapping[int, int],
    seed: int,
) -> Predictions:
    """Return a group as `analysis` takes it."""
    spec, status = group.spec, numbers["status"]
    stored = {a.name: StoredArray(group, a.name) for a in spec.arrays if a.role == "prediction"}
    finished = finished_rows(status)
    runs = pl.DataFrame(
        {
            "row": finished.astype(np.uint32),
            "cell": numbers["cell"][finished].astype(np.uint32),
            "repeat_index": numbers["repeat_index"][finished].astype(np.uint16),
            "run_index": numbers["run_index"][finished].astype(np.uint16),
            "identical": status[finished] == COPY,
        }
    )
    return Predictions(
        dataset=spec.dataset,
        classifier=spec.classifier,
        dataset_id=dataset_id(plan.first_cell(spec.number).dataset),
        seed=seed,
        label=stored["label"],
        margin=stored.get("margin"),
        score=stored.get("score"),
        confidence=stored.get("confidence"),
        y_true=test_sets(group, runs["repeat_index"].to_numpy())[0],
        class_names=spec.class_names,
        probability=spec.probability,
        runs=runs,
        runs_planned=planned,
        epochs=spec.epochs,
    )


def _extras(numbers: Mapping[str, Array], runs: pl.DataFrame) -> pl.DataFrame:
    """Return what the store holds of runs beside their predictions."""
    rows = runs["row"].to_numpy()
    return (
        runs.select("cell", "repeat_index", "run_index")
        .with_columns(
            pl.Series("fit_seconds", numbers["fit_seconds"][rows]).fill_nan(None),
            pl.Series("recipe", numbers["recipe"][rows]),
        )
        .with_columns(pl.col("fit_seconds").replace(0, None))
    )  # imported, and not known


def _described(
    merged: Tables, extras: pl.DataFrame, plan: Plan, close: float
) -> dict[str, pl.LazyFrame]:
    """Return all tables with what each cell is, yet to be joined."""
    # α̂ is never shown without its resolution
    resolution = merged.repeats.select(*KEY, "delta", "choosing_delta")
    recipes = extras.group_by(REPEAT).agg(mixed_recipes=pl.col("recipe").n_unique() > 1)
    runs = merged.runs.join(extras, on=RUN, how="left", maintain_order="left").join(
        resolution, on=KEY, how="left", maintain_order="left"
    )
    held = plan.cells.join(merged.cells, on="cell", how="semi", maintain_order="left")
    drawn = held.select("cell", sources_drawn(held), fits=fits(held))
    twins = same_as(drawn, merged.cells)
    of_cells, of_sources = (
        part.join(twins, on="cell", how="left", maintain_order="left")
        for part in (merged.cells, side_by_side(lambda here: sources(here, close), merged))
    )
    once = runs.join(twins.filter(~IS_TWIN), on="cell", how="semi", maintain_order="left")
    place = ("rank", "repeat_index", "run_index", "close")
    shown = (*CELL_KEY, *place, *COMPARED, "delta", *HELD_OUT)
    cells = plan.cells.lazy().select("cell", "cell_id", *AXES)
    parts = (
        runs,
        merged.pairs,
        merged.repeats.join(recipes, on=REPEAT, how="left", maintain_order="left"),
        of_cells,
        of_sources,
        side_by_side(
            lambda here: ranked(here.runs, close).select(shown),
            replace(merged, runs=once, pairs=merged.pairs.clear()),
        ),
    )
    found = dict(zip(TABLES, parts, strict=True))
    of_one = at_last(merged)
    named = of_one.repeats.join(
        plan.cells.select("cell", "cell_id", *AXES), on="cell", how="left", maintain_order="left"
    )
    of_axes = plan.cells.select("cell", "cell_id", *AXES).join(
        of_cells.join(of_one.cells, on=CELL_KEY, how="semi", maintain_order="left"),
        on="cell",
        how="inner",
        maintain_order="right",
    )
    distinct, epochs = replace(of_one, repeats=named, cells=of_axes), of_one.cells.select(CELL_KEY)
    for name, table in (
        (EFFECTS, effects_of_cells(paired(distinct))),
        (VARIANCE, variance(counted_once(distinct))),
    ):
        found[name] = table.join(epochs, on="cell", how="left", maintain_order="left")
    return {
        name: cells.lazy().join(part.lazy(), on="cell", how="inner", maintain_order="right")
        for name, part in found.items()
    }


def _keep_ensembles(paths: SweepPaths, inputs: pl.DataFrame, options: Options) -> list[str]:
    """Keep ensembles of predictions that are as they were; return whose are outdated and go."""
    try:
        outdated = set(Analysis.read(paths).outdated)
    except (FileNotFoundError, DamagedFile):
        outdated = set()
    file = paths.table(ENSEMBLES)
    try:
        drawn = read_parquet(file, INPUT_COLUMNS)
        groups = _names(drawn)
    except FileNotFoundError:
        return sorted(outdated)
    except (DamagedFile, pl.exceptions.ColumnNotFoundError):
        file.unlink()
        return sorted(outdated | _names(Plan.read(paths).cells.join(inputs, on="cell", how="semi")))
    kept = drawn.join(inputs, on=list(INPUT_COLUMNS), how="semi", maintain_order="left")
    if kept.is_empty():
        file.unlink()
    elif kept.height < drawn.height:
        write_result(paths, ENSEMBLES, kept.lazy(), options)
    return sorted((outdated | groups) - _names(kept))


def _names(frame: pl.DataFrame) -> set[str]:
    """Return the datasets × classifiers of a table."""
    return {" × ".join(names) for names in frame.select("dataset", "classifier").iter_rows()}
