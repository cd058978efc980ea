"""Groups as xarray datasets, with dask arrays that are read when computed, and runs by name.

Also the runs of a store that was opened with plain xarray.
"""

from __future__ import annotations

import html
import json
import uuid
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Self

import dask.array as da
import numpy as np
import xarray as xr

from manyseed.analysis.counts import some
from manyseed.jobs.whole import UNLIKE
from manyseed.orchestrator.disk.placing import read_plain
from manyseed.orchestrator.errors import DamagedFile, UserError, nearest
from manyseed.orchestrator.paths import METADATA
from manyseed.orchestrator.store.arrays import COPY as IS_COPY
from manyseed.orchestrator.store.arrays import FLAGS, LATER_FLAGS, ArraySpec
from manyseed.orchestrator.store.encoding import Array
from manyseed.orchestrator.store.groups import Group
from manyseed.orchestrator.store.reader import (
    Integers,
    StoredArray,
    finished_rows,
    read_numbers,
    test_sets,
)

if TYPE_CHECKING:
    import polars as pl


LABELS = ("label", "y_true")
COPY = "is_copy"
_TEXT = "OSTU"
_NAMES = "classes"


class Labels(xr.DataArray):
    """Classes of points: numbers that also compare with names, and stay missing if they are.

    ``labels == "benign"`` compares with the number of that class. Where a label is missing, as
    after ``where``, a comparison is missing, too, so that means leave it out.
    """

    __slots__ = ()
    __hash__ = None

    def __eq__(self, other: object) -> xr.DataArray:  # type: ignore[override]
        """Compare each label: true, false or, where one is missing, NaN."""
        return self._compared(other, xr.DataArray.__eq__)

    def __ne__(self, other: object) -> xr.DataArray:  # type: ignore[override]
        """Compare each label: true, false or, where one is missing, NaN."""
        return self._compared(other, xr.DataArray.__ne__)

    def isin(self, test_elements: Any) -> xr.DataArray:  # type: ignore[override]
        """Return whether each label is one of these classes, given by numbers or names."""
        wanted = test_elements
        if np.asarray(wanted).dtype.kind in _TEXT:
            wanted = [self._held(one) for one in np.asarray(wanted).ravel().tolist()]
        return _unless_missing(xr.DataArray(self).isin(wanted), self)

    def where(self, *given: Any, **options: Any) -> Self:
        """Return the labels that meet a condition; others are missing."""
        return type(self)(super().where(*given, **options))

    def _compared(self, other: Any, compare: Callable[..., Any]) -> xr.DataArray:
        found = compare(xr.DataArray(self), self._held(other)).drop_attrs()
        return _unless_missing(_unless_missing(found, self), other)

    def _held(self, other: Any) -> Any:
        """Return what the labels are compared with, in their own form."""
        names, is_text = self.attrs.get(_NAMES), self.dtype.kind in _TEXT
        if isinstance(other, str) and names is not None:
            if other not in names:
                raise UserError("there is no such class", value=other, remedy=nearest(other, names))
            return str(other) if is_text else names.index(other)
        kind = getattr(other, "dtype", None)
        if ((np.asarray(other).dtype if kind is None else kind).kind in _TEXT) != is_text:
            words = ("names", "numbers")[:: 1 if is_text else -1]
            reason = f"labels are {words[0]} here, and are compared with {words[1]}"
            raise UserError(
                reason, remedy="Sweep.runs(…, words=True) gives names, otherwise numbers"
            )
        return other


def _unless_missing(found: xr.DataArray, labels: Any) -> xr.DataArray:
    """Return a comparison that is NaN where labels are missing; integers never are."""
    if isinstance(labels, xr.DataArray | xr.Variable) and labels.dtype.kind in "fO":
        return found.astype(np.float64).where(xr.DataArray(labels).notnull())
    return found


def with_names(data: xr.Dataset) -> xr.Dataset:
    """Return runs with labels as names of classes instead of their numbers."""
    names = np.array(data.coords["class"].values.tolist())
    named = {
        name: xr.apply_ufunc(
            partial(names.take, mode="clip"),
            data[name],
            dask="parallelized",
            output_dtypes=[names.dtype],
            keep_attrs=True,
        )
        for name in LABELS
    }
    return data.assign(named)


