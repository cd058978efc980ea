"""Files: tables and arrays as samples, identified by their content."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from manyseed.jobs.checks import (
    ARRAYS,
    NOTHING,
    TABLES,
    Option,
    Refused,
    did_you_mean_path,
    expanded,
)
from manyseed.jobs.datasets import arrayfile, cache, csvfile, imagefolder, parts
from manyseed.jobs.datasets.arrayfile import refused
from manyseed.jobs.datasets.columns import (
    CLASSES,
    DataColumn,
    Doubt,
    column_info,
    said_of_amounts,
    set_aside,
    target_info,
    to_samples,
    told_by,
)
from manyseed.jobs.datasets.follow import Columns, joined, n_rows
from manyseed.jobs.datasets.info import (
    ColumnInfo,
    DatasetSource,
    DataShape,
    Samples,
    test_counts,
    with_preparation,
)
from manyseed.jobs.datasets.repeated import NO_COPIES, Copies, copied, copies
from manyseed.jobs.datasets.split import TEST
from manyseed.jobs.datasets.totals import last_rows
from manyseed.jobs.run import MachineError

if TYPE_CHECKING:
    import polars as pl


TARGET = Option("The column to predict.", called="the name of the column to predict")
LISTS: Mapping[str, Option] = {
    "categorical": Option("Columns of labels.", list, called="a list of columns"),
    "continuous": Option("Columns of numbers.", list, called="a list of columns"),
    "ignore": Option("Columns that are not features.", list, called="a list of columns"),
}
_ASIDE = (
    *parts.COLUMNS,
    parts.GROUP,
    parts.ROW_ID,
)  # keys that name a column, which is then not a feature

_SEPARATED = {
    ".csv": "columns must be separated by commas, semicolons or tabs",
    ".tsv": "columns must be separated by tabs",
}

_EXACT = 2.0**53  # whole numbers up to this are exact as float64

Arrays = Mapping[str, NDArray[Any]]  # by name: ``X``, the target's, and those that are not features


@dataclass(frozen=True, slots=True)
class Keys:
    """What the table of a dataset says of its columns.

    `lists`: the columns of each of `LISTS`, if given. `own`: those of `parts.OPTIONS` that are
    given: which rows are the test set, or belong together. `listed`: the classes that count, empty
    for all; None where they cannot be listed. `marks`: what marks missing values besides what
    always does.
    """

    target: str
    lists: Mapping[str, Sequence[str]]
    own: Mapping[str, Any] = field(default_factory=dict)
    listed: Collection[str] | None = None
    marks: Sequence[str] = ()

    @property
    def are_listed(self) -> bool | None:
        """As for `classes_of`."""
        return None if self.listed is None else bool(self.listed)

    def places(self, names: Sequence[str]) -> list[int]:
        """Return the places of the classes that count among those of the rows."""
        return [place for place, name in enumerate(names) if not self.listed or name in self.listed]

    @property
    def aside(self) -> dict[str, str]:
        """Columns that are no features, by the keys that name them."""
        return {key: self.own[key] for key in _ASIDE if key in self.own}

    @property
    def sets(self) -> dict[str, set[str]]:
        """The columns of each list."""
        return {key: {*self.lists.get(key, ())} for key in LISTS}

    @property
    def named(self) -> list[tuple[str, str]]:
        """Each column that a key besides ``target`` names, after the key."""
        lists = [(key, name) for key, names in self.lists.items() for name in names]
        return [*lists, *self.aside.items()]

    def require_distinct(self) -> None:
        """Refuse columns that are named for several things."""
        for key, name in self.named:
            if name == self.target:
                raise Refused(key, name, "is the target already")
        for key, name in self.aside.items():
            if any(name in names for names in self.sets.values()):
                lists = [listed for listed, names in self.sets.items() if name in names]
                reason = f"is already named for something else: take it out of {lists[0]}"
                raise Refused(key, name, reason)


Taken = tuple[Samples, tuple[ColumnInfo, ...]]
"""Samples, and how the columns are taken, in order; the target comes last, if it is doubtful."""


def of_tables(paths: Sequence[Path], tables: Sequence[Columns], keys: Keys) -> Taken:
    """Return the samples of one table, or of two, of which the second is the test set.

    `paths`: where each comes from, for messages.
    """
    n_first, columns = None, tables[0]
    for path, other in zip(paths[1:], tables[1:], strict=True):
        n_first, columns = n_rows(columns), joined(columns, other, path)
    return _samples(paths[0], columns, keys, n_first)


def of_arrays(paths: Sequence[Path], contents: Sequence[Arrays], keys: Keys) -> Taken:
    """Return the samples of arrays, as `of_tables` those of tables; images have no columns."""
    n_first, arrays, aside = None, contents[0], keys.aside
    for path, other in zip(paths[1:], contents[1:], strict=True):
        key = "source" if path == paths[0] else parts.TEST_FILE
        n_first, arrays = len(arrays["X"]), arrayfile.joined(arrays, other, path, key)
    if (ids := aside.get(parts.ROW_ID)) is not None and arrays[ids].dtype.kind in "iu":
        arrays = {**arrays, ids: arrays[ids].astype(str)}  # float64 may not hold them
    if arrays["X"].ndim > 2:
        beside = {name: arrayfile.plain(arrays[name]) for name in aside.values()}
        samples = arrayfile.images(
            paths[0], arrays, keys.target, keys.lists, are_listed=keys.are_listed
        )
        return _split(samples, keys, beside, n_first), ()
    columns = arrayfile.columns(paths[0], arrays, keys.target, {*aside.values()}, keys.sets)
    return _samples(paths[0], columns, keys, n_first)


def _samples(path: Path, columns: Columns, keys: Keys, n_first: int | None) -> Taken:
    target = keys.target
    if target not in columns:
        if len(columns) == 1 and (separated := _SEPARATED.get(path.suffix)):
            reason = f"unknown column; the only one is {next(iter(columns))!r}, as {separated}"
            raise Refused("target", target, reason)
        raise Refused("target", target, "unknown column", columns)
    for key, name in keys.named:
        if name not in columns:
            others = [column for column in columns if column != target]
            raise Refused(key, name, "unknown column", others)
    aside = {name: column for name in keys.aside.values() if (column := columns[name])}
    beside = {name: column.values for name, column in aside.items()}
    columns |= dict.fromkeys(aside)
    features = {name: column for name, column in columns.items() if column and name != target}
    target_column = columns[target]
    assert target_column is not None  # the target is never ignored
    if not features and target_column.values.size:
        raise refused(path, f"has no features: {_without_features(path, target, columns)}")
    taken = to_samples(
        f"file:{path}", list(features.values()), target_column, are_listed=keys.are_listed
    )
    samples = _split(taken, keys, beside, n_first)
    values = dict(zip(features, taken.X.T, strict=True))
    infos = (
        column_info(name, column.values, is_declared=column.is_declared, doubt=column.doubt)
        if column
        else set_aside(name, aside.get(name))
        for name, column in columns.items()
        if name != target
    )
    is_listed = np.isin(taken.y, keys.places(taken.class_names))
    told = tuple(
        replace(
            told_by(one, values[one.name], taken.y),
            n_missing=int(np.isnan(values[one.name][is_listed]).sum()),
        )
        if one.name in values
        else one
        for one in infos
    )
    given = [column for column in {**columns, **aside}.values() if column]
    ends = (len(taken.y),) if n_first is None else (n_first, len(taken.y))
    last = last_rows(given, ends, [taken.class_names[k] for k in taken.y.tolist()], is_listed)
    return samples, told + last + target_info(target_column)


def shape_of(
    samples: Samples,
    columns: tuple[ColumnInfo, ...],
    provenance: Mapping[str, Any],
    locations: tuple[str, ...],
) -> DataShape:
    """Return the shapes and classes of samples, as the plan needs them."""
    k, groups = len(samples.class_names), samples.groups
    roles = samples.roles
    return DataShape(
        provenance=provenance,
        n_samples=len(samples.y),
        n_features=len(samples.cardinality),
        n_categorical=int((samples.cardinality > 0).sum()),
        class_names=samples.class_names,
        class_counts=tuple(np.bincount(samples.y).tolist()),
        image=samples.image,
        missing=tuple(sorted({each.kind for each in columns if each.n_missing})),
        test_counts=test_counts(samples.y, samples.n_official_train, k),
        set_counts=None if roles is None else parts.fold_counts(roles, samples.y, k),
        locations=locations,
        columns=tuple(each for each in columns if each.kind != "target"),
        target=next((each for each in columns if each.kind == "target"), None),
        groups=None if groups is None else np.stack([groups, samples.y], axis=1),
        copies=NO_COPIES if groups is not None else _copies(samples),
        features=samples.features,
    )


def _copies(samples: Samples) -> Copies:
    if samples.image is not None:
        return copied([hash(row.tobytes()) for row in samples.X], samples.y.tolist())
    return copies(samples.X, samples.y.tolist(), np.flatnonzero(samples.cardinality == 0).tolist())


def _without_features(path: Path, target: str, columns: Columns) -> str:
    """Say why no column but the target is left."""
    others = [name for name in columns if name != target]
    if others:
        return "every column but the target is ignored, or names groups or the test set"
    separated = _SEPARATED.get(path.suffix)
    return f"its only column is {target!r}" + (f"; {separated}" if separated else "")


def _split(
    samples: Samples,
    keys: Keys,
    beside: Mapping[str, Any],
    n_first: int | None,
) -> Samples:
    """Return samples with their groups, and with the file's own test part, if any, last."""
    samples = replace(samples, names=parts.names_of(len(samples.y), keys.own, beside, n_first))
    name = keys.own.get(parts.GROUP)
    if name is not None:
        samples = replace(samples, groups=parts.group_codes(name, beside[name]))
    if n_first is None:
        samples = parts.parted(samples, keys.own, beside)
    else:
        samples = replace(samples, n_official_train=n_first)
    if samples.groups is not None and samples.n_official_train is not None:
        parts.require_whole(str(name), samples.groups, samples.n_official_train)
    if samples.groups is not None and samples.roles is not None:
        for set_roles in samples.roles:
            order = np.argsort(set_roles == TEST, kind="stable")
            n_train = int((set_roles != TEST).sum())
            parts.require_whole(str(name), samples.groups[order], n_train)
    return samples


