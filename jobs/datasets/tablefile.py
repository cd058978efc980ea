"""Files: tables and arrays as samples, identified by their content."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from manyseed.jobs.checks import Option, Refused, expanded
from manyseed.jobs.datasets import arrayfile, cache, csvfile, imagefolder, parts
from manyseed.jobs.datasets.arrayfile import refused
from manyseed.jobs.datasets.info import DatasetSource, DataShape, Samples, with_preparation
from manyseed.jobs.datasets.table import (
    LISTS,
    TARGET,
    Columns,
    Keys,
    Taken,
    columns_of,
    of_arrays,
    of_tables,
    shape_of,
)
from manyseed.jobs.run import MachineError

_DIGESTS = ("digest", "test_digest")

OPTIONS: Mapping[str, Option] = {
    "target": TARGET,
    **LISTS,
    **parts.OPTIONS,
    **imagefolder.OPTIONS,
}

TABLES = (".csv", ".tsv", ".parquet")
FORMATS = (*TABLES, *arrayfile.FORMATS)

SPREADSHEETS = (".xlsx", ".xls", ".xlsm", ".xlsb", ".ods", ".numbers")
NO_SPREADSHEET = "is a spreadsheet; save it as CSV in the program that made it"

_NAME_THEM = "write a line with the names above it, or, if it has them, remove its repetitions"


@dataclass(frozen=True, slots=True)
class _Loaded:
    """A file's content: the bytes of a table, or arrays."""

    path: Path
    digest: str
    content: bytes | None = None
    arrays: Mapping[str, NDArray[Any]] | None = None


def _describe(name: str, given: Mapping[str, Any]) -> DataShape:
    path = expanded(name).absolute()
    if _is_folder(path):
        return imagefolder.describe(path, given)
    return read(name, given)[0]


def read(name: str, given: Mapping[str, Any]) -> tuple[DataShape, Samples]:
    """Read a file of a table or of arrays.

    Parameters
    ----------
    name : str
        Its path.
    given : mapping
        `OPTIONS`, except those of folders of images.
    """
    path = expanded(name).absolute()
    if imagefolder.SIZE in given:
        reason = "is for a folder of images; images in a file have their size"
        raise Refused(imagefolder.SIZE, given[imagefolder.SIZE], reason)
    target, lists = _parameters(name, path, given)
    own = parts.read(given)
    other = own.pop(parts.TEST_FILE, None)
    keys = Keys(target, lists, own)
    files = [_opened("source", name, path, keys)]
    if other is not None:
        beside = expanded(other).absolute()
        if beside.suffix != path.suffix and not {beside.suffix, path.suffix} <= {*TABLES}:
            reason = f"is another kind of file than the source, {path.suffix}"
            raise Refused(parts.TEST_FILE, other, reason)
        files.append(_opened(parts.TEST_FILE, other, beside, keys))
    nameless = next(filter(None, map(_without_names, files)), None)
    try:
        samples, columns = _samples(files, keys)
    except Refused:
        if nameless:
            raise nameless from None
        raise
    n_train = samples.n_official_train
    if n_train in (0, len(samples.y)):
        key, where = ("source", path) if n_train == 0 else (parts.TEST_FILE, files[1].path)
        raise Refused(key, str(where), "has no rows")
    digests = {key: file.digest for key, file in zip(_DIGESTS, files, strict=False)}
    provenance = {"source": "file", **digests, "target": target, **lists, **own}
    shape = shape_of(samples, columns, provenance, tuple(str(file.path) for file in files))
    # an earlier sweep may have taken the table as it is: its data was prepared then
    if nameless and not cache.is_complete(with_preparation(shape.provenance), cache.data_home()):
        raise nameless
    return shape, samples


def _without_names(file: _Loaded) -> Refused | None:
    """Return the refusal of a table that has no names of columns."""
    line = file.content and csvfile.data_as_header(file.content, file.path.suffix)
    if not line:
        return None
    reason = f"has no names of columns: its first line is like those below it, {line!r}"
    return refused(file.path, f"{reason}; {_NAME_THEM}")


