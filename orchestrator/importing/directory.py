"""Write imported predictions as a sweep directory, with plan and store, as if trained here."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from manyseed.analysis.axes import LATER
from manyseed.jobs.run import Cell, Prediction, canonical_json
from manyseed.orchestrator.disk.lease import LeaseWatch
from manyseed.orchestrator.disk.placing import appearing, place
from manyseed.orchestrator.errors import UserError
from manyseed.orchestrator.importing.doubts import Doubts, ImportSeen
from manyseed.orchestrator.importing.predictions import (
    DEFAULTS,
    Positions,
    PredictionFile,
    ids_by_group,
    require_apart,
    sweep_text,
    with_told,
)
from manyseed.orchestrator.importing.scores import not_finite, prediction_of
from manyseed.orchestrator.plans.ids import write_ids
from manyseed.orchestrator.plans.layout import Groups, lay_out
from manyseed.orchestrator.plans.plan import CELLS, ROWS, Plan, write_plan
from manyseed.orchestrator.provenance import Recipe, register
from manyseed.orchestrator.store import encoding
from manyseed.orchestrator.store.arrays import COPY, DONE, PADDING
from manyseed.orchestrator.store.encoding import Array
from manyseed.orchestrator.store.groups import Group, open_group
from manyseed.orchestrator.store.journal import encode_row
from manyseed.orchestrator.store.metadata import consolidate
from manyseed.orchestrator.store.schema import UNSIZED, GroupSpec, planned_group
from manyseed.orchestrator.store.shards import replacing_shard
from manyseed.orchestrator.store.testsets import write_splits

BLOCK_BYTES = 2**26
"""Size of the predictions, as float32, that are read at once; a single run may be larger."""


def write_rows(
    group: Group, source: PredictionFile, order: Positions, recipe: int, seen: ImportSeen
) -> None:
    """Publish all runs, a shard at a time.

    `group`: laid out for these runs alone and not known to other processes. `order`, int64 array
    (run,): for each row, the position of its run in the source. `recipe`: number of the recipe.
    `seen`: of sources that were written before; receives what is seen of this one.
    """
    length, doubts = group.spec.shard_length, Doubts(source, seen)
    for number in range(group.shards):
        shard = _ImportedShard(group, source, recipe, doubts)
        shard.write(number, order[number * length : (number + 1) * length])
        seen.floored += shard.predictions.floored
    doubts.tell()


class ImportedRuns:
    """The predictions of a source, as training would have returned them, read in blocks.

    `spec`: their group. `seen`: looks at each.
    """

    def __init__(self, spec: GroupSpec, source: PredictionFile, seen: Doubts) -> None:
        self._spec, self._source, self._seen = spec, source, seen
        self.floored = 0

    def of(self, positions: Positions) -> Iterator[tuple[int, int, Prediction]]:
        """Yield the index in `positions`, the position and the prediction of each run."""
        spec = self._spec
        n_columns = 2 * len(spec.epochs) if spec.scores == "none" else spec.n_classes
        step = max(1, BLOCK_BYTES // (4 * spec.samples * n_columns))
        for start in range(0, len(positions), step):
            block = positions[start : start + step]
            predicted = self._source.read(block)
            self.floored += predicted.floored
            self._seen.off = max(self._seen.off, predicted.off)
            for offset, position in enumerate(block.tolist()):
                prediction = prediction_of(predicted, offset, spec)
                if spec.scores != "none" and not np.isfinite(prediction.scores).all():
                    file = self._source.files[position]
                    number = position - self._source.files.index(file)
                    raise not_finite(prediction.scores[-1], file, number)
                self._seen.add(position, prediction)
                yield start + offset, position, prediction


class _ImportedShard:
    """One shard while it is being written."""

    def __init__(self, group: Group, source: PredictionFile, recipe: int, seen: Doubts) -> None:
        self.group, self.spec, self.source = group, group.spec, source
        self.recipe, self.predictions = recipe, ImportedRuns(group.spec, source, seen)
        self.numbers = {
            array.name: encoding.filled(self.spec, array, self.spec.shard_length)
            for array in self.spec.arrays
            if array.role == "record"
        }
        self.numbers["status"][:] = PADDING
        self.seconds = source.runs["fit_seconds"].fill_null(0).to_numpy()  # 0 if unknown
        self.repeat = source.runs["repeat"].to_numpy()
        self.copy = source.runs["copy"].to_numpy()

    def write(self, shard: int, positions: Positions) -> None:
        """Write the shard's files, with the runs at these positions in its first rows."""
        rows = self.spec.chunk_length
        with replacing_shard(self.group, shard, self.numbers, rows) as files:
            for first in range(0, len(positions), rows):
                block = positions[first : first + rows]
                buffers = files.buffers(len(block))
                for offset, position, prediction in self.predictions.of(block):
                    values = [buffer[offset, ...] for buffer in buffers]
                    self._set(first + offset, position, prediction, values)
                files.write(buffers)

    def _set(self, row: int, position: int, prediction: Prediction, values: list[Array]) -> None:
        """Set a run's records in its row, and its arrays in `values`, views of the buffers."""
        encoded = encode_row(self.spec, prediction, self.source.y_true[self.repeat[position]])
        for value, part in zip(values, encoded.parts(self.spec).values(), strict=True):
            flat = np.frombuffer(part, dtype=value.dtype.newbyteorder("<"))
            value[...] = flat.reshape(value.shape)
        is_copy = bool(self.copy[position])
        self.numbers["crc"][row] = encoded.crc
        if self.spec.has_clipped:
            self.numbers["clipped"][row] = encoded.clipped
        self.numbers["fit_seconds"][row] = np.nan if is_copy else self.seconds[position]
        self.numbers["recipe"][row] = self.recipe
        self.numbers["status"][row] = COPY if is_copy else DONE


