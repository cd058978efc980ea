"""Whole sweeps under faults of machines: nothing lost, undone or stored twice.

Every test ends in the same comparison: all runs are done, nothing is wrong, and every bit is that
of an undisturbed sweep.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import random
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from manyseed import Sweep
from manyseed.orchestrator.disk.records import read_json
from manyseed.orchestrator.store.groups import list_groups
from manyseed.orchestrator.store.journal import HEADER_SIZE, PREAMBLE_SIZE
from tests.orchestrator.conftest import (
    MANYSEED,
    assert_equal,
    command,
    shared,
    stored,
    wait_until,
)
from tests.orchestrator.test_kill import freeze_in_flight, journaled, state, wait_for_runs
from tests.orchestrator.test_run import training_processes

SWEEP = """
name    = "faults"
seed    = 13
repeats = 2
runs    = 12

[[grid]]
dataset            = ["points"]
classifier         = ["xgb", "lr-sgd"]
perturb_continuous = ["relative:0.1"]

[dataset.points]
source     = "synthetic:gaussian"
n_samples  = 4000
n_features = 30
test       = 1000
"""
"""48 runs in two shards, 5 kB each; an xgb fit takes a few tenths of a second."""
RUNS = 48

SLOW = functools.partial(pytest.param, marks=pytest.mark.slow)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Sweep:
    return shared(tmp_path_factory, "undisturbed", SWEEP)


@pytest.fixture
def sweep(undisturbed: Sweep, tmp_path: Path, stopped: list[Sweep]) -> Sweep:
    """A sweep that is planned."""
    planned = Sweep.plan(undisturbed.paths.sweep_file, tmp_path / "sweep")
    stopped.append(planned)
    return planned


def assert_undisturbed(sweep: Sweep, undisturbed: Sweep, duplicates: int | None = 0) -> None:
    """Check that a sweep ended as if nothing had happened; `duplicates` None: some were."""
    before = sweep.status()
    runs = {"runs": RUNS, "done": RUNS, "copy": 0, "failed": 0, "missing": 0}
    assert before["runs"] == runs
    sweep.compact()
    after = sweep.status()
    assert after["runs"] == runs
    assert after["duplicates"] == before["duplicates"], "the count went with the journals"
    if duplicates is None:
        assert after["duplicates"] > 0
        assert "trained more than once" in command("status", sweep.directory).stdout
    else:
        assert after["duplicates"] == duplicates
    result = command("verify", sweep.directory)
    assert result.returncode == 0, result.stdout + result.stderr
    assert_equal(stored(sweep), stored(undisturbed))
    assert not list(sweep.directory.rglob("*.partial"))


def go_on(sweep: Sweep, **options: int) -> None:
    """Resume by the command and wait until nothing runs any more."""
    result = command("resume", sweep.directory, "--workers", options.get("workers", 2))
    assert result.returncode == 0, result.stderr
    sweep.wait()


def with_code(folder: Path, code: str, **variables: object) -> dict[str, str]:
    """Return an environment in which every Python process runs this first."""
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(code)
    path = os.pathsep.join([str(folder), *filter(None, [os.environ.get("PYTHONPATH")])])
    return {**os.environ, "PYTHONPATH": path, **{k: str(v) for k, v in variables.items()}}


def submit(sweep: Sweep, env: dict[str, str] | None = None, verb: str = "submit") -> None:
    arguments = [MANYSEED, verb, sweep.directory, "--workers", "2"]
    result = subprocess.run(arguments, env=env, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr


def test_submissions_at_once_share_the_work(sweep: Sweep, undisturbed: Sweep) -> None:
    arguments = [sweep.directory, "--workers", "1"]
    commands = [
        subprocess.Popen(
            [MANYSEED, verb, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        for verb in ("submit", "resume", "submit", "resume")
    ]
    for process in commands:
        output, errors = process.communicate(timeout=240)
        assert process.returncode == 0 or "locked" in errors, output + errors
    assert any(process.returncode == 0 for process in commands)
    sweep.wait()
    assert sum(submission["runs"] for submission in sweep.status()["submissions"]) == RUNS
    assert_undisturbed(sweep, undisturbed)


@pytest.mark.slow
@pytest.mark.parametrize("compacted", [False, True])
def test_a_task_that_was_taken_for_dead_wakes_up(
    sweep: Sweep, undisturbed: Sweep, compacted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MANYSEED_LEASE_SECONDS", "2")
    submit(sweep)
    wait_for_runs(sweep, 5)
    frozen = freeze_in_flight(sweep)
    for pid in frozen:
        os.kill(pid, signal.SIGSTOP)
    wait_until(lambda: all(state(pid) == "T" for pid in frozen), "everything to stand still")
    look_like_another_machine(sweep)
    go_on(sweep)
    assert sweep.status()["runs"]["missing"] == 0
    if compacted:  # in a process that knows how long a lease lasts
        result = command("compact", sweep.directory)
        assert result.returncode == 0, result.stderr
        assert not list(sweep.paths.journals.glob("*.journal"))
    for pid in reversed(frozen):
        os.kill(pid, signal.SIGCONT)
    wait_until(lambda: not any(map(state, frozen)), "the end of the task that woke up")
    told = read_json(sorted((sweep.paths.submission(1) / "lives").glob("*/progress.json"))[0])
    assert told["state"] == "finished", told
    sweep.wait()
    # what it trained meanwhile is in a removed journal, or in one that tells that it was in vain
    assert_undisturbed(sweep, undisturbed, duplicates=0 if compacted else None)


def look_like_another_machine(sweep: Sweep) -> None:
    """Make a submission one of which nothing is seen but files that do not change any more."""
    folder = sweep.paths.submission(1)
    attempts = list((folder / "lives").glob("*/progress.json"))
    for file in (folder / "job.json", folder / "intent.json", *attempts):
        value = read_json(file)
        for key in {"process", "submitter"} & value.keys():
            value[key] = " ".join(["elsewhere", *value[key].split()[1:]])
        file.write_text(json.dumps(value))
        os.utime(file, (0, 0))


@pytest.fixture(params=["tmpfs", SLOW("limit")])
def small_disk(
    request: pytest.FixtureRequest, undisturbed: Sweep, tmp_path: Path
) -> Iterator[Sweep]:
    """A planned sweep whose disk is soon full."""
    folder = tmp_path / "disk"
    folder.mkdir()
    if request.param == "tmpfs":
        mount = ["mount", "-t", "tmpfs", "-o", "size=40m", "tmpfs", folder]
        if os.geteuid() != 0 or subprocess.run(mount, capture_output=True).returncode:
            pytest.skip("nothing can be mounted here")
    try:
        planned = Sweep.plan(undisturbed.paths.sweep_file, folder / "sweep")
        yield planned
        planned.cancel()
        planned.wait()
    finally:
        if request.param == "tmpfs":
            subprocess.run(["umount", folder], check=True)


def fill(folder: Path) -> Path:
    """Take all room there is."""
    filler = folder / "filler"
    with filler.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(bytes(4096))
    return filler


def test_a_full_disk_ends_the_task_and_loses_nothing(
    small_disk: Sweep, undisturbed: Sweep, request: pytest.FixtureRequest
) -> None:
    sweep = small_disk
    if "tmpfs" in request.node.name:
        filler = fill(sweep.directory.parent)
        refused = command("submit", sweep.directory, "--workers", 2)
        assert refused.returncode == 4
        assert "make room" in refused.stderr
        assert not sweep.paths.store.exists()
        filler.unlink()
        submit(sweep)
        wait_for_runs(sweep, 3)
        filler = fill(sweep.directory.parent)
        reason = "No space left on device"
    else:
        limit = ["prlimit", "--fsize=20000", MANYSEED, "submit", sweep.directory, "--workers", "2"]
        subprocess.run(limit, check=True, capture_output=True)
        reason = "File too large"
    sweep.wait()
    (task,) = sweep.status()["submissions"]
    assert task["state"] == "broken"
    assert reason in task["reason"]
    shown = command("status", sweep.directory)
    assert shown.returncode == 3
    assert reason in shown.stdout
    assert sweep.status()["runs"]["missing"] > 0
    before = journaled(sweep)
    assert before
    if "tmpfs" in request.node.name:
        filler.unlink()
    go_on(sweep)
    assert journaled(sweep) >= before
    assert_undisturbed(sweep, undisturbed)


@pytest.mark.slow
@pytest.mark.parametrize("harm", ["truncate", "flip"])
def test_a_harmed_shard_is_named_repaired_and_trained_again(
    sweep: Sweep, undisturbed: Sweep, harm: str
) -> None:
    submit(sweep)
    sweep.wait()
    sweep.compact()
    group = list_groups(sweep.paths.store)[0]
    file = group.file(group.spec.array("margin"), 0)
    content = bytearray(file.read_bytes())
    if harm == "truncate":
        del content[len(content) // 2 :]
    else:
        content[len(content) // 3] ^= 4
    file.write_bytes(content)
    found = command("verify", sweep.directory)
    assert found.returncode == 1
    assert group.spec.path in found.stdout
    assert "--repair" in found.stderr
    repaired = command("verify", sweep.directory, "--repair")
    assert repaired.returncode == 0, repaired.stderr
    assert command("verify", sweep.directory).returncode == 0
    assert command("status", sweep.directory).returncode == 3
    go_on(sweep)
    assert_undisturbed(sweep, undisturbed)


@pytest.mark.slow
@pytest.mark.parametrize("part", ["header", "payload"])
def test_a_torn_record_is_trained_again_and_the_others_are_not(
    sweep: Sweep, undisturbed: Sweep, part: str
) -> None:
    submit(sweep)
    wait_for_runs(sweep, 8)
    kill(sweep)
    before = journaled(sweep)
    journal = max(sweep.paths.journals.glob("*.journal"), key=lambda file: file.stat().st_size)
    record = HEADER_SIZE + sum(list_groups(sweep.paths.store)[0].spec.part_bytes)
    assert journal.stat().st_size >= 3 * record
    with journal.open("r+b") as file:
        file.seek(PREAMBLE_SIZE + record + (10 if part == "header" else HEADER_SIZE + 10))
        file.write(bytes(b ^ 255 for b in range(20)))
    assert len(journaled(sweep)) == len(before) - (part == "header")
    go_on(sweep)
    if part == "payload":  # found where it is read: the journal is kept and named until a repair
        assert sweep.compact().damaged == (journal.name,)
        assert command("verify", sweep.directory).returncode == 1
        assert command("verify", sweep.directory, "--repair").returncode == 0
        go_on(sweep)
    assert_undisturbed(sweep, undisturbed)


@pytest.mark.slow
def test_clocks_that_jump_do_not_matter(sweep: Sweep, undisturbed: Sweep, tmp_path: Path) -> None:
    code = """
