"""Several classifiers in one file, and the probability of one of two classes."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from manyseed import Sweep
from tests.orchestrator.conftest import inside
from tests.orchestrator.importing.conftest import runs_of

POINTS = 90
NAMES = np.array(["ant", "bee", "cat"])


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def planted(models: int, classes: int = 3) -> tuple[Any, Any, Any]:
    """Return true classes, labels (model, point) and probabilities (model, point, class)."""
    rng = np.random.default_rng(7)
    y = rng.permutation(np.arange(POINTS) % classes)
    hit = rng.random((models, POINTS)) < np.linspace(0.9, 0.7, models)[:, None]
    label = np.where(hit, y, (y + rng.integers(1, classes, (models, POINTS))) % classes)
    p = rng.random((models, POINTS, classes)) + 2 * np.eye(classes)[label]
    return y, label, p / p.sum(axis=2, keepdims=True)


def followed(file: str) -> tuple[dict[str, list[float]], str]:
    """Import a file by the command that is proposed; return accuracies, and all that was said."""
    words, told = ["import", file, "--out", "made"], ""
    for _ in range(4):
        code, said = inside(*words)
        told += said
        if code == 0:
            break
        proposed = re.search(r"manyseed (import .*)", said)
        assert proposed, said
        words = shlex.split(proposed[1])
    assert code == 0, told
    found: dict[str, list[float]] = {}
    runs = runs_of(Sweep("made")).sort("classifier", "repeat_index", "run_index")
    for model, accuracy in runs.select("classifier", "accuracy").iter_rows():
        found.setdefault(model, []).append(accuracy)
    return found, told


@pytest.mark.parametrize("form", ["{}_pred", "pred_{}", "y_pred_{}", "{}"])
def test_labels_of_models_in_columns(form: str) -> None:
    y, label, _ = planted(3)
    models = ["rf", "svm", "xgb"]
    columns = {form.format(model): label[at] for at, model in enumerate(models)}
    pl.DataFrame({"id": np.arange(POINTS), "y_true": y, **columns}).write_csv("wide.csv")
    found, said = followed("wide.csv")
    assert found == {m: [pytest.approx((label[i] == y).mean())] for i, m in enumerate(models)}, said


@pytest.mark.parametrize("form", ["{0}_p_{1}", "p_{1}_{0}", "{0}_s{2}_p_{1}"])
def test_probabilities_of_models_in_columns(form: str) -> None:
    y, label, p = planted(4)
    of = [("rf", 0), ("rf", 1), ("xgb", 0), ("xgb", 1)]
    of = of if "{2}" in form else [("rf", 0), ("xgb", 0)]
    columns = {
        form.format(model, name, seed): p[at, :, place]
        for at, (model, seed) in enumerate(of)
        for place, name in enumerate(NAMES)
    }
    pl.DataFrame({"y_true": NAMES[y], **columns}).write_csv("wide.csv")
    found, said = followed("wide.csv")
    expected: dict[str, list[Any]] = {}
    for at, (model, _) in enumerate(of):
        expected.setdefault(model, []).append(pytest.approx((label[at] == y).mean()))
    assert found == expected, said
    assert "90 test points, 3 classes: ant, bee, cat" in said


@pytest.mark.parametrize("form", ["{}_probs", "probs_{}", "{}"])
@pytest.mark.parametrize("has_runs", [True, False])
def test_entries_of_models(form: str, *, has_runs: bool) -> None:
    y, label, p = planted(4)
    given = (p[:2], p[2:]) if has_runs else (p[0], p[2])
    own = (label[:2], label[2:]) if has_runs else (label[:1], label[2:3])
    entries = {form.format(model): each for model, each in zip(("cnn", "mlp"), given, strict=True)}
    np.savez("all.npz", y=y, **entries)
    found, said = followed("all.npz")
    expected = [[pytest.approx((run == y).mean()) for run in each] for each in own]
    assert [found["cnn"], found["mlp"]] == expected, said


def test_a_model_without_all_classes_is_not_dropped() -> None:
    y, _, p = planted(2)
    columns = {f"a_p_{name}": p[0, :, at] for at, name in enumerate(NAMES)}
    columns |= {f"b_p_{name}": p[1, :, at] for at, name in enumerate(NAMES[:2])}
    pl.DataFrame({"truth": NAMES[y], **columns}).write_csv("wide.csv")
    form = "confidence={classifier}_p_{class}"
    code, said = inside("import", "wide.csv", "--out", "no", "--columns", form)
    assert (code, "b_p_ant, b_p_bee are not of all classes" in said) == (2, True), said
    assert not Path("no").exists()


def test_models_are_named_once() -> None:
    y, label, _ = planted(2)
    pl.DataFrame({"truth": y, "a_pred": label[0], "b_pred": label[1]}).write_csv("wide.csv")
    given = ("--columns", "prediction={classifier}_pred", "--classifier", "c")
    code, said = inside("import", "wide.csv", "--out", "no", *given)
    assert (code, "names classifiers, which are given otherwise" in said) == (2, True), said


@pytest.mark.parametrize(
    ("column", "names", "option"),
    [
        ("p", ["no", "yes"], "confidence.yes=p"),
        ("prob", ["0", "1"], "confidence.1=prob"),
        ("p_cat", ["cat", "dog"], "confidence.cat=p_cat"),
    ],
)
def test_the_probability_of_one_of_two_classes(column: str, names: list[str], option: str) -> None:
    y, label, p = planted(1, 2)
    of = 0 if column == "p_cat" else 1
    pl.DataFrame({"y_true": np.array(names)[y], column: p[0, :, of]}).write_csv("two.csv")
    found, said = followed("two.csv")
    assert found == {"imported": [pytest.approx((label[0] == y).mean())]}, said
    assert option in said
    is_told = f"{column} is read as the probability of class "
    assert said.count(is_told) == 1, said


def test_a_column_of_one_class_for_each_run() -> None:
    y, label, p = planted(3, 2)
    runs = {f"seed{seed}": p[seed, :, 1] for seed in range(3)}
    pl.DataFrame({"y_true": y, **runs}).write_csv("two.csv")
    found, said = followed("two.csv")
    assert found == {"imported": [pytest.approx((each == y).mean()) for each in label]}, said


def test_the_probability_of_the_other_class_is_told() -> None:
    y, _, p = planted(1, 2)
    pl.DataFrame({"truth": y, "p": p[0, :, 0]}).write_csv("two.csv")
    _, said = followed("two.csv")
    assert "in the order 1, 0" in said
    assert "--columns confidence.0=p" in said


def test_the_probability_of_one_of_three_classes_is_refused() -> None:
    y, _, p = planted(1)
    pl.DataFrame({"truth": NAMES[y], "p": p[0, :, 0]}).write_csv("three.csv")
    code, said = inside("import", "three.csv", "--out", "no", "--columns", "confidence.ant=p")
    assert (code, "true classes are ant, bee, cat" in said) == (2, True), said


def test_missing_labels_of_numbers_are_refused() -> None:
    y, label, _ = planted(1)
    truth = y.astype(float)
    truth[3] = np.nan
    pl.DataFrame({"truth": truth, "prediction": label[0].astype(float)}).write_csv("nan.csv")
    code, said = inside("import", "nan.csv", "--out", "no")
    assert (code, "truth: has missing values" in said) == (2, True), said


@pytest.mark.parametrize("form", ["fold{f}_seed{s}", "fold{f}/seed{s}", "seed{s}/fold{f}"])
def test_folds_are_test_sets(form: str) -> None:
    expected = []
    for fold in range(3):
        y, label, p = planted(2)
        order = np.random.default_rng(fold).permutation(POINTS)
        for seed in range(2):
            file = Path("cv") / f"{form.format(f=fold, s=seed)}.npz"
            file.parent.mkdir(parents=True, exist_ok=True)
            scores = np.log(p[seed])[order][: POINTS // 2]
            np.savez(file, scores=scores, y_true=y[order][: POINTS // 2])
            right = (label[seed] == y)[order][: POINTS // 2]
            expected.append(pytest.approx(right.mean()))
    found, said = followed("cv")
    assert sorted(found["imported"]) == sorted(expected, key=lambda each: each.expected), said
    name = form.format(f="{fold}", s="{run}") + ".npz"
    code, said = inside("import", "cv", "--out", "again", "--name", name)
    assert code == 0, said
    assert runs_of(Sweep("again")).height == 6


def test_folders_that_are_numbers_are_runs() -> None:
    y, label, _ = planted(2)
    for at, seed in enumerate((42, 7)):
        (Path("lab") / str(seed)).mkdir(parents=True)
        np.savez(f"lab/{seed}/preds.npz", labels=label[at], y_true=y)
    found, said = followed("lab")
    right = [(each == y).mean() for each in label]
    assert found == {"imported": [pytest.approx(right[1]), pytest.approx(right[0])]}, said
