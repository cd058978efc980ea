"""Arrays in NPZ, NPY and Zarr files: rows of numbers, or images. Nothing is unpickled."""

from __future__ import annotations

import hashlib
import io
import json
import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from zipfile import is_zipfile

import numpy as np
from numpy.typing import NDArray

from manyseed.jobs.checks import NOTHING, Refused, did_you_mean_path
from manyseed.jobs.datasets.columns import DataColumn, classes_of
from manyseed.jobs.datasets.info import Samples
from manyseed.jobs.whole import sha256

_BLOCK = 2**25  # values

_CHUNK = re.compile(r"c?[\d.]+|c")
_CODECS = {
    *("blosc", "zlib", "gzip", "zstd", "lz4", "bz2", "lzma", "shuffle", "delta", "quantize"),
    *("fixedscaleoffset", "packbits", "astype", "bitround", "vlen-utf8", "vlen-bytes", "crc32"),
    *("crc32c", "adler32", "fletcher32", "bytes", "transpose", "sharding_indexed"),
}
"""Zarr codecs that only turn bytes into numbers and text; others may execute what they read."""


def read(path: Path, target: str, aside: Mapping[str, str]) -> Read:
    """Read the array ``X``, the target's, and those that are not features.

    `target`: name of the array of classes; with an NPY, of the file beside it. `aside`: names of
    further arrays, by the keys of the table that give them.

    Returns `digest`: for an NPZ the file's SHA-256, else as `digest` computes it. `parts`: arrays
    by name, of all rows, or of the training rows and the test rows of an NPZ (`called`); an NPY is
    memory-mapped.
    """
    wanted = {"source": "X", "target": target, **aside}
    opened = {".npz": _of_npz, ".npy": _of_npy, ".zarr": _of_zarr}[path.suffix]
    try:
        sha, held = opened(path, wanted)
        for arrays in held:
            texts = {name: array for name, array in arrays.items() if array.dtype.kind == "S"}
            arrays |= {name: np.char.decode(array, "utf-8") for name, array in texts.items()}
    except Refused:
        raise
    except Exception as error:  # whatever a codec raises in a damaged file
        if isinstance(error, OSError) and error.strerror:
            raise refused(path, f"cannot be read: {error.strerror}") from error
        reason = f"cannot be read as {path.suffix}: {_in_words(error)}"
        raise refused(path, reason) from error
    for key, name in aside.items():
        for arrays in held:
            if arrays[name].shape != arrays[target].shape:
                reason = f"has shape {arrays[name].shape}, not one value for each row"
                raise Refused(key, name, reason)
    return sha, held


def _in_words(error: Exception) -> str:
    if isinstance(error, MemoryError):
        return "it needs more memory than there is"
    if isinstance(error, UnicodeDecodeError):
        return f"it holds the byte 0x{error.object[error.start]:02x}, so its text is not UTF-8"
    if "ickle" in str(error) or "Python objects" in str(error):
        return "it holds Python objects, which are not read; save numbers or text"
    return "it is damaged, or another kind of file"


def digest(files: Mapping[str, Path]) -> str:
    """Return the SHA-256 of the lines that ``sha256sum`` prints for files, sorted by name."""
    return digest_of({name: sha256(file) for name, file in files.items()})


def digest_of(digests: Mapping[str, str]) -> str:
    """Return the SHA-256 of such lines of files whose own digests are known."""
    lines = "".join(f"{digests[name]}  {name}\n" for name in sorted(digests))
    return hashlib.sha256(lines.encode()).hexdigest()


def refused(path: Path, reason: str, needs: Mapping[str, Any] = NOTHING) -> Refused:
    """Return the refusal of a file as a source."""
    return Refused("source", f"file:{path}", reason, needs=needs)


Read = tuple[str, list[dict[str, NDArray[Any]]]]

OF_PART = re.compile(r"(?i)(.*?)(train|test)(?:ing)?(.*)")


def without_part(name: str) -> str:
    """Return the name of an array without what says that it is for training or test."""
    found = OF_PART.fullmatch(name)
    return name if found is None else (found[1] + found[3]).strip("_.- ")