def write_sweep(
    sources: Sequence[PredictionFile], directory: Path, told: Sequence[str] = ()
) -> ImportSeen:
    """Write a sweep directory; it appears whole or not at all. `told`: users were warned of it."""
    names = [(source.dataset, source.classifier) for source in sources]
    for number, name in enumerate(names):
        if name in names[:number]:
            raise UserError(
                f"{' × '.join(name)} also comes from {sources[names.index(name)].file}",
                file=sources[number].file,
                remedy="import them separately, or rename one: a file's name is its dataset's",
            )
    require_apart(sources, {})
    seen = ImportSeen(told=[*told])
    with appearing(directory) as paths:
        groups, plan = _planned(sources)
        groups.write(paths)
        for number, ids in ids_by_group(sources):
            write_ids(paths, number, ids)
        write_plan(paths, plan, new_part=True)
        n = (int(str(plan.extents[column].max())) for column in ("repeats", "runs"))
        place(paths.sweep_file, sweep_text(sources, directory, *n).encode())
        lay_out(paths, plan, groups)
        for source, spec in zip(sources, groups.specs, strict=True):
            group = open_group(paths.store, spec.path)
            write_splits(group, 0, source.y_true, source.test_index, LeaseWatch(paths.leases))
            recipe = register(paths.recipes, made_from(source))
            order = placed(source)["position"].to_numpy().astype(np.int64)
            write_rows(group, source, order, recipe, seen)
        if seen.told:
            text = with_told(paths.sweep_file.read_text("utf-8"), seen.told)
            place(paths.sweep_file, text.encode())
        consolidate(paths.store, [open_group(paths.store, spec.path) for spec in groups.specs])
    return seen


def made_from(source: PredictionFile) -> Recipe:
    """Return the recipe of a source's runs, of which only the file name is known."""
    name = source.origin.encode(errors="replace").decode()  # it may not be valid UTF-8
    return Recipe("imported", device="imported", device_class=name)


def _planned(sources: Sequence[PredictionFile]) -> tuple[Groups, Plan]:
    specs, cells, rows, first = [], [], [], 0
    for number, source in enumerate(sources):
        spec = group_of(source, number)
        specs.append(spec)
        cells.append(cells_of(source, spec, first, source.canonical))
        rows.append(_rows(source, cells[-1]))
        first += cells[-1].height
    dropped = pl.Series("cell", [], dtype=pl.UInt32)
    return Groups(tuple(specs)), Plan(pl.concat(cells), (pl.concat(rows),), dropped)


def group_of(source: PredictionFile, number: int) -> GroupSpec:
    """Return the group for a source's runs, with this number."""
    spec = GroupSpec(
        number=number,
        dataset=source.dataset,
        classifier=source.classifier,
        samples=source.y_true.shape[1],
        class_names=source.class_names,
        epochs=source.epochs,
        scores=source.keep,
        dtype=source.dtype,
        probability=source.probability,
        **UNSIZED,
    )
    return planned_group(spec, repeats=len(source.y_true), runs=len(source.runs))


def cells_of(
    source: PredictionFile, spec: GroupSpec, first: int, dataset: Mapping[str, Any]
) -> pl.DataFrame:
    """Return a source's cells (columns `CELLS`), in the order in which their runs first appear.

    `first`: number of the first cell. `dataset`: canonical description of the dataset.
    """
    distinct = source.runs.group_by(*DEFAULTS, maintain_order=True).agg(
        identical=pl.col("copy").any()
    )
    described = []
    for row in distinct.iter_rows(named=True):
        cell = Cell(
            seed=0,
            dataset=dataset,
            classifier={"name": source.classifier, "version": 1, "source": "imported"},
            hparams={} if row["hparams"] == "default" else {"name": row["hparams"]},
            vary=tuple(sorted(re.split(r"[+*]", row["vary"]))),
            crossed="*" in row["vary"],
            **{k: row[k] for k in DEFAULTS if k not in ("hparams", "vary")},
        )
        described.append((cell.id, canonical_json(cell.canonical()).decode()))
    return distinct.with_columns(
        pl.Series("cell_id", [d[0] for d in described]),
        pl.Series("canonical", [d[1] for d in described]),
        cell=pl.int_range(first, first + pl.len()),
        group=pl.lit(spec.number),
        path=pl.lit(spec.path),
        dataset=pl.lit(source.dataset),
        classifier=pl.lit(source.classifier),
        **{axis: pl.lit(value) for axis, value in LATER.items()},
        snapshots=pl.lit(
            list(source.epochs) if source.epochs != (0,) else [], dtype=pl.List(pl.Int32)
        ),
        device=pl.lit("cpu"),
        core_seconds=pl.lit(0.0),
        part=pl.lit(1),
    ).select(pl.col(name).cast(dtype) for name, dtype in CELLS.items())


def placed(source: PredictionFile) -> pl.DataFrame:
    """Return the runs in the store's order, with `position`, and `place`, their cell's index."""
    cells = source.runs.select(*DEFAULTS).unique(maintain_order=True).with_row_index("place")
    runs = source.runs.with_row_index("position").join(
        cells, on=list(DEFAULTS), maintain_order="left"
    )
    return runs.sort("repeat", "place", "run")


def _rows(source: PredictionFile, cells: pl.DataFrame) -> pl.DataFrame:
    runs = placed(source)
    rows = runs.select(
        "repeat", "run", cell=cells["cell"].gather(runs["place"]), row=pl.int_range(pl.len())
    )
    return rows.select(pl.col(name).cast(dtype) for name, dtype in ROWS.items())
