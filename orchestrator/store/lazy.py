"""Groups as xarray datasets: predictions are dask arrays, read when they are computed."""

from __future__ import annotations

import json
import uuid
from typing import Any

import dask.array as da
import numpy as np
import xarray as xr

from orchestrator.errors import DamagedFile
from orchestrator.store import encoding
from orchestrator.store.arrays import ArraySpec
from orchestrator.store.encoding import Array
from orchestrator.store.files import read_plain
from orchestrator.store.groups import METADATA, Group
from orchestrator.store.reader import (
    Integers,
    Needed,
    check_form,
    finished_rows,
    read_array,
    statuses,
    test_sets,
)


def open_finished(group: Group, journaled: Integers | None = None) -> xr.Dataset:
    """Open the finished runs of a group: as `open_runs`, without rows that hold no predictions.

    The coordinate ``row`` tells where the store has each.
    """
    data = open_runs(group, journaled=journaled)
    rows = finished_rows(data["status"].to_numpy())
    test_sets(group, data["repeat_index"].to_numpy()[rows])
    data = data.assign_coords(row=("run", np.arange(group.rows), {"long_name": "row of the store"}))
    whole = len(rows) > 0 and len(rows) == rows[-1] + 1  # then no chunk is taken apart
    return data.isel(run=slice(len(rows)) if whole else rows)


def open_runs(
    group: Group, chunk_runs: int | None = None, journaled: Integers | None = None
) -> xr.Dataset:
    """Open all rows of a group, also those that hold no predictions: ``status`` tells which do.

    Predictions and test sets are dask arrays, numbers a run are read at once.

    Parameters
    ----------
    group : Group
        The group, as opened last: rows that are planned later are not seen.
    chunk_runs : int, optional
        Runs in a dask chunk; by default those of an inner chunk. Best a multiple of those.
    journaled : integer array, optional
        As `reader.statuses` has it.

    Raises
    ------
    DamagedShard
        Where a file that is needed is missing or cannot be decoded; of predictions, when these are
        computed.
    """
    spec = group.spec
    numbers = [array for array in spec.arrays if array.role in ("record", "coordinate")]
    data: dict[str, Any] = {}
    for array in sorted(numbers, key=lambda array: array.name != "status"):
        status = array.name == "status"
        values = statuses(group, journaled) if status else read_array(group, array.name)
        data[array.name] = (array.dims, values, _attributes(group, array))
    for array in spec.arrays:
        if array.role in ("record", "coordinate"):
            continue
        check_form(group, array)
        shape = spec.shape(array, group.rows, group.repeats)
        length = chunk_runs if chunk_runs and array.role == "prediction" else spec.chunks(array)[0]
        lazy = da.from_array(
            _Patient(group, array, shape, np.dtype(array.dtype)),
            chunks=(length, *shape[1:]),
            name=f"{array.name}-{uuid.uuid4().hex}",  # what is published changes
            asarray=False,
            fancy=False,
        )
        data[array.name] = (array.dims, lazy, _attributes(group, array))
    coordinates = [array.name for array in spec.arrays if array.role == "coordinate"]
    file = group.folder / METADATA
    try:
        attributes = json.loads(read_plain(file))["attributes"]
    except (FileNotFoundError, ValueError, LookupError, TypeError) as error:
        raise DamagedFile(file, f"cannot be read: {error}") from None
    return xr.Dataset(
        {array.name: data[array.name] for array in spec.arrays if array.name not in coordinates},
        coords={
            **{name: data[name] for name in coordinates},
            "class": ("class", list(spec.class_names), {"long_name": "class"}),
        },
        attrs={k: v for k, v in attributes.items() if k != "coordinates"},
    )


class _Patient:
    """An array on disk whose slices are read again where a file is replaced meanwhile."""

    def __init__(
        self, group: Group, array: ArraySpec, shape: tuple[int, ...], dtype: np.dtype[Any]
    ) -> None:
        self.folder, self.shape, self.dtype = group.folder / array.name, shape, dtype
        self.ndim = len(shape)
        self.needed = Needed(group, array)

    def __getitem__(self, key: Any) -> Array:
        def read() -> Array:
            return encoding.read_part(self.folder, key, self.needed)

        return encoding.patiently(read, self.folder)


def _attributes(group: Group, array: ArraySpec) -> dict[str, Any]:
    attributes: dict[str, Any] = json.loads(group.metadata(array))["attributes"]
    return attributes