def columns_of(
    frame: pl.DataFrame,
    keys: Keys,
    path: Path,
    doubts: Mapping[str, Doubt] = NOTHING,
) -> Columns:
    """Return the columns of a table; ignored ones are None.

    `path`: for messages.
    """
    import polars as pl

    lists, aside = keys.sets, {*keys.aside.values()}
    columns: Columns = {}
    for series in frame:
        if series.name in lists["ignore"] and series.name != keys.target:
            columns[series.name] = None
            continue
        if series.name in lists["continuous"]:
            series = csvfile.numbers(series)
        if series.name in aside and series.dtype.is_temporal():
            series = series.cast(pl.String)  # as ISO 8601 has it
        kind = series.dtype
        labelled = series.name == keys.target or series.name in lists["categorical"]
        as_text = labelled or not kind.is_numeric() or series.name == keys.own.get(parts.ROW_ID)
        if kind.is_nested() or kind.is_temporal() or kind == pl.Binary:
            reason = f"holds {kind} in column {series.name!r}, not numbers or labels"
            raise refused(path, reason, {"ignore": [*lists["ignore"], series.name]})
        if kind.is_float() and as_text:
            series = series.fill_nan(None)
        held = pl.String() if as_text else pl.Float64()
        # a cast to the same type copies nothing, but of 20,000 columns it takes seconds
        values = (series if kind == held else series.cast(held)).to_numpy()
        values = values.astype(object) if as_text else values
        doubt: Doubt = ("", ())
        if series.name not in lists["continuous"]:
            doubt = doubts.get(series.name, doubt)
        if kind.is_integer() and not as_text and series.n_unique() == len(series) > _n(values):
            doubt = "id", ()
        columns[series.name] = DataColumn(series.name, values, labelled or kind != pl.String, doubt)
    return columns