def _fetch(provenance: Mapping[str, Any], locations: Sequence[str], _: Path) -> Samples:
    if not locations:
        raise ValueError(f"a file is fetched from its place, and none is given for {provenance}")
    paths = [*map(Path, locations)]
    if _is_folder(paths[0]):
        return imagefolder.fetch(paths[0], provenance)
    keys = Keys(
        provenance["target"],
        {key: provenance.get(key, []) for key in LISTS},
        {key: provenance[key] for key in parts.OPTIONS if key in provenance},
    )
    files = []
    for path, key in zip(paths, _DIGESTS, strict=False):
        try:
            file = _opened("source", str(path), path, keys)
        except Refused as error:
            raise MachineError(f"file:{path} {error.reason}; it was planned otherwise") from error
        if file.digest != provenance[key]:
            raise MachineError(
                f"file:{path} has changed: its SHA-256 is {file.digest}, it was planned with "
                f"{provenance[key]}"
            )
        files.append(file)
    samples, _columns = _samples(files, keys)
    return arrayfile.prepared(samples)


def _is_folder(path: Path) -> bool:
    return path.is_dir() and path.suffix != ".zarr"


def _parameters(
    name: str, path: Path, given: Mapping[str, Any]
) -> tuple[str, dict[str, list[str]]]:
    """Return the target, and the lists of columns for the description.

    Empty lists are left out, except ``categorical``, the oldest key: identities stay the same.
    """
    if path.suffix not in FORMATS:
        if not path.suffix:
            _require_there("source", name, path)
        if path.suffix.lower() in SPREADSHEETS:
            raise Refused("source", f"file:{name}", NO_SPREADSHEET)
        raise Refused("source", path.suffix, "unknown kind of file", FORMATS)
    target = TARGET.check("target", given.get("target"))
    lists: dict[str, list[str]] = {}
    list_of: dict[str, str] = {}
    for key, option in LISTS.items():
        lists[key] = sorted({*map(str, option.check(key, given.get(key, [])))})
        for name in lists[key]:
            if name in list_of:
                raise Refused(key, name, f"is in {list_of[name]}, too")
            list_of[name] = key
    return target, {key: names for key, names in lists.items() if names or key == "categorical"}


def _opened(key: str, name: str, path: Path, keys: Keys) -> _Loaded:
    """Read the file that a key names; a table is not parsed yet."""
    _require_there(key, name, path)
    if path.suffix in arrayfile.FORMATS:
        digest, arrays = arrayfile.read(path, keys.target, keys.aside)
        return _Loaded(path, digest, arrays=arrays)
    try:
        content = path.read_bytes()
    except OSError as error:
        value = f"file:{name}" if key == "source" else name
        raise Refused(key, value, f"cannot be read: {error.strerror}") from error
    return _Loaded(path, hashlib.sha256(content).hexdigest(), content)


def _require_there(key: str, name: str, path: Path) -> None:
    """Refuse a file that does not exist, and say where it was looked for."""
    try:
        path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        reason = "does not exist"
        if str(path) != name:
            reason += f": there is no {path}; paths start at the working folder"
        raise Refused(key, f"file:{name}" if key == "source" else name, reason) from None
    except (OSError, ValueError):  # reading it will say why
        return


def _samples(files: Sequence[_Loaded], keys: Keys) -> Taken:
    keys.require_distinct()
    paths = [file.path for file in files]
    if arrays := [file.arrays for file in files if file.arrays is not None]:
        return of_arrays(paths, arrays, keys)
    return of_tables(paths, [_parsed(file, keys) for file in files], keys)


def _parsed(file: _Loaded, keys: Keys) -> Columns:
    import polars as pl

    assert file.content is not None
    suffix, ignored = file.path.suffix, keys.sets["ignore"]
    try:
        frame = (
            pl.read_parquet(io.BytesIO(file.content))
            if suffix == ".parquet"
            else csvfile.read(
                file.content,
                suffix,
                {keys.target, *keys.sets["categorical"]},
                ignored=ignored,
                named={name for key, name in keys.aside.items() if key != parts.ORDER},
            )
        )
        doubts = {}
        if suffix != ".parquet":
            used = frame.drop(ignored, strict=False)
            doubts = csvfile.doubtful(file.content, suffix, used)
    except csvfile.Repeated as error:
        needs = {"ignore": sorted({*ignored, *error.columns})}
        raise refused(
            file.path, str(error), {} if keys.target in error.columns else needs
        ) from error
    except (csvfile.Unreadable, UnicodeError) as error:
        raise refused(file.path, f"cannot be read as {suffix}: {error}") from error
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException) as error:
        raise refused(file.path, f"cannot be read as {suffix}: it is damaged") from error
    return columns_of(frame, keys, file.path, doubts)


SOURCE = DatasetSource(names=(), describe=_describe, parameters=OPTIONS, fetch=_fetch)