def called(arrays: Mapping[str, NDArray[Any]], target: str) -> list[dict[str, NDArray[Any]]]:
    """Return arrays without an ``X`` as X, target and others, by part; none if it is not told.

    Two arrays, of which one has a value for each row, are the classes and the rows. Arrays for
    training and test rows come in pairs whose names differ by train and test: ``x_train``,
    ``y_train``, ``x_test`` and ``y_test``, or ``train_images`` and so on. The classes are those
    called `target`, or the only ones with a value for each row.
    """
    parts: tuple[dict[str, NDArray[Any]], ...] = ({}, {})
    for name, array in arrays.items():
        if (found := OF_PART.fullmatch(name)) and array.ndim:
            parts[found[2].lower() == "test"][without_part(name)] = array
    train, test = parts
    pairs = [name for name in train if name in test]
    if not pairs and len(arrays) == 2 and not any(parts):
        pairs, parts = [*arrays], ({**arrays},)
    first = parts[0]
    flat = [name for name in pairs if first[name].ndim == 1 or first[name].shape[1:] == (1,)]
    deep = [name for name in pairs if name not in flat]
    classes = [target] if target in pairs else flat
    rows = [name for name in ("X", "x") if name in pairs][:1] or deep
    if not len(classes) == len(rows) == 1 or classes == rows:
        return []
    if len(parts) > 1 and any(len({len(part[name]) for name in pairs}) > 1 for part in parts):
        return []  # joined, rows would have the classes of others
    names = {name: name for name in pairs} | {rows[0]: "X", classes[0]: target}
    return [
        {
            new: part[old].ravel() if old in flat and new != "X" else part[old]
            for old, new in names.items()
        }
        for part in parts
    ]


def _of_npz(path: Path, wanted: Mapping[str, str]) -> Read:
    content = path.read_bytes()
    if not is_zipfile(io.BytesIO(content)):
        raise refused(path, "cannot be read as .npz: it holds no arrays")
    with np.load(io.BytesIO(content), allow_pickle=False) as file:
        arrays: dict[str, NDArray[Any]] = {name: file[name] for name in file}
    held = [] if "X" in arrays else called(arrays, wanted["target"])
    held = held or [arrays]
    for key, name in wanted.items():
        if name not in held[0]:
            raise Refused(key, name, "unknown array", held[0])
    return hashlib.sha256(content).hexdigest(), held


def _of_npy(path: Path, wanted: Mapping[str, str]) -> Read:
    files = {name: path if key == "source" else path.parent / name for key, name in wanted.items()}
    arrays = {}
    for key, name in wanted.items():
        if files[name].suffix != ".npy":
            raise Refused(key, name, allowed=f"the name of an .npy file beside {path.name}")
        if not files[name].is_file():
            beside = sorted(file.name for file in path.parent.glob("*.npy") if file != path)
            if key == "source":
                reason = "cannot be read: No such file or directory"
                raise refused(path, reason + did_you_mean_path(path))
            raise Refused(key, name, "unknown file", beside)
        array = np.load(files[name], mmap_mode="r", allow_pickle=False)
        if not isinstance(array, np.ndarray):
            reason = f"cannot be read as .npy: {files[name].name} holds several arrays"
            raise refused(path, reason)
        arrays[name] = array
    return digest(files), [arrays]


