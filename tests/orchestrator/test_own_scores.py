"""Users' code whose scores are not what its table says they are."""

from __future__ import annotations

from pathlib import Path

import pytest

from manyseed.orchestrator.plans.planning import plan_change
from manyseed.orchestrator.progress.logs import failures
from tests.orchestrator.conftest import inside, train, write

SWEEP = """
name = "scores"
seed = 1
repeats = 1
runs = 2
[[grid]]
dataset = ["sklearn:DATASET"]
classifier = ["mine"]
[classifier.mine]
"""
OF_EACH = """
def fit(X_test, n_classes, batch):
    return batch.dirichlet([1] * n_classes, size=len(X_test))
"""
OF_SECOND = "def fit(X_test, batch): return batch.random(len(X_test))"
AS_COLUMN = "def fit(X_test, batch): return batch.random((len(X_test), 1))"
LABELS = """
import sys, numpy as np
rng = np.random.default_rng(int(sys.argv[1]))
np.save(sys.argv[3], rng.integers(0, 2, len(np.load(sys.argv[2])["X"])))
"""
SOFTMAX = """
from torch import nn
def fit(shape, n_classes):
    return nn.Sequential(nn.Linear(shape[0], n_classes), nn.Softmax(dim=1))
"""
FUNCTION = 'train = "mycode:fit"\n'
COMMAND = 'command = "python mycode.py {seed} {test} {out} {train}"\n'


def project(folder: Path, dataset: str, code: str, table: str) -> Path:
    (folder / "mycode.py").write_text(code)
    return write(folder / "scores.toml", SWEEP.replace("DATASET", dataset) + table)


