"""Keys that a classifier's table does not have: one error each, with the line that was meant."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from manyseed.orchestrator.errors import UserError
from manyseed.orchestrator.plans.planning import plan_change

CODE = """
import numpy as np
from sklearn.ensemble import RandomForestClassifier

def make(trees=50, depth=3):
    return RandomForestClassifier(trees, max_depth=depth)

def fit(X, y, X_test, n_classes, batch, scale=1.0):
    return batch.normal(size=(len(X_test), n_classes)) * scale

def needy(n_features, width=16):
    return RandomForestClassifier(width)
"""
SWEEP = """
name = "s"
seed = 1
repeats = 2
runs = 2
[[grid]]
dataset = ["sklearn:iris"]
classifier = ["f"]
hparams = ["{hparams}"]
[classifier.f]
{table}
"""


def refused(folder: Path, table: str, hparams: str = "grid") -> str:
    (folder / "own.py").write_text(CODE)
    file = folder / "sweep.toml"
    file.write_text(SWEEP.format(table=table, hparams=hparams))
    with pytest.raises(UserError) as caught:
        plan_change(file, folder / "out")
    return str(caught.value).removeprefix(f"{file}: ")


@pytest.mark.parametrize(
    ("table", "remedy"),
    [
        (
            'estimator = "own:make"\ngrid = { trees = [16, 64] }',
            "make takes trees: give it a value, which the grid varies: params = { trees = 16 }",
        ),
        (
            'train = "own:fit"\ngrid = { scale = { linspace = [0.5, 2.0, 4] } }',
            "fit takes scale: give it a value, which the grid varies: params = { scale = 0.5 }",
        ),
        (
            'estimator = "sklearn.ensemble:RandomForestClassifier"\n'
            "params = { n_estimators = 9 }\ngrid = { max_depth = [2, 4] }",
            "RandomForestClassifier takes max_depth: give it a value, which the grid varies: "
            "params = { n_estimators = 9, max_depth = 2 }",
        ),
        (
            'command = "python a.py {train} {test} {out}"\ngrid = { lr = [0.1, 0.2] }',
            "an hparam of a command has its value in params: params = { lr = 0.1 }, and "
            '{hparams.lr} in its words: command = "python a.py {train} {test} {out} {hparams.lr}"',
        ),
    ],
)
def test_a_grid_over_an_argument_says_the_line_that_it_needs(
    table: str, remedy: str, tmp_path: Path
) -> None:
    (tmp_path / "a.py").write_text("")
    said = refused(tmp_path, table)
    assert re.match(r"classifier\.f\.grid\.\w+ = .*: unknown key\n", said)
    assert said.endswith(f"unknown key\n  {remedy}")  # and no other mistake
    if "command" not in table:
        params = remedy.rpartition(": ")[2]
        kept = [line for line in table.splitlines() if not line.startswith("params")]
        (tmp_path / "sweep.toml").write_text(
            SWEEP.format(table="\n".join([*kept, params]), hparams="grid")
        )
        assert plan_change(tmp_path / "sweep.toml", tmp_path / "out").summary()["runs"] > 4


@pytest.mark.parametrize(
    ("table", "said"),
    [
        (
            'estimator = "own:make"\ngrid = { width = [16, 64] }',
            "classifier.f.grid.width = [16, 64]: unknown key\n"
            "  make has no parameter width; it has trees, depth",
        ),
        (
            'train = "own:fit"\nhparams = { width = 3 }',
            "classifier.f.hparams.width = 3: unknown key\n"
            "  fit has no parameter width; it takes scale; an argument named hparams takes all",
        ),
        (
            'estimator = "own:make"\nwidth = 3',
            "classifier.f.width = 3: unknown key\n"
            "  make has no parameter width; it has trees, depth",
        ),
        (
            'estimator = "own:needy"\ngrid = { width = [16, 64] }',
            "classifier.f.grid.width = [16, 64]: unknown key\n"
            "  if needy takes width, give it a value, which the grid varies: "
            "params = { width = 16 }",
        ),
        (
            'estimator = "own:make"\nparams = { trees = 9 }\ngrid = { tree = [16, 64] }',
            'classifier.f.grid.tree = [16, 64]: unknown key\n  did you mean "trees"? Valid: trees',
        ),
        (
            'train = "own:fit"\ngrid = { version = [1, 2] }',
            "classifier.f.grid.version = [1, 2]: unknown key\n"
            "  it is no hparam, but a key of the table: version = 1; for several, give each a "
            "classifier of its own",
        ),
    ],
)
def test_what_code_does_not_take_is_told_with_what_it_takes(
    table: str, said: str, tmp_path: Path
) -> None:
    assert refused(tmp_path, table, "default" if "grid" not in table else "grid") == said
