import json

import numpy as np
import pytest
import xarray as xr

from manyseed.orchestrator.errors import DamagedGroup, GroupMismatch, LayoutTooNew, StoreError
from manyseed.orchestrator.store import lazy, metadata, reader
from manyseed.orchestrator.store.arrays import FLAGS
from manyseed.orchestrator.store.groups import list_groups, open_group
from manyseed.orchestrator.store.metadata import (
    Flags,
    GroupRows,
    consolidate,
    create_group,
    extend_group,
)
from tests.orchestrator.store.world import REPEATS, World, rows, spec


@pytest.fixture
def world(tmp_path):
    return World(tmp_path, n=10)


def test_rows_are_padded_to_whole_shards(world):
    assert world.group.rows == 12
    cell = reader.read_array(world.group, "cell")
    assert cell.tolist() == [0, 0, 0, 0, 1, 1, 1, 1, 2, 2, -1, -1]
    assert reader.statuses(world.group).tolist() == [0] * 10 + [255] * 2


def test_plain_xarray_opens_a_planned_group_and_the_tree(world):
    plain = xr.open_zarr(world.store, group=world.spec.path, consolidated=False)
    assert dict(plain.sizes) == {"run": 12, "epoch": 2, "sample": 6, "repeat": 2}
    assert set(FLAGS) | {"cell", "epoch", "train_fraction"} <= set(plain.coords)
    assert plain.vary.attrs["flag_meanings"] == "none sig-digit:0 relative:0.1"
    assert plain.epoch.values.tolist() == [1, 5]
    tree = xr.open_datatree(world.store, engine="zarr", consolidated=False)
    assert "margin" in tree[world.spec.path]
    for name, array in plain.variables.items():
        assert array.attrs["long_name"], name
        assert array.attrs["units"], name


def test_creation_is_idempotent(world):
    before = sorted(world.store.rglob("*"))
    assert create_group(world.store, world.spec, rows(10), REPEATS) == world.group
    assert sorted(world.store.rglob("*")) == before
    with pytest.raises(GroupMismatch, match="another layout"):
        create_group(world.store, spec(3), rows(10), REPEATS)
    with pytest.raises(GroupMismatch, match="other rows"):
        create_group(world.store, world.spec, rows(10, first=1), REPEATS)


def test_extension_starts_at_a_shard_and_keeps_flags(world):
    codes = np.array([1, 0], dtype=np.int16)
    flags = {name: Flags(codes, ("none", "label:0.1")) for name in FLAGS}
    two = GroupRows(
        np.array([8, 9]), np.array([2, 2]), np.array([0, 1]), np.array([3.0, 4.0]), flags
    )
    group = extend_group(world.group, two, 3, start=12)
    assert (group.rows, group.repeats) == (16, 3)
    assert extend_group(world.group, two, 3, start=12) == group
    assert extend_group(group, two, 3, start=12) == group
    opened = lazy.open_runs(group)
    assert opened.cell.values.tolist()[10:] == [-1, -1, 8, 9, -1, -1]
    meanings = opened.vary.attrs["flag_meanings"].split()
    assert meanings == ["none", "sig-digit:0", "relative:0.1", "label:0.1"]
    assert opened.vary.attrs["flag_values"] == [0, 1, 2, 3]
    assert [meanings[code] for code in opened.vary.values[[0, 1, 2, 12, 13]]] == [
        "none",
        "sig-digit:0",
        "relative:0.1",
        "label:0.1",
        "none",
    ]
    with pytest.raises(GroupMismatch, match="cannot be appended"):
        extend_group(group, two, 3, start=20)
    with pytest.raises(GroupMismatch, match="repeats"):
        extend_group(group, two, 2, start=16)


def test_extension_across_coordinate_files(tmp_path, monkeypatch):
    # planning and schema each hold the name
    monkeypatch.setattr("manyseed.orchestrator.store.schema.COORDINATE_ROWS", 8)
    monkeypatch.setattr("manyseed.orchestrator.store.metadata.COORDINATE_ROWS", 8)
    world = World(tmp_path, n=10)
    group = extend_group(world.group, rows(9, first=10), REPEATS, start=12)
    assert reader.read_array(group, "run_index").tolist() == [
        *range(10),
        -1,
        -1,
        *range(10, 19),
        -1,
        -1,
        -1,
    ]


