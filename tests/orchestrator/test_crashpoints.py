"""Every verb is cut off at its file operations; then the sweep goes on as if nothing had been.

A verb does some hundred of them. The quick test takes one of some verbs, the slow one a few of all,
evenly spread; ``MANYSEED_CRASH_POINTS=1000`` lets that take every one, which lasts most of an hour.
"""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from manyseed.orchestrator.paths import GIVEN
from tests.crashpoints import Fault, Forks
from tests.orchestrator.crashes import RUNS, STARTS, VERBS

FAULTS: tuple[Fault, ...] = ("kill", "full", "once")
QUICK = (
    *("plan more", "plan more own", "submit", "submit own", "submit jobs", "tune"),
    *(
        "publish curves",
        "compact",
        "repair methods",
        "repair plan",
        "drop",
        "import zip",
        "respond more",
    ),
    *("save methods", "import more"),
)
"""Verbs of the quick test."""
MOST = int(os.environ.get("MANYSEED_CRASH_POINTS", "3"))
"""Points of a verb and a fault in the slow test: all where it does no more."""


class Sweeps:
    """Sweeps in all states, each made once, and processes to cut off."""

    def __init__(self, folder: Path, forks: Forks) -> None:
        self.folder, self.forks = folder, forks
        self._finished: dict[str, list[Any]] = {}
        self._operations: dict[str, list[str]] = {}
        self._tables: dict[str, Any] = {}
        self._made = 0

    def finished(self, state: str) -> list[Any]:
        """Return the runs that are finished in a state."""
        if state not in self._finished:
            self.call("prepare", state, self.folder / state)
            self._finished[state] = self.call("finished", self.folder / state)["value"]
        return self._finished[state]

    def copy(self, state: str) -> Path:
        """Return a folder with a sweep in a state."""
        self.finished(state)
        self._made += 1
        where = self.folder / f"{self._made:05d}"
        shutil.copytree(self.folder / state, where, symlinks=True)
        return where

    def call(self, *arguments: Any, **options: Any) -> dict[str, Any]:
        """Call a function that must not fail."""
        answer = self.forks.call(*arguments, **options)
        assert "value" in answer, answer.get("traceback", answer)
        return answer

    def tables(self, verb: str) -> Any:
        """Return the result tables that a verb makes, undisturbed."""
        self.operations(verb)
        return self._tables[verb]

    def operations(self, verb: str) -> list[str]:
        """Return what a verb does to files, undisturbed."""
        if verb not in self._operations:
            where = self.copy(STARTS[verb])
            self._operations[verb] = self.call("do", verb, where, root=where)["operations"]
            has_tables = verb.startswith(("analyze", "respond"))
            self._tables[verb] = self.call("tables", where)["value"] if has_tables else {}
            shutil.rmtree(where)
        return self._operations[verb]


@pytest.fixture(scope="module")
def sweeps(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sweeps]:
    with Forks("tests.orchestrator.crashes") as forks:
        yield Sweeps(tmp_path_factory.mktemp("crashes"), forks)


def cut_off(sweeps: Sweeps, verb: str, at: int, fault: Fault) -> None:
    """Cut a verb off at one operation, then look at what it left and go on."""
    where = sweeps.copy(STARTS[verb])
    answer = sweeps.forks.call("do", verb, where, root=where, at=at, fault=fault)
    if fault == "kill":
        assert answer.get("killed") == 9 or "value" in answer, answer
    else:  # a full disk ends it with a message, or is got over
        expected = {"ManyseedError", "OSError"}
        assert "value" in answer or expected & set(answer["error"]), answer["traceback"]
    found = sweeps.call("check", verb, where)["value"]
    before = sweeps.finished(STARTS[verb])
    if verb.split()[0] not in ("drop", "repair"):
        assert [run for run in before if run not in found["finished"]] == [], "finished runs lost"
    assert found["findings"] == []
    assert found["duplicates"] == 0
    counts = found["runs"]
    assert counts["missing"] == counts["failed"] == counts["copy"] == 0
    assert counts["done"] == RUNS[verb]
    assert found["left"] == []
    assert found["tables"] == sweeps.tables(verb)
    shutil.rmtree(where)


def points(sweeps: Sweeps, verb: str, fault: Fault, most: int) -> list[int]:
    """Return at which operations to cut a verb off: different ones for each verb and fault."""
    kinds = [operation.split()[0] for operation in sweeps.operations(verb)]
    skipped = {"kill": ("sync",), "full": ("remove", "rmdir", "rename")}.get(fault, ())
    chosen = [n for n, kind in enumerate(kinds, 1) if kind not in skipped]
    if len(chosen) <= most:
        return chosen
    pick = random.Random(f"{verb} {fault}")
    step = len(chosen) / most
    return [chosen[int((n + pick.random()) * step)] for n in range(most)]


def test_a_submission_whose_folder_was_removed_blocks_no_later_one(sweeps: Sweeps) -> None:
    where = sweeps.copy("half")
    shutil.rmtree(where / "sweep" / "tasks" / "0001")
    found = sweeps.call("check", "publish", where)["value"]
    assert (found["runs"]["done"], found["runs"]["missing"]) == (4, 0)
    numbers = sorted(folder.name for folder in (where / "sweep" / "tasks").glob("0*"))
    assert numbers == ["0002", "0003"]


@pytest.mark.parametrize("verb", QUICK)
def test_a_verb_that_is_cut_off_somewhere_is_gone_on_with(sweeps: Sweeps, verb: str) -> None:
    fault = random.Random(verb).choice(FAULTS)
    for at in points(sweeps, verb, fault, 1):
        cut_off(sweeps, verb, at, fault)


def test_a_plan_that_is_killed_as_it_takes_its_name_leaves_nothing(sweeps: Sweeps) -> None:
    at = sweeps.operations("plan").index("rename sweep") + 1
    cut_off(sweeps, "plan", at, "kill")


@pytest.mark.parametrize(
    "verb", ["plan more", "plan more own", "submit", "submit jobs", "drop", "tune", "import more"]
)
def test_who_was_suspended_and_lost_the_lock_commits_nothing(sweeps: Sweeps, verb: str) -> None:
    where = sweeps.copy(STARTS[verb])
    before = committed(where)
    answer = sweeps.forks.call("take_over", verb, where)
    assert "UnavailableError" in answer.get("error", ()), answer
    assert "another took over: do it again" in answer["text"]
    assert committed(where) == before
    sweeps.call("do", verb, where)
    assert committed(where) != before


def committed(where: Path) -> dict[str, bytes]:
    """Return the files of a sweep's plan and submissions, by name.

    The marks of recipes' numbers are left out: one says what store and journals say anyway.
    """
    folders = (where / "sweep" / "plan", *(where / "sweep" / "tasks").glob("0*"))
    files = (file for folder in folders for file in folder.rglob("*") if file.is_file())
    own = (where / "sweep" / "sweep.toml", where / "cluster" / "jobs.json")
    there = (file for file in (*files, *own) if file.exists() and file.suffix != GIVEN)
    return {str(file): file.read_bytes() for file in there}


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("verb", VERBS)
def test_a_verb_that_is_cut_off_anywhere_is_gone_on_with(
    sweeps: Sweeps, verb: str, fault: Fault
) -> None:
    for at in points(sweeps, verb, fault, MOST):
        cut_off(sweeps, verb, at, fault)
