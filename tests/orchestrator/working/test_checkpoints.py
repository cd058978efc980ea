"""A network whose process is killed in the middle of its training goes on in the next process."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from multiprocessing.connection import Connection
from pathlib import Path
from socket import socketpair

import pytest

from manyseed import Sweep
from manyseed.jobs.run import Run
from manyseed.orchestrator.errors import UserError
from manyseed.orchestrator.plans.layout import Groups, lay_out
from manyseed.orchestrator.plans.plan import Plan
from manyseed.orchestrator.tasks.task import Span, Task, TaskCell
from manyseed.orchestrator.working.checkpoints import checkpoint, checkpoint_seconds
from manyseed.orchestrator.working.queue import Batch, Outcome, Ready
from tests.orchestrator.conftest import write

EPOCHS = 30

LONG = f"""
name    = "long"
seed    = 3
repeats = 1
runs    = 2

[[grid]]
dataset    = ["sklearn:wine"]
classifier = ["mlp"]

[classifier.mlp]
epochs    = {EPOCHS}
snapshots = [3]
hparams   = {{ width1 = 32, width2 = 32 }}
"""

METHOD = """
[ensembling.csgld]
members    = 7
cycle      = 10
saves      = 3
batch_size = 32
lr         = 0.05
"""

# The real training process, which saves after every epoch, members beside it, each two in a file;
# where epoch `stop` begins it waits.
PROCESS = """
import sys
from manyseed.jobs.training import checkpoint, loop
from manyseed.orchestrator.working import process

checkpoint.LEAST = 2 * 36 * 3 * 4
stop, cut, begun = int(sys.argv[1]), loop.batches, 0

def batches(*arguments):
    global begun
    begun += 1
    print(begun, flush=True)
    if begun == stop:
        sys.stdin.read()
    return cut(*arguments)

loop.batches = batches
sys.exit(process.main(sys.argv[2:]))
"""


class Process:
    """One attempt of a training process, which is given the sweep's first run."""

    def __init__(self, sweep: Sweep, name: str, stop: int = 0) -> None:
        ours, theirs = socketpair()
        task = sweep.paths.tasks / "task-0000.json"
        arguments = [str(stop), str(sweep.directory), str(task), name, "0", str(theirs.fileno())]
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-c", PROCESS, *arguments],
            pass_fds=[theirs.fileno()],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "MANYSEED_CHECKPOINT_SECONDS": "0"},
        )
        theirs.close()
        self.pipe = Connection(ours.detach())
        assert self.pipe.recv() == Ready()
        self.pipe.send(Batch(group=0, shard=0, cell=0, repeat=0, runs=((0, 0),)))

    def epochs(self) -> list[int]:
        """Let the run be finished; return the epochs that were begun."""
        outcome = self.pipe.recv()
        assert isinstance(outcome, Outcome)
        assert outcome.done == (0,)
        self.pipe.send(None)
        printed, _ = self.process.communicate()
        assert self.process.returncode == 0
        return [int(line) for line in printed.split()]

    def kill_at(self, epoch: int) -> None:
        """Kill it (SIGKILL) when it has begun an epoch."""
        assert self.process.stdout is not None
        while int(self.process.stdout.readline()) < epoch:
            pass
        self.process.kill()
        self.process.communicate()
        assert self.process.returncode == -9


@pytest.fixture
def sweep(tmp_path: Path) -> Sweep:
    """A planned sweep with a task that has its first run."""
    return planned_sweep(tmp_path, LONG)


@pytest.fixture
def method(tmp_path: Path) -> Sweep:
    """The same of a run that yields members on its way, from epoch 8 to 28, and keeps them all."""
    text = LONG.replace("snapshots = [3]", 'optimizer = "sgd"')
    text = text.replace("[[grid]]", 'keep = { members = "all" }\n\n[[grid]]')
    text = text.replace('["mlp"]', '["mlp"]\nensembling = ["csgld"]')
    return planned_sweep(tmp_path, text + METHOD)


