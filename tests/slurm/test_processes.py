"""Whether a process lives: told of this machine's, certain of death alone, and of no other's."""

from __future__ import annotations

import os
import pwd
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from manyseed.slurm import processes
from manyseed.slurm.processes import Process
from tests.slurm.test_local import wait_until


@pytest.fixture
def child() -> Iterator[subprocess.Popen[bytes]]:
    """A process that waits until it is killed."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        yield child
        child.kill()


def test_a_fingerprint_names_one_process_only(child: subprocess.Popen[bytes]) -> None:
    name = processes.fingerprint(child.pid)
    assert processes.state(name) == "alive"
    one = Process.parse(name)
    assert replace(one, started=one.started + 1).state() == "dead", "a later process"
    child.kill()
    wait_until(lambda: processes.state(name) == "dead")  # a zombie is not alive
    child.wait()
    assert processes.state(name) == "dead"
    assert processes.state(processes.fingerprint(child.pid)) == "dead"


@pytest.mark.parametrize(
    "other",
    [{"host": "other"}, {"boot": "other"}, {"namespace": "pid:[1]"}, {"boot": "-"}, {"pid": -1}],
)
def test_nothing_is_known_of_other_hosts_boots_and_containers(other: dict[str, str]) -> None:
    one = replace(Process.current(), started=1, **other)  # type: ignore[arg-type]
    assert one.state() == "unknown"


@pytest.mark.parametrize("refusal", [FileNotFoundError, PermissionError])
def test_a_process_that_proc_hides_is_not_dead(
    child: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch, refusal: type[OSError]
) -> None:
    """As another user's are below ``hidepid``: they take a signal, or refuse it."""
    name, read = processes.fingerprint(child.pid), Path.read_bytes

    def hidden(path: Path) -> bytes:
        if path.parent.name == str(child.pid):
            raise refusal
        return read(path)

    monkeypatch.setattr(Path, "read_bytes", hidden)
    assert processes.state(name) == "unknown"
    with monkeypatch.context() as patch:

        def refused(pid: int, number: int) -> None:
            raise PermissionError

        patch.setattr(os, "kill", refused)
        assert processes.state(name) == "unknown"
    child.kill()
    child.wait()
    assert processes.state(name) == "dead"


def test_fingerprints_of_older_versions_are_read(child: subprocess.Popen[bytes]) -> None:
    now = Process.of(child.pid)
    old = f"{now.host} {now.boot} {now.pid}"
    assert processes.state(f"{old} {now.started}") == "alive"
    assert processes.state(f"{old} {now.started + 1}") == "unknown", "its namespace is not told"
    assert Process.parse(old).started == -1, "it had ended before it was named"


def test_a_user_without_a_name_has_a_number(monkeypatch: pytest.MonkeyPatch) -> None:
    """In containers, and where directory services do not answer."""

    def unknown(number: int) -> pwd.struct_passwd:
        raise KeyError(f"getpwuid(): uid not found: {number}")

    for name in ("LOGNAME", "USER", "LNAME", "USERNAME"):
        monkeypatch.delenv(name, raising=False)
    assert processes.user_name() == pwd.getpwuid(os.getuid()).pw_name
    monkeypatch.setattr(pwd, "getpwuid", unknown)
    assert processes.user_name() == str(os.getuid())
    monkeypatch.setenv("USER", "anna")
    assert processes.user_name() == "anna"


@pytest.mark.parametrize("text", ["", "a", "a b c", "a b 1 c", "a b 1 2 c d"])
def test_of_what_is_no_fingerprint_nothing_is_known(text: str) -> None:
    assert processes.state(text) == "unknown"
