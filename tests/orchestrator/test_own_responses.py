"""Models of users' own code that are asked about further rows: response curves, training rows."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from manyseed.orchestrator.errors import UserError
from manyseed.orchestrator.paths import SweepPaths
from manyseed.orchestrator.plans.cost import planned_seconds
from manyseed.orchestrator.plans.layout import Groups
from manyseed.orchestrator.plans.plan import Plan
from manyseed.orchestrator.plans.planning import plan_sweep
from tests.orchestrator.conftest import train, write

MODULE = """
import numpy as np
from sklearn.base import BaseEstimator

class Nearest(BaseEstimator):
    def fit(self, X, y):
        X = X.reshape(len(X), -1)
        self.means = np.stack([X[y == c].mean(axis=0) for c in np.unique(y)])
        return self
    def decision_function(self, X):
        return -((X.reshape(len(X), 1, -1) - self.means) ** 2).sum(axis=2)

def fit(X, y, X_test, n_classes):
    return np.zeros((len(X_test), n_classes))
"""
SWEEP = """
name    = "asked"
seed    = 5
repeats = 1
runs    = 2

[[grid]]
dataset        = ["digits"]
classifier     = ["raw", "dense", "rows", "images"]
train_fraction = [300]
perturb_continuous = ["relative:0.01"]

[dataset.digits]
source = "sklearn:digits"
test   = 0.1
keep   = { train_accuracy = true }

[classifier.raw]
estimator = "sklearn.pipeline:Pipeline"
params.steps = [
    ["scale", { estimator = "sklearn.preprocessing:StandardScaler" }],
    ["linear", { estimator = "sklearn.linear_model:RidgeClassifier" }],
]

[classifier.dense]
estimator = "sklearn.linear_model:RidgeClassifier"
encode    = "dense"

[classifier.rows]
estimator = "mine:Nearest"

[classifier.images]
estimator = "mine:Nearest"
encode    = "pixels"
"""
RESPONSE = """
[response]
transforms = ["intra", "inter", "rotate:90"]
rows       = 100
magnitudes = 5
"""
FUNCTION = """
[classifier.function]
train = "mine:fit"
probe = false
"""


@pytest.mark.slow
def test_estimators_are_asked_in_the_encoding_that_they_take(tmp_path: Path) -> None:
    """What standardises by itself answers as what is given standardised rows; and so of pixels."""
    (tmp_path / "mine.py").write_text(MODULE)
    sweep = train(write(tmp_path / "asked.toml", SWEEP + RESPONSE), tmp_path / "sweep")
    assert sweep.status()["runs"]["done"] == 8
    runs = {name: sweep.runs("digits", name) for name in ("raw", "dense", "rows", "images")}
    for one, other in (("raw", "dense"), ("rows", "images")):
        for array in ("response_right", "response_total", "shifted_right", "shifted_total"):
            got, wanted = runs[one][array].values, runs[other][array].values
            # a score that is rounded otherwise may decide otherwise once in a while
            np.testing.assert_allclose(got, wanted, atol=1)
            assert wanted.any()
    for each in runs.values():
        right = (each.label == each.y_true).isel(epoch=-1).sum("sample").values
        on_test = each.shifted_right.isel(part=2).values
        np.testing.assert_array_equal(on_test, np.repeat(right[:, None], 3, axis=1))
        turned = each.isel(response=2, draw=0)
        curve = (turned.response_right / turned.response_total).values[:, :5]
        assert (curve[:, 2] > curve[:, 0] + 0.3).all()  # digits lie on their side at the ends
        assert (each.final_train_accuracy.values > 0.8).all()


@pytest.mark.parametrize(
    ("text", "key"),
    [(SWEEP + RESPONSE, "response"), (SWEEP, r"keep\.train_accuracy")],
    ids=["response", "keep"],
)
def test_a_training_function_has_no_model_that_could_be_asked(
    tmp_path: Path, text: str, key: str
) -> None:
    (tmp_path / "mine.py").write_text(MODULE)
    file = write(tmp_path / "asked.toml", text.replace('"raw", ', '"function", ') + FUNCTION)
    with pytest.raises(UserError, match=f"{key}.*function is a training function"):
        plan_sweep(file, tmp_path / "sweep")
    assert not (tmp_path / "sweep").exists()


def test_no_code_of_a_category_lies_between_two_others(tmp_path: Path) -> None:
    """Rows as they are hold codes; one-hot columns stay the first row's."""
    (tmp_path / "mine.py").write_text(MODULE)
    lines = [f"{n % 7},{'abc'[n % 3]},{'xy'[n % 2]}" for n in range(90)]
    (tmp_path / "table.csv").write_text("\n".join(["number,letter,target", *lines]) + "\n")
    text = SWEEP.partition("[dataset.digits]")
    table = f'[dataset.digits]\nsource = "file:{tmp_path}/table.csv"\ntarget = "target"\n'
    head = text[0].replace("[300]", "[40]").replace(', "rows", "images"', "")
    tail = text[2][text[2].index("[classifier.raw]") : text[2].index("[classifier.rows]")]
    response = RESPONSE.replace(', "rotate:90"', "")
    with pytest.raises(UserError, match="raw needs continuous features only"):
        plan_sweep(write(tmp_path / "t.toml", head + table + tail + response), tmp_path / "sweep")
    head = head.replace('"raw", ', "")
    plan_sweep(write(tmp_path / "t.toml", head + table + tail + response), tmp_path / "sweep")


def test_looking_at_a_sweep_with_response_curves_imports_none_of_its_code(tmp_path: Path) -> None:
    """A sweep may be a stranger's, and then its code lies beside its sweep file."""
    (tmp_path / "mine.py").write_text(MODULE)
    file = tmp_path / "sweep.toml"
    file.write_text(SWEEP.replace('["raw", "dense", "rows", "images"]', '["rows"]') + RESPONSE)
    directory = tmp_path / "sweep"
    plan_sweep(file, directory)
    (directory / "plan" / "own.json").unlink()
    trap = f"from pathlib import Path\nPath({str(tmp_path / 'executed')!r}).touch()\n"
    (directory / "mine.py").write_text(trap + MODULE)
    paths = SweepPaths(directory)  # status asks so for the time that is left
    assert planned_seconds(paths, Plan.read(paths), Groups.read(paths).specs).is_empty()
    assert not (tmp_path / "executed").exists()
