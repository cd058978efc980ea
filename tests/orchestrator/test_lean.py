"""What a task's processes import and open: a node may start hundreds of them at once."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from manyseed import Sweep
from manyseed.analysis.options import Options
from manyseed.orchestrator.submissions import submitting
from manyseed.slurm.local import LocalJob
from manyseed.slurm.processes import Process
from tests.orchestrator.conftest import write

SLOW = ("polars", "torch", "dask", "xarray", "pandas", "sklearn", "xgboost")

SGD = """
name = "sgd"
seed = 1
repeats = 1
runs = 2
[[grid]]
dataset = ["sklearn:wine"]
classifier = ["lr-sgd"]
"""

# What a process has imported at its end, and how many files it has opened.
SEEN = """
import atexit, json, sys
opened = []
sys.addaudithook(lambda event, of: opened.append(str(of[0])) if event == "open" else None)
atexit.register(lambda: print(json.dumps({"modules": [*sys.modules], "opened": opened})))
"""

# A training process that is given the whole task, and then no more.
TRAIN = """
import sys
from multiprocessing.connection import Connection
from pathlib import Path
from socket import socketpair
from manyseed.orchestrator.working import process
from manyseed.orchestrator.working.queue import Queue
from manyseed.orchestrator.tasks.task import Task

directory, task_file = sys.argv[1:]
ours, theirs = socketpair()
pipe, queue = Connection(ours.detach()), Queue(Task.read(Path(task_file)), {})
while (batch := queue.take()) is not None:
    pipe.send(batch)
pipe.send(None)
assert process.main([directory, task_file, "life", "0", str(theirs.detach())]) == 0
"""


def seen(program: str, *arguments: object) -> dict[str, Any]:
    """Run a program in a process of its own; return the modules and files that it ends with."""
    result = subprocess.run(
        [sys.executable, "-P", "-c", SEEN + program, *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    value: dict[str, Any] = json.loads(result.stdout.splitlines()[-1])
    return value


@pytest.fixture
def sgd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Sweep:
    """A sweep of sgd alone, with a task that nobody trains yet."""
    sweep = Sweep.plan(write(tmp_path / "sgd.toml", SGD), tmp_path / "sweep")
    ended = str(replace(Process.current(), started=1))
    monkeypatch.setattr(submitting.local, "submit", lambda *_: LocalJob("1", ended))
    sweep.submit(workers=1)
    return sweep


@pytest.mark.parametrize(
    ("module", "without"),
    [
        ("manyseed.orchestrator.cli.commands", (*SLOW, "zarr", "numpy")),
        ("manyseed.orchestrator.working.worker", (*SLOW, "zarr")),
        ("manyseed.orchestrator.working.process", (*SLOW, "zarr")),
        ("manyseed.orchestrator.survey", tuple({*SLOW} - {"polars"})),
    ],
)
def test_slow_libraries_are_imported_where_they_are_used(
    module: str, without: tuple[str, ...]
) -> None:
    loaded = set(seen(f"import {module}")["modules"])
    assert module in loaded
    assert loaded.isdisjoint(without)


def test_a_task_opens_few_files(sgd: Sweep) -> None:
    """From its first line to its end, without Python's own start, in its own process."""
    program = """
from manyseed.orchestrator.working.worker import run_task
assert run_task(*sys.argv[1:]) == "finished"
"""
    task = seen(program, sgd.directory, 1, 0, 1)
    assert sgd.status()["runs"]["done"] == 2
    assert set(task["modules"]).isdisjoint(SLOW)
    read = [file for file in task["opened"] if file.endswith((".py", ".pyc", ".so"))]
    assert len(read) < 350, "each is looked for, and opened, on a file system that all share"


def test_a_training_process_imports_what_its_classifiers_need(sgd: Sweep) -> None:
    task = sgd.paths.submission(1) / "task-0000.json"
    loaded = set(seen(TRAIN, sgd.directory, task)["modules"])
    assert "sklearn.linear_model" in loaded
    others = {"polars", "torch", "xgboost", "dask", "xarray"}  # pandas is scikit-learn's own doing
    assert loaded.isdisjoint(others)
    assert sgd.status()["runs"]["done"] == 2


def test_status_opens_no_library_of_training(sgd: Sweep) -> None:
    program = """
from manyseed.orchestrator.cli import main
try:
    sys.exit(main())
except SystemExit as error:
    assert error.code == 3
"""
    loaded = set(seen(program, "status", sgd.directory, "--json")["modules"])
    assert "polars" in loaded
    assert loaded.isdisjoint(set(SLOW) - {"polars"})


def test_a_query_imports_what_reads_tables_alone() -> None:
    found = seen(
        "from manyseed.orchestrator.results import query, tables;import manyseed.orchestrator.sweep"
    )
    heavy = {"numba", "scipy", *SLOW} - {"polars"}
    assert not {name.partition(".")[0] for name in found["modules"]} & heavy


@pytest.mark.parametrize("options", [("-t", "runs"), ("--by", "classifier")])
def test_the_command_query_imports_no_more(
    quick: Sweep, tmp_path: Path, options: tuple[str, ...]
) -> None:
    program = """
from manyseed.orchestrator.cli import main
try:
    sys.exit(main())
except SystemExit as error:
    assert error.code == 0
"""
    sweep = Sweep(shutil.copytree(quick.directory, tmp_path / "sweep"))
    sweep.analyze(Options(resamples=2, metrics=("accuracy",)), workers=1)
    loaded = set(seen(program, "query", sweep.directory, *options)["modules"])
    assert loaded.isdisjoint({"numba", "scipy.stats", *SLOW} - {"polars"})