class FinishedRuns(xr.Dataset):
    """The finished runs of a dataset and classifier, as `Sweep.runs` returns them."""

    __slots__ = ()

    @classmethod
    def of(cls, data: xr.Dataset) -> Self:
        """Return these variables, coordinates and attributes."""
        return cls(data.data_vars, data.coords, data.attrs)

    def __getitem__(self, key: Any) -> Any:
        """Return a variable; labels know the names of classes."""
        found = super().__getitem__(key)
        if not (isinstance(key, str) and key in LABELS):
            return found
        labels = Labels(found)
        if "class" in self.coords:
            labels.attrs = {**labels.attrs, _NAMES: self.coords["class"].values.tolist()}
        return labels

    def where(self, *given: Any, **options: Any) -> Self:
        """Return what meets a condition; other values, and labels with them, are missing."""
        return type(self).of(super().where(*given, **options))

    def accuracy_by_cell(self) -> pl.DataFrame:
        """Return each cell's accuracy: the mean over its test sets, as in the table of cells.

        Columns cell, the axes in which cells differ, n_runs, n_copies, accuracy (of the last
        snapshot).
        """
        import polars as pl

        right = self["label"].isel(epoch=-1) == self["y_true"]
        columns = {name: self.coords[name].values for name in ("cell", "repeat_index", COPY)}
        axes = {name: self.coords[name].values for name in self._differing()}
        accuracy = right.mean("sample").to_numpy()
        runs = pl.DataFrame({**columns, **axes, "accuracy": accuracy}).filter(
            pl.col("accuracy").is_not_nan()
        )
        by = ["cell", *axes]
        sets = runs.group_by(*by, "repeat_index", maintain_order=True).agg(
            n_runs=pl.len(), n_copies=pl.col(COPY).sum(), accuracy=pl.col("accuracy").mean()
        )
        sums = pl.col("n_runs", "n_copies").sum()
        return sets.group_by(by, maintain_order=True).agg(sums, pl.col("accuracy").mean())

    def _differing(self) -> list[str]:
        """Return the axes in which the runs' cells differ."""
        axes = ("train_fraction", *FLAGS, *LATER_FLAGS)
        known = [name for name in axes if name in self.coords]
        return [name for name in known if np.unique(self.coords[name].values).size > 1]

    def _mixes(self) -> str:
        """Say what a mean over all runs would mix; empty if nothing."""
        notes = []
        if (
            cells := np.unique(self.coords["cell"].values).size if "cell" in self.coords else 1
        ) > 1:
            axes = some(self._differing(), 3)
            notes.append(
                f"Runs of {cells:,} cells{f', which differ in {axes}' if axes else ''}: a "
                "mean over all of them mixes these; accuracy_by_cell() gives each cell's."
            )
        if self.sizes.get("epoch", 1) > 1:
            notes.append(f"{self.sizes['epoch']:,} snapshots: isel(epoch=-1) is the last.")
        if COPY in self.coords and (copies := int(self.coords[COPY].sum())):
            which = "1 run is a copy of the first of its repeat"
            if copies > 1:
                which = f"{copies:,} runs are copies of the first of their repeat"
            notes.append(f"{which} ({COPY}).")
        return "\n".join(notes)

    def __repr__(self) -> str:
        """Return xarray's text, and what a mean over all runs would mix."""
        return "\n\n".join(filter(None, (super().__repr__(), self._mixes())))

    def _repr_html_(self) -> str:
        """Return what a notebook shows."""
        notes = html.escape(self._mixes()).replace("\n", "<br>")
        return super()._repr_html_() + (f"<p>{notes}</p>" if notes else "")


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


def _of_codes(group: Group, array: ArraySpec) -> dict[str, object]:
    if array.name not in group.spec.flags:
        return {}
    words = group.meanings(array)
    return {"flag_values": [*range(len(words))], "flag_meanings": " ".join(words)}


def open_runs(
    group: Group, chunk_runs: int | None = None, journaled: Integers | None = None
) -> xr.Dataset:
    """Open all rows of a group; ``status`` tells which of them hold predictions.

    Predictions and test sets are dask arrays; numbers per run are read at once.

    `group`: rows planned after it was opened are not included. `chunk_runs`: runs per dask chunk,
    best a multiple of those in an inner chunk. Default: those. `journaled`: see `reader.statuses`.
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
            array.dims, values[array.name], {**array.attributes, **_of_codes(group, array)}
        )
        for array in spec.arrays
    }
    coordinates = {array.name for array in spec.arrays if array.role == "coordinate"}
    file = group.folder / METADATA
    try:
        attributes = json.loads(read_plain(file))["attributes"]
    except (FileNotFoundError, *UNLIKE) as error:
        raise DamagedFile(file, f"cannot be read: {error}") from None
    return xr.Dataset(
        {name: array for name, array in variables.items() if name not in coordinates},
        coords={
            **{name: array for name, array in variables.items() if name in coordinates},
            "class": ("class", list(spec.class_names), {"long_name": "class"}),
        },
        attrs={k: v for k, v in attributes.items() if k != "coordinates"},
    )


_NEEDED = ("status", "cell", "repeat_index", "run_index", "y_true", "label")


class Runs:
    """The accessor ``manyseed`` of datasets: finished runs, as ``Sweep.runs`` returns them.

    `data`: a group of a store, as ``xarray.open_zarr`` opens it.

    Examples
    --------
    >>> import manyseed.xarray
    >>> data = xr.open_zarr("predictions.zarr", group="digits/mlp")
    >>> data.manyseed.accuracy().groupby("perturb_continuous").std()
    """

    def __init__(self, data: xr.Dataset) -> None:
        lacking = [name for name in _NEEDED if name not in data.variables]
        if lacking:
            remedy = (
                'open a group of it: xarray.open_zarr("DIR/predictions.zarr", '
                'group="DATASET/CLASSIFIER", consolidated=False)'
            )
            problem = f"not a group of a store: it lacks {', '.join(lacking)}"
            raise UserError(problem, key="dataset", remedy=remedy)
        self._data = data

    @property
    def finished(self) -> xr.Dataset:
        """Rows with predictions, lazily, as stored; ``row`` is their position in the store."""
        numbers = np.arange(self._data.sizes["run"])
        rows = finished_rows(self._data["status"].to_numpy())
        named = self._data.assign_coords(row=("run", numbers, ROW))
        return of_finished(named.isel(run=rows))

    @property
    def runs(self) -> xr.Dataset:
        """Finished runs, lazily, with coordinates in the sweep file's words.

        Each run has its own test set: ``y_true`` and ``test_index`` are (run, sample).
        """
        known = ("cell", "repeat_index", "run_index", "train_fraction", *FLAGS, *LATER_FLAGS)
        data = self.finished
        return in_words(data.set_coords([name for name in known if name in data.variables]))

    def accuracy(self, epoch: int = -1) -> xr.DataArray:
        """Return the accuracy of each finished run, shape (run,), lazily.

        `epoch`: position of the snapshot; by default the last.
        """
        runs = self.runs
        correct = (runs["label"].isel(epoch=epoch) == runs["y_true"]).mean("sample")
        attributes = {"long_name": "share of the test points that the run gets right", "units": "1"}
        return correct.rename("accuracy").assign_attrs(attributes)