def _of_zarr(path: Path, wanted: Mapping[str, str]) -> Read:
    import zarr  # takes half a second

    if not path.is_dir():
        raise refused(path, f"cannot be read: there is no such folder{did_you_mean_path(path)}")
    files: dict[str, Path] = {}
    for key, name in wanted.items():
        place = path / name
        metadata = next(
            (each for each in (place / "zarr.json", place / ".zarray") if each.is_file()), None
        )
        if metadata is None:
            known = sorted({each.parent.name for each in path.glob("*/zarr.json")})
            known += sorted({each.parent.name for each in path.glob("*/.zarray")})
            raise Refused(key, name, "unknown array", known)
        described = json.loads(metadata.read_bytes())
        if odd := sorted({*_codecs(described)} - _CODECS):
            reason = f"array {name} needs the codec {odd[0]}, which may execute what it reads"
            raise refused(path, reason)
        of_array = {
            each.relative_to(path).as_posix(): each for each in place.rglob("*") if each.is_file()
        }
        if _is_of_blosc(described) and (cut := next(filter(_is_cut, of_array.values()), None)):
            raise refused(path, f"cannot be read as .zarr: {cut.relative_to(path)} is damaged")
        files |= of_array
    arrays = {}
    for name in wanted.values():
        array = zarr.open_array(str(path / name), mode="r")
        if array.nchunks_initialized < array.nchunks and array.fill_value == array.fill_value:
            reason = f"lacks chunks of array {name}, which would be {array.fill_value!s} throughout"
            raise refused(
                path, f"{reason}; copy it again, or write it with write_empty_chunks=True"
            )
        arrays[name] = np.asarray(array[...])
    return digest(files), [arrays]


def _codecs(metadata: Any) -> Iterator[str]:
    """Yield the names of all codecs in an array's metadata."""
    if isinstance(metadata, Mapping):
        for key in ("compressor", "filters", "codecs", "index_codecs"):
            for codec in _several(metadata.get(key)):
                name = codec.get("id", codec.get("name", "")) if isinstance(codec, dict) else codec
                yield str(name).removeprefix("numcodecs.")
                yield from _codecs(codec.get("configuration") if isinstance(codec, dict) else None)


def _is_of_blosc(metadata: Mapping[str, Any]) -> bool:
    last = [*_several(metadata.get("compressor")), *_several(metadata.get("codecs"))][-1:]
    return bool({"blosc"} & {*_codecs({"codecs": last})})


def _is_cut(file: Path) -> bool:
    """Return whether a file is a chunk of Blosc that lacks bytes: Blosc would read beyond them."""
    if _CHUNK.fullmatch(file.name) is None:
        return False
    with file.open("rb") as opened:
        return int.from_bytes(opened.read(16)[12:], "little") != file.stat().st_size


def _several(value: Any) -> Sequence[Any]:
    return value if isinstance(value, list) else [] if value is None else [value]


def joined(
    first: Mapping[str, NDArray[Any]], then: Mapping[str, NDArray[Any]], path: Path, key: str
) -> Any:
    """Concatenate the arrays of two files or parts; the second is at `path`, which `key` gives."""
    for name, array in then.items():
        if name in first and array.shape[1:] != first[name].shape[1:]:
            other = "the source" if key == "test_file" else "the training part"
            reason = f"holds {name} {array.shape}, {other} {first[name].shape}"
            raise Refused(key, str(path), reason)
    return {name: np.concatenate([first[name], then[name]]) for name in first if name in then}


def images(
    path: Path,
    arrays: Mapping[str, NDArray[Any]],
    target: str,
    lists: Mapping[str, Sequence[str]],
    *,
    are_listed: bool | None = None,
) -> Samples:
    """Return samples of images (sample, height, width, channel), or (sample, height, width).

    Pixels keep their dtype, and a memory-mapped array stays so; `prepared` converts them.

    `path`: the file, for messages. `arrays`: its arrays by name: ``X``, and the target's. `target`:
    the name of the classes' array. `lists`: lists of columns by key; refused unless empty.
    `are_listed`: as for `classes_of`.
    """
    X, y = arrays["X"], arrays[target]
    X = X[..., np.newaxis] if X.ndim == 3 else X
    if X.ndim != 4 or y.shape != X.shape[:1] or X.dtype.kind not in "biuf" or not X.size:
        reason = f"holds X {arrays['X'].shape} of {X.dtype} and {target} {y.shape}, not images "
        raise refused(path, f"{reason}(sample, height, width, channel) and classes (sample)")
    if X.shape[1] in (1, 3) and X.shape[3] > 4:
        reason = f"holds X {X.shape}, which looks like (sample, channel, height, width); give "
        raise refused(path, f"{reason}(sample, height, width, channel): np.moveaxis(X, 1, -1)")
    for key, names in lists.items():
        if names:
            raise Refused(key, [*names], "the file holds images, which have no columns")
    flat = X.reshape(len(X), -1)
    if X.dtype.kind == "f" and not all(np.isfinite(flat[rows]).all() for rows in _blocks(flat)):
        raise refused(path, "holds images with pixels that are not finite")
    names, classes = classes_of(DataColumn(target, labels(y)), are_listed=are_listed)
    _, height, width, channels = X.shape
    cardinality = np.zeros(flat.shape[1], dtype=np.int32)
    return Samples(flat, classes, cardinality, names, image=(height, width, channels))