import itertools, time
days, real = itertools.cycle([0, 1, 400, -1, -30]), time.time
time.time = lambda: real() + 86400 * next(days)
"""
    env = with_code(tmp_path / "code", code, MANYSEED_LEASE_SECONDS=3)
    submit(sweep, env)
    wait_for_runs(sweep, 5)
    kill(sweep)
    submit(sweep, env, "resume")
    sweep.wait()
    assert_undisturbed(sweep, undisturbed)


KILLED = """
import os, pathlib, signal
ARRAYS = ("label", "margin", "fit_seconds", "recipe", "crc", "status")
left, rename = int(os.environ["RENAMES"]), pathlib.Path.rename
def counted(self, target):
    global left
    target = pathlib.Path(target)
    if target.parent.name in ARRAYS and target.name.startswith("c."):
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        left -= 1
    return rename(self, target)
pathlib.Path.rename = counted
"""


def publication_killed(sweep: Sweep, undisturbed: Sweep, folder: Path, renames: int) -> None:
    """Kill a task before it puts one of a shard's six files in place; then go on."""
    submit(sweep, with_code(folder, KILLED, RENAMES=renames))
    wait_until(lambda: not sweep.is_running, "the end of the task")
    (task,) = sweep.status()["submissions"]
    assert task["state"] == "gone"
    found = journaled(sweep)
    assert found
    assert command("verify", sweep.directory).returncode == 0
    go_on(sweep)
    assert_undisturbed(sweep, undisturbed)