@pytest.mark.parametrize("stop_after", range(0, 60, 7))
def test_interrupted_planning_is_completed(tmp_path, monkeypatch, stop_after):
    world = World(tmp_path, n=10)
    placed = []

    def place(path, data, before_rename=None, original=metadata.place):
        if len(placed) == stop_after:
            raise KeyboardInterrupt
        placed.append(path)
        original(path, data, before_rename)

    other = spec(3)
    with monkeypatch.context() as patch:
        patch.setattr(metadata, "place", place)
        try:
            extend_group(world.group, rows(3, first=10), 3, start=12)
            create_group(world.folder / "other.zarr", other, rows(5), REPEATS)
        except KeyboardInterrupt:
            pass
    assert open_group(world.store, world.spec.path).rows in (12, 16)
    group = extend_group(open_group(world.store, world.spec.path), rows(3, first=10), 3, start=12)
    assert (group.rows, group.repeats) == (16, 3)
    create_group(world.folder / "other.zarr", other, rows(5), REPEATS)
    plain = xr.open_zarr(world.store, group=world.spec.path, consolidated=False)
    assert plain.sizes["run"] == 16
    assert list_groups(world.folder / "other.zarr")[0].spec == other


@pytest.mark.filterwarnings("ignore:Failed to open Zarr store with consolidated")
def test_extension_drops_consolidated_metadata(world):
    consolidate(world.store, [world.group])
    assert xr.open_zarr(world.store, group=world.spec.path, consolidated=True).sizes["run"] == 12
    extend_group(world.group, rows(1, first=10), REPEATS, start=12)
    assert xr.open_zarr(world.store, group=world.spec.path).sizes["run"] == 16
    assert xr.open_datatree(world.store, engine="zarr")[world.spec.path].sizes["run"] == 16


@pytest.mark.parametrize("content", [b"[1]", b"x", b"[" * 90_000])
@pytest.mark.parametrize("folder", [".", "data"])
def test_a_damaged_description_above_a_group_is_named_before_it_is_extended(world, folder, content):
    file = world.store / folder.replace("data", world.spec.path.partition("/")[0]) / "zarr.json"
    file.write_bytes(content)
    with pytest.raises(DamagedGroup, match=r"zarr\.json.*\n.*verify --repair"):
        extend_group(world.group, rows(1, first=10), REPEATS, start=12)
    assert open_group(world.store, world.spec.path).rows == 12


def test_what_describes_a_group_without_history_or_meanings(world):
    for name in (".", "vary"):
        file = world.group.folder / name / "zarr.json"
        document = json.loads(file.read_bytes())
        document["attributes"].pop("history" if name == "." else "flag_meanings")
        file.write_text(json.dumps(document))
        if name == ".":
            assert extend_group(world.group, rows(1, first=10), REPEATS, start=12).rows == 16
    with pytest.raises(DamagedGroup, match=r"vary/zarr\.json: does not say what its codes mean"):
        lazy.open_runs(world.group)


def test_groups_are_told_apart(world):
    with pytest.raises(StoreError, match="plan the sweep first"):
        open_group(world.store, "no/group")
    file = world.group.folder / "zarr.json"
    document = json.loads(file.read_bytes())
    document["attributes"]["manyseed"]["layout"] = 99
    file.write_text(json.dumps(document))
    with pytest.raises(LayoutTooNew):
        list_groups(world.store)


def test_impossible_rows_are_refused(world):
    with pytest.raises(ValueError, match="blanks"):
        Flags.of(["two words"])
    with pytest.raises(ValueError, match="codes"):
        Flags(np.array([1]), ("none",))
    with pytest.raises(ValueError, match="exactly"):
        GroupRows(np.zeros(1, int), np.zeros(1, int), np.zeros(1, int), np.zeros(1), {})
    with pytest.raises(GroupMismatch, match="repeat 1 of 1"):
        create_group(world.folder / "x.zarr", world.spec, rows(2), 1)
