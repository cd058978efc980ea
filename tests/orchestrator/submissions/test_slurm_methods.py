"""Ensembling methods on a real SLURM: killed in mid-cycle, and while members are drawn."""

from __future__ import annotations

import os
import signal
from collections import Counter
from pathlib import Path

import pytest

from manyseed.orchestrator.sweep import Sweep
from tests.cluster import Slurm, wait_until
from tests.orchestrator.conftest import command, train, write
from tests.orchestrator.submissions.test_slurm import finish, report
from tests.orchestrator.submissions.test_slurm_faults import (
    in_every_process,
    pid,
    profile,
    submitted,
)

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

GRID = """
name    = "methods"
seed    = 11
repeats = 1
runs    = 1
keep    = { members = "all" }

[[grid]]
dataset    = ["sklearn:wine"]
classifier = ["net"]
ensembling = ["snapshot", "csgld", "swag"]

[classifier.net]
kind       = "mlp"
optimizer  = "sgd"
epochs     = 4
batch_size = 32
hparams    = { width1 = 32, width2 = 32, lr = 0.02, dropout = 0.1 }

[ensembling.snapshot]
members    = 4
cycle      = 3
lr         = 0.05
batch_size = 32

[ensembling.csgld]
members    = 4
cycle      = 6
saves      = 2
lr         = 0.05
batch_size = 32

[ensembling.swag]
members  = 4
pretrain = 5
epochs   = 12
rank     = 3
"""
EPOCHS = 12
"""Of every run: 11 are saved, with swag also what stands before each of the draws."""
STOPS = {(8, 0), (8, 2), (12, 1)}
"""Epochs and members after which a run's training stands still, once, until it is killed."""

PAUSING = """
if "manyseed.orchestrator.working.process" in sys.orig_argv:
    from manyseed.jobs.training import checkpoint as files, loop

    files.LEAST, save = 1, loop.save

    def pausing(checkpoint, parts, progress):
        save(checkpoint, parts, progress)
        moment = progress.epoch, parts.trajectory.taken
        run = checkpoint.path.name
        with open("{told}/saved", "a") as file:
            file.write(f"{{run}} {{moment}}\\n")
        paused = pathlib.Path(f"{told}/{{run}}-{{moment}}")
        if moment in {stops} and not paused.exists():
            paused.touch()
            time.sleep(600)

    loop.save = pausing
"""


def test_runs_that_are_killed_go_on_where_they_were_and_end_with_the_same_bits(
    slurm: Slurm, tmp_path: Path
) -> None:
    told = tmp_path / "told"
    told.mkdir()
    expected = train(write(tmp_path / "methods.toml", GRID), tmp_path / "undisturbed", workers=1)
    sweep = Sweep.plan(tmp_path / "methods.toml", tmp_path / "sweep")
    setup = in_every_process(tmp_path, PAUSING.format(told=told, stops=STOPS)).replace(
        "setup = [", "setup = ['export MANYSEED_CHECKPOINT_SECONDS=0', "
    )
    text = f'time = "0:05:00"\n{setup}'
    file = profile(slurm, tmp_path, **{"time": text, "cpus-per-task": "cpus-per-task = 1"})
    submission = submitted(sweep, file)
    for killed in range(4):  # each of the three in mid-cycle, and the last as it draws members

        def stands(before: int = killed) -> bool:
            return len([*told.glob("*-(*")]) > before

        wait_until(stands, lambda: f"a run that stands still\n{report(sweep)}")
        (task,) = submission.tasks()
        os.kill(pid(task), signal.SIGKILL)
        sweep.wait()
        assert sweep.status()["runs"]["missing"] > 0
        assert [*sweep.paths.checkpoints.glob("*")]
        resumed = command("resume", sweep.directory, "--cluster", file)
        assert resumed.returncode == 0, resumed.stderr
        submission = sweep.submissions()[-1]
    finish(sweep, expected)
    assert sweep.status()["duplicates"] == 0
    assert not [*sweep.paths.checkpoints.glob("*")]
    # no epoch was trained twice; who goes on with draws saves where they stand before the next
    saved = Counter((told / "saved").read_text().splitlines())
    assert len(saved) == 3 * (EPOCHS - 1) + 4
    assert {line.partition(" ")[2]: n for line, n in saved.items() if n > 1} == {"(12, 1)": 2}
    assert len(sweep.submissions()) == 5