@pytest.mark.parametrize("renames", [5])
def test_a_task_killed_while_it_publishes(
    sweep: Sweep, undisturbed: Sweep, tmp_path: Path, renames: int
) -> None:
    publication_killed(sweep, undisturbed, tmp_path / "code", renames)


@pytest.mark.slow
@pytest.mark.parametrize("renames", [*range(5), *range(6, 12)])
def test_a_task_killed_anywhere_while_it_publishes(
    sweep: Sweep, undisturbed: Sweep, tmp_path: Path, renames: int
) -> None:
    publication_killed(sweep, undisturbed, tmp_path / "code", renames)


@pytest.mark.slow
@pytest.mark.timeout(2400)
@pytest.mark.parametrize("seed", range(2))
def test_tens_of_kills_of_a_whole_sweep(
    undisturbed: Sweep, tmp_path: Path, stopped: list[Sweep], seed: int
) -> None:
    """Kill everything, or one process, at any moment of start, training and publication."""
    chance = random.Random(seed)
    sweep = Sweep.plan(undisturbed.paths.sweep_file, tmp_path / "sweep")
    stopped.append(sweep)
    kills = 0
    while sweep.status()["runs"]["missing"]:
        before = journaled(sweep)
        finished = sweep.status()["runs"]["done"]
        submit(sweep, verb="resume")
        wait_until(lambda: training_processes(sweep) != [] or not sweep.is_running, "a start")
        if chance.random() < 0.7:  # else it is killed while it starts
            wait_until(
                lambda: len(journaled(sweep)) > len(before) or not sweep.is_running,  # noqa: B023
                "a run",
            )
        time.sleep(chance.random() / 2)
        if chance.random() < 0.7:
            kill(sweep)
        else:
            for pid in training_processes(sweep)[:1]:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(chance.random() / 2)
            kill(sweep)
        kills += 1
        assert sweep.status()["runs"]["done"] >= finished
        if chance.random() < 0.2:
            assert command("compact", sweep.directory).returncode == 0
            assert command("verify", sweep.directory).returncode == 0
    assert kills >= 8
    assert_undisturbed(sweep, undisturbed)


def kill(sweep: Sweep) -> None:
    """Kill the processes of a sweep's tasks, all at once."""
    for submission in sweep.running():
        names = [attempt.process for attempt in submission.attempts() if attempt.state == "running"]
        if (submission.folder / "job.json").exists():
            names.append(read_json(submission.folder / "job.json")["process"])
        for pid in [int(name.split()[2]) for name in names] + training_processes(sweep):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
    wait_until(lambda: not sweep.is_running and not training_processes(sweep), "the end")
