import dataclasses
import itertools

import google_crc32c
import numpy as np
import pytest
import xarray as xr

from manyseed.jobs import whole
from manyseed.orchestrator.disk.lease import Lease, look
from manyseed.orchestrator.errors import (
    DamagedShard,
    LeaseHeld,
    LeaseLost,
    SplitMismatch,
    StoreError,
    StoreUnavailable,
)
from manyseed.orchestrator.store import encoding, reader, shards
from manyseed.orchestrator.store.coordinates import TRAIN_ACCURACY
from manyseed.orchestrator.store.groups import published_shards
from manyseed.orchestrator.store.journal import HEADER_SIZE
from manyseed.orchestrator.store.lazy import open_runs
from manyseed.orchestrator.store.metadata import extend_group
from manyseed.orchestrator.store.schema import count_files
from manyseed.orchestrator.store.shards import lease_name, publish
from manyseed.orchestrator.store.testsets import read_splits, write_splits
from tests.orchestrator.store.world import (
    NUMBER,
    REPEATS,
    SAMPLES,
    World,
    assert_true_rows,
    encode_row,
    finished,
    prediction,
    rows,
    spec,
    truth,
)


@pytest.fixture
def world(tmp_path):
    return World(tmp_path)


@pytest.mark.parametrize("scores", ["all", "margin", "none"])
@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("n_classes", [2, 3, 300])
def test_what_was_appended_is_what_is_read(tmp_path, n_classes, dtype, scores):
    world = World(tmp_path, spec(n_classes, dtype=dtype, scores=scores))
    world.finish(0, 1, 3)
    publication = publish(world.group, 0, world.index(), world.watch)
    assert (publication.added, publication.finished) == (3, 3)
    assert finished(world.group) == {0, 1, 3}
    assert_true_rows(world.group, {0, 1, 3}, {})
    found = reader.read_rows(world.group, ("fit_seconds", "recipe", "status"), [0, 2, 3])
    assert found["fit_seconds"].tolist()[::2] == [0, 3]
    assert found["recipe"].tolist() == [1, 65535, 1]
    assert found["status"].tolist() == [1, 0, 1]


def test_curves_are_published_and_copied(tmp_path):
    world = World(tmp_path, spec(3, curves=True))
    world.finish(0, 3)
    with world.journal() as journal:
        journal.append_copy(NUMBER, 1, 0)
    publish(world.group, 0, world.index(), world.watch)
    assert_true_rows(world.group, {0, 1, 3}, {1: 0})
    opened = xr.open_zarr(world.store, group=world.spec.path, consolidated=False)
    lazy = open_runs(world.group)
    expected = prediction(world.spec, 0).curves
    for name, curve in expected.items():
        assert opened[name].dims == ("run", "trained_epoch")
        assert np.array_equal(opened[name][1], curve)
        assert np.array_equal(lazy[name][0], curve)
        assert np.isnan(opened[name][2:4]).all()  # missing; without curves
    assert opened.trained_epoch.values.tolist() == [1, 2, 3, 4, 5]
    extended = extend_group(world.group, rows(2, first=10), REPEATS, start=12)
    assert lazy.sizes["run"] < open_runs(extended).sizes["run"]


def test_publishing_adds_and_never_removes(world):
    world.finish(0, 5)
    publish(world.group, 0, world.index(), world.watch)
    for array in ("status", "label"):
        (world.group.folder / array / "c.²").touch()  # no shard's
    assert published_shards(world.group.folder) == {0}
    reader.require_statuses(world.group, np.arange(6))
    for file in world.journals.iterdir():
        file.unlink()
    world.finish(2)
    assert publish(world.group, 0, world.index(), world.watch).added == 1
    assert publish(world.group, 0, world.index(), world.watch).added == 0
    assert finished(world.group) == {0, 2}
    assert_true_rows(world.group, {0, 2}, {})


def test_nothing_finished_publishes_nothing(world):
    publish(world.group, 0, world.index(), world.watch)
    assert published_shards(world.group.folder) == set()


def test_every_file_is_there_and_padding_is_marked(world):
    world.finish(8)
    publish(world.group, 2, world.index(), world.watch)
    for array in world.spec.arrays:
        if array.role in ("prediction", "record"):
            assert world.group.file(array, 2).exists(), array.name
    status = encoding.read(world.group.folder / "status", 8, 12)
    assert status.tolist() == [1, 0, 255, 255]


