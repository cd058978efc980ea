"""Tables in files: CSV, Parquet and NPZ, identified by their content."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zipfile import BadZipFile, is_zipfile

import numpy as np
from numpy.typing import NDArray

from manyseed.jobs.checks import NOTHING, Refused
from manyseed.jobs.datasets import parts, together
from manyseed.jobs.datasets.columns import ColumnInfo, column_info
from manyseed.jobs.datasets.source import DatasetSource, DataShape, Samples
from manyseed.jobs.datasets.tabular import DataColumn, classes_of, to_samples
from manyseed.jobs.run import MachineError

if TYPE_CHECKING:
    import polars as pl

_LISTS = ("categorical", "continuous", "ignore")
PARAMETERS = ("target", *_LISTS, *parts.PARAMETERS, together.GROUP)

_OWN = (*parts.PARAMETERS, together.GROUP)
_ASIDE = (*parts.COLUMNS, together.GROUP)
"""Keys that name a column, which is no feature then."""

FORMATS = (".csv", ".npz", ".parquet")

MISSING = ["", "?", "NA", "NaN", "nan"]
"""Cells of a CSV that hold no value."""


def _describe(name: str, given: Mapping[str, Any]) -> DataShape:
    """Read the file: its digest is the dataset's identity, and no catalogue knows its shape."""
    path = Path(name).expanduser().absolute()
    target, lists = _parameters(path, given)
    own = {**parts.read(given), **together.read(given)}
    try:
        content = path.read_bytes()
    except OSError as error:
        raise Refused("source", f"file:{name}", f"cannot be read: {error.strerror}") from error
    samples, columns = _samples(path, content, target, lists, own)
    n_train = samples.n_official_train
    k = len(samples.class_names)
    return DataShape(
        provenance={
            "source": "file",
            "digest": hashlib.sha256(content).hexdigest(),
            "target": target,
            **lists,
            **own,
        },
        n_samples=len(samples.y),
        n_features=len(samples.cardinality),
        n_categorical=int((samples.cardinality > 0).sum()),
        class_names=samples.class_names,
        class_counts=tuple(np.bincount(samples.y).tolist()),
        image=samples.image,
        test_counts=None
        if n_train is None
        else tuple(np.bincount(samples.y[n_train:], minlength=k).tolist()),
        location=str(path),
        columns=columns,
        groups=None if samples.groups is None else np.stack([samples.groups, samples.y], axis=1),
    )


def _fetch(provenance: Mapping[str, Any], location: str | None, _: Path) -> Samples:
    if location is None:
        raise ValueError(f"a file is fetched from its place, and none is given for {provenance}")
    path = Path(location)
    try:
        content = path.read_bytes()
    except OSError as error:
        raise MachineError(f"file:{path} cannot be read: {error.strerror}") from error
    digest = hashlib.sha256(content).hexdigest()
    if digest != provenance["digest"]:
        raise MachineError(
            f"file:{path} has changed: its SHA-256 is {digest}, it was planned with "
            f"{provenance['digest']}"
        )
    lists = {key: provenance.get(key, []) for key in _LISTS}
    own = {key: provenance[key] for key in _OWN if key in provenance}
    return _samples(path, content, provenance["target"], lists, own)[0]


def _parameters(path: Path, given: Mapping[str, Any]) -> tuple[str, dict[str, list[str]]]:
    """Return the target, and the lists of columns as the description holds them.

    Those that came later are left out of it while they are empty: identities stay.
    """
    if path.suffix not in FORMATS:
        raise Refused("source", path.suffix, "unknown kind of file", FORMATS)
    target = given.get("target")
    if not isinstance(target, str):
        raise Refused("target", target, allowed="the name of the column to predict")
    lists: dict[str, list[str]] = {}
    named: dict[str, str] = {}
    for key in _LISTS:
        names = given.get(key, [])
        if isinstance(names, str) or not isinstance(names, Sequence):
            raise Refused(key, names, allowed="a list of columns")
        lists[key] = sorted({str(name) for name in names})
        for name in lists[key]:
            if name in named:
                raise Refused(key, name, f"is in {named[name]}, too")
            named[name] = key
    return target, {key: names for key, names in lists.items() if names or key == "categorical"}


