"""The dataset accessor ``manyseed``: runs of a store that was opened with plain xarray."""

from __future__ import annotations

import numpy as np
import xarray as xr

from manyseed.orchestrator.errors import UserError
from manyseed.orchestrator.store.arrays import FLAGS, LATER_FLAGS
from manyseed.orchestrator.store.lazy import ROW, in_words, of_finished
from manyseed.orchestrator.store.reader import finished_rows

_NEEDED = ("status", "cell", "repeat_index", "run_index", "y_true", "label")


@xr.register_dataset_accessor("manyseed")
class Runs:
    """The runs in a group of ``predictions.zarr``, as ``Sweep.runs`` returns them.

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