def test_copies_hold_what_their_source_holds(world):
    with world.journal() as journal:
        journal.append_copy(NUMBER, 1, 0)
        journal.append_copy(NUMBER, 4, 0)
        journal.append_copy(NUMBER, 9, 8)
    first = publish(world.group, 0, world.index(), world.watch)
    assert (first.added, first.waiting) == (0, (1,))
    world.finish(0)
    publish(world.group, 1, world.index(), world.watch)  # source only in a journal
    for file in world.journals.iterdir():
        if file.name != "0001.journal":
            publish(world.group, 0, world.index(), world.watch)
            file.unlink()
    world.finish(5)
    with world.journal() as journal:
        journal.append_copy(NUMBER, 6, 0)  # source only published, in another shard
    publish(world.group, 1, world.index(), world.watch)
    assert finished(world.group) == {0, 1, 4, 5, 6}
    assert_true_rows(world.group, {0, 1, 4, 5, 6}, {1: 0, 4: 0, 6: 0})
    assert reader.statuses(world.group)[:7].tolist() == [1, 2, 0, 0, 2, 1, 2]
    recipe = reader.read_rows(world.group, ("recipe",), [0, 1, 4])["recipe"]
    assert recipe.tolist() == [1, 1, 1]


@pytest.mark.parametrize("n_classes", [2, 3])
def test_files_are_the_same_however_few_rows_are_held(tmp_path, n_classes, monkeypatch):
    found = []
    for held in (1, 3, 100):
        more = {"curves": True, "optional": (TRAIN_ACCURACY.of(),)}
        world = World(tmp_path / str(held), spec(n_classes, shard=8, chunk=4, **more), n=13)
        monkeypatch.setattr(shards, "_STEP_BYTES", held * world.spec.row_bytes)
        with world.journal() as journal:
            world.append(journal, 5, 0, 1, 11, 3)
            journal.append_copy(NUMBER, 2, 0)
            journal.append_copy(NUMBER, 9, 5)
            world.append(journal, 8)
        for shard in (0, 1, 0):
            publish(world.group, shard, world.index(), world.watch)
        assert_true_rows(world.group, {0, 1, 2, 3, 5, 8, 9, 11}, {2: 0, 9: 5})
        written = world.group.folder.rglob("c.*")
        found.append({path.relative_to(world.folder): path.read_bytes() for path in written})
    assert found[0] == found[1] == found[2]


def test_files_are_replaced_in_order(world, monkeypatch):
    order = []

    def rename(partial, path, before, original=whole.rename):
        order.append(path.parent.name)
        original(partial, path, before)

    monkeypatch.setattr(whole, "rename", rename)
    world.finish(0)
    publish(world.group, 0, world.index(), world.watch)
    assert order == ["label", "margin", "fit_seconds", "recipe", "crc", "label", "status"]


@pytest.mark.parametrize("stop_before", range(7))
def test_a_killed_publisher_leaves_the_shard_readable(world, monkeypatch, stop_before):
    world.finish(0, 1)
    publish(world.group, 0, world.index(), world.watch)
    world.finish(2)
    placed = []

    def rename(partial, path, before, original=whole.rename):
        if len(placed) == stop_before:
            raise KeyboardInterrupt
        placed.append(path)
        original(partial, path, before)

    with monkeypatch.context() as patch:
        patch.setattr(whole, "rename", rename)
        with pytest.raises(KeyboardInterrupt):
            publish(world.group, 0, world.index(), world.watch)
    assert finished(world.group) == {0, 1}
    assert_true_rows(world.group, {0, 1}, {})
    publish(world.group, 0, world.index(), world.watch)
    assert_true_rows(world.group, {0, 1, 2}, {})
    assert finished(world.group) == {0, 1, 2}


def test_a_suspended_publisher_cannot_undo_a_later_one(world, monkeypatch):
    """It wakes with its temporary file written and its lease checked, just before the rename."""
    world.finish(0)
    seen = []

    def rename(partial, path, before, original=whole.rename):
        def then_suspended() -> None:
            before()
            if not seen:
                seen.append(path)
                # Another takes the lease over, publishes more, and gives the lease back.
                lease = Lease(world.watch, lease_name(world.group, 0))
                assert lease._supersede(look(world.watch.folder, lease.name))
                lease.release()
                world.finish(1)
                publish(world.group, 0, world.index(), world.watch)
                assert finished(world.group) == {0, 1}
                index.refresh = lambda: None  # whatever the first one knows, it knows already

        original(partial, path, then_suspended)

    monkeypatch.setattr(whole, "rename", rename)
    index = world.index()
    publish(world.group, 0, index, world.watch)
    assert seen
    assert finished(world.group) == {0, 1}
    assert_true_rows(world.group, {0, 1}, {})