def planned_sweep(tmp_path: Path, text: str) -> Sweep:
    planned = Sweep.plan(write(tmp_path / "long.toml", text), tmp_path / "sweep")
    plan, groups = Plan.read(planned.paths), Groups.read(planned.paths)
    lay_out(planned.paths, plan, groups)
    cell = TaskCell(plan.cell(0).canonical(), tuple(plan.cells["snapshots"][0]))
    span = Span(group=0, shard=0, row=0, cell=0, repeat=0, run=0, count=1)
    task = Task({0: groups.specs[0].path}, {0: cell}, (span,))
    task.write(planned.paths.tasks / "task-0000.json")
    return planned


def saved(sweep: Sweep) -> list[str]:
    return sorted(file.name for file in sweep.paths.checkpoints.glob("*"))


@pytest.mark.slow
def test_a_killed_fit_goes_on_in_a_later_attempt_and_ends_bit_equal(sweep: Sweep) -> None:
    Process(sweep, "first", stop=20).kill_at(20)
    assert saved(sweep) == ["0-0"]
    held = (sweep.paths.checkpoints / "0-0").read_bytes()
    sweep.compact()
    assert saved(sweep) == ["0-0"]  # its run is missing: it is waited for
    assert Process(sweep, "second").epochs() == list(range(1, EPOCHS - 19 + 1))
    assert saved(sweep) == []
    (sweep.paths.checkpoints / "0-0").write_bytes(held)  # of an attempt that was killed too late
    sweep.compact()
    assert saved(sweep) == []
    assert sweep.rerun("0:0:0")["equal"]


@pytest.mark.slow
def test_a_method_that_is_killed_in_mid_cycle_ends_bit_equal(method: Sweep) -> None:
    Process(method, "first", stop=20).kill_at(20)  # after five members, in noise of the second
    first, *beside = saved(method)
    assert (first, len(beside)) == ("0-0", 2)
    method.compact()
    assert saved(method) == [first, *beside]
    held = {name: (method.paths.checkpoints / name).read_bytes() for name in beside}
    assert Process(method, "second").epochs() == list(range(1, 28 - 19 + 1))
    assert saved(method) == []
    for name, content in held.items():  # of an attempt that was killed as it removed them
        (method.paths.checkpoints / name).write_bytes(content)
    method.compact()
    assert saved(method) == []
    assert method.verify()["runs_wrong"] == 0
    assert method.rerun("0:0:0")["equal"]


def test_a_checkpoint_is_of_one_run_and_recipe(sweep: Sweep) -> None:
    cell = Plan.read(sweep.paths).cell(0)
    made = [
        checkpoint(sweep.paths, 0, run, Run(cell, 0, run), recipe, 60.0)
        for run, recipe in [(0, 1), (1, 1), (0, 2)]
    ]
    assert len({one.key for one in made if one is not None}) == 3
    assert [one.path.name for one in made if one is not None] == ["0-0", "0-1", "0-0"]
    sgd = replace(cell, classifier={"name": "lr-sgd", "version": 1})
    assert checkpoint(sweep.paths, 0, 0, Run(sgd, 0, 0), 1, 60.0) is None


@pytest.mark.parametrize("text", ["", "soon", "nan", "inf", "-1", "1e9"])
def test_a_time_between_checkpoints_that_makes_no_sense_is_one_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    sweep = Sweep.plan(write(tmp_path / "long.toml", LONG), tmp_path / "sweep")
    monkeypatch.setenv("MANYSEED_CHECKPOINT_SECONDS", text)
    with pytest.raises(UserError, match="MANYSEED_CHECKPOINT_SECONDS"):
        sweep.submit(workers=1)
    assert not sweep.paths.submission(1).exists()
    monkeypatch.setenv("MANYSEED_CHECKPOINT_SECONDS", "0")
    assert checkpoint_seconds() == 0
