"""What others packed, opened: tables, tensors, and what ``export`` wrote.

A zip may come from anybody. Only names that ``export`` writes are unpacked, as plain files no
larger than the sweep's own layout allows; anything else is refused before it is written.
"""

from __future__ import annotations

import errno
import math
import os
import pickle
import re
import shutil
import stat
import struct
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from manyseed.analysis.axes import LATER
from manyseed.jobs.packages import install
from manyseed.orchestrator.disk.parquet import scan_parquet
from manyseed.orchestrator.disk.placing import appearing
from manyseed.orchestrator.errors import (
    DamagedFile,
    DamagedShard,
    LayoutTooNew,
    StoreUnavailable,
    UserError,
)
from manyseed.orchestrator.importing.classes import codes
from manyseed.orchestrator.importing.frames import collected, reading, scan
from manyseed.orchestrator.importing.predictions import (
    DEFAULTS,
    TEST_SETS_BYTES,
    Entries,
    Names,
    Positions,
    unreadable,
)
from manyseed.orchestrator.importing.scores import Predicted
from manyseed.orchestrator.paths import BESIDE, CHUNK, METADATA, PACKED, RECEIPT, SweepPaths
from manyseed.orchestrator.plans.ids import require_bounded
from manyseed.orchestrator.plans.layout import Groups
from manyseed.orchestrator.plans.plan import Plan, mark
from manyseed.orchestrator.store.arrays import itemsize
from manyseed.orchestrator.store.exchange import SCHEMA
from manyseed.orchestrator.store.schema import GroupSpec

_WHOLE = "import what manyseed export --out FILE.zip wrote"
_NAME = r"[A-Za-z0-9~%_-][A-Za-z0-9~%_.-]{0,254}"
_STORED = re.compile(
    rf"zarr\.json|{_NAME}/zarr\.json|(?P<group>{_NAME}/{_NAME})/"
    rf"(?:zarr\.json|(?P<array>[a-z_]+)/(?:zarr\.json|{CHUNK}))",
    re.ASCII,
)
_PLANNED = re.compile(rf"{re.escape(BESIDE)}/(?:{PACKED}|{re.escape(RECEIPT)})", re.ASCII)
_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
_ENCRYPTED = 1
_SMALL_BYTES = (
    2**28
)  # limit for metadata and files beside the store; fits plans of millions of runs
_MAX_RUNS = 200_000_000  # limit for a plan, which is held in memory
_OVERHEAD = 1.02
_OVERHEAD_BYTES = 2**16  # for a chunk's index, checksums, and headers of incompressible data


@contextmanager
def reading_zip(file: Path, key: str | None = None) -> Iterator[None]:
    """Turn any error of zipfile in a damaged or hostile file into `UserError`."""
    try:
        yield
    except (
        *(zipfile.BadZipFile, zlib.error, EOFError, OverflowError, UnicodeDecodeError),
        *(RuntimeError, NotImplementedError),  # encrypted, or in a later format
        *(ValueError, LookupError, struct.error),
        OSError,
    ) as error:
        if isinstance(error, OSError) and error.errno != errno.EINVAL:
            raise  # not a place in front of or behind the file, but the disk
        raise UserError("is damaged", file=file, key=key, remedy="copy it again") from error


@contextmanager
def opened(file: Path, what: str, remedy: str) -> Iterator[zipfile.ZipFile]:
    """Open a zip whose members can all be read in blocks and have different names."""
    try:
        archive = zipfile.ZipFile(file)
    except OSError as error:
        reason = error.strerror or error
        damaged = error.errno == errno.EINVAL  # a place in front of or behind the file
        message = f"not {what}" if damaged else f"cannot be read: {reason}"
        raise UserError(message, file=file, remedy=remedy if damaged else None) from None
    except (zipfile.BadZipFile, OverflowError, NotImplementedError, ValueError, struct.error):
        raise UserError(f"not {what}", file=file, remedy=remedy) from None
    with archive:
        seen = set()
        for info in archive.infolist():
            if info.flag_bits & _ENCRYPTED or info.compress_type not in _METHODS:
                problem = "is encrypted, or compressed in an unsupported way"
                default = "zip it without encryption, with the default compression"
                raise UserError(problem, file=file, key=info.filename, remedy=default)
            if info.filename in seen:
                raise UserError("is contained twice", file=file, key=info.filename)
            seen.add(info.filename)
        yield archive