def _n(values: NDArray[np.float64]) -> int:
    """Return how many different numbers are left, where float64 may not tell all apart."""
    is_exact = not values.size or np.nanmax(np.abs(values)) < _EXACT
    return values.size if is_exact else np.unique(values).size


_DIGESTS = ("digest", "test_digest")

OPTIONS: Mapping[str, Option] = {
    "target": TARGET,
    **LISTS,
    csvfile.MARKS: csvfile.OPTION,
    **parts.OPTIONS,
    **imagefolder.OPTIONS,
}

FORMATS = (*TABLES, *ARRAYS)

_NAME_THEM = "write a line with the names above it, or, if it has them, remove its repetitions"


@dataclass(frozen=True, slots=True)
class _Loaded:
    """A file's content: the bytes of a table, or arrays, in two parts if the file has them."""

    path: Path
    digest: str
    content: bytes | None = None
    arrays: Sequence[Arrays] = ()


def _describe(name: str, given: Mapping[str, Any]) -> DataShape:
    path = expanded(name).absolute()
    if _is_folder(path):
        return imagefolder.describe(path, given)
    return read(name, given)[0]


def read(name: str, given: Mapping[str, Any]) -> tuple[DataShape, Samples]:
    """Read a file of a table or of arrays.

    `name`: its path. `given`: `OPTIONS`, except those of folders of images; with `CLASSES`, rows
    without a class are taken.
    """
    path = expanded(name).absolute()
    if imagefolder.SIZE in given:
        reason = "is for a folder of images; images in a file have their size"
        raise Refused(imagefolder.SIZE, given[imagefolder.SIZE], reason)
    target, lists = _parameters(name, path, given)
    own = parts.read(given)
    other = own.pop(parts.TEST_FILE, None)
    marks = csvfile.marks(path.suffix, given)
    keys = Keys(target, lists, own, _listed(given), marks)
    files = [_opened("source", name, path, keys)]
    if other is not None:
        beside = expanded(other).absolute()
        if beside.suffix != path.suffix and not {beside.suffix, path.suffix} <= {*TABLES}:
            reason = f"is another kind of file than the source, {path.suffix}"
            raise Refused(parts.TEST_FILE, other, reason)
        files.append(_opened(parts.TEST_FILE, other, beside, keys))
    in_parts = any(len(file.arrays) > 1 for file in files)
    if in_parts and (key := next((key for key in parts.PARAMETERS if key in given), None)):
        reason = "the file has a test set already, as arrays of its own"
        raise Refused(key, given[key], reason, needs={key: None})
    nameless = next(filter(None, map(_without_names, files)), None)
    try:
        samples, columns = _as_samples(files, keys)
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
    provenance |= {csvfile.MARKS: marks} if marks else {}
    provenance |= {parts.IN_PARTS: parts.BY_ARRAYS} if in_parts else {}
    shape = shape_of(samples, columns, provenance, tuple(str(file.path) for file in files))
    refusal = nameless or _of_amounts(shape, files, keys)
    # an earlier sweep may have taken the table as it is: its data was prepared then
    if refusal and not cache.is_complete(with_preparation(shape.provenance), cache.data_home()):
        raise refusal
    return shape, samples


