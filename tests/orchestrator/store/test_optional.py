"""Optional arrays: what is declared once goes wherever predictions go."""

from __future__ import annotations

import dataclasses
import json
import math
import struct
import zipfile

import numpy as np
import pytest
import xarray as xr

from manyseed.jobs.ensembling.methods import ARRAYS as OF_MEMBERS
from manyseed.jobs.response import DBI
from manyseed.jobs.response.measure import ARRAYS
from manyseed.jobs.training.handling import MEASURES
from manyseed.orchestrator.errors import DamagedGroup, LayoutTooNew, StoreError
from manyseed.orchestrator.store import groups, journal, schema
from manyseed.orchestrator.store.coordinates import (
    COORDINATES,
    DECLARED,
    NAN,
    TRAIN_ACCURACY,
    Coordinate,
    Declaration,
    DeclaredCoordinate,
    OptionalArray,
)
from manyseed.orchestrator.store.exchange import export_zip
from manyseed.orchestrator.store.groups import find_group, list_groups
from manyseed.orchestrator.store.journal import encode_row
from manyseed.orchestrator.store.lazy import open_runs
from manyseed.orchestrator.store.metadata import wrong_coordinates
from manyseed.orchestrator.store.reader import read_rows
from manyseed.orchestrator.store.repair import repair
from manyseed.orchestrator.store.schema import GroupSpec, count_files, stored_bytes
from manyseed.orchestrator.store.shards import publish
from manyseed.orchestrator.store.verify import verify, verify_journals
from tests.orchestrator.store.test_verify import forget, overwrite, reseal
from tests.orchestrator.store.world import (
    NUMBER,
    World,
    assert_true_rows,
    finished,
    planned,
    prediction,
    rows,
    spec,
    truth,
    values,
)

KEPT = (TRAIN_ACCURACY.of(),)


def declared(name, dtypes, dims, fill, **bounds) -> Declaration:
    return Declaration(name, name, dtypes, dims, fill, f"{name} in words", "1", "", **bounds)


@pytest.fixture
def further(monkeypatch) -> tuple[OptionalArray, ...]:
    """Arrays that nobody has yet, of several numbers a run, beside the one there is."""
    scores = declared("member_score", ("float32", "float16"), ("member", "sample"), NAN)
    counts = declared("response_right", ("uint32",), ("response", "magnitude"), 0, most=99)
    for one in (scores, counts):
        monkeypatch.setitem(DECLARED, one.name, one)
    return scores.of((3, 6), "float16"), TRAIN_ACCURACY.of(), counts.of((2, 4))


def test_what_is_declared_is_measured():
    assert set(DECLARED) == {*MEASURES, *ARRAYS, DBI, *OF_MEMBERS}
    for name, one in DECLARED.items():
        assert one.name == name
        assert name not in {array.name for array in spec(3, curves=True).arrays}


def test_only_a_group_with_optional_arrays_is_of_layout_2():
    for made in (spec(), spec(3, curves=True), spec(2, scores="none", dtype="float16")):
        attributes = made.to_attributes()
        assert attributes["layout"] == 1
        assert "optional" not in attributes
        assert GroupSpec.from_attributes(attributes) == made
    text = json.dumps(spec(optional=KEPT).to_attributes())
    assert text == (
        '{"layout": 2, "number": 7, "dataset": "openml:vehicle", "classifier": "mlp", '
        '"samples": 6, "class_names": ["class 0", "class 1"], "epochs": [1, 5], '
        '"scores": "margin", "dtype": "float32", "probability": "softmax", '
        '"shard_length": 4, "chunk_length": 2, "split_length": 2, '
        '"optional": [{"name": "final_train_accuracy", "dtype": "float32", "dims": [], '
        '"shape": [], "fill": "NaN"}]}'
    )


def test_a_version_that_knows_layout_1_alone_refuses_it(tmp_path, monkeypatch):
    old, new = World(tmp_path / "old"), World(tmp_path / "new", spec(optional=KEPT))
    monkeypatch.setattr(schema, "LAYOUT_VERSION", 1)
    groups._described.cache_clear()  # what this process has read as a version that knows more
    assert find_group(old.store, old.spec) == old.group
    with pytest.raises(LayoutTooNew, match="layout version 2 is newer"):
        find_group(new.store, new.spec)


