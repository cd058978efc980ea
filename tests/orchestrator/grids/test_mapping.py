"""A sweep from a mapping: what would stand in its file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.ensemble import RandomForestClassifier

from manyseed import Sweep
from manyseed.orchestrator.errors import UserError
from manyseed.orchestrator.plans.plan import Plan


def mapping() -> dict[str, Any]:
    return {
        "name": "mapped",
        "seed": 3,
        "repeats": 1,
        "runs": np.int64(2),
        "grid": [
            {
                "dataset": ["wine", "wine 2"],
                "classifier": ["lr-sgd"],
                "train_fraction": np.array([0.5, 1.0]),
            },
            {"dataset": ["wine"], "classifier": ["forest"]},
        ],
        "dataset": {
            "wine": {"source": "sklearn:wine"},
            "wine 2": {"source": "sklearn:wine", "classes": {"a": ["class_0"], "b": ["class_2"]}},
        },
        "classifier": {
            "lr-sgd": {"hparams": {"alpha": 1e-3}},
            "forest": {"estimator": RandomForestClassifier(n_estimators=5)},
        },
        "keep": {"scores": "margin"},
    }


FILE = """
name = "mapped"
seed = 3
repeats = 1
runs = 2
[[grid]]
dataset = ["wine", "wine 2"]
classifier = ["lr-sgd"]
train_fraction = [0.5, 1.0]
[[grid]]
dataset = ["wine"]
classifier = ["forest"]
[dataset.wine]
source = "sklearn:wine"
[dataset."wine 2"]
source = "sklearn:wine"
classes = { a = ["class_0"], b = ["class_2"] }
[classifier.lr-sgd]
hparams = { alpha = 1e-3 }
[classifier.forest]
estimator = "sklearn.ensemble:RandomForestClassifier"
params = { n_estimators = 5 }
[keep]
scores = "margin"
"""


def test_a_mapping_is_the_sweep_that_its_file_would_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "sweep.toml").write_text(FILE)
    one, other = Sweep.plan(mapping()), Sweep.plan("sweep.toml", "other")
    assert one.directory.name == "mapped"
    ids = [list(Plan.read(sweep.paths).cells["cell_id"]) for sweep in (one, other)]
    assert ids[0][:4] == ids[1][:4]  # an object has all of its parameters in its table
    assert len(ids[0]) == 5
    assert sorted(file.name for file in tmp_path.iterdir()) == ["mapped", "other", "sweep.toml"]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"runs": 0}, "the mapping: runs = 0: must be a whole number from 1"),
        ({"runs": None}, "runs: is of type NoneType"),
        ({"run": 3}, "the mapping: run"),
        (
            {"grid": [{"dataset": ["wine"], "classifier": [np]}]},
            r"grid\[0\].classifier: is of type",
        ),
        ({"grid": {"dataset": ["nowhere"], "classifier": ["mlp"]}}, "the mapping: .*nowhere"),
    ],
)
def test_what_is_wrong_in_it_is_named(
    change: dict[str, Any], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match=said):
        Sweep.plan({**mapping(), **change})
    assert not list(tmp_path.iterdir())
