"""What is told of runs that failed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from manyseed import Sweep
from tests.orchestrator.conftest import command

OWN = """
import numpy as np

class Fails:
    def __init__(self, random_state=None):
        self.random_state = random_state
    def fit(self, X, y):
        if len(y) > 64:
            raise ValueError(f"seed {self.random_state} in /tmp/run-{self.random_state}/log")
    def predict(self, X):
        return np.zeros(len(X), int)
"""
SWEEP = """
name = "fails"
seed = 1
repeats = 1
runs = 12
[[grid]]
dataset = ["sklearn:breast_cancer"]
classifier = ["lr-sgd", "fails"]
[classifier.fails]
estimator = "failing_fit:Fails"
"""


@pytest.fixture(scope="module")
def sweep(tmp_path_factory: pytest.TempPathFactory) -> Sweep:
    """12 runs that are done, and 12 that failed with errors that differ in digits and paths."""
    folder = tmp_path_factory.mktemp("fails")
    (folder / "failing_fit.py").write_text(OWN)
    (folder / "fails.toml").write_text(SWEEP)
    sweep = Sweep.plan(folder / "fails.toml", folder / "sweep")
    sweep.submit(workers=1)
    sweep.wait()
    assert sweep.status()["runs"]["failed"] == 12
    return sweep


def test_logs_show_equal_failures_once_in_at_most_30_lines(sweep: Sweep) -> None:
    printed = command("logs", sweep.directory, "--failed").stdout
    assert len(printed.splitlines()) <= 30
    assert "12 × ValueError: seed" in printed
    assert printed.count("Traceback") == 1
    assert "failing_fit.py" in printed
    assert "orchestrator/working" not in printed
    assert f"manyseed resume {sweep.directory} --failed" in printed
    failures = json.loads(command("logs", sweep.directory, "--failed", "--json").stdout)
    (group,) = failures["failures"]
    assert (group["count"], {*group}) == (12, {"error", "count", "runs", "traceback"})
    whole = command("logs", sweep.directory, group["runs"][0]).stdout
    assert "orchestrator/working" in whole, "of one run, everything"


def test_status_counts_them_as_one(sweep: Sweep) -> None:
    (failure,) = sweep.status()["failures"]
    assert failure["count"] == 12
    printed = command("status", sweep.directory).stdout
    assert printed.count("failed: ValueError") == 1
    alike = f"  and 11 alike (digits or paths differ): manyseed logs {sweep.directory} --failed"
    assert alike in printed.splitlines()


def test_show_says_why_where_how_often_and_what_to_do(sweep: Sweep) -> None:
    cell = sweep.survey().with_state("failed")["cell"][0]
    value = sweep.show(f"{cell}:0:3")
    stored, failed = value["stored"], value["failed"]
    assert isinstance(stored, dict)
    assert isinstance(failed, dict)
    assert stored["status"] == "failed"
    assert failed["error"].startswith("ValueError: seed")
    assert (failed["attempts"], failed["task"]) == (1, "1/0")
    assert failed["node"]
    assert Path(failed["log"]).exists()
    assert failed["retry"].startswith(f"manyseed resume {sweep.directory} --failed")
    printed = command("show", sweep.directory, f"{cell}:0:3").stdout
    assert "status               failed" in printed
    assert "ValueError: seed" in printed


def test_show_of_other_runs_says_nothing_of_failures(sweep: Sweep) -> None:
    cell = sweep.survey().with_state("done")["cell"][0]
    assert "failed" not in sweep.show(f"{cell}:0:0")


def test_resume_says_how_many_runs_are_kept(sweep: Sweep) -> None:
    printed = command("resume", sweep.directory, "--failed", "--cluster", "local").stdout
    assert "12 of 24 runs are finished.\nThe others: 12 failed.\n" in printed
    sweep.wait()
    cell = sweep.survey().with_state("failed")["cell"][0]
    failed = sweep.show(f"{cell}:0:3")["failed"]
    assert isinstance(failed, dict)
    assert (failed["attempts"], failed["task"]) == (2, "2/0")