def unpack(file: Path, directory: Path) -> None:
    """Make a sweep directory from a zip that ``export`` wrote, with identical files."""
    with opened(file, "a zip file", _WHOLE) as archive:
        members = [info for info in archive.infolist() if not info.is_dir()]
        for info in members:
            _check_member(info, file)
        beside = [info for info in members if info.filename.startswith(f"{BESIDE}/")]
        with appearing(directory) as paths:
            for info in beside:
                _write(archive, info, paths.directory / info.filename[len(BESIDE) + 1 :], file)
            if not paths.is_sweep:
                raise UserError("does not hold a sweep", file=file, remedy=_WHOLE)
            with _as_zip(paths, file):
                _check_sizes(members, paths, file)
            for info in members:
                if info not in beside:
                    _write(archive, info, paths.store / info.filename, file)
            with _as_zip(paths, file):
                require_bounded(paths)
                _check_whole(paths)
            mark(paths)


def _check_member(info: zipfile.ZipInfo, file: Path) -> None:
    """Refuse what ``export`` does not write: other folders of a sweep, links, outside paths."""
    name = info.filename
    known = _STORED.fullmatch(name) or _PLANNED.fullmatch(name)
    if ".." in name.split("/") or name.startswith("/"):
        raise UserError("names a file outside of it", file=file, key=name, remedy=_WHOLE)
    if known is None or stat.S_ISLNK(info.external_attr >> 16):
        raise UserError("is not part of a sweep", file=file, key=name, remedy=_WHOLE)
    is_chunk = known.re is _STORED and known["place"] is not None
    if not is_chunk and info.file_size > _SMALL_BYTES:
        raise _OversizedMember(file, name)


def _check_sizes(members: list[zipfile.ZipInfo], paths: SweepPaths, file: Path) -> None:
    """Refuse chunks that have no place in the plan, or are larger than their layout allows."""
    rows = sum(
        scan_parquet(part).select(pl.len()).collect().item()
        for part in (paths.cells, *paths.parts())
    )
    if rows > _MAX_RUNS:
        raise _OversizedMember(file, f"{BESIDE}/plan")
    plan, specs = Plan.read(paths), {spec.path: spec for spec in Groups.read(paths).specs}
    planned = plan.all_rows.group_by("group").agg(
        pl.col("row").max().cast(pl.Int64) + 1, pl.col("repeat").max().cast(pl.Int64) + 1
    )
    extents = {group: (rows, repeats) for group, rows, repeats in planned.iter_rows()}
    folders = {"", *(path.split("/")[0] for path in specs), *specs}
    folders |= {f"{path}/{array.name}" for path, spec in specs.items() for array in spec.arrays}
    for info in members:
        match = _STORED.fullmatch(info.filename)
        if match is None:
            continue
        largest: float | None = None
        if match["place"] is None:
            largest = _SMALL_BYTES if info.filename[: -len(METADATA) - 1] in folders else None
        elif spec := specs.get(match["group"]):
            place = tuple(map(int, match["place"].split(".")[1:]))
            largest = _largest(spec, match["array"], place, extents.get(spec.number, (0, 0)))
        if largest is None:
            raise UserError("it has no place in the plan", file=file, key=info.filename)
        if info.file_size > largest:
            raise _OversizedMember(file, info.filename)


def _largest(
    spec: GroupSpec, name: str, place: tuple[int, ...], extent: tuple[int, int]
) -> float | None:
    """Return the largest size of an array's file, in bytes; None if there is no such file."""
    array = next((array for array in spec.arrays if array.name == name), None)
    if array is None or len(array.dims) != len(place):
        return None
    rows, repeats = extent
    shards = spec.shards(array)
    shape = spec.shape(array, spec.padded(rows), repeats)
    if any(at * shard >= length for at, shard, length in zip(place, shards, shape, strict=True)):
        return None
    return _OVERHEAD * math.prod(shards) * itemsize(array.dtype) + _OVERHEAD_BYTES


def _check_whole(paths: SweepPaths) -> None:
    """Refuse a sweep whose sweep file or state cannot be read."""
    from manyseed.orchestrator.grids.loading import read_sweep_file
    from manyseed.orchestrator.survey import survey

    read_sweep_file(paths.sweep_file)
    survey(paths)


@contextmanager
def _as_zip(paths: SweepPaths, file: Path) -> Iterator[None]:
    """Turn any error in the unpacked sweep into an error about the zip."""
    try:
        yield
    except (_OversizedMember, OSError, MemoryError, StoreUnavailable):
        raise
    except Exception as error:  # a stranger's file may cause any error
        if isinstance(error, UserError) and error.file == file:
            raise
        problem = f"does not hold a complete sweep: {_reason(error, paths.directory)}"
        raise UserError(problem, file=file, remedy=_WHOLE) from None