def test_attributes_come_back_and_cut_a_row(further):
    made = spec(3, curves=True, optional=further)
    assert GroupSpec.from_attributes(json.loads(json.dumps(made.to_attributes()))) == made
    sizes = made.array_bytes
    assert list(sizes)[-3:] == ["member_score", "final_train_accuracy", "response_right"]
    assert [sizes[one.name] for one in further] == [3 * 6 * 2, 4, 2 * 4 * 4]
    assert made.part_bytes[3] == 4 * 5 * 4 + 36 + 4 + 32
    row = values(made, 5)
    assert row.sizes == made.part_bytes
    measured = prediction(made, 5).measured
    for one in further:
        assert row.parts(made)[one.name] == measured[one.name].tobytes()
    more = stored_bytes(made, 10) - stored_bytes(spec(3, curves=True), 10)
    assert more >= 10 * (36 + 4 + 32)
    assert count_files(made, 10) == count_files(spec(3, curves=True), 10) + 3 * 5  # of three shards


@pytest.mark.parametrize(
    ("change", "error", "problem"),
    [
        ({"layout": 1}, StoreError, "not those of layout 1"),
        ({"optional": []}, StoreError, "not those of layout 2"),
        ({"layout": 4}, LayoutTooNew, "layout version 4 is newer"),
        ({"layout": 3}, StoreError, "not those of layout 3"),
        ({"optional": 1}, TypeError, "not iterable"),
        ({"optional": [1]}, TypeError, "not subscriptable"),
        ({"optional": [{"name": "final_train_accuracy"}]}, KeyError, "dtype"),
    ],
)
def test_attributes_of_another_layout_are_refused(change, error, problem):
    attributes = spec(optional=KEPT).to_attributes()
    with pytest.raises(error, match=problem):
        GroupSpec.from_attributes({**attributes, **change})


@pytest.mark.parametrize(
    ("change", "error", "problem"),
    [
        ({"name": "later_scores"}, LayoutTooNew, "x: this manyseed does not know .*later_scores"),
        ({"dtype": "float64"}, ValueError, "is not declared"),
        ({"fill": 0}, ValueError, "is not declared"),
        ({"dims": ["sample"], "shape": [6]}, ValueError, "is not declared"),
        ({"shape": [6]}, ValueError, "cannot have"),
        ({"shape": [True]}, TypeError, "is not a shape"),
        ({"dims": "run"}, TypeError, "is not an array"),
    ],
)
def test_arrays_that_are_not_as_declared_are_refused(change, error, problem):
    attributes = json.loads(json.dumps(spec(optional=KEPT).to_attributes()))
    attributes["optional"][0] |= change
    with pytest.raises(error, match=problem):
        GroupSpec.from_attributes(attributes, "x")


def test_arrays_of_a_group_fit_each_other(further, monkeypatch):
    _, trained, counts = further
    with pytest.raises(ValueError, match="have the same name"):
        spec(optional=(trained, trained))
    with pytest.raises(ValueError, match="member_score has sample 5, others 6"):
        spec(optional=(DECLARED["member_score"].of((3, 5)),))
    other = declared("other", ("uint32",), ("magnitude",), 0)
    monkeypatch.setitem(DECLARED, "other", other)
    assert spec(optional=(counts, other.of((4,)))).part_bytes[3] == 32 + 16
    with pytest.raises(ValueError, match="other has magnitude 5, others 4"):
        spec(optional=(counts, other.of((5,))))
    with pytest.raises(ValueError, match="cannot have"):
        DECLARED["member_score"].of((3, 0))
    large = spec(2, samples=6, optional=(DECLARED["member_score"].of((5_000_000, 6)),))
    chosen = planned(
        number=0,
        dataset="d",
        classifier="c",
        samples=6,
        class_names=("a", "b"),
        optional=large.optional,
    )
    assert chosen.shard_length == 2  # of 120 MB each


def test_the_record_of_a_run_of_layout_2():
    """Frozen: the header, then label, margin and the optional array, all below one checksum."""
    made = spec(optional=KEPT)
    record = journal.done(7, 5, 1, 5.0, values(made, 5))
    plain = journal.done(7, 5, 1, 5.0, values(spec(), 5))
    accuracy = prediction(made, 5).measured["final_train_accuracy"].tobytes()
    assert record[60:] == plain[60:] + accuracy
    assert struct.unpack("<Q", record[24:32]) == (4,)
    assert record[:60].hex() == (
        "936d73656564010a0100010007000000050000000000000004000000000000005f7af477"
        "000000000000a0400c0000003000000000000000e77cb63d"
    )


def test_a_run_without_what_its_group_keeps_is_refused():
    made = spec(optional=KEPT)
    run = prediction(made, 1)
    for measured in (None, {}, {"final_train_accuracy": np.zeros(2, np.float32)}):
        lacking = dataclasses.replace(run, measured=measured)
        with pytest.raises(ValueError, match=r"holds final_train_accuracy \(\)"):
            encode_row(made, lacking, truth(made)[0])


