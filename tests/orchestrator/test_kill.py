"""SIGKILL in the middle of a grid, again and again: nothing finished is lost or trained twice."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import time
from pathlib import Path

import numpy as np
import pytest

from manyseed import Sweep
from manyseed.orchestrator.disk.records import read_json
from manyseed.orchestrator.store.index import JournalFolder, JournalIndex
from tests.orchestrator.conftest import assert_equal, shared, stored, wait_until, write
from tests.orchestrator.test_run import training_processes

pytestmark = pytest.mark.process

WORKERS, RUNS = 2, 120

GRID = """
name    = "killed"
seed    = 5
repeats = 2
runs    = 15
keep    = { train_accuracy = true }

[[grid]]
dataset            = ["points"]
classifier         = ["xgb", "lr-sgd"]
perturb_continuous = ["relative:0.1", "relative:0.5"]

[dataset.points]
source     = "synthetic:gaussian"
n_samples  = 3000
n_features = 20
test       = 1000
"""
"""120 runs in two shards; an xgb fit takes a tenth of a second or more."""


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Sweep:
    """Trained in the tests' own process: it is made before a test asks for others."""
    return shared(tmp_path_factory, "killed", GRID)


@pytest.mark.timeout(900)  # ten starts, however busy the machine is
@pytest.mark.parametrize("n_kills", [4, pytest.param(10, marks=pytest.mark.slow)])
def test_kills_and_resumes_equal_an_undisturbed_sweep(
    undisturbed: Sweep, tmp_path: Path, stopped: list[Sweep], n_kills: int
) -> None:
    sweep = Sweep.plan(undisturbed.paths.sweep_file, tmp_path / "sweep")
    stopped.append(sweep)
    moments = random.Random(1)
    kills = partly = 0
    while kills < n_kills and (before := len(journaled(sweep))) < RUNS:
        assert sweep.submit(workers=WORKERS) is not None
        wait_for_runs(sweep, min(before + moments.randint(1, 4), RUNS))
        time.sleep(moments.random() * 0.2)  # any moment of a fit, an append or a publication
        frozen = freeze_in_flight(sweep)
        at_kill = journaled(sweep)
        kills += bool(frozen)
        partly += bool(frozen) and partly_journaled(at_kill)
        for pid in frozen:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        wait_until(lambda: not sweep.is_running, "the end of everything that was killed")
        assert journaled(sweep) >= at_kill
        assert sweep.status()["duplicates"] <= WORKERS * kills
    # on a busy machine much is trained before the test comes to its turn
    assert partly >= n_kills / 2, "too few kills hit a shard that was partly journaled"
    sweep.submit(workers=WORKERS)
    sweep.wait()
    status = sweep.status()
    assert status["runs"] == {"runs": RUNS, "done": RUNS, "copy": 0, "failed": 0, "missing": 0}
    # a killed process loses what it trains, nothing that it wrote: no fit was journaled twice
    assert status["duplicates"] == 0
    sweep.compact()
    assert sweep.verify()["runs_wrong"] == 0
    assert_equal(stored(sweep), stored(undisturbed))


@pytest.mark.slow
def test_killed_training_processes_are_replaced_within_the_task(
    tmp_path: Path, stopped: list[Sweep]
) -> None:
    sweep = Sweep.plan(write(tmp_path / "killed.toml", GRID), tmp_path / "sweep")
    stopped.append(sweep)
    sweep.submit(workers=WORKERS)
    for _ in range(3):
        # another process has gone on with what the last victim had in training
        wait_for_runs(sweep, len(journaled(sweep)) + 6)
        wait_until(lambda: bool(at_work(sweep)), "a process that has trained")
        os.kill(at_work(sweep)[0], signal.SIGKILL)
    sweep.wait()
    status = sweep.status()
    assert status["runs"]["done"] == RUNS
    assert status["duplicates"] == 0
    assert len(status["submissions"]) == 1


def at_work(sweep: Sweep) -> list[int]:
    """Return the process ids of those that have finished a run: the others may still import."""
    found = []
    for pid in training_processes(sweep):
        with contextlib.suppress(OSError):  # it has ended
            files = [file.readlink() for file in Path(f"/proc/{pid}/fd").iterdir()]
            journals = [file for file in files if file.parent == sweep.paths.journals.resolve()]
            if any(journal.stat().st_size for journal in journals):
                found.append(pid)
    return found


def wait_for_runs(sweep: Sweep, target: int) -> None:
    """Wait until so many runs are in journals."""
    wait_until(lambda: len(journaled(sweep)) >= target, f"{target} finished runs")


def journaled(sweep: Sweep) -> set[tuple[int, int]]:
    """Return (group, row) of every record in the journals."""
    index = JournalIndex(JournalFolder(sweep.paths.journals))
    return {(group, int(row)) for group in index.groups() for row in index.rows(group)}


def partly_journaled(rows: set[tuple[int, int]]) -> bool:
    """Whether a group (here one shard of 60 runs) has some of its runs, not all."""
    counts = np.bincount([group for group, _ in rows], minlength=2)
    return bool(((counts > 0) & (counts < 60)).any())


def freeze_in_flight(sweep: Sweep) -> list[int]:
    """Stop all processes of a sweep at a moment when at least one is training.

    Returns their process ids: training processes, then the task and its controller; none where the
    sweep came to its end before.
    """
    while running := sweep.running():
        training = training_processes(sweep)
        if not any(state(pid) == "R" for pid in training):
            continue
        for pid in training:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGSTOP)
        task = int(running[0].attempts()[-1].process.split()[2])
        controller = int(read_json(running[0].folder / "job.json")["process"].split()[2])
        return [*training, task, controller]
    return []


def state(pid: int) -> str:
    """Return the state letter of a process: R computes."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return ""
