"""Real processes, killed and suspended."""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
import time
from pathlib import Path

import numpy as np
import pytest
import xarray as xr

from manyseed.orchestrator.disk.lease import LeaseWatch
from manyseed.orchestrator.errors import StoreUnavailable
from manyseed.orchestrator.store.compact import compact
from manyseed.orchestrator.store.shards import publish
from manyseed.orchestrator.store.verify import verify
from tests.orchestrator.store import processes
from tests.orchestrator.store.world import World, assert_true_rows, finished, spec, values
from tests.readonly import read_only

LEASE = 1.0  # longer than a busy machine lets a process wait


@pytest.fixture(scope="module")
def context():
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.orchestrator.store.processes"])
    return context


def wait_for(condition, seconds=60.0) -> None:
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, "waited in vain"
        time.sleep(0.01)


def look(world: World) -> set[int]:
    """Read as anybody would, while others write; reads may fail, but not mislead."""
    try:
        plain = xr.open_zarr(world.store, group=world.spec.path, consolidated=False, chunks=None)
        done = np.flatnonzero(plain.status.values == 1)
        label = plain.label[done].values
    except Exception:  # a file was replaced between two reads
        return set()
    for position, row in enumerate(done.tolist()):
        assert label[position].tobytes() == values(world.spec, row).label
    return set(done.tolist())


def kill_rounds(folder: Path, context, rounds: int, seed: int) -> None:
    chance = random.Random(seed)
    world = World(folder, spec(shard=20, chunk=5), n=100, seconds=1.0)
    world.write_splits()
    seen: set[int] = set()
    for number in range(rounds):
        workers = [
            context.Process(
                target=processes.work,
                args=(folder, world.spec, 1.0, f"{number:04d}-{k}", chance.randrange(2**32)),
            )
            for k in range(3)
        ]
        for worker in workers:
            worker.start()
        wait_for(lambda n=number: any(folder.glob(f"{n:04d}-*.log")))
        for worker in workers:
            seen |= look(world)
            time.sleep(chance.random() * 0.2)  # some kill themselves earlier
            worker.kill()
        for worker in workers:
            worker.join()
            assert worker.exitcode == -signal.SIGKILL
        found = finished(world.group)
        assert seen <= found, "a published row went back"
        assert_true_rows(world.group, found, {})
        if chance.random() < 0.3:
            compact(world.store, world.journal_folder, world.watch)
    synced = {int(row) for log in folder.glob("*.log") for row in log.read_text().split("\n")[:-1]}
    assert synced
    compact(world.store, world.journal_folder, world.watch)
    found = finished(world.group)
    assert synced <= found, "a finished run was lost"
    assert_true_rows(world.group, found, {})
    assert list(verify(world.group)) == []
    assert not list(folder.rglob("*.partial"))


def test_killed_workers_lose_nothing(tmp_path, context):
    kill_rounds(tmp_path, context, rounds=6, seed=20210427)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("seed", range(4))
def test_hundreds_of_killed_workers_lose_nothing(tmp_path, context, seed):
    kill_rounds(tmp_path, context, rounds=40, seed=seed)


@pytest.mark.parametrize("before", ["label", "margin", "crc", "status"])
@pytest.mark.parametrize("compacted", [False, True])
def test_a_suspended_publisher_undoes_nothing(tmp_path, context, before, compacted):
    world = World(tmp_path, seconds=LEASE)
    world.write_splits()
    world.finish(0, 1)
    marker = tmp_path / "marker"
    suspended = context.Process(
        target=processes.publish_suspended, args=(tmp_path, world.spec, LEASE, before, marker)
    )
    suspended.start()
    wait_for(marker.exists)
    stat = Path(f"/proc/{suspended.pid}/stat")
    wait_for(lambda: stat.read_text().rsplit(")", 1)[1].split()[0] == "T")
    world.finish(2)
    publish(world.group, 0, world.index(), LeaseWatch(world.watch.folder, LEASE), wait=60)
    assert finished(world.group) == {0, 1, 2}
    if compacted:  # the journals, from which damage could heal, go
        assert compact(world.store, world.journal_folder, world.watch).journals == 2
    os.kill(suspended.pid, signal.SIGCONT)
    suspended.join()
    assert suspended.exitcode == 0
    assert finished(world.group) == {0, 1, 2}
    assert_true_rows(world.group, {0, 1, 2}, {})
    assert list(verify(world.group)) == []


def test_a_store_that_may_not_be_written_is_unavailable(tmp_path):
    world = World(tmp_path)
    world.finish(0)
    with (
        read_only(world.group.folder / "label"),
        pytest.raises(StoreUnavailable, match="give permission"),
    ):
        publish(world.group, 0, world.index(), world.watch)
    assert publish(world.group, 0, world.index(), world.watch).added == 1