REFUSED = {
    "each class": ("wine", OF_EACH, FUNCTION, "fit returned probabilities, not logits"),
    "said to be logits": (
        "wine",
        OF_EACH,
        FUNCTION + 'scores = "logits"',
        "fit returned probabilities, not logits",
    ),
    "two columns": ("breast_cancer", OF_EACH, FUNCTION, "fit returned probabilities, not logits"),
    "second class": ("breast_cancer", OF_SECOND, FUNCTION, "every score of a probe lies in 0 to 1"),
    "a column": ("breast_cancer", AS_COLUMN, FUNCTION, "every score of a probe lies in 0 to 1"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_probabilities_are_not_taken_for_logits(tmp_path: Path, case: str) -> None:
    dataset, code, table, told = REFUSED[case]
    file = project(tmp_path, dataset, code, table)
    ended, printed = inside("plan", file, "--out", tmp_path / "sweep")
    assert ended == 2, printed
    assert told in " ".join(printed.split())
    assert 'scores = "probabilities"' in " ".join(printed.split())
    assert "classifier.mine" in printed
    assert not (tmp_path / "sweep").exists()


OF_LABELS = "def fit(X_test, batch): return batch.integers(0, 2, len(X_test))"


def test_labels_are_not_taken_for_scores(tmp_path: Path) -> None:
    file = project(tmp_path, "breast_cancer", OF_LABELS, FUNCTION)
    ended, printed = inside("plan", file, "--out", tmp_path / "sweep")
    said = " ".join(printed.split())
    assert (ended, "every score of a probe is 0 or 1, as labels are" in said) == (2, True), said
    assert "return one for each class" in said
    file = project(tmp_path, "breast_cancer", OF_LABELS, FUNCTION + 'scores = "decisions"')
    (note,) = (
        one for one in plan_change(file, tmp_path / "s").summary()["notes"] if "0 or 1" in one
    )
    assert note.endswith("though they are said to be decisions")


WRITES = """
import sys, numpy as np
n = len(np.load(sys.argv[2])["X"])
rng = np.random.default_rng(int(sys.argv[1]))
np.save(sys.argv[3], {what})
"""
OF_THREE = WRITES.format(what="rng.integers(0, 3, n)")
DRAWN = WRITES.format(what="rng.dirichlet(np.ones(3), n)")
NORMAL = WRITES.format(what="rng.normal(size=(n, 3))")
UNSURE = WRITES.format(what="rng.random(n)")


@pytest.mark.parametrize(
    ("dataset", "code", "scores", "told", "remedy"),
    [
        (
            "breast_cancer",
            LABELS,
            "",
            "every score of a probe is 0 or 1, as labels",
            "add to labels",
        ),
        ("wine", OF_THREE, "", "a score for each class, not labels", "add to labels"),
        ("wine", OF_THREE, "probabilities", "each class, not labels", "change in labels"),
        ("wine", DRAWN, "labels", "returned scores of shape", "change in probabilities"),
        ("wine", NORMAL, "labels", "returned scores of shape", "change in logits"),
        ("breast_cancer", UNSURE, "labels", "scores of shape", "change in probabilities"),
    ],
)
def test_labels_and_scores_of_a_command_are_told_apart(
    tmp_path: Path, dataset: str, code: str, scores: str, told: str, remedy: str
) -> None:
    file = project(tmp_path, dataset, code, COMMAND + f'scores = "{scores}"\n' * bool(scores))
    ended, printed = inside("plan", file, "--out", tmp_path / "sweep")
    said = " ".join(printed.split())
    assert (ended, told in said) == (2, True), said
    step, _, right = remedy.rpartition(" ")
    assert f'{step} [classifier.mine]: scores = "{right}"' in said
    assert not (tmp_path / "sweep").exists()


OF_ONE = """
import numpy as np
def fit(X_test, batch): return np.eye(3)[batch.integers(0, 3, len(X_test))]
"""


@pytest.mark.parametrize(
    ("dataset", "code", "table", "remedy"),
    [
        ("breast_cancer", LABELS, COMMAND, 'scores = "labels"'),
        ("breast_cancer", OF_LABELS, FUNCTION, 'scores = "decisions"'),
        ("wine", OF_ONE, FUNCTION, 'scores = "decisions"'),
    ],
)
def test_labels_that_are_said_to_be_probabilities_have_a_note(
    tmp_path: Path, dataset: str, code: str, table: str, remedy: str
) -> None:
    file = project(tmp_path, dataset, code, table + 'scores = "probabilities"')
    notes = plan_change(file, tmp_path / "sweep").summary()["notes"]
    (note,) = (one for one in notes if "every probability of a probe is 0 or 1" in one)
    assert remedy in note


@pytest.mark.parametrize(
    ("code", "table"),
    [
        (OF_SECOND, FUNCTION + 'scores = "logits"'),
        (OF_SECOND, FUNCTION + 'scores = "decisions"'),
        (UNSURE, COMMAND + 'scores = "decisions"'),
    ],
    ids=["logits", "decisions", "command"],
)
def test_what_the_table_says_of_two_classes_is_believed_with_a_note(
    tmp_path: Path, code: str, table: str
) -> None:
    file = project(tmp_path, "breast_cancer", code, table)
    notes = plan_change(file, tmp_path / "sweep").summary()["notes"]
    assert any("every score of a probe lies in 0 to 1" in note for note in notes)


@pytest.mark.parametrize(
    ("dataset", "code", "table"),
    [
        ("wine", OF_EACH, FUNCTION + 'scores = "probabilities"'),
        ("breast_cancer", OF_SECOND, FUNCTION + 'scores = "probabilities"'),
        ("breast_cancer", LABELS, COMMAND + 'scores = "labels"'),
    ],
    ids=["each", "second", "labels"],
)
def test_scores_of_the_kind_that_the_table_says_have_no_note(
    tmp_path: Path, dataset: str, code: str, table: str
) -> None:
    file = project(tmp_path, dataset, code, table)
    notes = plan_change(file, tmp_path / "sweep").summary()["notes"]
    assert not any("probabilities" in note for note in notes)


@pytest.mark.parametrize("dataset", ["wine", "breast_cancer"])
def test_a_module_that_ends_in_a_softmax_has_a_note(tmp_path: Path, dataset: str) -> None:
    told = "returns probabilities, but is trained as if they were logits"
    file = project(tmp_path, dataset, SOFTMAX, 'module = "mycode:fit"\nepochs = 1')
    notes = plan_change(file, tmp_path / "sweep").summary()["notes"]
    assert any(told in note for note in notes)
    (tmp_path / "mycode.py").write_text(SOFTMAX.replace(", nn.Softmax(dim=1)", ""))
    notes = plan_change(file, tmp_path / "sweep").summary()["notes"]
    assert not any(told in note for note in notes)


def test_a_run_fails_whose_code_was_not_probed(tmp_path: Path) -> None:
    file = project(tmp_path, "wine", OF_EACH, FUNCTION + "probe = false")
    sweep = train(file, tmp_path / "sweep")
    (told,) = failures(sweep.paths)
    assert "fit returned probabilities, not logits" in told.error
    assert sweep.status()["runs"]["done"] == 0
