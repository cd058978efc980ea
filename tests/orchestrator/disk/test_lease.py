import errno
import json
import multiprocessing
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from manyseed.orchestrator.disk import lease
from manyseed.orchestrator.disk import lease as module
from manyseed.orchestrator.disk.lease import Lease, LeaseWatch, remove_dead_leases
from manyseed.orchestrator.disk.placing import unavailable
from manyseed.orchestrator.errors import LeaseHeld, LeaseLost, StoreUnavailable, UserError
from manyseed.slurm.processes import Process

FREE = json.dumps(
    {
        "id": "x",
        "owner": {"host": "h", "machine": "b n", "pid": 1, "started": 1},
        "counter": 0,
        "state": "free",
    }
)


@pytest.fixture
def now(monkeypatch):
    """A clock that the test moves."""
    value = [0.0]
    monkeypatch.setattr(module, "clock", lambda: value[0])
    return value


@pytest.fixture
def leases(tmp_path, monkeypatch):
    """Two holders that cannot see each other's process, as on two machines."""
    monkeypatch.setattr(Process, "state", lambda self: "unknown")
    return tuple(Lease(LeaseWatch(tmp_path, 60), "shard") for _ in range(2))


def test_only_one_holds_it(leases):
    mine, other = leases
    assert mine.try_take()
    assert mine.try_take()
    assert not other.try_take()
    with pytest.raises(LeaseHeld, match=f"process {os.getpid()}"):
        other.take()
    mine.release()
    assert other.try_take()
    with pytest.raises(LeaseLost):
        mine.check()


def test_a_counter_that_stands_still_is_dead(leases, now):
    mine, other = leases
    mine.take()
    assert not other.try_take()
    now[0] = 50
    mine.heartbeat()
    now[0] = 70
    assert not other.try_take()  # sees the counter move only now
    now[0] = 131
    assert other.try_take()
    with pytest.raises(LeaseLost, match="no heartbeat"):
        mine.heartbeat()


def test_who_is_suspended_while_it_takes_has_not_taken(leases, now, monkeypatch):
    mine, other = leases

    def slowly(lease, record=Lease._record):
        if lease is mine:
            assert not other.try_take()
            now[0] += 61
            assert other.try_take()
        record(lease)

    monkeypatch.setattr(Lease, "_record", slowly)
    assert not mine.try_take()
    other.check()
    with pytest.raises(LeaseLost):
        mine.check()


def test_taken_over_is_seen_on_disk(leases, now):
    mine, other = leases
    mine.take()
    other.try_take()
    now[0] = 61
    assert other.try_take()
    mine._beaten = 61.0  # as a holder whose clock stood still would have it
    with pytest.raises(LeaseLost, match="taken over"):
        mine.check()
    mine.release()  # not its own any more
    other.check()


def test_a_stale_holder_takes_it_again_at_once_if_nobody_did(leases, now):
    mine, other = leases
    mine.take()
    now[0] = 1000
    assert mine.is_stale
    assert mine.try_take()
    mine.check()
    assert not other.try_take()


def test_generations_never_come_back(leases, now, tmp_path):
    mine, other = leases
    for _ in range(3):
        assert mine.try_take()
        mine.release()
        assert other.try_take()
        other.release()
    files = sorted(file.name for file in tmp_path.iterdir())
    assert files == ["shard.00000006.lease"]


def test_a_taker_that_was_slow_to_decide_loses(leases, now, tmp_path):
    """It saw generation 1 dead; meanwhile another took generation 2 and gave it back."""
    mine, other = leases
    third = Lease(LeaseWatch(tmp_path, 60), "shard")
    mine.take()
    seen = lease.look(tmp_path, "shard")
    assert not other.try_take()
    now[0] = 61
    assert other.try_take()
    other.release()
    assert not third._supersede(seen)


def test_an_empty_file_is_timed_too(leases, now, tmp_path):
    (tmp_path / "shard.00000001.lease").touch()
    mine, _ = leases
    assert not mine.try_take()
    now[0] = 61
    assert mine.try_take()


def test_a_full_disk_leaves_no_lease(leases, monkeypatch, tmp_path):
    def full(*arguments):
        raise OSError(28, "No space left on device")

    mine, other = leases
    with monkeypatch.context() as patch:
        patch.setattr("os.pwrite", full)
        with pytest.raises(StoreUnavailable, match="No space"):
            mine.try_take()
    assert list(tmp_path.iterdir()) == []
    assert other.try_take()


