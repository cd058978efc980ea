"""SIGKILL in the middle of a grid, again and again: nothing finished is lost or trained twice."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import time
from pathlib import Path

import numpy as np

from orchestrator import Sweep
from orchestrator.files import read_json
from orchestrator.store.index import JournalIndex
from tests.orchestrator.conftest import assert_equal, stored, train, wait_until, write
from tests.orchestrator.test_run import training_processes

KILLS = 10
WORKERS = 2

GRID = """
name    = "killed"
seed    = 5
repeats = 2
runs    = 15

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


def test_ten_kills_and_resumes_equal_an_undisturbed_sweep(
    tmp_path: Path, stopped: list[Sweep]
) -> None:
    sweep_file = write(tmp_path / "killed.toml", GRID)
    sweep = Sweep.plan(sweep_file, tmp_path / "sweep")
    stopped.append(sweep)
    moments = random.Random(1)
    for kill in range(KILLS):
        before = len(journaled(sweep))
        assert sweep.submit(workers=WORKERS) is not None
        wait_for_runs(sweep, before + moments.randint(2, 8))
        time.sleep(moments.random() * 0.3)  # any moment of a fit, an append or a publication
        frozen = freeze_in_flight(sweep)
        at_kill = journaled(sweep)
        assert partly_journaled(at_kill), f"kill {kill} hit no shard that was partly journaled"
        for pid in frozen:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        wait_until(lambda: not sweep.is_running, "the end of everything that was killed")
        assert journaled(sweep) >= at_kill
        assert sweep.status()["duplicates"] <= WORKERS * (kill + 1)
    assert sweep.submit(workers=WORKERS) is not None
    sweep.wait()
    status = sweep.status()
    assert status["runs"] == {"runs": 120, "done": 120, "copy": 0, "failed": 0, "missing": 0}
    # a killed process loses what it trains, nothing that it wrote: no fit was journaled twice
    assert status["duplicates"] == 0
    sweep.compact()
    assert sweep.verify()["runs_wrong"] == 0
    assert_equal(stored(sweep), stored(train(sweep_file, tmp_path / "undisturbed")))


def test_killed_training_processes_are_replaced_within_the_task(
    tmp_path: Path, stopped: list[Sweep]
) -> None:
    sweep = Sweep.plan(write(tmp_path / "killed.toml", GRID), tmp_path / "sweep")
    stopped.append(sweep)
    sweep.submit(workers=WORKERS)
    for kill in range(3):
        wait_for_runs(sweep, 10 * (kill + 1))
        os.kill(training_processes(sweep)[0], signal.SIGKILL)
    sweep.wait()
    status = sweep.status()
    assert status["runs"]["done"] == 120
    assert status["duplicates"] == 0
    assert len(status["submissions"]) == 1


def wait_for_runs(sweep: Sweep, target: int) -> None:
    """Wait until so many runs are in journals."""
    wait_until(lambda: len(journaled(sweep)) >= target, f"{target} finished runs")


def journaled(sweep: Sweep) -> set[tuple[int, int]]:
    """Return (group, row) of every record in the journals."""
    index = JournalIndex(sweep.paths.journals)
    return {(group, int(row)) for group in index.groups() for row in index.rows(group)}


def partly_journaled(rows: set[tuple[int, int]]) -> bool:
    """Whether a group (here one shard of 60 runs) has some of its runs, not all."""
    counts = np.bincount([group for group, _ in rows], minlength=2)
    return bool(((counts > 0) & (counts < 60)).any())


def freeze_in_flight(sweep: Sweep) -> list[int]:
    """Stop all processes of a sweep at a moment when at least one is training.

    Returns their process ids: training processes, then the task and its controller.
    """
    end = time.monotonic() + 60
    while time.monotonic() < end:
        training = training_processes(sweep)
        computing = [pid for pid in training if state(pid) == "R"]
        if not computing:
            continue
        for pid in training:
            os.kill(pid, signal.SIGSTOP)
        submission = sweep.running()[0]
        task = int(submission.lives()[-1]["process"].split()[2])
        controller = int(read_json(submission.folder / "job.json")["process"].split()[2])
        return [*training, task, controller]
    raise AssertionError("no process was seen training")


def state(pid: int) -> str:
    """Return the state letter of a process: R computes."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return ""
