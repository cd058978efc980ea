import json

import pytest
import xarray as xr

from manyseed.orchestrator.disk.lease import Lease, LeaseWatch
from manyseed.orchestrator.errors import DamagedGroup, DamagedShard, LeaseHeld
from manyseed.orchestrator.store import compact as module
from manyseed.orchestrator.store.compact import compact, publish_free
from manyseed.orchestrator.store.index import write_tombstone
from manyseed.orchestrator.store.metadata import consolidated
from manyseed.orchestrator.store.repair import drop
from manyseed.orchestrator.store.shards import publish
from tests.orchestrator.store.test_verify import overwrite
from tests.orchestrator.store.world import NUMBER, World, assert_true_rows, finished


@pytest.fixture
def world(tmp_path):
    return World(tmp_path)


def test_everything_is_published_before_journals_go(world):
    world.finish(0, 4)
    world.finish(9)
    (world.group.folder / "label" / ".zarr.json.dead.partial").write_bytes(b"rubbish")
    done = compact(world.store, world.journal_folder, world.watch)
    assert (done.published, done.journals, done.kept, done.partial) == (3, 2, (), 1)
    assert finished(world.group) == {0, 4, 9}
    assert_true_rows(world.group, {0, 4, 9}, {})
    assert list(world.journals.iterdir()) == []
    assert list(world.watch.folder.iterdir()) == []
    plain = xr.open_zarr(world.store, group=world.spec.path, consolidated=True)
    assert plain.status.values.tolist() == [1, 0, 0, 0, 1, 0, 0, 0, 0, 1, 255, 255]
    tree = xr.open_datatree(world.store, engine="zarr", consolidated=True)
    assert tree[world.spec.path].sizes["run"] == 12
    again = compact(world.store, world.journal_folder, world.watch)
    assert (again.published, again.journals) == (0, 0)


def test_journals_of_waiting_copies_stay(world):
    world.finish(1)
    with world.journal() as journal:
        journal.append_copy(NUMBER, 4, 0)
    done = compact(world.store, world.journal_folder, world.watch)
    assert (done.journals, done.kept) == (1, ("0002.journal",))
    world.finish(0)
    assert compact(world.store, world.journal_folder, world.watch).kept == ()
    assert_true_rows(world.group, {0, 1, 4}, {4: 0})


def test_journals_of_unknown_groups_stay(world):
    with world.journal() as journal:
        journal.append_copy(NUMBER + 1, 0, 0)
    assert compact(world.store, world.journal_folder, world.watch).kept == ("0001.journal",)


def test_damage_by_a_late_writer_heals(world):
    world.finish(0, 1)
    publish(world.group, 0, world.index(), world.watch)
    overwrite(world, "status", 1, 0)
    overwrite(world, "margin", 0, 0.5)
    compact(world.store, world.journal_folder, world.watch)
    assert_true_rows(world.group, {0, 1}, {})
    assert finished(world.group) == {0, 1}


def test_journals_stay_where_rows_do_not_read_back(world, monkeypatch):
    world.finish(0)

    def broken(shard, rows, original=module.Shard.checksums):
        crcs, damaged = original(shard, rows)
        return crcs + 1, damaged

    monkeypatch.setattr(module.Shard, "checksums", broken)
    with pytest.raises(DamagedShard, match="journals are kept"):
        compact(world.store, world.journal_folder, world.watch)
    assert len(list(world.journals.iterdir())) == 1


@pytest.mark.parametrize("step", ["publish", "_unpublished"])
def test_a_journal_written_to_meanwhile_stays(world, monkeypatch, step):
    journal = world.journal()
    world.append(journal, 0)

    original = getattr(module, step)

    def slowly(*arguments, **keywords):
        result = original(*arguments, **keywords)
        world.append(journal, 7)
        return result

    monkeypatch.setattr(module, step, slowly)
    assert compact(world.store, world.journal_folder, world.watch).journals == 0
    monkeypatch.undo()
    journal.close()
    assert compact(world.store, world.journal_folder, world.watch).journals == 1
    assert finished(world.group) == {0, 7}


