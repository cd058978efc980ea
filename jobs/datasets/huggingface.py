"""Hugging Face datasets (``hf:NAME``), read by its library ``datasets``.

They come from a hub, from the library's cache when offline, or from a folder. Since version 4 the
library executes no code of a dataset. The samples themselves are the identity.
"""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from manyseed.jobs.checks import Option, Refused, did_you_mean_path, expanded
from manyseed.jobs.datasets import arrayfile, imagefolder
from manyseed.jobs.datasets.function import digest
from manyseed.jobs.datasets.info import DatasetSource, DataShape, Samples
from manyseed.jobs.datasets.parts import ANY_TEXT
from manyseed.jobs.datasets.tablefile import (
    LISTS,
    Keys,
    Taken,
    columns_of,
    of_arrays,
    of_tables,
    shape_of,
)
from manyseed.jobs.datasets.tablefile import TARGET as OF_TARGET
from manyseed.jobs.packages import install
from manyseed.jobs.run import MachineError

if TYPE_CHECKING:
    import polars as pl

CONFIG, SPLITS, TARGET = "config", "splits", "target"
OPTIONS: Mapping[str, Option] = {
    CONFIG: Option(
        "One of the configurations of a dataset.",
        called="the name of one of its configurations",
        pattern=ANY_TEXT,
    ),
    SPLITS: Option("Splits to use; the last of several is the test set.", list, distinct=True),
    TARGET: replace(OF_TARGET, default="label"),
    **LISTS,
    **imagefolder.OPTIONS,
}

_USUAL = (("train", "test"), ("train", "validation"))
_SAVED = ("dataset_dict.json", "state.json")


def _describe(name: str, given: Mapping[str, Any]) -> DataShape:
    asked = _asked(name, given)
    samples, columns = _read(name, asked)
    source = "hf" if _is_local(name) else f"hf:{name}"
    provenance = {"source": source, "digest": digest(samples), **asked}
    place = str(_place(name)) if _is_local(name) else name
    return shape_of(samples, columns, provenance, (place,))


def _fetch(provenance: Mapping[str, Any], locations: Sequence[str], _: Path) -> Samples:
    (name,) = locations or (provenance["source"].removeprefix("hf:"),)
    try:
        asked = {key: provenance[key] for key in OPTIONS if key in provenance}
        samples, _columns = _read(name, asked)
    except Refused as error:
        raise MachineError(f"hf:{name} cannot be read as it was planned: {error}") from error
    if (found := digest(samples)) != provenance["digest"]:
        raise MachineError(
            f"hf:{name} has changed: its digest is {found}, it was planned with "
            f"{provenance['digest']}"
        )
    return arrayfile.prepared(samples)


