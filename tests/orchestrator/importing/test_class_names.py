"""Names of classes that are given apart from scores: by an option, or in files beside these."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from manyseed.orchestrator.errors import UserError
from manyseed.orchestrator.importing.classes import require_one_order
from tests.orchestrator.conftest import inside

NAMES = ["no finding", "Hund", "Ähre", "Katze"]
Y = np.random.default_rng(0).integers(0, 4, 80)
TRUE = np.array(NAMES)[Y]
RUNS = range(3)


def shares(seed: int) -> np.ndarray:
    logits = np.random.default_rng(seed).normal(size=(80, 4)) + 2 * np.eye(4)[Y]
    return np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)


ACCURACIES = [float((shares(seed).argmax(axis=1) == Y).mean()) for seed in RUNS]


def saved(folder: Path) -> Path:
    folder.mkdir()
    for seed in RUNS:
        np.save(folder / f"seed{seed}.npy", shares(seed))
    return folder


SPAN = f"3 runs, accuracy {min(ACCURACIES):.3f} to {max(ACCURACIES):.3f}"


@pytest.mark.parametrize("entry", ["class_names", "classes"])
def test_names_of_classes_in_a_file_of_true_classes_are_used(tmp_path: Path, entry: str) -> None:
    runs, truth = saved(tmp_path / "runs"), tmp_path / "t.npz"
    np.savez(truth, y_true=TRUE, **{entry: NAMES})
    words = ["--probabilities", "--truth", truth]
    code, said = inside("import", runs, "--out", tmp_path / "out", *words)
    assert (code, SPAN in said, "in the order" in said) == (0, True, False), said


def test_what_else_a_file_of_true_classes_holds_is_used_or_told(tmp_path: Path) -> None:
    runs, truth = saved(tmp_path / "runs"), tmp_path / "t.npz"
    ids = np.array([f"IMG_{7 * place % 80:03}" for place in range(80)])
    np.savez(truth, y_true=TRUE, class_names=NAMES, test_index=ids, hospital=np.arange(80))
    words = ["--probabilities", "--truth", truth]
    code, said = inside("import", runs, "--out", tmp_path / "out", *words)
    assert code == 0
    assert "t.npz: entry hospital was not read." in said
    (of_points,) = Path(tmp_path, "out", "plan", "points").glob("*.parquet")
    assert {*ids} == {*pl.read_parquet(of_points).to_series(-1)}


def test_names_of_classes_are_given_once(tmp_path: Path) -> None:
    runs, truth = saved(tmp_path / "runs"), tmp_path / "t.npz"
    np.savez(truth, y_true=TRUE, class_names=NAMES)
    words = ["--probabilities", "--truth", truth, "--classes", "Hund,Katze,no finding,Ähre"]
    code, said = inside("import", runs, "--out", tmp_path / "out", *words)
    assert code == 2
    assert "class_names: has no finding, Hund" in said
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("form", ["names", "txt", "json", "npy", "index by name", "name by index"])
def test_classes_are_named_in_an_option_or_a_file_of_it(tmp_path: Path, form: str) -> None:
    runs, truth = saved(tmp_path / "runs"), tmp_path / "t.csv"
    pl.DataFrame({"y_true": TRUE}).write_csv(truth)
    given = "no finding, Hund,Ähre,Katze"
    if form != "names":
        given = str(tmp_path / f"order.{form if form in ('txt', 'npy') else 'json'}")
        held: object = NAMES
        if form == "index by name":
            held = {name: at for at, name in reversed([*enumerate(NAMES)])}
        elif form == "name by index":
            held = dict(enumerate(NAMES))
        if form == "npy":
            np.save(given, NAMES)
        else:
            text = "\n".join(NAMES) if form == "txt" else json.dumps(held)
            Path(given).write_text(text, encoding="utf-8")
    words = ["--probabilities", "--truth", truth, "--classes", given]
    code, said = inside("import", runs, "--out", tmp_path / "out", *words)
    assert code == 0, said
    assert "4 classes: no finding, Hund, Ähre, Katze" in said
    assert SPAN in said


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ("Hund", "must name each class once"),
        ("Hund,Hund,Ähre", "must name each class once"),
        ("none.txt", "there is no such file"),
        ("a,b,c", "there are 3 classes, but scores for 4"),
    ],
)
def test_wrong_names_of_classes_are_refused(tmp_path: Path, given: str, problem: str) -> None:
    runs, truth = saved(tmp_path / "runs"), tmp_path / "t.npy"
    np.save(truth, Y)
    words = ["--probabilities", "--truth", truth, "--classes", given]
    code, said = inside("import", runs, "--out", tmp_path / "out", *words)
    assert (code, problem in said) == (2, True), said
    assert not (tmp_path / "out").exists()


def test_classes_are_not_named_so_for_tables(tmp_path: Path) -> None:
    table = tmp_path / "a.csv"
    pl.DataFrame({"truth": TRUE, "prediction": TRUE[::-1]}).write_csv(table)
    code, said = inside("import", table, "--out", tmp_path / "out", "--classes", "a,b")
    assert code == 2
    assert "--classes: is for NPZ, NPY and PyTorch files" in said


@pytest.mark.parametrize(
    ("where", "name"),
    [
        ("in the folder", "class_names.npy"),
        ("in the folder", "labels.txt"),
        ("above it", "classes.json"),
        ("above it", "class_names.txt"),
        ("named one by one", "class_names.npy"),
    ],
)
def test_files_of_names_beside_predictions_are_proposed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str, name: str
) -> None:
    monkeypatch.chdir(tmp_path)
    runs = saved(Path("runs"))
    np.save("runs/y_true.npy", TRUE)
    file = Path(name) if where == "above it" else runs / name
    if name.endswith("npy"):
        np.save(file, NAMES)
    else:
        text = json.dumps(NAMES) if name.endswith("json") else "\n".join(NAMES)
        file.write_text(text, encoding="utf-8")
    given: list[object] = [runs]
    if where == "named one by one":
        given = [*sorted(runs.glob("*.npy")), "--dataset", "runs"]
    code, said = inside("import", *given, "--out", "out")
    assert code == 2, said
    words = shlex.split(re.findall("manyseed (import .*)", said)[0])
    assert words[words.index("--classes") + 1] == str(file)
    assert not Path("out").exists()
    code, said = inside(
        *(one for word in words for one in (sorted(Path().glob(word)) if "*" in word else [word]))
    )
    assert code == 0, said
    assert SPAN in said


def test_files_of_names_in_two_orders_are_refused(tmp_path: Path) -> None:
    runs = saved(tmp_path / "runs")
    np.save(runs / "y_true.npy", TRUE)
    (runs / "classes.json").write_text(json.dumps(NAMES))
    (runs / "labels.txt").write_text("\n".join(sorted(NAMES)), encoding="utf-8")
    code, said = inside("import", runs, "--out", tmp_path / "out", "--probabilities")
    assert code == 2
    assert "names classes in another order than" in said


def test_a_file_of_other_names_is_told(tmp_path: Path) -> None:
    runs = saved(tmp_path / "runs")
    np.save(runs / "y_true.npy", Y)
    np.save(runs / "class_names.npy", ["a", "b", "c"])
    code, said = inside("import", runs, "--out", tmp_path / "out", "--probabilities")
    assert code == 0, said
    assert "class_names.npy in" in said
    assert "holds names of other classes, and was not read" in " ".join(said.split())


@pytest.mark.parametrize(
    ("names", "certain"),
    [
        (["Hund", "Katze", "no finding", "Ähre"], False),
        (["Zug", "Øl"], False),
        (["eau", "zoo", "été"], False),
        (["Ähre", "Äpfel"], True),
        (["Hund", "Katze", "Vogel"], True),
    ],
)
def test_letters_with_marks_make_the_order_of_classes_uncertain(
    names: list[str], *, certain: bool
) -> None:
    if certain:
        require_one_order(names, "y_true", Path("a.npz"))
        return
    with pytest.raises(UserError, match="order is not certain") as raised:
        require_one_order(names, "y_true", Path("a.npz"))
    assert "--classes" in str(raised.value)


def test_arrays_in_folders_with_true_classes_and_names_above_have_one_whole_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("probs").mkdir()
    saved(Path("probs", "cnn"))
    ids = [f"IMG_{7 * place % 80:03}.jpg" for place in range(80)]
    pl.DataFrame({"image": ids, "label": TRUE}).write_csv("truth.csv")
    Path("class_names.txt").write_text("\n".join(NAMES), encoding="utf-8")
    code, said = inside("import", "probs", "--out", "out")
    assert code == 2
    assert "which must be that of the predictions, and not image" in said
    words = shlex.split(re.findall("manyseed (import .*)", said)[0])
    assert {"--name", "--truth", "--key", "--classes", "--probabilities"} <= {*words}
    code, said = inside(*words)
    assert (code, SPAN in said) == (0, True), said


def test_where_true_classes_are_lacking_the_command_has_all_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("probs").mkdir()
    saved(Path("probs", "cnn"))
    code, said = inside("import", "probs", "--out", "out")
    assert code == 2
    words = shlex.split(re.findall("manyseed (import .*)", said)[0])
    assert words[words.index("--truth") + 1] == "FILE"
    np.save("y.npy", Y)
    code, said = inside(*(word.replace("FILE", "y.npy") for word in words))
    assert (code, SPAN in said) == (0, True), said
