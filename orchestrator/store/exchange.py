"""Portable copies of a store: a Zarr zip of all, a Parquet table of runs, or a CSV file of labels.

All are streamed to a file that appears complete or not at all. Made while a sweep runs, they hold
at least what was published at the start, as statuses are copied before predictions.
"""

from __future__ import annotations

import os
import re
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
import polars as pl
from polars.io.plugins import register_io_source

from manyseed.orchestrator.disk.placing import open_plain, placing, remove_partial, unavailable
from manyseed.orchestrator.errors import StoreError
from manyseed.orchestrator.paths import BESIDE, CHUNK
from manyseed.orchestrator.store.arrays import COPY, FLAGS, LATER_FLAGS
from manyseed.orchestrator.store.coordinates import TRAIN_ACCURACY
from manyseed.orchestrator.store.encoding import Array
from manyseed.orchestrator.store.groups import Group, list_groups
from manyseed.orchestrator.store.metadata import consolidated
from manyseed.orchestrator.store.reader import (
    finished_rows,
    read_array,
    read_rows,
    statuses,
    test_sets,
)

SCHEMA = pl.Schema(
    {
        "dataset": pl.String(),
        "classifier": pl.String(),
        "train_fraction": pl.Float64(),
        **{name: pl.String() for name in (*FLAGS, *LATER_FLAGS)},
        "ensembling": pl.String(),
        "cell": pl.Int32(),
        "repeat_index": pl.Int16(),
        "run_index": pl.Int32(),
        "epoch": pl.Int32(),
        "is_copy": pl.Boolean(),
        "fit_seconds": pl.Float32(),
        "recipe": pl.UInt16(),
        "train_accuracy": pl.Float32(),
        "class_names": pl.List(pl.String()),
        "test_index": pl.List(pl.Int32()),
        "y_true": pl.List(pl.UInt16()),
        "label": pl.List(pl.UInt16()),
    }
)
"""The Parquet table: one row per finished run and snapshot, in the store's order. The lists
`test_index`, `y_true` and `label` cover the same points; the latter two index `class_names`.
`train_accuracy` is that of the last snapshot; null for others, and if it was not kept."""

_ROW_GROUP_BYTES = 2**25
_PAGE_BYTES = 2**22  # large, so that a test set repeated in many rows compresses well
_POINT_BYTES = 8

_PIECE_BYTES = 2**20
_SAMPLE_BYTES, _SAMPLES = 2**15, 16
_PAYS = 0.8  # of its size: if less is saved, reading parts of an uncompressed file is worth more


def export_zip(store: Path, output: Path, beside: Mapping[str, Path]) -> None:
    """Write a Zarr zip store with consolidated metadata and every file of the store unchanged.

    A file is compressed (deflate) if that saves a fifth, which is rare for predictions except in
    shards that are mostly empty. `beside` are further files by their names inside `BESIDE`.
    """
    groups = list_groups(store)
    _clean(output)
    with placing(output) as partial, zipfile.ZipFile(partial, "w") as archive:
        for name, content in consolidated(store, groups):
            archive.writestr(_entry(name), content)
        for group in groups:
            for array in sorted(group.spec.arrays, key=lambda array: array.name != "status"):
                folder = group.folder / array.name
                for key in sorted(entry.name for entry in os.scandir(folder)):
                    if re.fullmatch(CHUNK, key, re.ASCII):
                        _add(archive, folder / key, f"{group.spec.path}/{array.name}/{key}")
        for name, file in beside.items():
            _add(archive, file, f"{BESIDE}/{name}")


