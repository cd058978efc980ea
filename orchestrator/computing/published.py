"""The finished runs of groups, in the form that an analysis takes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from manyseed.analysis.graph.predictions import Ensembled, Predictions
from manyseed.jobs.datasets import dataset_id
from manyseed.jobs.ensembling.methods import MEMBER_ARRAYS, SIZE_ARRAYS, sizes
from manyseed.orchestrator.paths import SweepPaths
from manyseed.orchestrator.plans.plan import Plan
from manyseed.orchestrator.store.arrays import COPY
from manyseed.orchestrator.store.coordinates import TRAIN_ACCURACY
from manyseed.orchestrator.store.encoding import Array
from manyseed.orchestrator.store.groups import Group as StoredGroup
from manyseed.orchestrator.store.index import JournalIndex
from manyseed.orchestrator.store.reader import (
    StoredArray,
    finished_rows,
    read_array,
    read_numbers,
    test_sets,
)
from manyseed.orchestrator.store.schema import GroupSpec
from manyseed.orchestrator.stored import ComparedShards, stored_groups


@dataclass(frozen=True, slots=True)
class Published:
    """The finished runs of one group, and the store's numeric arrays of all its rows."""

    group: StoredGroup
    predictions: Predictions
    numbers: Mapping[str, Array]

    @property
    def spec(self) -> GroupSpec:
        """The group's layout."""
        return self.group.spec

    def shards(self) -> list[int]:
        """Return the numbers of the shards that hold its finished runs."""
        rows = self.predictions.runs["row"].to_numpy()
        return [int(shard) for shard in np.unique(rows // self.spec.shard_length)]


def published(paths: SweepPaths, plan: Plan) -> Iterator[Published]:
    """Yield every group that has finished runs.

    Raises
    ------
    DamagedFile, DamagedShard
        If a published file is missing, or differs from the plan.
    """
    extents = plan.extents
    planned = dict(zip(extents["cell"].to_list(), extents["runs"].to_list(), strict=True))
    index = JournalIndex(plan.journals(paths))
    for group in stored_groups(paths, plan):
        numbers = read_numbers(group, index.rows(group.spec.number))
        predictions = _predictions(numbers, group, plan, planned)
        if not predictions.runs.is_empty():
            yield Published(group, predictions, numbers)


def check_checksums(
    paths: SweepPaths,
    groups: Sequence[Published],
    *,
    scheduler: Any = "threads",
    workers: int | None = None,
    remember: bool,
) -> None:
    """Compare the finished runs of groups with their checksums, unless already done.

    Parameters
    ----------
    paths : SweepPaths
    groups : sequence of Published
    scheduler, workers
        As in `analysis.graph.group.compute`.
    remember : bool
        Whether to record what was compared, so that it is not read again.

    Raises
    ------
    DamagedShard
        If a file is missing, or holds other data than was published there.
    """
    compared = ComparedShards(paths, Plan.read(paths))
    unseen = compared.unseen((group.group, group.shards()) for group in groups)
    if not unseen:
        return
    from dask.delayed import delayed  # here, as importing dask is slow

    from manyseed.analysis.graph.group import compute_all

    tasks = [delayed(shards.compare, pure=False)() for shards in unseen]
    compute_all(tasks, scheduler=scheduler, workers=workers)
    if remember:
        compared.remember(unseen)


def _predictions(
    numbers: Mapping[str, Array],
    group: StoredGroup,
    plan: Plan,
    planned: Mapping[int, int],
) -> Predictions:
    """Return a group in the form that `analysis` takes."""
    spec, status = group.spec, numbers["status"]
    cell = plan.first_cell(spec.number)
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
    if (kept := TRAIN_ACCURACY.name) in stored:
        values = read_array(group, kept)[finished].astype(np.float64)
        runs = runs.with_columns(pl.Series("train_accuracy", values))
    return Predictions(
        dataset=spec.dataset,
        classifier=spec.classifier,
        dataset_id=dataset_id(cell.dataset),
        seed=cell.seed,
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
        ensembled=_ensembled(stored, cell.ensembling),
    )


def _ensembled(
    stored: Mapping[str, StoredArray], method: Mapping[str, Any] | None
) -> Ensembled | None:
    """Return what is kept of an ensembling method's members; None for single models."""
    if method is None:
        return None
    count = method["members"]
    for name in SIZE_ARRAYS:
        if name in stored:
            return Ensembled(members=count, sizes=sizes(count), score=stored[name])
    for name in MEMBER_ARRAYS:
        if name in stored:
            return Ensembled(members=count, sizes=sizes(count), score=stored[name], single=True)
    return Ensembled(members=count, sizes=(count,))