def _asked(name: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return a table's keys, checked except for the names of columns."""
    asked: dict[str, Any] = {TARGET: OPTIONS[TARGET].check(TARGET, given.get(TARGET, "label"))}
    if CONFIG in given:
        asked[CONFIG] = OPTIONS[CONFIG].check(CONFIG, given[CONFIG])
        if _is_local(name) and _is_saved(_place(name)):
            raise Refused(CONFIG, given[CONFIG], "a saved dataset has none", needs={CONFIG: None})
    for key in (SPLITS, *LISTS):
        if key not in given:
            continue
        names = given[key]
        is_list = isinstance(names, list | tuple) and all(isinstance(each, str) for each in names)
        if not is_list or len({*names}) < len(names) or (key == SPLITS and not names):
            what = "splits" if key == SPLITS else "columns"
            raise Refused(key, names, allowed=f"a list of different {what}")
        if names:
            asked[key] = [*names] if key == SPLITS else sorted(names)
    if imagefolder.SIZE in given:
        asked[imagefolder.SIZE] = [*(imagefolder.size_of(given) or ())]
    return asked


def _is_local(name: str) -> bool:
    return name.startswith((".", "/", "~"))


def _place(name: str) -> Path:
    return expanded(name).absolute()


def _is_saved(path: Path) -> bool:
    return any((path / name).is_file() for name in _SAVED)


def _read(name: str, asked: Mapping[str, Any]) -> Taken:
    """Read the splits asked for; the last of several is the official test part."""
    parts = _chosen(name, _loaded(name, asked.get(CONFIG)), asked)
    columns = [*parts[0].features]
    for key in (TARGET, *LISTS):
        for each in [asked[key]] if key == TARGET else asked.get(key, ()):
            if each not in columns:
                raise Refused(key, each, "unknown column", columns)
    try:
        samples, infos = _taken(name, parts, asked)
    except Refused as error:
        if error.option == "source":
            raise _refused(name, error.reason, needs=error.needs) from None
        if error.option == TARGET:
            raise Refused(TARGET, asked[TARGET], error.reason, needs=error.needs) from None
        raise
    if len(parts) > 1:
        samples = replace(samples, n_official_train=sum(len(part) for part in parts[:-1]))
    return samples, infos


def _refused(name: str, reason: str, **more: Any) -> Refused:
    return Refused("source", f"hf:{name}", reason, **more)


def _loaded(name: str, config: str | None) -> Mapping[str, Any]:
    """Return a dataset's splits by name."""
    try:
        import datasets  # type: ignore[import-not-found,unused-ignore]
    except ImportError as error:
        if error.name != "datasets":
            raise _refused(name, f"needs the library datasets, which fails: {error}") from error
        reason = f"needs the library datasets, which is not installed: {install(['datasets'])}"
        raise _refused(name, reason) from None
    try:
        with _quiet(datasets):
            if not _is_local(name):
                loaded = datasets.load_dataset(name, config)
            elif _is_saved(path := _place(name)):
                loaded = datasets.load_from_disk(str(path))
            elif path.is_dir():
                loaded = datasets.load_dataset(str(path), config)
            else:
                near = did_you_mean_path(path)
                raise _refused(name, f"cannot be read: there is no such folder{near}")
    except Refused:
        raise
    except Exception as error:
        reason = (str(error).strip() or type(error).__name__).partition("\n")[0]
        raise _refused(name, f"cannot be read: {reason}") from error
    return loaded if isinstance(loaded, Mapping) else {str(loaded.split or "train"): loaded}


@contextmanager
def _quiet(library: Any) -> Iterator[None]:
    """Switch a library's progress bars off for a while."""
    was_quiet = library.are_progress_bars_disabled()
    library.disable_progress_bars()
    try:
        yield
    finally:
        if not was_quiet:
            library.enable_progress_bars()


def _chosen(name: str, splits: Mapping[str, Any], asked: Mapping[str, Any]) -> list[Any]:
    names = asked.get(SPLITS)
    if names is None:
        usual = (each for each in _USUAL if {*each} <= {*splits})
        names = next(usual, tuple(splits) if len(splits) == 1 else ())
        if not names:
            reason = f"has the splits {', '.join(splits)}; name the ones to use"
            raise _refused(name, reason, needs={SPLITS: [*splits][:2]})
    for each in names:
        if each not in splits:
            raise Refused(SPLITS, each, "unknown split", splits)
    parts = [splits[each] for each in names]
    for each, part in zip(names, parts, strict=True):
        if part.features != parts[0].features:
            raise Refused(SPLITS, each, f"has other columns than {names[0]}")
        if not len(part):
            raise Refused(SPLITS, each, "has no rows")
    return parts


def _taken(name: str, parts: Sequence[Any], asked: Mapping[str, Any]) -> Taken:
    """Return the samples of splits, and how their columns are taken."""
    target, ignored = asked[TARGET], {*asked.get("ignore", ())}
    features = {
        column: kind
        for column, kind in parts[0].features.items()
        if column != target and column not in ignored
    }
    images = [column for column, kind in features.items() if _is_array(kind)]
    if not images:
        if imagefolder.SIZE in asked:
            size = asked[imagefolder.SIZE]
            raise Refused(imagefolder.SIZE, size, "there are no images", needs={"size": None})
        keys = Keys(target, {key: asked[key] for key in LISTS if key in asked})
        keys.require_distinct()
        return of_tables([Path(name)], [columns_of(_frame(parts), keys, Path(name))], keys)
    if others := [column for column in features if column != images[0]]:
        reason = f"column {images[0]!r} holds images or arrays, so it must be the only feature"
        raise _refused(name, reason, needs={"ignore": sorted({*ignored, *others})})
    for key in ("categorical", "continuous"):
        for column in asked.get(key, ()):
            raise Refused(key, column, "the rows are images or arrays, which have no columns")
    (X,) = images
    read = _pixels if type(features[X]).__name__ == "Image" else _arrays
    rows = read(name, parts, X, asked)
    classes = [label for part in parts for label in _labels(part, target)]
    if missing := classes.count(None):
        reason = f"{missing} of {len(classes)} values are missing; name other splits"
        raise Refused(TARGET, target, reason, needs={SPLITS: ["train"]})
    arrays = {"X": rows, "y": np.array(classes, dtype=str)}
    return of_arrays([Path(name)], [arrays], Keys("y", {}))


def _is_array(kind: Any) -> bool:
    """Return whether a column holds images, arrays of numbers, or lists of them."""
    name = type(kind).__name__
    if name in ("List", "LargeList", "Sequence"):
        return getattr(kind.feature, "dtype", "").rstrip("0123456789") in ("int", "uint", "float")
    return name in ("Image", "Array2D", "Array3D")


def _labels(part: Any, column: str) -> list[str | None]:
    """Return a column as text; declared classes by their names."""
    kind, values = part.features[column], part.with_format(None)[column][:]
    if type(kind).__name__ == "ClassLabel":
        return [None if v is None or v < 0 else kind.names[v] for v in values]
    return [None if v is None else str(v) for v in values]


def _frame(parts: Sequence[Any]) -> pl.DataFrame:
    """Return a table with declared classes as text."""
    import polars as pl

    frames: list[pl.DataFrame] = []
    for part in parts:
        frame = part.with_format(None).to_polars()
        named = [
            pl.Series(column, _labels(part, column), dtype=pl.String)
            for column, kind in part.features.items()
            if type(kind).__name__ == "ClassLabel"
        ]
        frames.append(frame.with_columns(named))
    return pl.concat(frames)


def _arrays(name: str, parts: Sequence[Any], column: str, asked: Mapping[str, Any]) -> NDArray[Any]:
    """Return arrays of one shape as one array (sample, …)."""
    if imagefolder.SIZE in asked:
        size = asked[imagefolder.SIZE]
        raise Refused(imagefolder.SIZE, size, "arrays have their size", needs={"size": None})
    try:
        X = np.concatenate([np.asarray(part.with_format("numpy")[column][:]) for part in parts])
    except ValueError:
        X = np.empty(0, dtype=object)
    if X.dtype.kind not in "biuf":
        raise _refused(name, f"holds arrays of several shapes in column {column!r}")
    return X


def _pixels(name: str, parts: Sequence[Any], column: str, asked: Mapping[str, Any]) -> NDArray[Any]:
    """Return images as one array (sample, height, width, channel) of bytes, in an unnamed file."""
    import datasets

    undecoded = [part.cast_column(column, datasets.Image(decode=False)) for part in parts]

    def opened() -> Iterator[tuple[str, BinaryIO]]:
        number = 0
        for part in undecoded:
            for row in part.with_format(None).select_columns([column]):
                number += 1
                if (image := row[column]) is None:
                    raise _refused(name, f"has no image in row {number} of column {column!r}")
                content = image["bytes"] or Path(image["path"]).read_bytes()
                yield f"image {number}", io.BytesIO(content)

    try:
        headers = [imagefolder.header(content, which) for which, content in opened()]
        sizes = Counter((height, width) for height, width, _ in headers)
        if len(sizes) > 1 and imagefolder.SIZE not in asked:
            (common, _), *_ = sizes.most_common(1)
            reason = f"holds images of {len(sizes)} sizes; most have {common[0]} × {common[1]}"
            raise _refused(name, f"{reason} pixels", needs={imagefolder.SIZE: [*common]})
        height, width = asked.get(imagefolder.SIZE) or next(iter(sizes))
        shape = (height, width, max(channels for _, _, channels in headers))
        X = arrayfile.in_file((len(headers), *shape), np.uint8)
        for i, (which, content) in enumerate(opened()):
            X[i] = imagefolder.pixels(content, which, shape)
        return X
    except Refused:
        raise
    except imagefolder.NoImage as error:
        raise _refused(name, str(error)) from error
    except OSError as error:
        reason = f"holds an image that cannot be read: {error.strerror or 'it is damaged'}"
        raise _refused(name, reason) from error


SOURCE = DatasetSource(names=(), describe=_describe, parameters=OPTIONS, fetch=_fetch)