def test_they_go_wherever_predictions_go(tmp_path, further):
    world = World(tmp_path, spec(3, curves=True, optional=further))
    world.write_splits()
    world.finish(0, 3, 8)
    with world.journal() as journal:
        journal.append_copy(NUMBER, 2, 0)
    assert list(verify_journals(world.group, world.index())) == []
    for shard in range(3):
        publish(world.group, shard, world.index(), world.watch)
    assert_true_rows(world.group, {0, 2, 3, 8}, {2: 0})
    assert list(verify(world.group)) == []
    opened = xr.open_zarr(world.store, group=world.spec.path, consolidated=False)
    lazy = open_runs(world.group)
    dims = {"member_score": ("run", "member", "sample"), "final_train_accuracy": ("run",)}
    dims["response_right"] = ("run", "response", "magnitude")
    for one in further:
        expected = prediction(world.spec, 0).measured[one.name]
        for held in (opened, lazy):
            assert held[one.name].dims == dims[one.name]
            assert held[one.name].dtype == one.dtype
            assert np.array_equal(held[one.name][0], expected)
            assert np.array_equal(held[one.name][2], expected)
            assert held[one.name].attrs["long_name"] == DECLARED[one.name].long_name
        missing = opened[one.name][1].values
        assert np.isnan(missing).all() if one.fill == NAN else (missing == one.fill).all()
    export_zip(world.store, tmp_path / "a.zip", {})
    with zipfile.ZipFile(tmp_path / "a.zip") as archive:
        archive.extractall(tmp_path / "unpacked")
    (unpacked,) = list_groups(tmp_path / "unpacked")
    assert list(verify(unpacked)) == []
    assert_true_rows(unpacked, {0, 2, 3, 8}, {2: 0})


@pytest.mark.parametrize("name", ["member_score", "final_train_accuracy", "response_right"])
def test_what_is_damaged_comes_from_journals_or_the_run_is_set_back(tmp_path, further, name):
    world = World(tmp_path, spec(3, optional=further))
    world.write_splits()
    world.finish(*range(10))
    for shard in range(3):
        publish(world.group, shard, world.index(), world.watch)
    overwrite(world, name, 5, 77)
    findings = list(verify(world.group))
    assert [(f.rows, f.damaged) for f in findings] == [((5,), True)]
    assert findings[0].problem.startswith("predictions differ from their checksum: ")
    assert f"{name}/c." in findings[0].problem
    done = repair([world.group], findings, world.journal_folder, world.watch)
    assert (done.healed, done.dropped) == (1, 0)
    assert_true_rows(world.group, set(range(10)), {})
    file = world.group.file(world.spec.array(name), 1)
    file.unlink()
    done = repair([world.group], verify(world.group), world.journal_folder, world.watch)
    assert (done.healed, done.dropped) == (4, 0)
    assert_true_rows(world.group, set(range(10)), {})
    forget(world)
    content = bytearray(file.read_bytes())
    content[1] ^= 1  # in the first of two inner chunks
    file.write_bytes(content)
    done = repair([world.group], verify(world.group), world.journal_folder, world.watch)
    assert (done.healed, done.dropped) == (0, 2)
    assert finished(world.group) == set(range(10)) - {4, 5}
    assert list(verify(world.group)) == []
    world.finish(4, 5)  # trained again
    publish(world.group, 1, world.index(), world.watch)
    assert_true_rows(world.group, set(range(10)), {})


def test_values_out_of_bounds_are_found_below_a_right_checksum(tmp_path, further):
    world = World(tmp_path, spec(3, optional=further))
    world.write_splits()
    world.finish(*range(4))
    publish(world.group, 0, world.index(), world.watch)
    for name, value, wrong in (
        ("response_right", 100, True),
        ("response_right", 99, False),
        ("final_train_accuracy", -0.1, True),
        ("final_train_accuracy", np.nan, False),
        ("member_score", np.nan, False),
    ):
        overwrite(world, name, 1, value)
        reseal(world, 1)
        found = [(f.rows, f.problem) for f in verify(world.group)]
        assert found == ([((1,), f"{name} is impossible")] if wrong else [])
    assert read_rows(world.group, ("response_right",), [1])["response_right"].tolist() == [
        [[99] * 4] * 2
    ]


def test_a_record_of_another_shape_is_refused(tmp_path):
    """A group that is planned without, and a journal of one that was planned with."""
    world = World(tmp_path, spec(3))
    world.write_splits()
    other = spec(3, optional=KEPT)
    with world.journal() as journal:
        run = encode_row(other, prediction(other, 0), truth(other)[0])
        journal.append(NUMBER, 0, run, recipe=1, fit_seconds=1)
    problems = [f.problem for f in verify_journals(world.group, world.index())]
    assert problems == ["records in journals have another shape"]
    with pytest.raises(StoreError, match="was it written for another sweep"):
        publish(world.group, 0, world.index(), world.watch)