def export_parquet(store: Path, output: Path) -> None:
    """Write all finished runs, their coordinates and labels, to a Parquet file as in `SCHEMA`."""
    groups = list_groups(store)
    largest = max((group.spec.samples for group in groups), default=1)
    damage: list[StoreError] = []

    def tables(*_: object) -> Iterator[pl.DataFrame]:
        try:
            for group in groups:
                yield from _tables(group)
        except StoreError as error:
            damage.append(error)
            raise

    _clean(output)
    # an open file, as polars would open a path in another thread, perhaps after an error removed it
    with placing(output) as partial, partial.open("xb") as file:
        try:
            register_io_source(tables, schema=SCHEMA).sink_parquet(
                file,
                compression="zstd",
                row_group_size=max(1, _ROW_GROUP_BYTES // (_POINT_BYTES * largest)),
                data_page_size=_PAGE_BYTES,
                statistics=False,
            )
        except pl.exceptions.ComputeError as error:  # polars 1 hides the error of a source
            raise (damage[0] if damage else error) from None


def export_csv(store: Path, output: Path, names: Mapping[str, pl.Series]) -> None:
    """Write a line for each finished run, snapshot and test point to a CSV file.

    `names`: what the points of a data set are called, by its name. Classes are named, too.
    """
    called = list(dict.fromkeys(each.name for each in names.values()))
    _clean(output)
    with placing(output) as partial, partial.open("xb") as file:
        is_first = True
        for group in list_groups(store):
            classes = pl.Series(group.spec.class_names, dtype=pl.String)
            name = names.get(group.spec.dataset)
            for table in _tables(group):
                for some in table.iter_slices(max(1, _LINES // max(1, group.spec.samples))):
                    points = some.drop("class_names").explode("test_index", "y_true", "label")
                    points = points.rename({"test_index": "index"})
                    if name is not None:
                        named = name.to_frame().with_row_index("index").cast({"index": pl.Int32})
                        points = points.join(named, on="index", how="left", maintain_order="left")
                    absent = [one for one in called if one not in points.columns]
                    points = points.with_columns(pl.lit(None, pl.String).alias(o) for o in absent)
                    points.select(
                        pl.exclude("y_true", "label", *called),
                        *called,
                        truth=classes.gather(points["y_true"]),
                        label=classes.gather(points["label"]),
                    ).write_csv(file, include_header=is_first)
                    is_first = False


_LINES = 2**18  # that are made at once


def _clean(output: Path) -> None:
    """Remove what a killed export to the same file left."""
    if output.parent.is_dir():
        remove_partial(output.parent, output.name)


def _add(archive: zipfile.ZipFile, file: Path, name: str) -> None:
    entry = _entry(name)
    with unavailable("read", file):
        entry.file_size = file.stat().st_size  # decides whether the entry needs zip64
    if _shrinks(file, entry.file_size):
        entry.compress_type = zipfile.ZIP_DEFLATED
    with archive.open(entry, "w") as target:
        for piece in _pieces(file):
            target.write(piece)


def _pieces(file: Path) -> Iterator[bytes]:
    with open_plain(file) as source:
        while piece := source.read(_PIECE_BYTES):
            yield piece


def _shrinks(file: Path, size: int) -> bool:
    """Whether compression pays, judged by samples spread over a file."""
    whole = packed = 0
    with open_plain(file) as source:
        for start in range(0, size, max(_SAMPLE_BYTES, size // _SAMPLES)):
            part = os.pread(source.fileno(), _SAMPLE_BYTES, start)
            whole, packed = whole + len(part), packed + len(zlib.compress(part, 1))
    return packed < _PAYS * whole


def _entry(name: str) -> zipfile.ZipInfo:
    return zipfile.ZipInfo(name)  # with a fixed date, so that equal stores give equal files


def _tables(group: Group) -> Iterator[pl.DataFrame]:
    """Yield the rows of `SCHEMA` of a group, an inner chunk at a time."""
    spec = group.spec
    done = finished_rows(statuses(group))
    numbers = ("train_fraction", "cell", "repeat_index", "run_index", "status", *spec.flags)
    columns = {name: read_array(group, name)[done] for name in numbers}
    columns |= {name: read_array(group, name)[done] for name in ("fit_seconds", "recipe")}
    trained = np.full(len(done), np.nan, dtype=np.float32)
    if TRAIN_ACCURACY.name in spec.measures:
        trained = read_array(group, TRAIN_ACCURACY.name)[done]
    words = {name: np.array(group.meanings(spec.array(name)), dtype=object) for name in spec.flags}
    absent = [name for name in LATER_FLAGS if name not in spec.flags]
    y_true, test_index = test_sets(group, columns["repeat_index"])
    epochs = np.array(spec.epochs, dtype=np.int32)
    edges = np.arange(0, group.rows + 1, spec.chunk_length)
    for part in np.split(np.arange(len(done)), np.searchsorted(done, edges[1:-1])):
        if len(part) == 0:
            continue
        label = read_rows(group, ("label",), done[part])["label"]
        at = {name: np.repeat(values[part], len(epochs)) for name, values in columns.items()}
        repeat = at["repeat_index"]
        train_accuracy = np.full((len(part), len(epochs)), np.nan, dtype=np.float32)
        train_accuracy[:, -1] = trained[part]
        yield pl.DataFrame(
            {
                "dataset": pl.repeat(spec.dataset, len(repeat), eager=True),
                "classifier": pl.repeat(spec.classifier, len(repeat), eager=True),
                **{name: at[name] for name in numbers[:4]},
                **{name: words[name][at[name]] for name in spec.flags},
                **{name: pl.repeat("none", len(repeat), eager=True) for name in absent},
                "ensembling": pl.repeat(spec.method, len(repeat), eager=True),
                "epoch": np.tile(epochs, len(part)),
                "is_copy": at["status"] == COPY,
                "fit_seconds": pl.Series(at["fit_seconds"]).fill_nan(None),
                "recipe": at["recipe"],
                "train_accuracy": pl.Series(train_accuracy.reshape(-1)).fill_nan(None),
                "class_names": pl.repeat(list(spec.class_names), len(repeat), eager=True),
                "test_index": _lists(test_index[repeat]),
                "y_true": _lists(y_true[repeat]),
                "label": _lists(label.reshape(-1, spec.samples)),
            },
            schema_overrides=SCHEMA,
        ).select(SCHEMA.names())


def _lists(values: Array) -> pl.Series:
    return pl.Series(values.reshape(-1)).reshape(values.shape).arr.to_list()