def prepared(samples: Samples) -> Samples:
    """Convert the pixels of images to float64, in an unnamed file, unless they are bytes."""
    if samples.image is None:
        return samples
    return replace(samples, X=converted(samples.X))


def converted(X: NDArray[Any]) -> NDArray[Any]:
    """Return bytes and float64 as they are, other numbers as float64, in an unnamed file."""
    if X.dtype in (np.uint8, np.float64):
        return X
    as_float = in_file(X.shape, np.float64)
    for rows in _blocks(X):
        as_float[rows] = X[rows]
    return as_float


def in_file(shape: tuple[int, ...], dtype: Any) -> NDArray[Any]:
    """Return an array in a file that has no name and vanishes with the array: not in memory."""
    with tempfile.TemporaryFile() as file:
        return np.memmap(file, dtype=dtype, mode="w+", shape=shape)


def _blocks(X: NDArray[Any]) -> Iterator[slice]:
    step = max(1, _BLOCK // max(1, X.shape[1]))
    return (slice(start, start + step) for start in range(0, len(X), step))


def _instead(X: NDArray[Any], y: NDArray[Any], target: str) -> str:
    """Say what makes classes (sample) of these, or why there are none."""
    if len(X) != len(y):
        return f": there are {len(X):,} rows, but {len(y):,} classes"
    if y.ndim == 2:
        return f"; save {target} with .{'ravel()' if y.shape[1] == 1 else 'argmax(axis=1)'}"
    return ""


def columns(
    path: Path,
    arrays: Mapping[str, NDArray[Any]],
    target: str,
    aside: set[str],
    lists: Mapping[str, set[str]],
) -> dict[str, DataColumn | None]:
    """Return the columns of ``X`` (sample, feature), named by number, and the other arrays.

    `path`, `arrays` and `target`: as in `images`. `aside`: arrays that are not features: they say
    which rows are the test set, or belong together. `lists`: the columns to ``ignore``, and the
    ``categorical`` ones.
    """
    X, y = arrays["X"], arrays[target]
    if X.ndim != 2 or y.shape != X.shape[:1] or X.dtype.kind not in "biuf":
        raise refused(
            path,
            f"holds X {X.shape} of {X.dtype} and {target} {y.shape}, not numbers (sample, feature) "
            f"and classes (sample){_instead(X, y, target)}",
        )
    names = [str(j) for j in range(X.shape[1])]
    features = {
        name: None
        if name in lists["ignore"]
        else DataColumn(
            name,
            labels(X[:, j]) if name in lists["categorical"] else X[:, j].astype(np.float64),
            is_declared=True,
        )
        for j, name in enumerate(names)
    }
    others: dict[str, DataColumn | None] = {
        name: DataColumn(name, plain(arrays[name])) for name in aside
    }
    return {**features, **others, target: DataColumn(target, labels(y))}


def plain(values: NDArray[Any]) -> NDArray[Any]:
    """Return numbers as float64, anything else as text."""
    return values.astype(np.float64) if values.dtype.kind in "iuf" else labels(values)


def labels(values: NDArray[Any]) -> NDArray[np.object_]:
    """Return values as text, None where they are NaN; whole numbers have no decimal point."""
    if values.dtype.kind == "f":
        return np.array(
            [
                None if np.isnan(v) else str(int(v)) if v.is_integer() else repr(v)
                for v in values.tolist()
            ],
            dtype=object,
        )
    return np.array([str(v) for v in values.tolist()], dtype=object)