def _samples(
    path: Path,
    content: bytes,
    target: str,
    lists: Mapping[str, Sequence[str]],
    own: Mapping[str, Any],
) -> tuple[Samples, tuple[ColumnInfo, ...]]:
    """Return the samples of a file, and what its columns are taken for, in its order."""
    sets = {key: set(lists.get(key, ())) for key in _LISTS}
    aside = {key: own[key] for key in _ASIDE if key in own}
    for key, name in aside.items():
        if name == target or any(name in names for names in sets.values()):
            raise Refused(key, name, "is something else already")
    if path.suffix == ".npz":
        arrays = _arrays(path, content, target, aside)
        if arrays["X"].ndim > 2:
            beside = {name: _plain(arrays[name]) for name in aside.values()}
            return _split(_images(path, arrays, target, lists), own, beside), ()
        columns = _of_arrays(path, arrays, target, {*aside.values()}, sets)
    else:
        columns = _read_table(path, content, target, sets, {*aside.values()})
    if target not in columns:
        raise Refused("target", target, "unknown column", columns)
    for key, names in lists.items():
        for name in names:
            if name not in columns or name == target:
                others = [column for column in columns if column != target]
                raise Refused(key, name, "unknown column", others)
    for key, name in aside.items():
        if name not in columns:
            raise Refused(key, name, "unknown column", columns)
    beside = {name: found.values for name in aside.values() if (found := columns[name])}
    columns |= dict.fromkeys(beside)
    features = {name: found for name, found in columns.items() if found and name != target}
    truth = columns[target]
    assert truth is not None  # never ignored: the target is no other column
    samples = to_samples(f"file:{path}", list(features.values()), truth)
    samples = _split(samples, own, beside)
    infos = tuple(
        column_info(name, found.values) if found else ColumnInfo(name, "ignored")
        for name, found in columns.items()
        if name != target
    )
    return samples, infos


def _split(samples: Samples, own: Mapping[str, Any], beside: Mapping[str, Any]) -> Samples:
    """Return samples with their groups, and with the test part last where the file has one."""
    name = own.get(together.GROUP)
    if name is not None:
        samples = replace(samples, groups=together.codes(name, beside[name]))
    samples = parts.parted(samples, own, beside)
    if samples.groups is not None and samples.n_official_train is not None:
        together.require_whole(str(name), samples.groups, samples.n_official_train)
    return samples


def _read_table(
    path: Path, content: bytes, target: str, lists: Mapping[str, set[str]], aside: set[str]
) -> dict[str, DataColumn | None]:
    """Read the columns of a table; None for those that are ignored."""
    import polars as pl

    try:
        frame = (
            pl.read_parquet(io.BytesIO(content))
            if path.suffix == ".parquet"
            else pl.read_csv(io.BytesIO(content), null_values=MISSING, infer_schema_length=None)
        )
    except pl.exceptions.PolarsError as error:
        reason = str(error).partition("\n")[0]  # what follows is advice on calling polars
        raise _refused(path, f"is no {path.suffix[1:]} file: {reason}") from error
    columns: dict[str, DataColumn | None] = {}
    for series in frame:
        if series.name in lists["ignore"] and series.name != target:
            columns[series.name] = None
            continue
        if series.name in lists["continuous"]:
            series = _numbers(series)
        if series.name in aside and series.dtype.is_temporal():
            series = series.cast(pl.String)  # as ISO 8601 has it
        kind = series.dtype
        labelled = series.name == target or series.name in lists["categorical"]
        as_text = labelled or not kind.is_numeric()
        if kind.is_nested() or kind.is_temporal() or kind == pl.Binary:
            reason = f"holds {kind} in column {series.name!r}, no numbers or labels"
            raise _refused(path, reason, {"ignore": [*lists["ignore"], series.name]})
        if kind.is_float():
            series = series.fill_nan(None)
        values = series.cast(pl.String if as_text else pl.Float64).to_numpy()
        columns[series.name] = DataColumn(series.name, values.astype(object) if as_text else values)
    return columns


def _numbers(series: pl.Series) -> pl.Series:
    """Return a column that is declared continuous as numbers."""
    import polars as pl

    numbers = series.cast(pl.Float64, strict=False)
    if (wrong := series.filter(numbers.is_null() & series.is_not_null())).len():
        reason = f"holds {str(wrong[0])!r}, no number"
        raise Refused("continuous", series.name, reason)
    return numbers


