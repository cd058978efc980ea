"""Small files are read at one door: what cannot be what was written there is one error."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from manyseed.orchestrator.disk.lease import Lease, LeaseWatch
from manyseed.orchestrator.disk.records import locked, read_json, read_record, write_json
from manyseed.orchestrator.errors import DamagedFile, UnavailableError
from manyseed.slurm.processes import Process


@dataclass(frozen=True)
class Example:
    name: str
    count: int = 1
    parts: tuple[int, ...] = ()


def test_a_record_is_read_as_it_was_written(tmp_path: Path) -> None:
    write_json(tmp_path / "file", {"name": "a", "parts": [1, 2], "of_a_later_version": 3})
    assert read_record(tmp_path / "file", Example) == Example("a", 1, (1, 2))


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"\xff\xfe", b"[]", b"null", b'{"name": 1}', b'{"count": 1}', b"[" * 100_000],
)
def test_what_is_no_such_record_is_damage_and_names_the_file(
    tmp_path: Path, content: bytes
) -> None:
    file = tmp_path / "file"
    file.write_bytes(content)
    with pytest.raises(DamagedFile, match=str(file)):
        read_record(file, Example)


def test_a_changed_value_is_seen_by_the_checksum_and_old_files_without_one_are_read(
    tmp_path: Path,
) -> None:
    file = tmp_path / "file"
    for value in ({"a": [1, 2]}, {}, [1, 2], "text"):
        write_json(file, value)
        assert read_json(file) == value
    write_json(file, {"name": "a", "count": 5})
    file.write_bytes(file.read_bytes().replace(b"5}", b"6}"))
    for read in (read_json, lambda file: read_record(file, Example)):
        with pytest.raises(DamagedFile, match=f"{file}.*checksum"):
            read(file)
    file.write_text('{"name":"a","count":6}')
    assert read_record(file, Example).count == read_json(file)["count"] == 6


@pytest.mark.parametrize("content", [b"", b"{", b"\xff\xfe", b"[" * 100_000])
def test_what_is_no_json_is_damage(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "file"
    file.write_bytes(content)
    with pytest.raises(DamagedFile, match=str(file)):
        read_json(file)


def test_neither_a_pipe_nor_a_folder_nor_a_device_is_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    (tmp_path / "device").symlink_to("/dev/zero")
    for name in ("pipe", "folder", "device"):
        with pytest.raises(DamagedFile, match="not a plain file"):
            read_json(tmp_path / name)


def test_what_is_not_there_is_not_damage(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        read_record(tmp_path / "file", Example)


LOCKED = """
import sys
from pathlib import Path
from manyseed.orchestrator.disk.records import locked
with locked(Path(sys.argv[1]), "planning"):
    print("locked", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def holder(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """Another process, which holds the lock."""
    command = [sys.executable, "-c", LOCKED, str(tmp_path / ".lock")]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(command, text=True, **pipes) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "locked\n"
        yield process
        process.kill()


def test_a_lock_is_held_by_one_and_leaves_nothing(tmp_path: Path) -> None:
    with locked(tmp_path / ".lock", "planning"):
        told = f"process {os.getpid()} on .*, planning"
        with pytest.raises(UnavailableError, match=told) as raised:
            locked(tmp_path / ".lock", "submitting").__enter__()
        assert str(raised.value).endswith(f"wait for it, then: manyseed status {tmp_path}")
        with locked(tmp_path / ".tuning.lock", "tuning"):
            pass
    assert list(tmp_path.iterdir()) == []


def test_the_lock_of_a_dead_process_is_taken_over(
    tmp_path: Path, holder: subprocess.Popen[str]
) -> None:
    holder.kill()
    holder.wait()
    with locked(tmp_path / ".lock", "planning"):
        pass


def test_the_lock_of_a_suspended_process_is_not_taken_over(
    tmp_path: Path, holder: subprocess.Popen[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MANYSEED_LEASE_SECONDS", "0.2")
    holder.send_signal(signal.SIGSTOP)
    for _ in range(3):
        with pytest.raises(UnavailableError, match="locked"):
            locked(tmp_path / ".lock", "planning").__enter__()
        time.sleep(0.15)


@pytest.mark.parametrize("host", [socket.gethostname(), "elsewhere"])
def test_the_lock_of_an_earlier_version_holds_while_its_process_may_live(
    tmp_path: Path, host: str
) -> None:
    file = tmp_path / ".lock"
    process = subprocess.Popen(["sleep", "60"])
    file.write_text(json.dumps({"host": host, "pid": process.pid, "doing": "planning"}))
    with pytest.raises(
        UnavailableError, match=f"process {process.pid} on {host}, of an earlier version"
    ):
        locked(file, "planning").__enter__()
    process.kill()
    process.wait()
    if host == "elsewhere":  # nobody here can tell
        with pytest.raises(UnavailableError, match="remove the file"):
            locked(file, "planning").__enter__()
        file.unlink()
    with locked(file, "planning"):
        pass
    assert list(tmp_path.iterdir()) == []


def test_a_lock_file_of_an_earlier_version_that_says_nothing_is_removed(tmp_path: Path) -> None:
    (tmp_path / ".lock").touch()  # its process was killed before it said who it is
    with locked(tmp_path / ".lock", "planning"):
        pass
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("lives", [False, True])
def test_another_hosts_lock_is_taken_over_when_it_stands_still(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lives: bool
) -> None:
    monkeypatch.setenv("MANYSEED_LEASE_SECONDS", "1")
    monkeypatch.setattr(Process, "state", lambda self: "unknown")
    other = Lease(LeaseWatch(tmp_path), ".lock")
    other.take()
    began = time.monotonic()
    if not lives:
        with locked(tmp_path / ".lock", "planning") as mine:
            assert time.monotonic() - began >= 1
            mine.check()
        return
    ended = threading.Event()

    def beat() -> None:
        while not ended.wait(0.1):
            other.heartbeat()

    thread = threading.Thread(target=beat)
    thread.start()
    try:
        with pytest.raises(UnavailableError, match="locked"):
            locked(tmp_path / ".lock", "planning").__enter__()
    finally:
        ended.set()
        thread.join()