def _without_names(file: _Loaded) -> Refused | None:
    """Return the refusal of a table that has no names of columns."""
    line = file.content and csvfile.data_as_header(file.content, file.path.suffix)
    if not line:
        return None
    reason = f"has no names of columns: its first line is like those below it, {line!r}"
    return refused(file.path, f"{reason}; {_NAME_THEM}")


def _of_amounts(shape: DataShape, files: Sequence[_Loaded], keys: Keys) -> Refused | None:
    """Return the refusal of a table whose classes are amounts; those that `classes` lists are not.

    Arrays hold places of classes.
    """
    if keys.are_listed or not all(file.content is not None for file in files):
        return None
    reason = said_of_amounts(shape.class_names, shape.class_counts or ())
    return Refused("target", keys.target, reason) if reason else None


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
        _listed(provenance),
        provenance.get(csvfile.MARKS, ()),
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
    samples, _columns = _as_samples(files, keys)
    return arrayfile.prepared(samples)


def _listed(given: Mapping[str, Any]) -> set[str]:
    return {str(name) for members in given.get(CLASSES, {}).values() for name in members}


def _is_folder(path: Path) -> bool:
    return path.is_dir() and path.suffix != ".zarr"


def _parameters(
    name: str, path: Path, given: Mapping[str, Any]
) -> tuple[str, dict[str, list[str]]]:
    """Return the target, and the lists of columns for the description.

    Empty lists are left out, except ``categorical``, the oldest key: identities stay the same.
    """
    if path.suffix not in FORMATS:
        if path.suffix.lower() in csvfile.SPREADSHEETS:
            raise Refused("source", f"file:{name}", csvfile.no_spreadsheet(path))
        raise Refused("source", path.suffix, "unknown kind of file", FORMATS)
    by_default = "y" if path.suffix in (".npz", ".zarr") else None  # as of arrays in memory
    target = TARGET.check("target", given.get("target", by_default))
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
    require_there(key, name, path)
    if path.suffix in ARRAYS:
        digest, arrays = arrayfile.read(path, keys.target, keys.aside)
        return _Loaded(path, digest, arrays=arrays)
    try:
        content = path.read_bytes()
    except OSError as error:
        value = f"file:{name}" if key == "source" else name
        raise Refused(key, value, f"cannot be read: {error.strerror}") from error
    return _Loaded(path, hashlib.sha256(content).hexdigest(), content)


