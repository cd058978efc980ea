"""What an analysis takes: the finished runs of groups, and digests of what results came from.

Only what changed is computed again.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import polars as pl
from polars import selectors as cs

from manyseed.analysis.graph.predictions import Ensembled, Predictions
from manyseed.analysis.options import SNAPSHOTS, Options
from manyseed.analysis.tables.rows import EPOCH, REPEAT, REPEAT_KEY, Tables
from manyseed.analysis.tables.schema import cells, ordered, records
from manyseed.analysis.version import code_version
from manyseed.jobs.datasets import dataset_id
from manyseed.jobs.ensembling.methods import MEMBER_ARRAYS, SIZE_ARRAYS, sizes
from manyseed.orchestrator.computing.tables import INPUT_COLUMNS, INPUTS, PARTS, Analysis
from manyseed.orchestrator.disk.parquet import checksum, read_parquet, require_intact, write_parquet
from manyseed.orchestrator.errors import DamagedFile, command
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
from manyseed.orchestrator.sweepstore import ComparedShards, stored_groups

KEY = list(REPEAT_KEY)
_FREE = ("block_bytes", *SNAPSHOTS)
"""Options that change no number, or that the epochs of the rows stand for."""


def digests(
    numbers: Mapping[str, Array], predictions: Predictions, spec: GroupSpec, options: Options
) -> pl.DataFrame:
    """Return, for each repeat and snapshot, a digest of everything that its rows depend on.

    That is: which runs are finished, their status and checksum, the true classes, how predictions
    are stored, the options, the version of the code, and the number of planned runs.

    `numbers`: as `reader.read_numbers` returns them. `predictions`: the finished runs of the group.
    `spec`: its layout. Returns columns `KEY` and digest.
    """
    reference = predictions.reference_position(options)
    return pl.concat(
        _of_snapshot(numbers, predictions, spec, options, position, reference)
        for position in predictions.positions(options)
    )


def _of_snapshot(
    numbers: Mapping[str, Array],
    predictions: Predictions,
    spec: GroupSpec,
    options: Options,
    position: int,
    reference: int | None,
) -> pl.DataFrame:
    runs = predictions.runs.sort(*REPEAT, "run_index")
    rows = runs["row"].to_numpy()
    content = np.stack(
        [
            runs["run_index"].to_numpy().astype("<u4"),
            numbers["status"][rows].astype("<u4"),
            numbers["crc"][rows].astype("<u4"),
        ],
        axis=1,
    )
    facts = {k: repr(v) for k, v in asdict(options).items() if k not in _FREE}
    stored = {k: v for k, v in spec.to_attributes().items() if not k.endswith("length")}
    identity = [predictions.dataset_id, predictions.seed, code_version(options)]
    snapshots = [position, position if reference is None else reference]
    common = hashlib.sha256(json.dumps([facts, stored, identity, snapshots]).encode())
    test_sets = {
        index: hashlib.sha256(predictions.y_true[index].astype("<u2").tobytes()).digest()
        for index in runs["repeat_index"].unique()
    }
    planned = predictions.runs_planned
    assert isinstance(planned, Mapping)
    repeats = runs.group_by(REPEAT, maintain_order=True).agg(n=pl.len())
    hexdigests, start = [], 0
    for cell, repeat, n in repeats.iter_rows():
        digest = common.copy()
        digest.update(test_sets[repeat])
        digest.update(planned[cell].to_bytes(4, "little"))
        digest.update(content[start : start + n].tobytes())
        hexdigests.append(digest.hexdigest()[:32])
        start += n
    epoch = pl.lit(predictions.trained[position], EPOCH["epoch"]).alias("epoch")
    of_each = pl.Series("digest", hexdigests, dtype=pl.String)
    return repeats.with_columns(epoch, of_each).select(*KEY, "digest")


class Held:
    """The results on disk, and what they were computed from."""

    def __init__(self, paths: SweepPaths) -> None:
        self.paths = paths
        try:
            tables = Analysis.read(paths).tables
            for name in PARTS:
                require_intact(file := paths.table(name))
                if name in tables and tables[name] != checksum(file):
                    raise DamagedFile(file, "is of another analysis")
            file = paths.table(INPUTS)
            held = read_parquet(file, INPUT_COLUMNS)
            self.inputs = held.select(*INPUT_COLUMNS, cs.by_name("epoch", require_all=False))
        except (FileNotFoundError, DamagedFile):  # everything is computed again
            self.inputs = pl.DataFrame(schema=dict(INPUT_COLUMNS))

    def same(self, wanted: pl.DataFrame) -> pl.DataFrame:
        """Return the repeats whose rows on disk are current: columns `KEY`."""
        return wanted.join(self.inputs, on=list(INPUT_COLUMNS), how="semi").select(KEY)

    def merged(self, computed: list[Tables], same: pl.DataFrame) -> Tables:
        """Return the computed tables, joined by the rows on disk of unchanged repeats."""
        frames: dict[str, pl.DataFrame] = {}
        for name in PARTS:
            parts = [getattr(tables, name) for tables in computed]
            if not same.is_empty():
                file, wanted = self.paths.table(name), parts[0].schema
                again = f"remove it, then: {command('analyze', self.paths.directory)}"
                held = read_parquet(file, wanted, list(wanted), again)
                parts.append(held.join(same, on=KEY, how="semi", maintain_order="left"))
            frames[name] = ordered(pl.concat(parts), records()[name].key)
        runs, pairs, repeats = frames.values()
        return Tables(runs, pairs, repeats, cells(repeats))

    def forget(self) -> None:
        """Distrust the rows on disk until `remember`: they are about to be replaced."""
        self.paths.table(INPUTS).unlink(missing_ok=True)

    def remember(self, inputs: pl.DataFrame) -> None:
        """Record what the rows on disk were computed from."""
        write_parquet(self.paths.table(INPUTS), inputs)


def parted(
    paths: SweepPaths,
    table: str,
    groups: Iterable[tuple[Predictions, pl.DataFrame]],
    options: Options,
    *,
    newest: bool = False,
) -> tuple[list[pl.DataFrame], list[tuple[int, Predictions]]]:
    """Split a further table into current rows on disk and runs that must be computed.

    `groups`, iterable of (Predictions, frame): the finished runs, and the repeats (columns `KEY`)
    that have not changed since they were analysed.
    `newest`: whether the table has only the last snapshot.

    Returns `rest`, list of (int, Predictions): for each group and snapshot, its epoch and the runs
    of all other repeats.
    """
    held = still_held(paths, table, [*records()[table].types])
    kept, rest = [], []
    for predictions, same in groups:
        positions = predictions.positions(options)
        for position in positions[-1:] if newest else positions:
            epoch = predictions.trained[position]
            known = same.filter(epoch=epoch) if held is not None else same.clear()
            runs = predictions.runs.join(known, on=REPEAT, how="anti", maintain_order="left")
            rest.append((epoch, replace(predictions, runs=runs)))
            if held is not None:
                kept.append(held.join(known, on=KEY, how="semi", maintain_order="left"))
    return kept, rest


def still_held(paths: SweepPaths, table: str, columns: Sequence[str]) -> pl.DataFrame | None:
    """Return these columns of a further table on disk; None if it is not the last analysis's."""
    file = paths.table(table)
    try:
        require_intact(file)
        if Analysis.read(paths).tables.get(table) != checksum(file):
            return None
        types = {name: records()[table].types[name] for name in columns}
        return read_parquet(file, types, columns).select(columns)
    except (FileNotFoundError, DamagedFile):
        return None


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
    """Yield every group that has finished runs."""
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

    `scheduler` and `workers`: as in `analysis.graph.chunks.compute`. `remember`: whether to record
    what was compared, so that it is not read again.
    """
    compared = ComparedShards(paths, Plan.read(paths))
    unseen = compared.unseen((group.group, group.shards()) for group in groups)
    if not unseen:
        return
    from dask.delayed import delayed  # here, as importing dask is slow

    from manyseed.analysis.graph.chunks import compute_all

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
    y_true, test_index = test_sets(group, runs["repeat_index"].to_numpy())
    return Predictions(
        dataset=spec.dataset,
        classifier=spec.classifier,
        dataset_id=dataset_id(cell.dataset),
        seed=cell.seed,
        label=stored["label"],
        margin=stored.get("margin"),
        score=stored.get("score"),
        confidence=stored.get("confidence"),
        y_true=y_true,
        test_index=test_index,
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
