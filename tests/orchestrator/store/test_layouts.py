"""Stores that earlier versions wrote stay readable, bit for bit."""

import zipfile
from pathlib import Path

import numpy as np
import pytest
import xarray as xr

from manyseed.orchestrator.disk.lease import LeaseWatch
from manyseed.orchestrator.store.groups import list_groups
from manyseed.orchestrator.store.index import JournalFolder, JournalIndex
from manyseed.orchestrator.store.lazy import open_runs
from manyseed.orchestrator.store.reader import read_array, read_rows
from manyseed.orchestrator.store.shards import publish
from manyseed.orchestrator.store.verify import verify

STORES = sorted((Path(__file__).parents[2] / "data").glob("layout-*/*.zip"))


@pytest.fixture(params=STORES, ids=lambda path: f"{path.parent.name}-{path.stem}")
def kept(request, tmp_path):
    """A folder with an earlier store, and what it holds."""
    with zipfile.ZipFile(request.param) as archive:
        archive.extractall(tmp_path)
    with np.load(tmp_path / "expected.npz") as expected:
        return tmp_path, dict(expected)


def test_there_are_stores_of_every_kind():
    kinds = {path.stem for path in STORES if path.parent.name == "layout-1"}
    assert kinds == {
        "binary-margin",
        "multiclass-all",
        "multiclass-margin",
        "float16-all",
        "labels-of-300",
        "curves",
    }
    assert {path.stem for path in STORES if path.parent.name == "layout-2"} == {"train-accuracy"}


def test_every_bit_is_what_it_was(kept):
    folder, expected = kept
    row_6 = expected.pop("row_6").tobytes()
    (group,) = list_groups(folder / "predictions.zarr")
    assert {array.name for array in group.spec.arrays} == expected.keys()
    plain = xr.open_zarr(group.store, group=group.spec.path, consolidated=False)
    lazy = open_runs(group)
    for name, values in expected.items():
        found = read_array(group, name)
        assert found.dtype == values.dtype, name
        assert found.tobytes() == values.tobytes(), name
        assert lazy[name].values.tobytes() == (
            values.tobytes()
            if name != "status"
            else bytes([1, 1, 1, 2, 0, 1, 0, 0, 1, 0, 255, 255])
        )
        np.testing.assert_array_equal(
            np.nan_to_num(plain[name].values, nan=-1), np.nan_to_num(values, nan=-1)
        )
    assert list(verify(group)) == []
    journals = JournalIndex(JournalFolder(folder / "journals"))
    assert publish(group, 1, journals, LeaseWatch(folder / "leases")).added == 1
    names = [array.name for array in group.spec.arrays if array.role == "prediction"]
    stored = read_rows(group, names, [6])
    assert b"".join(stored[name].tobytes() for name in names) == row_6
    assert list(verify(group)) == []