WORKING_FOLDER = "paths start at the working folder"


def require_there(key: str, name: str, path: Path) -> None:
    """Refuse a file that does not exist, and say where it was looked for."""
    try:
        path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        reason = "does not exist"
        if str(path) != name:
            reason += f": there is no {path}; {WORKING_FOLDER}"
        reason += did_you_mean_path(path if name.startswith("~") else Path(name))
        raise Refused(key, f"file:{name}" if key == "source" else name, reason) from None
    except (OSError, ValueError):  # reading it will say why
        return


def _as_samples(files: Sequence[_Loaded], keys: Keys) -> Taken:
    keys.require_distinct()
    if arrays := [(file.path, part) for file in files for part in file.arrays]:
        return of_arrays([path for path, _ in arrays], [part for _, part in arrays], keys)
    paths = [file.path for file in files]
    return of_tables(paths, [_parsed(file, keys) for file in files], keys)


def _parsed(file: _Loaded, keys: Keys) -> Columns:
    import polars as pl

    assert file.content is not None
    suffix, ignored = file.path.suffix, keys.sets["ignore"]
    try:
        doubts: Mapping[str, Doubt] = {}
        if suffix == ".parquet":
            frame = pl.read_parquet(io.BytesIO(file.content))
        else:
            ids = {keys.own[parts.ROW_ID]} if parts.ROW_ID in keys.own else set[str]()
            labels = {keys.target, *keys.sets["categorical"]}
            named = {name for key, name in keys.aside.items() if key != parts.ORDER}
            missing = (*csvfile.MISSING, *keys.marks)
            frame = csvfile.read(
                file.content,
                suffix,
                labels,
                ignored=ignored,
                missing=missing,
                named=named,
                written=ids,
            )
            used = frame.drop(ignored, strict=False)
            doubts = csvfile.doubtful(file.content, suffix, used, missing, labels | named)
    except csvfile.Repeated as error:
        needs = {"ignore": sorted({*ignored, *error.columns})}
        raise refused(
            file.path, str(error), {} if keys.target in error.columns else needs
        ) from error
    except (csvfile.Unreadable, UnicodeError) as error:
        reason = f"cannot be read as {suffix}: {csvfile.said(error, file.path)}"
        raise refused(file.path, reason) from error
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException) as error:
        raise refused(file.path, f"cannot be read as {suffix}: it is damaged") from error
    return columns_of(frame, keys, file.path, doubts)


SOURCE = DatasetSource(names=(), describe=_describe, parameters=OPTIONS, fetch=_fetch)