def test_a_lease_lost_again_and_again_is_an_error(world, monkeypatch):
    world.finish(0)

    def check(self):
        raise LeaseLost("suspended")

    monkeypatch.setattr(Lease, "check", check)
    with pytest.raises(LeaseLost):
        publish(world.group, 0, world.index(), world.watch)
    assert finished(world.group) == set()


def test_a_shard_being_published_is_refused(world):
    other = Lease(world.watch, lease_name(world.group, 0))
    other.take()
    with pytest.raises(LeaseHeld, match="g00007-s000000"):
        publish(world.group, 0, world.index(), world.watch)
    other.release()
    publish(world.group, 0, world.index(), world.watch)


def test_a_full_disk_changes_nothing(world, monkeypatch):
    world.finish(0)
    publish(world.group, 0, world.index(), world.watch)
    world.finish(1)

    def fsync(descriptor):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("os.fsync", fsync)
        with pytest.raises(StoreUnavailable, match="No space left"):
            publish(world.group, 0, world.index(), world.watch)
    assert finished(world.group) == {0}
    assert not list(world.store.rglob("*.partial"))
    assert publish(world.group, 0, world.index(), world.watch).added == 1
    assert_true_rows(world.group, {0, 1}, {})


def flip(path, position=40):
    content = bytearray(path.read_bytes())
    content[position] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize("name", ["margin", "label", "crc", "status", "recipe"])
