"""Predictions → result tables: what is finished is analysed, described and written as Parquet."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

import numpy as np
import polars as pl
import xarray as xr
from dask.delayed import delayed

from analysis.custom import MetricFailed
from analysis.group import Group, Progress, analyze_group, compute, compute_all
from analysis.metrics import unavailable
from analysis.options import Options
from analysis.predictions import Predictions
from analysis.ranking import COMPARED, ranked
from analysis.sources import sources
from analysis.tables import RUN_KEY, Tables
from jobs.datasets import dataset_id
from orchestrator import origin
from orchestrator.errors import DamagedFile, UserError
from orchestrator.parquet import checksum, read_parquet
from orchestrator.paths import SweepPaths
from orchestrator.plans.plan import Plan
from orchestrator.results.conventions import to_json
from orchestrator.results.curves import KEY as CURVE_KEY
from orchestrator.results.curves import learning_curves
from orchestrator.results.inputs import KEY, Held, digests
from orchestrator.results.record import Analysis, Unavailable
from orchestrator.results.tables import (
    CURVES,
    DESCRIPTORS,
    ENSEMBLES,
    INPUT_COLUMNS,
    TABLES,
    Results,
    read_results,
    result_file,
)
from orchestrator.results.writing import write_result
from orchestrator.store.arrays import COPY
from orchestrator.store.groups import Group as StoredGroup
from orchestrator.store.index import JournalIndex
from orchestrator.store.lazy import open_runs
from orchestrator.store.reader import finished_rows, test_sets
from orchestrator.store.schema import GroupSpec
from orchestrator.stored import Compared, stored_groups
from orchestrator.survey import survey


@dataclass(frozen=True, slots=True)
class Published:
    """The finished runs of one group, lazily, and what the store tells of them beside."""

    group: StoredGroup
    predictions: Predictions
    data: xr.Dataset

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
    index = JournalIndex(paths.journals)
    for group in stored_groups(paths, plan):
        data = open_runs(group, journaled=index.rows(group.spec.number))
        predictions = _predictions(data, group, plan, planned)
        if not predictions.runs.is_empty():
            yield Published(group, predictions, data)


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
    compared = Compared(paths)
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
        For options that have no meaning here, or a user's metric that fails.
    """
    plan, held = Plan.read(paths), Held(paths)
    lazy: list[Group] = []
    extras, inputs, missing, curves = [], [], [], []
    groups = list(published(paths, plan))
    compare(paths, groups, scheduler=scheduler, workers=workers, remember=True)
    for group in groups:
        with users_mistake():
            inputs.append(digests(group.data, group.predictions, group.spec, options))
            runs = group.predictions.runs.join(held.same(inputs[-1]), on=KEY, how="anti")
            lazy.append(analyze_group(replace(group.predictions, runs=runs), options))
        extras.append(_extras(group.data, group.predictions.runs))
        if group.spec.curves:
            curves.append(learning_curves(group.data, group.predictions.runs))
        names = {"dataset": group.spec.dataset, "classifier": group.spec.classifier}
        for metric, reason in unavailable(group.predictions, options).items():
            missing.append(Unavailable(**names, metric=metric, reason=reason))
    if not lazy:
        raise UserError(
            "no run is finished yet",
            file=paths.directory,
            remedy=f"manyseed submit {paths.directory}",
        )
    with users_mistake(MetricFailed):
        computed = compute(lazy, scheduler=scheduler, workers=workers, progress=progress)
    wanted = pl.concat(inputs)
    merged = held.merged(computed, held.same(wanted))
    tables = _described(merged, pl.concat(extras), plan)
    before_writing()
    held.forget()
    for name, table in tables.items():
        write_result(paths, name, table, options)
    outdated = _keep_ensembles(paths, wanted, options)
    if curves:
        described = plan.cells.select("cell", "cell_id", *DESCRIPTORS)
        of_curves = described.join(pl.concat(curves), on="cell", how="inner").sort(CURVE_KEY)
        write_result(paths, CURVES, of_curves.lazy(), options)
    written = [*TABLES, *([CURVES] if curves else [])]
    Analysis(
        options=to_json(options),
        unavailable=missing,
        packages=origin.package_versions(),
        analysed=datetime.now(UTC).isoformat(timespec="seconds"),
        tables={name: checksum(result_file(paths, name)) for name in written},
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


@contextmanager
def users_mistake(kind: type[ValueError] = ValueError) -> Iterator[None]:
    """Turn what `analysis` says of options and users' metrics into a user's error."""
    try:
        yield
    except kind as error:
        remedy = "correct the function, or leave the metric out"
        failed = isinstance(error, MetricFailed)
        raise UserError(str(error), remedy=remedy if failed else None) from None


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
    data: xr.Dataset, group: StoredGroup, plan: Plan, planned: Mapping[int, int]
) -> Predictions:
    """Return a group as `analysis` takes it."""
    spec, status = group.spec, data["status"].to_numpy()
    finished = finished_rows(status)
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
    return Predictions(
        dataset=spec.dataset,
        classifier=spec.classifier,
        dataset_id=dataset_id(canonical["dataset"]),
        seed=canonical["seed"],
        label=data["label"].data,
        margin=data["margin"].data if "margin" in data else None,
        score=data["score"].data if "score" in data else None,
        confidence=data["confidence"].data if "confidence" in data else None,
        y_true=test_sets(group, runs["repeat_index"].to_numpy())[0],
        class_names=spec.class_names,
        probability=spec.probability,
        runs=runs,
        runs_planned=planned,
    )


def _extras(data: xr.Dataset, runs: pl.DataFrame) -> pl.DataFrame:
    """Return what the store tells of runs beside their predictions."""
    rows = runs["row"].to_numpy()
    return (
        runs.select("cell", "repeat_index", "run_index")
        .with_columns(
            pl.Series("fit_seconds", data["fit_seconds"].to_numpy()[rows]).fill_nan(None),
            pl.Series("recipe", data["recipe"].to_numpy()[rows]),
        )
        .with_columns(pl.col("fit_seconds").replace(0, None))
    )  # imported, and not known


def _described(merged: Tables, extras: pl.DataFrame, plan: Plan) -> dict[str, pl.LazyFrame]:
    """Return all tables with what each cell is, yet to be joined."""
    # α̂ is never shown without its resolution
    resolution = merged.repeats.select(*KEY, "delta")
    recipes = extras.group_by(KEY).agg(mixed_recipes=pl.col("recipe").n_unique() > 1)
    runs = merged.runs.join(extras, on=RUN_KEY, how="left", maintain_order="left").join(
        resolution, on=KEY, how="left", maintain_order="left"
    )
    place = ("rank", "repeat_index", "run_index", "close")
    parts = (
        runs,
        merged.pairs,
        merged.repeats.join(recipes, on=KEY, how="left", maintain_order="left"),
        merged.cells,
        sources(merged, by=("cell",)),
        ranked(runs).select("cell", *place, *COMPARED, "delta"),
    )
    cells = plan.cells.lazy().select("cell", "cell_id", *DESCRIPTORS)
    return {
        name: cells.join(part.lazy(), on="cell", how="inner", maintain_order="right")
        for name, part in zip(TABLES, parts, strict=True)
    }


def _keep_ensembles(paths: SweepPaths, inputs: pl.DataFrame, options: Options) -> list[str]:
    """Keep ensembles of predictions that are as they were; return whose are outdated and go."""
    try:
        outdated = set(Analysis.read(paths).outdated)
    except (FileNotFoundError, DamagedFile):
        outdated = set()
    file = result_file(paths, ENSEMBLES)
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
