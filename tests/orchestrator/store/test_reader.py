import json
import os
import pickle
import traceback
from pathlib import Path

import numpy as np
import pytest
import xarray as xr

from manyseed.orchestrator.disk.placing import place
from manyseed.orchestrator.errors import DamagedShard, StoreUnavailable
from manyseed.orchestrator.store import encoding, lazy, reader
from manyseed.orchestrator.store.coordinates import COORDINATES, DECLARED
from manyseed.orchestrator.store.shards import publish
from tests.orchestrator.store.world import World, prediction, spec


@pytest.fixture
def world(tmp_path):
    world = World(tmp_path, spec(3))
    world.write_splits()
    world.finish(0, 1, 2, 3, 5)
    for shard in (0, 1):
        publish(world.group, shard, world.index(), world.watch)
    return world


def test_opened_runs_agree_with_plain_xarray(world):
    ours = lazy.open_runs(world.group)
    plain = xr.open_zarr(world.store, group=world.spec.path, consolidated=False)
    for name in plain.data_vars:
        if name != "status":  # ours marks padding of unpublished shards too
            assert np.array_equal(ours[name].values, plain[name].values, equal_nan=True) or (
                plain[name].dtype.kind != "f"
            ), name
            assert ours[name].attrs == plain[name].attrs
    assert ours.status.values.tolist() == [1, 1, 1, 1, 0, 1, 0, 0, 0, 0, 255, 255]
    assert ours["class"].values.tolist() == ["class 0", "class 1", "class 2"]
    assert ours.label.chunks[0] == (2,) * 6
    assert lazy.open_runs(world.group, chunk_runs=4).label.chunks[0] == (4, 4, 4)


@pytest.mark.parametrize("classes", [2, 3])
def test_finished_runs_are_described_as_cf_has_it(tmp_path, classes):
    lengths = {"sample": 6, "class": classes}
    kept = [one.of([lengths.get(dim, 2) for dim in one.dims]) for one in DECLARED.values()]
    moved = COORDINATES["response_transform"].of([0, 1], ["intra", "rotate"])
    made = spec(classes, curves=True, optional=tuple(kept), coordinates=(moved,))
    world = World(tmp_path, made)
    world.write_splits()
    raw = lazy.open_runs(world.group)
    found = lazy.of_finished(raw)
    assert {*DECLARED, "test_loss", "response_transform"} <= found.variables.keys()
    of_netcdf = (str, int, float, np.ndarray)
    assert all(isinstance(value, of_netcdf) for value in found.attrs.values())
    assert json.loads(found.attrs["manyseed"]) == raw.attrs["manyseed"]
    for name, variable in found.variables.items():
        told = variable.attrs
        assert all(isinstance(value, of_netcdf) for value in told.values()), name
        assert told.get("units", "1") in {"1", "s"}, name  # names that UDUNITS has
        assert ("nats" in told["long_name"]) == (raw[name].attrs.get("units") == "nat"), name
        if "flag_values" in told:
            assert told["flag_values"].dtype == variable.dtype
            assert told["flag_values"].size == len(told["flag_meanings"].split())
    assert {"nat", "1", "s"} == {one.attrs["units"] for one in raw.data_vars.values()}  # as stored


def test_dask_arrays_travel_to_other_processes(world):
    opened = pickle.loads(pickle.dumps(lazy.open_runs(world.group)))
    expected = prediction(world.spec, 5).label
    assert np.array_equal(opened.label[5].values, expected)


def test_some_rows_read_only_their_chunks(tmp_path, monkeypatch):
    made = spec(2, samples=50_000, epochs=(1,), shard=8, chunk=2)
    world = World(tmp_path, made, n=8)
    world.finish(*range(8))
    publish(world.group, 0, world.index(), world.watch)
    read = []

    def preadv(file, buffers, offset, original=os.preadv):
        read.append(original(file, buffers, offset))
        return read[-1]

    monkeypatch.setattr(os, "preadv", preadv)
    found = reader.read_rows(world.group, ("margin",), [5, 4])
    assert np.array_equal(found["margin"][0], prediction(made, 5).scores)
    assert np.array_equal(found["margin"][1], prediction(made, 4).scores)
    row = 50_000 * 4
    assert 2 * row < sum(read) < 3 * row


def test_reads_are_tried_again(monkeypatch):
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    failures = [ValueError("crc"), OSError("stale")]

    def read():
        if failures:
            raise failures.pop()
        return "value"

    assert encoding.patiently(read, Path("label")) == "value"

    def always():
        raise ValueError("crc")

    with pytest.raises(DamagedShard, match=r"label cannot be decoded.*verify --repair") as told:
        encoding.patiently(always, Path("label"))
    assert "direct cause" not in "".join(traceback.format_exception(told.value))

    def gone():
        raise OSError("gone")

    with pytest.raises(StoreUnavailable, match="cannot read label: gone"):
        encoding.patiently(gone, Path("label"))


def test_a_chunk_is_read_while_its_file_is_replaced(tmp_path, monkeypatch):
    """The index is read, then the file replaced by one with other offsets, then the chunk read."""
    world = World(tmp_path, spec(3, samples=600))
    world.finish(5)
    publish(world.group, 1, world.index(), world.watch)
    file = world.group.file(world.spec.array("label"), 1)
    old = file.read_bytes()
    world.finish(4, 7)
    publish(world.group, 1, world.index(), world.watch)
    new = file.read_bytes()
    file.write_bytes(old)
    reads = []

    def preadv(descriptor, buffers, offset, original=os.preadv):
        reads.append(offset)
        place(file, new)
        return original(descriptor, buffers, offset)

    label = lazy.open_runs(world.group).label[5]
    monkeypatch.setattr(os, "preadv", preadv)
    assert np.array_equal(label.values, prediction(world.spec, 5).label)
    assert len(reads) == 4  # index and chunk, each with its checksum; of one file, so never again