def test_an_interrupted_compaction_loses_nothing_and_is_told_of(world):
    world.finish(0, 4)
    world.finish(9)
    told = []

    def interrupt(done, of):
        told.append((done, of))
        if done == 1:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        compact(world.store, world.journal_folder, world.watch, progress=interrupt)
    assert finished(world.group) == {0}
    assert len(list(world.journals.iterdir())) == 2
    compact(world.store, world.journal_folder, world.watch, progress=lambda *now: told.append(now))
    assert told == [(0, 3), (1, 3), (0, 3), (1, 3), (2, 3), (3, 3)]
    assert_true_rows(world.group, {0, 4, 9}, {})
    assert list(world.journals.iterdir()) == []


def test_refused_while_somebody_else_works(world):
    other = Lease(world.watch, "task-1")
    other.take()
    world.watch.seconds = 2.0
    with other.kept():
        with pytest.raises(LeaseHeld, match="task-1"):
            compact(world.store, world.journal_folder, world.watch)
        compact(world.store, world.journal_folder, world.watch, besides=["task-1"])
        other.check()


def test_tombstones_go_with_the_journals_they_void(world):
    world.finish(0, 1)
    publish(world.group, 0, world.index(), world.watch)
    drop({world.group: [0]}, world.journal_folder, world.watch)
    compact(world.store, world.journal_folder, world.watch)
    assert list(world.journals.iterdir()) == []
    assert finished(world.group) == {1}


@pytest.mark.parametrize(
    ("name", "key", "value"),
    [
        ("y_true", "dimension_names", ["repeat", 5]),
        ("y_true", "data_type", "xyzzy"),
        ("y_true", "shape", [-1, 4]),
        ("crc", "codecs", []),
        ("crc", "zarr_format", 9),
        ("crc", "node_type", "xyzzy"),
        ("label", "chunk_grid", 5),
        ("", "attributes", 5),
        ("", "node_type", None),
    ],
)
def test_a_description_that_zarr_does_not_read_is_named(world, name, key, value):
    world.finish(0)
    compact(world.store, world.journal_folder, world.watch)
    file = world.group.folder / name / "zarr.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {key: value}))
    with pytest.raises(DamagedGroup, match=f"{file}(.|\n)*verify --repair"):
        list(consolidated(world.store, [world.group]))


def begin(world, attempts):
    attempts.append(Lease(LeaseWatch(world.watch.folder, 60), "life-a", vanishes=True))
    attempts[0].take()


def test_the_lease_of_an_attempt_that_begins_at_the_end_stays(world, monkeypatch):
    world.finish(0)
    real, attempts = module.consolidate, []
    monkeypatch.setattr(
        module, "consolidate", lambda *arguments: (real(*arguments), begin(world, attempts))
    )
    compact(world.store, world.journal_folder, world.watch)
    attempts[0].check()
    assert [file.name for file in world.watch.folder.iterdir()] == ["life-a.00000001.lease"]


@pytest.mark.parametrize("how", ["dropped", "void"])
def test_rows_set_back_between_the_look_and_the_lease_stay_missing(world, monkeypatch, how):
    """`publish_free` works beside others: what it saw in journals may be void when it publishes."""
    world.finish(0, 1)
    world.finish(2)
    take, waiting = Lease.take, [how]

    def meanwhile(lease, *arguments):
        if waiting and waiting.pop() == "dropped":
            drop({world.group: [0]}, world.journal_folder, world.watch)
        elif not list(world.journals.glob("*.tombstone")):  # the drop is not done yet
            write_tombstone(world.journals, {NUMBER: [0]}, world.index().journals)
        take(lease, *arguments)

    monkeypatch.setattr(Lease, "take", meanwhile)
    publish_free(world.store, world.journal_folder, world.watch)
    assert finished(world.group) == {1, 2}
    assert_true_rows(world.group, {1, 2}, {})
    world.finish(0)  # trained again since
    assert publish_free(world.store, world.journal_folder, world.watch) == 1
    assert finished(world.group) == {0, 1, 2}
