"""Groups as xarray datasets: predictions are dask arrays, read when they are computed."""

from __future__ import annotations

import json
import uuid
from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
import xarray as xr

from orchestrator.store import encoding
from orchestrator.store.arrays import ArraySpec
from orchestrator.store.encoding import Array
from orchestrator.store.groups import METADATA, Group, list_groups
from orchestrator.store.reader import read_array, statuses


def open_runs(group: Group, chunk_runs: int | None = None) -> xr.Dataset:
    """Open a group; predictions and test sets are dask arrays, numbers a run are read at once.

    Parameters
    ----------
    group : Group
        The group, as opened last: rows that are planned later are not seen.
    chunk_runs : int, optional
        Runs in a dask chunk; by default those of an inner chunk. Best a multiple of those.
    """
    spec = group.spec
    numbers = [array for array in spec.arrays if array.role in ("record", "coordinate")]
    data: dict[str, Any] = {}
    for array in sorted(numbers, key=lambda array: array.name != "status"):
        values = statuses(group) if array.name == "status" else read_array(group, array.name)
        data[array.name] = (array.dims, values, _attributes(group, array))
    for array in spec.arrays:
        if array.role in ("record", "coordinate"):
            continue
        shape = spec.shape(array, group.rows, group.repeats)
        length = chunk_runs if chunk_runs and array.role == "prediction" else spec.chunks(array)[0]
        lazy = da.from_array(
            _Patient(group.folder / array.name, shape, np.dtype(array.dtype)),
            chunks=(length, *shape[1:]),
            name=f"{array.name}-{uuid.uuid4().hex}",  # what is published changes
            asarray=False,
            fancy=False,
        )
        data[array.name] = (array.dims, lazy, _attributes(group, array))
    coordinates = [array.name for array in spec.arrays if array.role == "coordinate"]
    document = json.loads((group.folder / METADATA).read_bytes())
    return xr.Dataset(
        {array.name: data[array.name] for array in spec.arrays if array.name not in coordinates},
        coords={
            **{name: data[name] for name in coordinates},
            "class": ("class", list(spec.class_names), {"long_name": "class"}),
        },
        attrs={k: v for k, v in document["attributes"].items() if k != "coordinates"},
    )


def open_store(store: Path, chunk_runs: int | None = None) -> xr.DataTree:
    """Open all groups of a store as a tree: /dataset/classifier, names percent-encoded."""
    groups = {group.spec.path: open_runs(group, chunk_runs) for group in list_groups(store)}
    return xr.DataTree.from_dict(groups)


class _Patient:
    """An array on disk whose slices are read again where a file is replaced meanwhile."""

    def __init__(self, folder: Path, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
        self.folder, self.shape, self.dtype = folder, shape, dtype
        self.ndim = len(shape)

    def __getitem__(self, key: Any) -> Array:
        return encoding.patiently(lambda: encoding.read_part(self.folder, key), self.folder)


def _attributes(group: Group, array: ArraySpec) -> dict[str, Any]:
    attributes: dict[str, Any] = json.loads(group.metadata(array))["attributes"]
    return attributes