@pytest.mark.parametrize("damage", [flip, lambda path: path.write_bytes(path.read_bytes()[:-9])])
def test_damage_heals_from_journals_else_stops_the_publisher(world, name, damage, monkeypatch):
    monkeypatch.setattr(encoding, "ATTEMPTS", 1)
    world.finish(0, 1, 2, 3)
    publish(world.group, 0, world.index(), world.watch)
    file = world.group.file(world.spec.array(name), 0)
    damage_first = min(40, file.stat().st_size - 1)
    if damage is flip:
        flip(file, damage_first // 4)
    else:
        damage(file)
    world.finish(0)  # something to do
    publish(world.group, 0, world.index(), world.watch, distrusted=[0])
    assert finished(world.group) == {0, 1, 2, 3}
    assert_true_rows(world.group, {0, 1, 2, 3}, {})
    for journal in world.journals.iterdir():
        journal.unlink()
    if damage is flip:
        flip(file, damage_first // 4)
    else:
        damage(file)
    world.finish(0)
    before = {path: path.read_bytes() for path in world.group.folder.rglob("status/c*")}
    with pytest.raises(DamagedShard, match="verify --repair"):
        publish(world.group, 0, world.index(), world.watch, distrusted=[0])
    assert before == {path: path.read_bytes() for path in world.group.folder.rglob("status/c*")}


@pytest.mark.parametrize("elsewhere", [True, False])
def test_a_record_that_is_damaged_is_not_published(world, elsewhere):
    world.finish(0, 1, 2)
    with world.journal() as journal:
        journal.append_copy(NUMBER, 3, 1)
    file = world.journals / "0001.journal"
    flip(file, HEADER_SIZE + sum(world.spec.part_bytes) + HEADER_SIZE + 3)  # inside row 1's values
    if elsewhere:
        world.finish(1)
    index = world.index()
    expected = {0, 1, 2, 3} if elsewhere else {0, 2}
    publication = publish(world.group, 0, index, world.watch)
    assert publication.waiting == (() if elsewhere else (3,))
    assert finished(world.group) == expected
    assert_true_rows(world.group, expected, {3: 1})
    assert index.damaged == 1
    assert not list(world.store.rglob("*.partial"))


def test_all_damaged_records_are_found_at_once(tmp_path, monkeypatch):
    world = World(tmp_path, spec(shard=8, chunk=4), n=8)
    world.finish(*range(8))
    file = world.journals / "0001.journal"
    for row in (0, 2, 3, 7):
        flip(file, row * (HEADER_SIZE + world.spec.row_bytes) + HEADER_SIZE + 3)
    monkeypatch.setattr(shards, "_STEP_BYTES", 1)
    begun = []

    def merge(self, original=shards._Merge._merge):
        begun.append(self)
        return original(self)

    monkeypatch.setattr(shards._Merge, "_merge", merge)
    assert publish(world.group, 0, world.index(), world.watch).finished == 4
    assert len(begun) == 2
    assert_true_rows(world.group, {1, 4, 5, 6}, {})


def test_records_of_another_shape_are_refused(world):
    other = dataclasses.replace(world.spec, samples=SAMPLES + 1)
    with world.journal() as journal:
        run = encode_row(other, prediction(other, 0), np.zeros(SAMPLES + 1, int))
        journal.append(NUMBER, 0, run, recipe=0, fit_seconds=0)
    with pytest.raises(StoreError, match="another sweep"):
        publish(world.group, 0, world.index(), world.watch)


def test_publication_before_and_after_an_extension(world):
    world.finish(0, 9)
    old = world.group
    publish(old, 0, world.index(), world.watch)
    group = extend_group(old, rows(3, first=10), REPEATS, start=12)
    world.finish(12)
    publish(old, 2, world.index(), world.watch)  # by a worker that does not know of it
    publish(group, 3, world.index(), world.watch)
    assert finished(group) == {0, 9, 12}
    assert reader.statuses(group).tolist()[9:] == [1, 255, 255, 1, 0, 0, 255]


def test_ten_thousand_runs_make_few_files(tmp_path):
    made = spec(shard=1000, chunk=1000, epochs=(1,), samples=3)
    world = World(tmp_path, made, n=2000)
    world.write_splits_for(3)
    world.finish(0, 1000)
    for shard in (0, 1):
        publish(world.group, shard, world.index(), world.watch)
    found = sum(1 for _ in world.group.folder.rglob("*")) + 1
    assert found == count_files(made, 2000, REPEATS)
    assert count_files(made, 10_000, REPEATS) < 200


def test_splits_are_written_once_and_compared(world):
    world.write_splits()
    y_true, test_index = read_splits(world.group)
    assert np.array_equal(y_true, truth(world.spec))
    before = {p: p.stat().st_ino for p in world.group.folder.rglob("test_index/c*")}
    world.write_splits()
    assert before == {p: p.stat().st_ino for p in world.group.folder.rglob("test_index/c*")}
    wrong = test_index.copy()
    wrong[1, 2] += 1
    with pytest.raises(SplitMismatch, match="repeat 1"):
        write_splits(world.group, 0, y_true, wrong, world.watch)
    with pytest.raises(SplitMismatch, match="y_true"):
        write_splits(world.group, 1, 1 - y_true[1:].astype(int), test_index[1:], world.watch)
    with pytest.raises(StoreError, match="true classes"):
        write_splits(world.group, 0, y_true + 2, test_index, world.watch)
    with pytest.raises(StoreError, match="repeats"):
        write_splits(world.group, 1, y_true, test_index, world.watch)


def test_splits_of_later_repeats_join_the_chunk(world):
    world.write_splits()
    group = extend_group(world.group, rows(2, first=10), 5, start=12)
    more = extend_group(group, rows(0), 3 + 2, start=16)
    y = truth(world.spec, 5)
    index = np.arange(5 * SAMPLES).reshape(5, SAMPLES)
    y[:REPEATS] = truth(world.spec)
    write_splits(more, 4, y[4:], index[4:], world.watch)
    write_splits(group, 2, y[2:3], index[2:3], world.watch)
    write_splits(group, 3, y[3:], index[3:], world.watch)
    assert np.array_equal(read_splits(more)[1], index)
    assert np.array_equal(read_splits(more)[0], y)


def test_a_plain_reader_sees_only_true_rows_at_every_step(world, monkeypatch):
    """Opened anew between any two replacements, by status, with plain xarray."""
    world.write_splits()
    looks = []

    def rename(partial, path, before, original=whole.rename):
        original(partial, path, before)
        plain = xr.open_zarr(world.store, group=world.spec.path, consolidated=False)
        done = np.flatnonzero(np.isin(plain.status.values, (1, 2)))
        label, crc = plain.label.values[done], plain.crc.values[done]
        margin = plain.margin.values[done]
        assert np.array_equal(label == 1, margin >= 0)
        for number in range(len(done)):
            stored = label[number].tobytes() + margin[number].tobytes()
            assert google_crc32c.value(stored) == crc[number]
        looks.append(set(done.tolist()))

    monkeypatch.setattr(whole, "rename", rename)
    for row in (0, 3, 1, 2):
        world.finish(row)
        publish(world.group, 0, world.index(), world.watch)
    assert len(looks) == 28
    assert looks[-1] == {0, 1, 2, 3}
    assert all(a <= b for a, b in itertools.pairwise(looks))
