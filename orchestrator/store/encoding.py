"""Arrays to the bytes of zarr's files and back; zarr does the work, in memory.

Only this module says how arrays are stored: zarr format 3, keys ``c.0.0``, shards for predictions,
a CRC-32C after every compressor. Scores hardly compress (1.1×), so they are left alone; labels do
(2× for ten classes, 5–8× for two), fastest by lz4 after a bit shuffle.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import zarr
from numpy.typing import NDArray
from zarr.codecs import BloscCodec, Crc32cCodec
from zarr.core.buffer import default_buffer_prototype
from zarr.core.sync import sync
from zarr.storage import LocalStore, MemoryStore

from orchestrator.store.arrays import ArraySpec
from orchestrator.store.errors import DamagedShard, StoreUnavailable
from orchestrator.store.schema import GroupSpec

METADATA = "zarr.json"
ATTEMPTS = 8
Array = NDArray[Any]
Bools = NDArray[np.bool_]
T = TypeVar("T")


def array_metadata(
    spec: GroupSpec, array: ArraySpec, rows: int, repeats: int, extra: Mapping[str, Any]
) -> bytes:
    """Return the ``zarr.json`` of an array; `extra` goes into its attributes."""
    chunks, shards = spec.chunks(array), spec.shards(array)
    codecs: list[Any] = [Crc32cCodec()]
    if array.compressed:
        size = np.dtype(array.dtype).itemsize
        codecs.insert(0, BloscCodec(typesize=size, cname="lz4", clevel=5, shuffle="bitshuffle"))
    store = MemoryStore()
    zarr.create_array(
        store,
        shape=spec.shape(array, rows, repeats),
        dtype=array.dtype,
        chunks=chunks,
        shards=None if chunks == shards else shards,
        compressors=codecs,
        fill_value=array.fill,
        chunk_key_encoding={"name": "default", "separator": "."},
        dimension_names=array.dims,
        attributes={**array.attributes, **extra},
        zarr_format=3,
    )
    return _metadata(store)


def group_metadata(attributes: Mapping[str, Any]) -> bytes:
    """Return the ``zarr.json`` of a group."""
    store = MemoryStore()
    zarr.create_group(store, attributes=dict(attributes), zarr_format=3)
    return _metadata(store)


def encode(metadata: bytes, index: int, data: Array) -> tuple[str, bytes]:
    """Return the key and the bytes of the `index`-th file along the first dimension.

    Every inner chunk that `data` reaches is written, also one of fill values alone. Were those left
    out, chunks would move when they are filled, and a reader that has the index of the file before
    would find a whole chunk of other runs at the old place, checksum and all.

    Parameters
    ----------
    metadata : bytes
        The array's ``zarr.json``.
    index : int
        Number of the shard or chunk.
    data : array
        Its content, shape as the shard's or shorter; inner chunks after it take no space.
    """
    store = MemoryStore()
    _set(store, METADATA, metadata)
    with zarr.config.set({"array.write_empty_chunks": True}):
        array = zarr.open_array(store, mode="r+")
    length = (array.shards or array.chunks)[0]
    array[index * length : index * length + len(data)] = data
    key = ".".join(["c", str(index), *["0"] * (array.ndim - 1)])
    encoded = _get(store, key)
    assert encoded is not None, f"zarr wrote no {key}"
    return key, encoded


def decode(metadata: bytes, index: int, encoded: bytes) -> Array:
    """Return the content of a file that `encode` made."""
    store = MemoryStore()
    _set(store, METADATA, metadata)
    array = zarr.open_array(store, mode="r+")
    length = (array.shards or array.chunks)[0]
    _set(store, ".".join(["c", str(index), *["0"] * (array.ndim - 1)]), encoded)
    return np.asarray(array[index * length : (index + 1) * length])


def read(folder: Path, start: int, stop: int) -> Array:
    """Read rows of an array; absent files read as the fill value.

    Raises
    ------
    ValueError
        zarr's, where a checksum does not fit: the file is damaged, or was replaced meanwhile.
    """
    return read_part(folder, slice(start, stop))


def read_part(folder: Path, key: Any) -> Array:
    """Read what a basic index selects."""
    return np.asarray(zarr.open_array(LocalStore(folder, read_only=True), mode="r")[key])


def read_rows(folder: Path, rows: Sequence[int] | NDArray[np.integer[Any]]) -> Array:
    """Read some rows of an array, of each inner chunk only those that hold them."""
    array = zarr.open_array(LocalStore(folder, read_only=True), mode="r")
    wanted = np.asarray(rows, dtype=np.int64)
    found = np.empty((len(wanted), *array.shape[1:]), dtype=array.dtype)
    chunks = wanted // array.chunks[0]
    for chunk in np.unique(chunks):  # zarr's own selection of rows is slower than reading all
        here = np.flatnonzero(chunks == chunk)
        first = int(wanted[here].min())
        block = np.asarray(array[first : int(wanted[here].max()) + 1])
        found[here] = block[wanted[here] - first]
    return found


def patiently(read: Callable[[], T], folder: Path) -> T:
    """Read what may be replaced meanwhile: an index of the old file, a chunk of the new one.

    The array's folder is for messages.

    Raises
    ------
    DamagedShard
        If it fails again and again.
    """
    for attempt in range(ATTEMPTS):
        try:
            return read()
        except Exception as error:  # zarr's errors for damaged bytes are of many kinds
            failure = error
            time.sleep(0.01 * attempt)
    if isinstance(failure, OSError):
        raise StoreUnavailable(f"cannot read {folder}: {failure}") from failure
    raise DamagedShard(
        f"{folder} cannot be decoded ({failure}): run manyseed verify --repair, then resume"
    ) from failure


def read_undamaged(folder: Path, start: int, stop: int, step: int, into: Array) -> Bools:
    """Read rows into an array, chunk by chunk; return which rows could not be decoded."""
    damaged = np.zeros(stop - start, dtype=np.bool_)
    for first in range(start, stop, step):
        part = slice(first - start, first - start + step)
        try:
            into[part] = patiently(functools.partial(read, folder, first, first + step), folder)
        except DamagedShard:
            damaged[part] = True
    return damaged


def filled(spec: GroupSpec, array: ArraySpec, rows: int) -> Array:
    """Return rows of fill values."""
    return np.full((rows, *spec.part_shape(array)), array.fill_value, dtype=array.dtype)


def _set(store: MemoryStore, key: str, data: bytes) -> None:
    sync(store.set(key, default_buffer_prototype().buffer.from_bytes(data)))


def _get(store: MemoryStore, key: str) -> bytes | None:
    value = sync(store.get(key, default_buffer_prototype()))
    return None if value is None else value.to_bytes()


def _metadata(store: MemoryStore) -> bytes:
    metadata = _get(store, METADATA)
    assert metadata is not None
    return metadata
