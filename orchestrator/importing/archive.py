"""A zip that ``export`` wrote → a sweep directory.

It may come from anybody. Only names that ``export`` writes are unpacked, as plain files no larger
than the sweep's own layout allows; anything else is refused before it is written.
"""

from __future__ import annotations

import errno
import math
import os
import re
import shutil
import stat
import struct
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import polars as pl

from manyseed.orchestrator.disk.parquet import scan_parquet
from manyseed.orchestrator.disk.placing import appearing
from manyseed.orchestrator.errors import (
    DamagedFile,
    DamagedShard,
    LayoutTooNew,
    StoreUnavailable,
    UserError,
)
from manyseed.orchestrator.paths import BESIDE, CHUNK, METADATA, PACKED, RECEIPT, SweepPaths
from manyseed.orchestrator.plans.layout import Groups
from manyseed.orchestrator.plans.plan import Plan, mark
from manyseed.orchestrator.store.arrays import itemsize
from manyseed.orchestrator.store.schema import GroupSpec

_WHOLE = "import what manyseed export --output FILE.zip wrote"
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