def _reason(error: Exception, directory: Path) -> str:
    """Return what is wrong with an unpacked sweep, with paths relative to it."""

    def inside(path: str | Path | None) -> Path | str:
        path = Path(path or "")
        return path.relative_to(directory) if path.is_relative_to(directory) else path.name

    match error:
        case UserError():
            return f"{inside(error.file)}: {error.what}"
        case DamagedFile():
            return f"{inside(error.file)}: {error.reason}"
        case DamagedShard():
            return f"{inside(error.path)} {error.problem}"
        case LayoutTooNew():
            return "a newer version of manyseed wrote it and is needed to read it"
    return "its parts do not fit together"


class _OversizedMember(UserError):
    """A member of a zip is larger than it can be in a sweep."""

    def __init__(self, file: Path, name: str) -> None:
        super().__init__("is larger than a sweep's can be", file=file, key=name, remedy=_WHOLE)


def _write(archive: zipfile.ZipFile, info: zipfile.ZipInfo, target: Path, file: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    with (
        reading_zip(file, info.filename),
        archive.open(info) as packed,
        target.open("xb") as unpacked,
    ):
        shutil.copyfileobj(packed, unpacked, 2**20)
        unpacked.flush()
        os.fsync(unpacked.fileno())


def exported(path: Path) -> list[Entries]:
    """Open a table that ``export`` wrote: the labels of every dataset and classifier in it."""
    whole = scan(path)
    later = [axis for axis in LATER if axis in whole.collect_schema()]
    address = ("dataset", "classifier", *DEFAULTS, "repeat_index", "run_index", "epoch")
    columns = whole.select(*address, "is_copy", "fit_seconds", *later)
    table = collected(path, columns.with_row_index("line"))
    for axis in later:
        others = table.filter(pl.col(axis) != LATER[axis])[axis]
        if not others.is_empty():
            raise UserError(
                "such cells cannot be imported from a table",
                file=path,
                key=axis,
                value=others[0],
                remedy="export the sweep to a file whose name ends in .zip, and import that",
            )
    for name in table.columns:
        if name != "fit_seconds" and table[name].has_nulls():
            raise UserError("has missing values", file=path, key=name)
    if table.is_empty():
        raise UserError("has no rows", file=path)
    parts = table.partition_by("dataset", "classifier", maintain_order=True)
    return [_exported(path, part) for part in parts]


def _exported(path: Path, table: pl.DataFrame) -> Entries:
    epochs = tuple(table["epoch"].unique().sort().to_list())
    cells = table.select(pl.struct(*DEFAULTS, "repeat_index", "run_index").rle_id())
    is_complete = table.height % len(epochs) == 0 and bool(
        (table["epoch"].to_numpy().reshape(-1, len(epochs)) == np.array(epochs)).all()
        and cells.to_series().n_unique() * len(epochs) == table.height
        and (np.diff(table["line"].to_numpy()) == 1).all()
    )
    if not is_complete:
        raise UserError("a run lacks snapshots, or they are not in order", file=path, key="epoch")
    runs = table.filter(pl.col("epoch") == epochs[0])
    lines = runs["line"].to_numpy().astype(np.int64)
    sample = _lines(path, lines[:1])
    if sample["class_names"][0] is None or sample["label"][0] is None:
        raise UserError("has missing values", file=path, key="label")
    class_names = tuple(sample["class_names"][0].to_list())
    if any(name is None for name in class_names):
        raise UserError("has missing values", file=path, key="class_names")
    repeats = runs.group_by("repeat_index").agg(pl.col("line").first()).sort("repeat_index")
    first, last = (int(repeats["repeat_index"][at]) for at in (0, -1))
    n_points = len(sample["label"][0])
    shape = (last + 1, n_points)
    if first < 0 or 8 * math.prod(shape) > TEST_SETS_BYTES:
        raise UserError(
            f"goes from {first} to {last}, for {n_points:,} points", file=path, key="repeat_index"
        )
    y_true = np.zeros(shape, dtype=np.uint16)
    test_index = np.tile(np.arange(n_points), (last + 1, 1))
    for repeat, line in repeats.iter_rows():
        test_set = _lines(path, np.array([line]))
        for name, target in (("y_true", y_true), ("test_index", test_index)):
            values = test_set[name][0]
            if values is None or len(values) != n_points or values.has_nulls():
                raise UserError(f"is not a list of {n_points:,} values", file=path, key=name)
            target[repeat] = values
    given = {name: runs[name].to_list() for name in (*DEFAULTS, "fit_seconds")}
    given |= {"repeat": runs["repeat_index"].to_list(), "run": runs["run_index"].to_list()}

    def read(positions: Positions) -> Predicted:
        every = (lines[positions][:, None] + np.arange(len(epochs))).reshape(-1)
        column = _lines(path, every)["label"]
        if not (column.list.len() == n_points).all():
            raise UserError(f"is not a list of {n_points:,} values", file=path, key="label")
        label = column.explode()
        if label.has_nulls() or len(label) != len(every) * n_points:
            raise UserError("has missing values", file=path, key="label")
        labels = codes(label.to_numpy(), class_names, "label", path)
        return Predicted(labels.reshape(len(positions), len(epochs), n_points), None)

    dataset, classifier = table.select("dataset", "classifier").row(0)
    return Entries(
        file=path,
        names=Names(dataset, classifier),
        class_names=class_names,
        n_runs=runs.height,
        n_samples=n_points,
        y_true=y_true,
        read=read,
        attributes=given,
        test_index=test_index,
        copy=runs["is_copy"],
        epochs=epochs,
    )


def _lines(path: Path, lines: Positions) -> pl.DataFrame:
    """Read some lines, each stretch of consecutive lines at once."""
    parts = np.split(lines, np.flatnonzero(np.diff(lines) != 1) + 1)
    columns = ["class_names", "test_index", "y_true", "label"] if len(lines) == 1 else ["label"]
    table = scan(path).select(columns)
    with reading(path):
        return pl.concat([table.slice(int(p[0]), len(p)).collect() for p in parts])


def is_exported(path: Path) -> bool:
    """Return whether a file is a table that ``export`` wrote."""
    if path.suffix != ".parquet":
        return False
    with reading(path):
        schema = scan(path).collect_schema()
    if not set(SCHEMA) - set(LATER) <= set(schema):
        return False
    for name, dtype in SCHEMA.items():
        if name in schema and schema[name] != dtype:
            raise UserError(f"is {schema[name]}, not {dtype}", file=path, key=name)
    return True


_PLAIN_TENSORS = "save only tensors: torch.save({'scores': scores, 'y_true': y_true}, FILE)"


def read_tensors(path: Path) -> dict[str, NDArray[Any]]:
    """Return the arrays of a file by name; a single tensor is ``scores``, or ``labels`` if integer.

    Arrays stay in the file until they are read, if it can be mapped. bfloat16 becomes float32.
    """
    try:
        import torch
    except ImportError:
        raise UserError(
            "reading it needs PyTorch, which is not installed",
            file=path,
            remedy=f"{install(['torch'])}; or save NumPy arrays: numpy.savez",
        ) from None
    try:
        try:
            content = torch.load(path, map_location="cpu", weights_only=True, mmap=True)
        except RuntimeError:  # a format that cannot be mapped
            content = torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        found = re.search(r"GLOBAL ([\w.]+)", str(error))
        reason = "does not hold plain tensors, and nothing else is loaded"
        reason += f": it holds {found[1]}" if found else ""
        raise UserError(reason, file=path, remedy=_PLAIN_TENSORS) from error
    except Exception as error:  # a damaged file may cause any error
        raise unreadable(path, "a PyTorch file", error) from error
    content = _joined(content)
    if isinstance(content, torch.Tensor):
        content = {"scores" if content.is_floating_point() else "labels": content}
    if not isinstance(content, Mapping) or not all(isinstance(name, str) for name in content):
        reason = f"holds a {type(content).__name__}, not a dict of tensors by name"
        raise UserError(reason, file=path, remedy=_PLAIN_TENSORS)
    is_of_repeats = "repeat" in content
    return {
        name: _array(path, name, value if name == "y_true" and is_of_repeats else _joined(value))
        for name, value in content.items()
    }


def _joined(value: Any) -> Any:
    """Return a list of tensors as one: batches of the points after one another."""
    import torch

    if not isinstance(value, list | tuple) or not value:
        return value
    if not all(isinstance(one, torch.Tensor) and one.ndim for one in value):
        return value
    if len({(one.shape[1:], one.dtype) for one in value}) > 1:
        return value
    if len({len(one) for one in value}) == 1 and len(value) > 1 and value[0].ndim > 1:
        return torch.stack([*value])  # of a run each, or batches, as true classes tell
    return torch.cat([*value])


def _array(path: Path, name: str, value: Any) -> NDArray[Any]:
    import torch

    if isinstance(value, torch.Tensor):
        if value.is_sparse or value.is_quantized or value.is_complex():
            raise UserError(
                "is not a plain tensor of numbers", file=path, key=name, remedy=_PLAIN_TENSORS
            )
        value = value.detach()
        value = value.float() if value.dtype == torch.bfloat16 else value
        return np.asarray(value.numpy())
    array = np.asarray(value)
    if array.dtype.kind not in "biufU":
        raise UserError(
            f"is a {type(value).__name__}, not a tensor or a list of numbers or names",
            file=path,
            key=name,
            remedy=_PLAIN_TENSORS,
        )
    return array
