"""A store that plain xarray has opened tells its runs as the sweep does."""

from __future__ import annotations

import numpy as np
import pytest
import xarray as xr

import manyseed.xarray  # noqa: F401
from manyseed import Sweep
from manyseed.orchestrator.errors import UserError


def opened(sweep: Sweep) -> xr.Dataset:
    return xr.open_zarr(sweep.paths.store, group="cancer/lr-sgd", consolidated=False)


def test_runs_are_those_of_the_sweep(quick: Sweep) -> None:
    found, expected = opened(quick).manyseed.runs, quick.runs("cancer", "lr-sgd")
    for name in ("run", "epoch", "sample"):
        assert found.sizes[name] == expected.sizes[name]
    for name in ("label", "y_true", "margin", "test_index"):
        np.testing.assert_array_equal(found[name].values, expected[name].values)
    for name in ("cell", "repeat_index", "run_index", "perturb_continuous", "vary", "row"):
        assert found.coords[name].values.tolist() == expected.coords[name].values.tolist()
    assert "flag_meanings" not in found["perturb_continuous"].attrs
    assert found.attrs == expected.attrs
    assert found.attrs["Conventions"] == "CF-1.11"
    assert found.attrs["comment"] == "finished runs: all rows hold predictions"
    for name, variable in expected.variables.items():
        assert variable.attrs["long_name"], name
        assert variable.dtype.kind in "OUT" or variable.attrs["units"], name


def test_rows_without_predictions_are_no_runs(quick: Sweep) -> None:
    data = opened(quick)
    status = data["status"].copy(data=data["status"].values.copy())
    status[3] = 0
    found = data.assign(status=status).manyseed.finished
    assert found.sizes["run"] == 31
    assert 3 not in found["row"].values


def test_accuracy_is_that_of_the_labels(quick: Sweep) -> None:
    found = opened(quick).manyseed.accuracy()
    runs = quick.runs("cancer", "lr-sgd")
    expected = (runs["label"].isel(epoch=-1) == runs["y_true"]).mean("sample")
    np.testing.assert_array_equal(found.values, expected.values)
    assert found.attrs["units"] == "1"
    assert set(found.groupby("perturb_continuous").std().perturb_continuous.values) == {
        *("none", "relative:0.5"),
    }


def test_what_is_no_group_of_a_store_is_refused() -> None:
    with pytest.raises(UserError, match="it lacks status, cell"):
        _ = xr.Dataset({"label": ("run", [1])}).manyseed
