"""Runs of a store that plain xarray has opened: the accessor ``manyseed`` of datasets."""

from __future__ import annotations

import numpy as np
import xarray as xr

from manyseed.orchestrator.errors import UserError
from manyseed.orchestrator.store.layout.arrays import FLAGS, LATER_FLAGS
from manyseed.orchestrator.store.reading.lazy import ROW, in_words, of_finished
from manyseed.orchestrator.store.reading.reader import finished_rows

_NEEDED = ("status", "cell", "repeat_index", "run_index", "y_true", "label")


@xr.register_dataset_accessor("manyseed")
class Runs:
    """What a group of ``predictions.zarr`` holds, as ``Sweep.runs`` returns it.

    Parameters
    ----------
    data : xarray Dataset
        As ``xarray.open_zarr`` opened a group of a store.

    Raises
    ------
    UserError
        Where it is none.

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
            problem = f"no group of a store: it lacks {', '.join(lacking)}"
            raise UserError(problem, key="dataset", remedy=remedy)
        self._data = data

    @property
    def finished(self) -> xr.Dataset:
        """The rows that hold predictions, lazily, with codes as the store has them.

        ``row`` says where the store has each.
        """
        numbers = np.arange(self._data.sizes["run"])
        rows = finished_rows(self._data["status"].to_numpy())
        named = self._data.assign_coords(row=("run", numbers, ROW))
        return of_finished(named.isel(run=rows))

    @property
    def runs(self) -> xr.Dataset:
        """Finished runs, lazily, with coordinates in the sweep file's words.

        Each has its own test set: ``y_true`` and ``test_index`` are (run, sample).
        """
        known = ("cell", "repeat_index", "run_index", "train_fraction", *FLAGS, *LATER_FLAGS)
        data = self.finished
        return in_words(data.set_coords([name for name in known if name in data.variables]))

    def accuracy(self, epoch: int = -1) -> xr.DataArray:
        """Return the accuracy of each finished run, (run,), lazily.

        Parameters
        ----------
        epoch : int
            Which snapshot, by its place: the last by default.
        """
        runs = self.runs
        found = (runs["label"].isel(epoch=epoch) == runs["y_true"]).mean("sample")
        attributes = {"long_name": "share of the test points that the run gets right", "units": "1"}
        return found.rename("accuracy").assign_attrs(attributes)
