"""Finished runs as an xarray dataset that says what it mixes, and whose labels compare right."""

from __future__ import annotations

import html
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import xarray as xr

from manyseed.analysis.counts import some
from manyseed.orchestrator.errors import UserError, nearest
from manyseed.orchestrator.store.layout.arrays import FLAGS, LATER_FLAGS

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
