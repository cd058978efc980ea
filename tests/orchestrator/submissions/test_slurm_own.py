"""A user's module and command on a real SLURM: killed, edited meanwhile, resumed."""

from __future__ import annotations

import os
import shlex
import shutil
import signal
from pathlib import Path

import pytest

from manyseed.orchestrator.sweep import Sweep
from tests.cluster import Slurm, wait_until
from tests.orchestrator.conftest import command, train, write
from tests.orchestrator.submissions.test_slurm import finish, report
from tests.orchestrator.submissions.test_slurm_faults import pid, profile, submitted
from tests.orchestrator.test_own import ENDING, ENDS
from tests.orchestrator.test_own_commands import FLAT, OWN

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

SWEEP = """
name    = "own"
seed    = 3
repeats = 1
runs    = 4
[[grid]]
dataset    = ["sklearn:wine"]
classifier = ["net", "program"]
[classifier.net]
module = "flat:Flat"
epochs = 2
[classifier.program]
command = "python held.py --seed {seed} --lr 0.1 --train {train} --test {test} --out {out}"
encode  = "dense"
"""
HELD = """
import os
import time
from pathlib import Path

import numpy
import train

hold = Path({hold!r})
while hold.exists():
    Path({told!r}).write_text(str(os.getpid()))
    time.sleep(0.05)
train.main()
"""


def test_they_are_killed_edited_and_resumed(slurm: Slurm, tmp_path: Path) -> None:
    hold, told, scratch = tmp_path / "hold", tmp_path / "told", tmp_path / "scratch"
    scratch.mkdir()
    shutil.copy(OWN / "train.py", tmp_path)
    (tmp_path / "flat.py").write_text(FLAT)
    (tmp_path / "held.py").write_text(HELD.format(hold=str(hold), told=str(told)))
    file = write(tmp_path / "own.toml", SWEEP)
    expected = train(file, tmp_path / "undisturbed", workers=1)
    sweep = Sweep.plan(file, tmp_path / "sweep")
    hold.touch()
    text = f"time = \"0:05:00\"\nsetup = ['export TMPDIR={scratch}']"
    here = profile(slurm, tmp_path, **{"time": text, "cpus-per-task": "cpus-per-task = 1"})
    submission = submitted(sweep, here)
    before = {name: (tmp_path / name).read_text() for name in ("train.py", "flat.py")}
    for name in before:
        (tmp_path / name).write_text("raise RuntimeError('edited')")
    wait_until(
        lambda: told.exists() and told.read_text(), lambda: f"a held command\n{report(sweep)}"
    )
    (task,) = submission.tasks()
    os.kill(pid(task), signal.SIGKILL)
    wait_until(lambda: not [*scratch.glob("manyseed-run-*")], lambda: "scratch folders are left")
    assert not Path(f"/proc/{told.read_text()}").exists()
    sweep.wait()
    hold.unlink()
    assert sweep.status()["runs"]["missing"] > 0
    for name, content in before.items():
        (tmp_path / name).write_text(content)
    resumed = command("resume", sweep.directory, "--cluster", here)
    assert resumed.returncode == 0, resumed.stderr
    finish(sweep, expected)
    assert sweep.status()["runs"]["failed"] == 0
    assert not [*scratch.glob("manyseed-*")]


@pytest.mark.parametrize("below", [0.5, 2.0])
def test_mended_code_is_trained_by_what_was_proposed(
    slurm: Slurm, tmp_path: Path, below: float
) -> None:
    mine = write(tmp_path / "mine.py", ENDS.format(below=below, does="raise ValueError"))
    text = ENDING.replace('["mine"]', '["mine", "lr-sgd"]')
    sweep = Sweep.plan(write(tmp_path / "ending.toml", text), tmp_path / "sweep")
    submitted(sweep, profile(slurm, tmp_path))
    sweep.wait()
    state = sweep.status()
    assert state["runs"]["failed"] > 0, report(sweep)
    write(mine, ENDS.format(below=below, does="pass"))
    state = sweep.status()
    (proposed,) = {one["command"] for one in state["next"] if " resume " in one["command"]}
    assert proposed in command("logs", sweep.directory, "--failed").stdout
    done = command(*shlex.split(proposed)[1:], "--watch")
    assert (done.returncode, sweep.status()["runs"]["done"]) == (0, 12), done.output
