"""What a reader must know of the numbers that are shown."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from manyseed import Sweep
from manyseed.analysis.counts import counted
from manyseed.analysis.options import Options
from manyseed.orchestrator.paths import SweepPaths
from manyseed.orchestrator.plans.plan import Plan
from manyseed.orchestrator.results.caveats import _what_to_do, guesses, of_columns, small_classes
from manyseed.orchestrator.results.testclasses import most_frequent
from tests.orchestrator.conftest import inside, train


def repeats(**smallest: list[int | None]) -> pl.DataFrame:
    """Two cells of each dataset on its test sets."""
    rows = [
        (dataset, index, points)
        for dataset, sizes in smallest.items()
        for _ in range(2)
        for index, points in enumerate(sizes)
    ]
    return pl.DataFrame(
        rows,
        schema={"dataset": pl.String, "repeat_index": pl.UInt16, "smallest_class": pl.UInt32},
        orient="row",
    )


def test_small_and_absent_classes_are_said_by_dataset() -> None:
    told = small_classes(repeats(wide=[10, 400], few=[3, 12, 9], none=[0, 40], old=[None]))
    assert [text.partition(":")[0] for text in told] == ["few", "none"]
    assert "has 3 points in a test set (fewer than 10 in 2 of 3 test sets)" in told[0]
    assert "no test point in 1 of 2 test sets" in told[1]
    assert small_classes(pl.DataFrame({"dataset": ["earlier"]})) == []


def test_no_calibration_error_is_shown_without_its_warning() -> None:
    assert of_columns(["accuracy", "piece"]) == []
    for name in ("ece", "ece_mean_sd"):
        assert "Do not choose runs by ece" in of_columns(["accuracy", name])[0]


@pytest.mark.parametrize(
    ("accuracy", "share", "said"),
    [
        ([0.247, 0.25, 0.245], 0.25, "no better than"),
        ([0.26, 0.25, 0.24], 0.248, "not told to be better than"),
        ([0.88, 0.87, 0.89], 0.9, "no better than"),
        ([0.9, 0.9, 0.9], 0.9, "no better than"),  # always that class
        ([0.26, 0.2601, 0.2602], 0.25, ""),  # a little better on each test set
        ([0.6, 0.25, 0.6], 0.25, ""),  # better by far, although the t test cannot tell
        ([0.247], 0.25, "no better than"),
        ([0.4], 0.25, ""),
    ],
)
def test_classifiers_that_guess_are_named(accuracy: list[float], share: float, said: str) -> None:
    index = range(len(accuracy))
    named = {"dataset": "d", "classifier": "c", "repeat_index": index}
    table = pl.DataFrame({**named, "cell": 0, "n_test": 200, "accuracy_mean": accuracy})
    told = guesses(table, pl.DataFrame({**named, "share": share}))
    assert [f"d × c: {said} the most frequent class, " in one for one, _ in told] == [True] * len(
        told
    )
    assert len(told) == bool(said)


@pytest.mark.parametrize(("epochs", "said"), [(0, ""), (3, "try epochs = 15."), (20, "")])
def test_a_network_that_guesses_after_few_epochs_is_told_so(epochs: int, said: str) -> None:
    named = {"dataset": "d", "classifier": "c", "repeat_index": range(3)}
    table = pl.DataFrame({**named, "cell": 0, "n_test": 200, "accuracy_mean": [0.25, 0.24, 0.26]})
    table = table.with_columns(epoch=pl.lit(epochs, pl.UInt32))
    ((_, text),) = guesses(table, pl.DataFrame({**named, "share": 0.25}))
    assert text.endswith(said or "in what the classifier returns.")


@pytest.mark.parametrize(("area", "said"), [(0.82, "curve 0.82)"), (0.5, "Check the labels")])
def test_scores_that_tell_classes_apart_are_no_matter_of_labels(area: float, said: str) -> None:
    """Of a frequent class, a good classifier may be right no more often than a constant."""
    named = {"dataset": "d", "classifier": "c", "repeat_index": range(3)}
    table = pl.DataFrame({**named, "cell": 0, "n_test": 200, "accuracy_mean": [0.78, 0.77, 0.79]})
    table = table.with_columns(roc_auc_mean=pl.lit(area))
    ((_, text),) = guesses(table, pl.DataFrame({**named, "share": 0.78}))
    assert said in text
    assert ("Check the labels" in text) == (area == 0.5)
    assert ("--columns balanced_accuracy" in text) == (area > 0.5)


NOISY = """
name = "noisy"
seed = 1
repeats = 2
[[grid]]
dataset = ["sklearn:iris"]
classifier = ["lr-sgd"]
perturb_labels = ["none", "flip:0.1"]
runs = 2
"""

TOLD = """
name = "told"
seed = 1
repeats = 2
runs = 2
[dataset.code]
source = "file:code.csv"
target = "outcome"
test = 0.25
[dataset.visits]
source = "file:visits.csv"
target = "outcome"
test = 0.25
[[grid]]
dataset = ["code", "visits"]
classifier = ["lr-sgd"]
"""


def test_answers_name_what_tells_too_much_and_who_guesses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    patient = rng.permutation(np.repeat(np.arange(80), 4))
    ill = rng.integers(0, 2, 80)[patient]
    base = {"dose": rng.normal(size=320), "outcome": np.where(ill == 1, "ill", "well")}
    pl.DataFrame({**base, "outcome_code": ill}).write_csv("code.csv")
    pl.DataFrame({**base, "patient": patient}).write_csv("visits.csv")
    (tmp_path / "s.toml").write_text(TOLD)
    sweep = train(tmp_path / "s.toml", tmp_path / "out")
    sweep.analyze(Options(resamples=4), workers=1)
    lines = inside("answers", sweep.directory)[1].splitlines()
    assert "code: outcome_code tells outcome by itself." in lines
    assert "visits: rows of one patient may be in both training part and test set." in lines
    guessing = [line for line in lines if "better than the most frequent class" in line]
    assert [line.partition(":")[0] for line in guessing] == ["visits × lr-sgd"]
    (tmp_path / "visits.csv").unlink()  # what is not there any more is not judged
    (sweep.directory / "results" / "answers.json").unlink()
    again = inside("answers", sweep.directory)[1]
    assert "outcome_code tells" in again
    assert "rows of one patient" not in again
    assert guessing[0] in again


def test_classifiers_that_guess_are_told_together() -> None:
    rows = [
        {
            "dataset": "d",
            "classifier": name,
            "cell": cell,
            "repeat_index": repeat,
            "accuracy_mean": right,
            "n_test": 100,
        }
        for cell, (name, right) in enumerate([("a", 0.5), ("b", 0.48), ("c", 0.9)])
        for repeat in range(3)
    ]
    table = pl.DataFrame(rows)
    share = table.select("dataset", "classifier", "repeat_index").with_columns(share=pl.lit(0.52))
    ((headline, text),) = guesses(table, share)
    told = "d × a, b: no better than the most frequent class, 0.480 to 0.500 against 0.520."
    assert headline == told
    assert text.startswith("d × a: no better than the most frequent class (0.500). ")
    assert "d × b: no better" in text


def test_cells_that_guess_are_counted_and_their_range_is_of_all() -> None:
    right = {"a": [0.841, 0.855, 0.95, 0.95], "b": [0.8225, 0.8267, 0.855, 0.95]}
    rows = [
        {
            "dataset": "d",
            "classifier": name,
            "cell": 4 * (name == "b") + number,
            "repeat_index": repeat,
            "accuracy_mean": value + 0.003 * (repeat - 1),
            "n_test": 200,
            "epoch": 8,
        }
        for name, values in right.items()
        for number, value in enumerate(values)
        for repeat in range(3)
    ]
    table = pl.DataFrame(rows)
    names = ["dataset", "classifier", "repeat_index"]
    share = table.select(names).unique().with_columns(share=pl.lit(0.85))
    ((headline, text),) = guesses(table, share)
    told = "not told to be better than the most frequent class"
    assert headline == f"d × a, b in 5 of 8 cells: {told}."
    assert f"d × a: {told} in 2 of 4 cells (0.841 to 0.855). Cell 0: 0.8410 of" in text
    assert f"d × b: {told} in 3 of 4 cells (0.823 to 0.855). Cell 4: 0.8225 of" in text
    assert "Its 8 epochs may" in text
    ((headline, _),) = guesses(table.filter(classifier="a"), share)
    assert headline == f"d × a in 2 of 4 cells: {told}."


def test_a_test_set_of_several_groups_counts_once(tmp_path: Path) -> None:
    (tmp_path / "s.toml").write_text(NOISY)
    sweep = train(tmp_path / "s.toml", tmp_path / "out")
    paths = SweepPaths(sweep.directory)
    found = most_frequent(paths, Plan.read(paths))
    assert found.select("classifier", "repeat_index").rows() == [("lr-sgd", 0), ("lr-sgd", 1)]


@pytest.mark.parametrize(
    ("n", "noun", "said"),
    [
        (1, "epoch", "1 epoch"),
        (8, "epoch", "8 epochs"),
        (2, "batch", "2 batches"),
        (2, "process", "2 processes"),
        (3, "set of hparams", "3 sets of hparams"),
    ],
)
def test_plurals(n: int, noun: str, said: str) -> None:
    assert counted(n, noun) == said


@pytest.mark.parametrize(("n", "said"), [(70, "; most frequent class 0.700."), (55, ".")])
def test_accuracies_are_told_beside_the_most_frequent_class(
    tmp_path: Path, n: int, said: str
) -> None:
    y_true = (np.arange(100) >= n).astype(np.int64)
    rng = np.random.default_rng(0)
    labels = np.where(rng.random((4, 100)) < 0.1, 1 - y_true, y_true)
    sweep = Sweep.from_predictions({"m": {"labels": labels, "y_true": y_true}}, tmp_path / "s")
    sweep.analyze()
    line = next(
        line for line in inside("answers", sweep.directory)[1].splitlines() if ": m 0." in line
    )
    assert line.endswith(said)
    assert ("most frequent" in line) is (n == 70)
    why = inside("answers", sweep.directory, "accuracy", "--why")[1]
    assert f"The most frequent class has {n / 100:.4f} of the test points." in " ".join(why.split())


def test_a_metric_is_proposed_in_a_command_that_one_classifier_is_enough_for(
    quick_analysed: Sweep,
) -> None:
    said = _what_to_do(pl.DataFrame({"cell": [0], "roc_auc_mean": [0.9]}), 0)
    proposed = said.partition("as in manyseed ")[2].removesuffix(".")
    words = proposed.replace("DIR", str(quick_analysed.directory)).split()
    code, text = inside(*words, "--where", "classifier = 'lr-sgd'", "--json")
    assert code == 0
    (row,) = json.loads(text)["rows"]
    assert 0.5 < row["balanced_accuracy_mean"] < 1
    assert 0 < row["balanced_accuracy_sd"] < 0.5
    assert _what_to_do(pl.DataFrame({"cell": [0]}), 0).startswith("Check the labels")