def _arrays(
    path: Path, content: bytes, target: str, aside: Mapping[str, str]
) -> dict[str, NDArray[Any]]:
    """Read the arrays ``X``, the target's, and those that are no features."""
    try:
        if not is_zipfile(io.BytesIO(content)):
            raise BadZipFile("it holds no arrays")
        with np.load(io.BytesIO(content), allow_pickle=False) as file:
            arrays: dict[str, NDArray[Any]] = {name: file[name] for name in file}
    except (OSError, EOFError, ValueError, TypeError, BadZipFile) as error:
        raise _refused(path, f"is no npz file: {error}") from error
    for key, name in (("source", "X"), ("target", target), *aside.items()):
        if name not in arrays:
            raise Refused(key, name, "unknown array", arrays)
    for key, name in aside.items():
        if arrays[name].shape != arrays[target].shape:
            raise Refused(key, name, f"has shape {arrays[name].shape}, no value for each row")
    return arrays


def _images(
    path: Path,
    arrays: Mapping[str, NDArray[Any]],
    target: str,
    lists: Mapping[str, Sequence[str]],
) -> Samples:
    """Return images (sample, height, width, channel), or without channels, and their classes."""
    X, y = arrays["X"], arrays[target]
    X = X[..., np.newaxis] if X.ndim == 3 else X
    if X.ndim != 4 or y.shape != X.shape[:1] or X.dtype.kind not in "biuf" or not X.size:
        reason = f"holds X {arrays['X'].shape} of {X.dtype} and {target} {y.shape}, no images "
        raise _refused(path, f"{reason}(sample, height, width, channel) and classes (sample)")
    for key, names in lists.items():
        if names:
            raise Refused(key, [*names], "the file holds images, which have no columns")
    X = X if X.dtype == np.uint8 else X.astype(np.float64)
    if not np.isfinite(X).all():
        raise _refused(path, "holds images with pixels that are not finite")
    names, classes = classes_of(DataColumn(target, _labels(y)))
    flat = X.reshape(len(X), -1)
    _, height, width, channels = X.shape
    cardinality = np.zeros(flat.shape[1], dtype=np.int32)
    return Samples(flat, classes, cardinality, names, image=(height, width, channels))


def _of_arrays(
    path: Path,
    arrays: Mapping[str, NDArray[Any]],
    target: str,
    aside: set[str],
    lists: Mapping[str, set[str]],
) -> dict[str, DataColumn | None]:
    """Return the columns of ``X`` (sample, feature), named by number, and the others."""
    X, y = arrays["X"], arrays[target]
    if X.ndim != 2 or y.shape != X.shape[:1] or X.dtype.kind not in "biuf":
        raise _refused(
            path,
            f"holds X {X.shape} of {X.dtype} and {target} {y.shape}, no numbers (sample, feature) "
            "and classes (sample)",
        )
    names = [str(j) for j in range(X.shape[1])]
    columns = {
        name: None
        if name in lists["ignore"]
        else DataColumn(
            name, _labels(X[:, j]) if name in lists["categorical"] else X[:, j].astype(np.float64)
        )
        for j, name in enumerate(names)
    }
    others: dict[str, DataColumn | None] = {
        name: DataColumn(name, _plain(arrays[name])) for name in aside
    }
    return {**columns, **others, target: DataColumn(target, _labels(y))}


def _refused(path: Path, reason: str, needs: Mapping[str, Any] = NOTHING) -> Refused:
    return Refused("source", f"file:{path}", reason, needs=needs)


def _plain(values: NDArray[Any]) -> NDArray[Any]:
    """Return numbers as such, all else as text."""
    return values.astype(np.float64) if values.dtype.kind in "iuf" else _labels(values)


def _labels(values: Any) -> Any:
    """Return values as text, None where they are NaN; whole numbers are written without a point."""
    if values.dtype.kind == "f":
        return np.array(
            [
                None if np.isnan(v) else str(int(v)) if v.is_integer() else repr(v)
                for v in values.tolist()
            ],
            dtype=object,
        )
    return np.array([str(v) for v in values.tolist()], dtype=object)


SOURCE = DatasetSource(names=(), describe=_describe, parameters=PARAMETERS, fetch=_fetch)
