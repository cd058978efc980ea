"""The ``zarr.json`` of arrays and groups, as zarr-python writes them.

This module alone decides how arrays are stored: Zarr format 3, keys ``c.0.0``, shards for
predictions, a CRC-32C after every compressor. Scores hardly compress (1.1×), so they are not
compressed; labels do (2× for ten classes, 5–8× for two), fastest with lz4 after a bit shuffle.
"""

from __future__ import annotations

import datetime
import importlib.metadata
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from manyseed.orchestrator.paths import METADATA
from manyseed.orchestrator.store.layout.arrays import ArraySpec
from manyseed.orchestrator.store.layout.groups import Group
from manyseed.orchestrator.store.layout.schema import ATTRIBUTE, GroupSpec

if TYPE_CHECKING:  # importing zarr is slow, and comparing coordinates needs none
    from zarr.abc.buffer import Buffer


def array_metadata(
    spec: GroupSpec,
    array: ArraySpec,
    rows: int,
    repeats: int,
    meanings: Sequence[str] | None = None,
) -> bytes:
    """Return the ``zarr.json`` of an array; `meanings` are the words for a coordinate's codes."""
    import zarr
    from zarr.codecs import BloscCodec, Crc32cCodec
    from zarr.storage import MemoryStore

    chunks, shards = spec.chunks(array), spec.shards(array)
    codecs: list[Any] = [Crc32cCodec()]
    if array.compressed:
        size = np.dtype(array.dtype).itemsize
        codecs.insert(0, BloscCodec(typesize=size, cname="lz4", clevel=5, shuffle="bitshuffle"))
    flags: Mapping[str, Any] = {}
    if meanings is not None:
        flags = {"flag_values": [*range(len(meanings))], "flag_meanings": " ".join(meanings)}
    written: dict[str, Buffer] = {}
    zarr.create_array(
        MemoryStore(written),
        shape=spec.shape(array, rows, repeats),
        dtype=array.dtype,
        chunks=chunks,
        shards=None if chunks == shards else shards,
        compressors=codecs,
        fill_value=array.fill,
        chunk_key_encoding={"name": "default", "separator": "."},
        dimension_names=array.dims,
        attributes={**array.attributes, **flags},
        zarr_format=3,
    )
    return written[METADATA].to_bytes()


def group_metadata(attributes: Mapping[str, Any]) -> bytes:
    """Return the ``zarr.json`` of a group."""
    import zarr
    from zarr.storage import MemoryStore

    written: dict[str, Buffer] = {}
    zarr.create_group(MemoryStore(written), attributes=dict(attributes), zarr_format=3)
    return written[METADATA].to_bytes()


def group_description(group: Group, history: str) -> bytes:
    """Return the ``zarr.json`` of a group of predictions."""
    spec = group.spec
    coordinates = " ".join(array.name for array in spec.arrays if array.role == "coordinate")
    attributes = {
        "title": f"predictions of {spec.named} on {spec.dataset}",
        "source": "manyseed",
        "history": history,
        "comment": "rows whose status is neither 1 nor 2 hold no predictions: mask them first",
        "coordinates": coordinates,
        ATTRIBUTE: {**spec.to_attributes(), "rows": group.rows, "repeats": group.repeats},
    }
    return group_metadata(attributes)


def history_with(verb: str, lines: list[str]) -> str:
    """Return a group's history with a further line: what happened now."""
    now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    version = importlib.metadata.version("manyseed")
    return "\n".join([*lines, f"{now} {verb} by manyseed {version}"])
