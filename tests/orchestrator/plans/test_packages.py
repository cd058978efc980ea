"""Classifiers whose packages are not installed here are named before a sweep is trained."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest

from manyseed.jobs.classifiers import registry
from manyseed.orchestrator.plans.planning import plan_change
from tests.orchestrator.conftest import inside, write

TEXT = """
name = "lacking"
seed = 1
repeats = 1
runs = 2
[[grid]]
dataset = ["sklearn:wine"]
classifier = ["lr-sgd", "xgb", "mlp"]
"""
INSTALL = (
    "pip install 'xgboost-cpu>=2.1.3' 'torch>=2.6' 'torchvision>=0.21'; "
    "on a machine with GPUs, xgboost instead of xgboost-cpu\n"
)
NOTE = "xgb, mlp cannot be trained here: xgboost, torch not installed"


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    def lacks(name: str) -> object:
        return None if name in ("torch", "xgboost") else find_spec(name)

    monkeypatch.setattr(registry, "find_spec", lacks)
    return write(tmp_path / "sweep.toml", TEXT)


def test_a_plan_notes_them(file: Path, tmp_path: Path) -> None:
    assert NOTE in plan_change(file, tmp_path / "out").summary()["notes"]
    code, said = inside("plan", file, "--dry-run")  # nodes of a cluster may have them
    assert code == 0
    assert NOTE in " ".join(said.split())
    write(file, TEXT.replace(', "xgb", "mlp"', ""))
    notes = plan_change(file, tmp_path / "other").summary()["notes"]
    assert not any("cannot be trained" in note for note in notes)


@pytest.mark.parametrize("where", [("--cluster", "local"), ("--workers", "1")])
def test_run_on_this_machine_refuses_them_before_it_plans(
    where: tuple[str, str], file: Path, tmp_path: Path
) -> None:
    code, said = inside("run", file, "--out", tmp_path / "out", *where)
    assert code == 4
    assert NOTE in said
    assert INSTALL in said
    assert not (tmp_path / "out").exists()
