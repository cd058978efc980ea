"""Groups as xarray datasets, with predictions as dask arrays that are read when computed."""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from typing import Any

import dask.array as da
import numpy as np
import xarray as xr

from manyseed.orchestrator.disk.placing import read_plain
from manyseed.orchestrator.errors import DamagedFile
from manyseed.orchestrator.paths import METADATA
from manyseed.orchestrator.store.layout.arrays import COPY as IS_COPY
from manyseed.orchestrator.store.layout.arrays import FLAGS, LATER_FLAGS
from manyseed.orchestrator.store.layout.groups import Group
from manyseed.orchestrator.store.reading.named import COPY, FinishedRuns, with_names
from manyseed.orchestrator.store.reading.reader import (
    Integers,
    StoredArray,
    finished_rows,
    read_numbers,
    test_sets,
)
from manyseed.orchestrator.store.zarrfiles.encoding import Array

CONVENTIONS = "CF-1.11"
ROW = {"long_name": "row of the store", "units": "1"}


def open_finished(group: Group, journaled: Integers | None = None) -> xr.Dataset:
    """Open the finished runs of a group like `open_runs`, without rows that hold no predictions.

    The coordinate ``row`` is the row in the store.
    """
    data = open_runs(group, journaled=journaled)
    rows = finished_rows(data["status"].to_numpy())
    test_sets(group, data["repeat_index"].to_numpy()[rows])
    data = data.assign_coords(row=("run", np.arange(group.rows), ROW))
    is_prefix = len(rows) > 0 and len(rows) == rows[-1] + 1  # a slice keeps the chunks whole
    return of_finished(data.isel(run=slice(len(rows)) if is_prefix else rows))


def of_finished(data: xr.Dataset) -> xr.Dataset:
    """Return finished rows of a group with attributes that say so and follow the CF conventions.

    Units are those of UDUNITS; nats, which it lacks, are mentioned in ``long_name``. Attributes
    have netCDF types; mappings become JSON.
    """
    described = data.copy()
    for variable in described.variables.values():
        variable.attrs = _as_netcdf(variable.attrs)
        if variable.attrs.get("units") == "nat":
            with_unit = f"{variable.attrs['long_name']} (in nats)"
            variable.attrs |= {"units": "1", "long_name": with_unit}
        if "flag_values" in variable.attrs:
            variable.attrs["flag_values"] = np.array(
                variable.attrs["flag_values"], dtype=variable.dtype
            )
    comment = "finished runs: all rows hold predictions"
    return described.assign_attrs(_as_netcdf(data.attrs), Conventions=CONVENTIONS, comment=comment)


def _as_netcdf(attributes: Mapping[Any, Any]) -> dict[Any, Any]:
    return {
        name: json.dumps(value) if isinstance(value, Mapping) else value
        for name, value in attributes.items()
    }


def in_words(data: xr.Dataset, *, names: bool = False) -> FinishedRuns:
    """Return finished runs with the sweep file's words as coordinates instead of codes.

    Each run has its own test set: ``y_true`` and ``test_index`` become (run, sample). Copies are
    marked by the coordinate ``is_copy``; with `names`, labels are names of classes.
    """
    about = {"long_name": "copy of the first run of its repeat, not trained", "units": "1"}
    words: dict[str, Any] = {COPY: ("run", data["status"].to_numpy() == IS_COPY, about)}
    for name in (name for name in (*FLAGS, *LATER_FLAGS) if name in data.coords):
        codes = data[name]
        meanings = np.array(str(codes.attrs["flag_meanings"]).split())
        attributes = {"long_name": codes.attrs["long_name"]}  # the others describe the codes
        words[name] = ("run", meanings[codes.to_numpy()], attributes)
    by_run = {
        name: data[name].isel(repeat=data["repeat_index"])
        for name, variable in data.data_vars.items()
        if "repeat" in variable.dims
    }
    found = data.drop_vars(by_run).assign(by_run).assign_coords(words)
    return FinishedRuns.of(with_names(found) if names else found)


def open_runs(
    group: Group, chunk_runs: int | None = None, journaled: Integers | None = None
) -> xr.Dataset:
    """Open all rows of a group; ``status`` tells which of them hold predictions.

    Predictions and test sets are dask arrays; numbers per run are read at once.

    Parameters
    ----------
    group : Group
        Rows planned after it was opened are not included.
    chunk_runs : int, optional
        Runs per dask chunk, best a multiple of those in an inner chunk. Default: those.
    journaled : integer array, optional
        See `reader.statuses`.

    Raises
    ------
    DamagedShard
        If a needed file is missing or cannot be decoded; for predictions, when they are computed.
    """
    spec = group.spec
    values: dict[str, Array | da.Array] = {**read_numbers(group, journaled)}
    for array in spec.arrays:
        if array.role in ("prediction", "split"):
            stored = StoredArray(group, array.name)
            rows = chunk_runs if chunk_runs and array.role == "prediction" else stored.chunks[0]
            values[array.name] = da.from_array(
                stored,
                chunks=(rows, *stored.shape[1:]),
                name=f"{array.name}-{uuid.uuid4().hex}",  # unique, as published rows change
                asarray=False,
                fancy=False,
            )
    variables = {
        array.name: xr.Variable(
            array.dims, values[array.name], json.loads(group.metadata(array))["attributes"]
        )
        for array in spec.arrays
    }
    coordinates = {array.name for array in spec.arrays if array.role == "coordinate"}
    file = group.folder / METADATA
    try:
        attributes = json.loads(read_plain(file))["attributes"]
    except (FileNotFoundError, ValueError, LookupError, TypeError) as error:
        raise DamagedFile(file, f"cannot be read: {error}") from None
    return xr.Dataset(
        {name: array for name, array in variables.items() if name not in coordinates},
        coords={
            **{name: array for name, array in variables.items() if name in coordinates},
            "class": ("class", list(spec.class_names), {"long_name": "class"}),
        },
        attrs={k: v for k, v in attributes.items() if k != "coordinates"},
    )