def test_attributes_that_lost_an_array_are_damage(tmp_path):
    world = World(tmp_path, spec(optional=KEPT))
    file = world.group.folder / "zarr.json"
    document = json.loads(file.read_bytes())
    document["attributes"]["manyseed"] |= {"layout": 1}
    del document["attributes"]["manyseed"]["optional"]
    file.write_text(json.dumps(document))
    with pytest.raises(DamagedGroup, match="another group than was planned"):
        find_group(world.store, world.spec)


@pytest.fixture
def along(further, monkeypatch) -> tuple[Coordinate, ...]:
    """What the places along the dimensions of `further` stand for."""
    epochs = DeclaredCoordinate("taken_epoch", "int32", ("member",), "epoch of a member")
    names = DeclaredCoordinate("response", "int16", ("response",), "what was done to inputs")
    moved = DeclaredCoordinate(
        "moved_by", "float64", ("response", "magnitude"), "how much", "1", "NaN beyond a short grid"
    )
    for one in (epochs, names, moved):
        monkeypatch.setitem(COORDINATES, one.name, one)
    return (
        epochs.of([2, 6, 10]),
        names.of([0, 1], ["intra", "rotate:90"]),
        moved.of([[0.0, 0.25, 0.5, math.nan], [-90, -30.5, 30.5, 90]]),
    )


def test_coordinates_stand_beside_their_arrays(tmp_path, further, along):
    made = spec(3, optional=further, coordinates=along)
    text = json.dumps(made.to_attributes(), allow_nan=False)
    assert GroupSpec.from_attributes(json.loads(text)) == made
    assert {**made.to_attributes(), "coordinates": ()} == {
        **spec(3, optional=further).to_attributes(),
        "coordinates": (),
    }
    world = World(tmp_path, made)
    world.write_splits()
    world.finish(0, 1)
    publish(world.group, 0, world.index(), world.watch)
    opened = xr.open_zarr(world.store, group=made.path, consolidated=False)
    expected = {
        "taken_epoch": (("member",), [2, 6, 10]),
        "response": (("response",), [0, 1]),
        "moved_by": (("response", "magnitude"), [[0, 0.25, 0.5, np.nan], [-90, -30.5, 30.5, 90]]),
    }
    for held in (opened, open_runs(world.group)):
        for name, (dims, wanted) in expected.items():
            assert name in held.coords
            assert held[name].dims == dims
            np.testing.assert_array_equal(held[name], wanted)
        assert held["response"].attrs["flag_meanings"] == "intra rotate:90"
        assert held["moved_by"].attrs["comment"] == "NaN beyond a short grid"
        assert held["response_right"].dims == ("run", "response", "magnitude")
    assert list(verify(world.group)) == []


def test_a_damaged_coordinate_is_written_again(tmp_path, further, along):
    world = World(tmp_path, spec(3, optional=further, coordinates=along))
    assert wrong_coordinates(world.group, [rows(10)], mend=False) == []
    for name in ("taken_epoch", "moved_by"):
        file = world.group.file(world.spec.array(name), 0)
        before = file.read_bytes()
        file.write_bytes(before[:-1] + bytes([before[-1] ^ 1]))
        assert wrong_coordinates(world.group, [rows(10)], mend=True) == [name]
        assert file.read_bytes() == before


def test_coordinates_fit_what_is_declared_and_their_arrays(further, along):
    with pytest.raises(ValueError, match="taken_epoch has member 2, arrays 3"):
        spec(3, optional=further, coordinates=(COORDINATES["taken_epoch"].of([1, 2]),))
    with pytest.raises(ValueError, match="taken_epoch has member 3, arrays None"):
        spec(3, optional=KEPT, coordinates=(along[0],))
    with pytest.raises(ValueError, match="have the same name"):
        spec(3, optional=further, coordinates=(along[0], along[0]))
    for name, places, meanings, problem in (
        ("taken_epoch", [1.5, 2, 3], (), "cannot be"),
        ("taken_epoch", [], (), "cannot be"),
        ("taken_epoch", [True], (), "cannot be"),
        ("moved_by", [[1.0], [1.0, 2.0]], (), "not a table of response by magnitude"),
        ("moved_by", [1.0, 2.0], (), "not a table of response by magnitude"),
        ("moved_by", [["a"]], (), "cannot be"),
        ("response", [0, 2], ["a", "b"], "cannot mean"),
        ("response", [0, 1], ["a b", "c"], "cannot mean"),
    ):
        with pytest.raises(ValueError, match=problem):
            COORDINATES[name].of(places, meanings)
    attributes = json.loads(
        json.dumps(spec(3, optional=further, coordinates=along).to_attributes())
    )
    attributes["coordinates"][0]["name"] = "later"
    with pytest.raises(LayoutTooNew, match="x: this manyseed does not know the array later"):
        GroupSpec.from_attributes(attributes, "x")