def test_a_dead_process_of_this_machine_is_dead_at_once(tmp_path):
    script = (
        "import sys, pathlib; from manyseed.orchestrator.disk.lease import *;"
        f"Lease(LeaseWatch(pathlib.Path({str(tmp_path)!r}), 1e6), 'shard').take();"
        "print('taken', flush=True); sys.stdin.read()"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout.readline() == "taken\n"
    watch = LeaseWatch(tmp_path, 1e6)
    assert watch.is_alive("shard")
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    assert not watch.is_alive("shard")
    assert watch.wait_until_dead() == []
    Lease(watch, "shard").take()


def test_alive_leases_are_named(tmp_path):
    watch = LeaseWatch(tmp_path, 2.0)
    held, freed = Lease(watch, "task-1"), Lease(watch, "task-2")
    held.take()
    freed.take()
    freed.release()
    assert watch.alive() == ["task-1"]
    with held.kept():
        assert LeaseWatch(tmp_path, 2.0).wait_until_dead() == ["task-1"]
        assert watch.wait_until_dead(besides=["task-1"]) == []
    assert watch.wait_until_dead() == []
    remove_dead_leases(watch)
    assert watch.names() == set()


def test_keeping_outlasts_the_lease_time(tmp_path):
    held = Lease(LeaseWatch(tmp_path, 1.0), "task")
    held.take()
    with held.kept():
        until = module.clock() + 1.5
        while module.clock() < until:
            held.check()
            time.sleep(0.01)
    with pytest.raises(LeaseLost):
        held.check()


def test_names_that_would_leave_the_folder_are_refused(tmp_path):
    with pytest.raises(ValueError, match="cannot name"):
        Lease(LeaseWatch(tmp_path), "../x")


def test_who_looked_before_two_takeovers_takes_nothing(leases, now, tmp_path):
    """It saw generation 1 dead; generations 2 and 3 came, and 2 went, before it went on."""
    mine, other = leases
    third = Lease(LeaseWatch(tmp_path, 60), "shard")
    mine.take()
    seen = lease.look(tmp_path, "shard")
    mine.release()
    assert other.try_take()
    other.release()
    assert mine.try_take()
    assert not third._supersede(seen)
    mine.check()
    assert [file.name for file in tmp_path.iterdir()] == ["shard.00000003.lease"]


def test_a_lease_with_a_name_of_its_own_leaves_no_file(tmp_path):
    held = Lease(LeaseWatch(tmp_path, 60), "life", vanishes=True)
    held.take()
    held.release()
    assert list(tmp_path.iterdir()) == []


def test_one_listing_does_for_all_leases(tmp_path, monkeypatch):
    watch, scandir, listings = LeaseWatch(tmp_path, 60), os.scandir, []
    for number in range(50):
        (tmp_path / f"g0-s{number}.00000001.lease").write_text(FREE)
    monkeypatch.setattr(os, "scandir", lambda path: listings.append(path) or scandir(path))
    assert watch.alive() == []
    assert watch.wait_until_dead() == []
    remove_dead_leases(watch)
    assert len(listings) == 3
    assert list(tmp_path.iterdir()) == []


def test_leases_of_earlier_versions_are_read(tmp_path):
    watch = LeaseWatch(tmp_path, 60)
    boot, namespace = Process.current().boot, Process.current().namespace
    dead = {"host": socket.gethostname(), "machine": f"{boot} {namespace}", "pid": 2**22 + 1}
    for state, owner in (("held", dead), ("free", dead), ("held", dead | {"machine": ""})):
        record = {"id": "x", "owner": owner | {"started": 5}, "counter": 7, "state": state}
        (tmp_path / "shard.00000004.lease").write_text(json.dumps(record).ljust(512))
        assert watch.is_alive("shard") is (owner["machine"] == "")


@pytest.mark.parametrize(
    "content", ["", "{}", "[]", '{"owner": 1}', "\xff", FREE.replace("1", "x")]
)
def test_what_is_no_record_is_timed(tmp_path, now, content):
    (tmp_path / "shard.00000001.lease").write_text(content)
    mine = Lease(LeaseWatch(tmp_path, 60), "shard")
    assert not mine.try_take()
    assert mine.holder() == "somebody"
    now[0] = 61
    assert mine.try_take()


def test_names_of_no_generation_are_no_leases(tmp_path):
    for name in ("shard.2.lease", "shard.lease", ".00000001.lease", "shard.²2345678.lease"):
        (tmp_path / name).touch()
    assert LeaseWatch(tmp_path, 60).names() == set()
    Lease(LeaseWatch(tmp_path, 60), "shard").take()


def test_one_heartbeat_that_fails_ends_no_lease(tmp_path, monkeypatch):
    held, write, failed = Lease(LeaseWatch(tmp_path, 1.2), "life"), lease.write, []

    def fails_twice(*arguments):
        if len(failed) < 2:
            failed.append(errno.ESTALE if failed else errno.ENOSPC)
            with unavailable("write the lease", tmp_path):
                raise OSError(failed[-1], "no")
        return write(*arguments)

    held.take()
    monkeypatch.setattr(lease, "write", fails_twice)
    with held.kept():
        until = module.clock() + 2.4
        while module.clock() < until:
            held.check()
            time.sleep(0.02)
    assert len(failed) == 2


@pytest.mark.parametrize("text", ["", "soon", "nan", "inf", "-1", "0", "1e9"])
def test_a_lease_time_that_makes_no_sense_is_one_error(monkeypatch, text):
    monkeypatch.setenv("MANYSEED_LEASE_SECONDS", text)
    with pytest.raises(UserError, match="MANYSEED_LEASE_SECONDS"):
        LeaseWatch(Path())
    monkeypatch.setenv("MANYSEED_LEASE_SECONDS", "2.5")
    assert LeaseWatch(Path()).seconds == 2.5


def contend(folder, rounds, log, barrier) -> None:
    """Take the lease, note who holds it between check and check, die without releasing it."""
    Process.state = lambda self: "unknown"  # type: ignore[method-assign]
    watch = LeaseWatch(folder, 0.15)
    barrier.wait()
    for _ in range(rounds):
        held = Lease(watch, "shard")
        while not held.try_take():
            pass
        with log.open("ab", buffering=0) as file:
            file.write(json.dumps([held._generation, held._id]).encode() + b"\n")


def test_many_takers_over_dead_holders(tmp_path):
    """Eight processes take over from holders that never release: each generation has one holder."""
    context = multiprocessing.get_context("spawn")
    log, barrier, rounds = tmp_path / "log", context.Barrier(8), 2
    folder = tmp_path / "leases"
    processes = [
        context.Process(target=contend, args=(folder, rounds, log, barrier)) for _ in range(8)
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
        assert process.exitcode == 0
    taken = [json.loads(line) for line in log.read_text().splitlines()]
    assert [generation for generation, _ in sorted(taken)] == list(range(1, 8 * rounds + 1))
    assert len({holder for _, holder in taken}) == 8 * rounds


def test_a_dangling_link_is_taken_over_like_a_dead_lease(leases, now, tmp_path):
    mine, _ = leases
    (tmp_path / "shard.00000003.lease").symlink_to("nowhere")
    assert not mine.try_take()
    now[0] = 61
    assert mine.try_take()
    assert [file.name for file in tmp_path.iterdir()] == ["shard.00000004.lease"]


def test_a_long_wait_says_for_what_once(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(module, "_SILENT_SECONDS", 0.15)
    (tmp_path / "shard.00000003.lease").symlink_to("nowhere")
    assert LeaseWatch(tmp_path, 0.6).wait_until_dead() == []
    told = capsys.readouterr().err
    assert told.startswith("Waiting 0.6 s at most, to see whether somebody is still at work: ")
    assert told.endswith(f"{tmp_path}/shard.*\n")
    assert told.count("\n") == 1
    monkeypatch.setattr(Process, "state", lambda self: "unknown")
    holder, other = (Lease(LeaseWatch(tmp_path, 60), "other", doing="x") for _ in range(2))
    assert holder.try_take()
    with pytest.raises(LeaseHeld):
        other.take(wait=0.4)
    told = capsys.readouterr().err
    assert f"for process {os.getpid()}" in told
    assert "to release" in told
