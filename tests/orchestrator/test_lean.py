"""What a task's processes import and open: a node may start hundreds of them at once."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
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
        ("manyseed.orchestrator.cli.commands", (*SLOW, "zarr", "numpy", "rich", "pydantic")),
        ("manyseed.orchestrator.sweep", (*SLOW, "zarr", "numpy", "rich", "pydantic")),
        ("manyseed.orchestrator.working.worker", (*SLOW, "zarr")),
        ("manyseed.orchestrator.working.process", (*SLOW, "zarr")),
        ("manyseed.orchestrator.survey", (*tuple({*SLOW} - {"polars"}), "zarr", "pydantic")),
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
    searches = "manyseed.orchestrator.plans.searches"  # its cells declare none
    assert searches not in loaded
    assert sgd.status()["runs"]["done"] == 2


# Libraries that commands are known to wait for; each may load those of its line alone.
HEAVY = (
    *("dask", "distributed", "jsonschema", "matplotlib", "numba", "numpy", "pandas", "polars"),
    *("pydantic", "scipy", "sklearn", "submitit", "torch", "xarray", "xgboost", "zarr"),
)
NONE: tuple[str, ...] = ()
TABLES = ("numpy", "polars")
PLANNING = (*TABLES, "pydantic")
MODULES: Mapping[str, tuple[str, ...]] = {
    "--version": NONE,
    "--help": NONE,
    "status": NONE,  # DIR is missing
    "statsu DIR": NONE,
    "status DIR --nope": NONE,
    "status NOWHERE": NONE,
    "logs DIR": TABLES,
    "cancel DIR --now --only x": NONE,
    "query --help": NONE,
    "analyze --help": NONE,
    "run --help": NONE,
    "docs glossary": NONE,
    "example": NONE,
    "": TABLES,  # it names the cluster that a sweep here was submitted to
    "status DIR": TABLES,
    "status DIR --json": TABLES,
    "logs DIR --failed": TABLES,
    "show DIR 0:0:0": TABLES,
    "cancel DIR": TABLES,
    "pause DIR": TABLES,
    "throttle DIR 2": TABLES,
    "query DIR -t runs": TABLES,
    "query DIR --by classifier": (*TABLES, "scipy"),
    "answers DIR": (*TABLES, "scipy"),
    "variance DIR": (*TABLES, "scipy"),
    "compare DIR --by train_fraction": (*PLANNING, "scipy"),
    "howmany DIR": (*PLANNING, "numba", "scipy"),
    "plan FILE --dry-run": PLANNING,
}
"""What a command may load of `HEAVY`, by its arguments; `COMPLETED` are those of a shell."""
COMPLETED: Mapping[str, tuple[str, ...]] = {
    "manyseed st": NONE,
    "manyseed status --w": NONE,
    "manyseed query DIR --form": NONE,
}

# A command by its words, and by the words that a shell completes.
COMMAND = """
import sys
sys.argv[0] = "manyseed"
from manyseed.orchestrator.cli import main
main()
"""


@pytest.fixture(scope="module")
def finished(quick: Sweep, tmp_path_factory: pytest.TempPathFactory) -> Sweep:
    """A finished sweep with results, which commands only read."""
    folder = tmp_path_factory.mktemp("lean") / "sweep"
    sweep = Sweep(shutil.copytree(quick.directory, folder))
    sweep.analyze(Options(resamples=2, metrics=("accuracy",)), workers=1)
    return sweep


def loaded_by(words: Sequence[str], environment: Mapping[str, str]) -> set[str]:
    """Return the libraries of `HEAVY` that a command loads, in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-P", "-c", SEEN + COMMAND, *words],
        capture_output=True,
        text=True,
        env={**os.environ, **environment},
        check=False,
    )
    assert "Traceback" not in done.stderr, done.stderr
    assert done.returncode in (0, 1, 2, 3), done.stderr
    modules = json.loads(done.stdout.splitlines()[-1])["modules"]
    return {name for name in HEAVY if name in modules}


def test_commands_load_what_they_use_and_nothing_else(finished: Sweep, tmp_path: Path) -> None:
    (tmp_path / "sgd.toml").write_text(SGD)
    words = {
        "DIR": str(finished.directory),
        "NOWHERE": str(tmp_path / "nowhere"),
        "FILE": str(tmp_path / "sgd.toml"),
    }
    asked: dict[str, tuple[list[str], dict[str, str]]] = {
        line: ([words.get(word, word) for word in line.split()], {}) for line in MODULES
    }
    for line in COMPLETED:
        typed = [words.get(word, word) for word in line.split()]
        shell = {
            "_MANYSEED_COMPLETE": "complete_bash",
            "COMP_WORDS": " ".join(typed),
            "COMP_CWORD": str(len(typed) - 1),
        }
        asked[line] = ([], shell)
    with ThreadPoolExecutor(4) as pool:
        loaded = dict(
            zip(asked, pool.map(lambda one: loaded_by(*one), asked.values()), strict=True)
        )
    allowed = {**MODULES, **COMPLETED}
    too_much = {line: names - {*allowed[line]} for line, names in loaded.items()}
    assert not {line: names for line, names in too_much.items() if names}
    assert loaded["status DIR"] == {*TABLES}, "it is seen what a command loads"
    assert "pydantic" in loaded["plan FILE --dry-run"]


def test_a_query_imports_what_reads_tables_alone() -> None:
    found = seen(
        "from manyseed.orchestrator.asking import query;import manyseed.orchestrator.sweep"
    )
    heavy = {"numba", "scipy", *SLOW} - {"polars"}
    assert not {name.partition(".")[0] for name in found["modules"]} & heavy
