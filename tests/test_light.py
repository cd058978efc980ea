"""Without torch, torchvision and XGBoost everything works that trains no network and no trees."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.metadata import requires
from pathlib import Path

import numpy as np
import pytest

LACKING = """
import sys
from importlib.machinery import PathFinder

class Lacking(PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        if name.partition(".")[0] in ("torch", "torchvision", "xgboost"):
            return None
        return PathFinder.find_spec(name, path, target)

sys.meta_path = [Lacking if finder is PathFinder else finder for finder in sys.meta_path]
"""
SWEEP = """
name = "light"
seed = 1
repeats = 1
runs = 3

[[grid]]
dataset    = ["sklearn:iris"]
classifier = ["lr-sgd", "mlp", "xgb"]
"""


@pytest.fixture
def light(tmp_path: Path) -> Path:
    """A folder in which Python finds none of the three."""
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text(LACKING)
    return tmp_path


def run(folder: Path, *arguments: str, code: int = 0) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "manyseed", *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(folder / "site"), "COLUMNS": "200"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == code, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    return done.stdout + done.stderr


def test_predictions_of_others_are_analysed(light: Path) -> None:
    rng = np.random.default_rng(0)
    truth = rng.integers(0, 3, (1, 90))
    scores = rng.normal(size=(5, 90, 3)) + 2 * np.eye(3)[truth[0]]
    np.savez(light / "theirs.npz", scores=scores.astype(np.float32), y_true=truth)
    run(light, "import", "theirs.npz", "--out", "sweep")
    run(light, "analyze", "sweep")
    [row] = json.loads(run(light, "query", "sweep", "--by", "classifier", "--json"))["rows"]
    expected = (scores.argmax(axis=2) == truth).mean()
    assert row["accuracy_mean"] == pytest.approx(expected)
    assert "runs are needed" in run(light, "howmany", "sweep")
    assert "Report" in run(light, "report", "sweep")


@pytest.mark.slow
def test_what_cannot_be_trained_here_is_refused_before_anything_starts(light: Path) -> None:
    (light / "sweep.toml").write_text(SWEEP)
    run(light, "plan", "sweep.toml", "--out", "sweep")
    said = run(light, "submit", "sweep", "--cluster", "local", code=4)
    assert "mlp, xgb cannot be trained here: torch, xgboost not installed" in said
    assert "pip install 'torch>=2.6' 'torchvision>=0.21' 'xgboost-cpu>=2.1.3'" in said
    assert not list((light / "sweep" / "tasks").glob("0*"))
    linear = SWEEP.replace(', "mlp", "xgb"', "")
    (light / "sweep.toml").write_text(linear)
    said = run(light, "run", "sweep.toml", "--out", "linear", "--cluster", "local")
    assert "report" in said


def test_they_are_extras() -> None:
    always = [one for one in requires("manyseed") or [] if "extra ==" not in one]
    assert not [one for one in always if one.startswith(("torch", "xgboost"))]
