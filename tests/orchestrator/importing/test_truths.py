"""True classes in a file beside predictions: proposed with their path, never taken for a run."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from manyseed import Sweep
from tests.orchestrator.conftest import command, inside
from tests.orchestrator.importing.conftest import runs_of

Y = np.random.default_rng(0).integers(0, 3, 40)
RUNS = range(3)


def label(seed: int) -> np.ndarray:
    draws = np.random.default_rng(10 + seed)
    return np.where(draws.random(len(Y)) < 0.3, (Y + 1) % 3, Y)


def predicted(folder: Path, kind: str, number: int = 0) -> None:
    folder.mkdir(parents=True)
    for seed in RUNS:
        labels, file = label(10 * number + seed), folder / f"seed{seed}.{kind}"
        if kind == "npy":
            np.save(file, labels)
        elif kind == "npz":
            np.savez(file, labels=labels)
        else:
            pl.DataFrame({"prediction": labels}).write_csv(file)


def true(file: Path) -> None:
    if file.suffix == ".npy":
        np.save(file, Y)
    elif file.suffix == ".npz":
        np.savez(file, **{file.stem: Y})
    else:
        pl.DataFrame({file.stem: Y}).write_csv(file)


@pytest.mark.parametrize("where", ["in the folder", "above it", "beside folders"])
@pytest.mark.parametrize(
    ("kind", "name"),
    [("npy", "y_test.npy"), ("npz", "targets.npz"), ("csv", "labels.npy"), ("npy", "gold.csv")],
)
def test_true_classes_beside_are_proposed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str, kind: str, name: str
) -> None:
    monkeypatch.chdir(tmp_path)
    given, n_models = ["runs"], 1
    if where == "beside folders":
        given += ["--name", f"{{classifier}}/seed{{run}}.{kind}"]
        n_models = 2
        for number, model in enumerate(("cnn", "vit")):
            predicted(Path("runs", model), kind, number)
    else:
        predicted(Path("runs"), kind)
    beside = Path(name) if where == "above it" else Path("runs", name)
    true(beside)
    done = command("import", *given, "--out", "sweep")
    if done.returncode:
        assert done.returncode == 2
        words = shlex.split(re.findall("manyseed (import .*)", done.stderr)[0])
        assert words[words.index("--truth") + 1] == str(beside)
        assert not Path("sweep").exists()
        assert command(*words).returncode == 0
    else:  # what is called so for certain, in the folder itself, is read without being asked
        assert where != "above it"
        assert name != "labels.npy"
        assert f"{name} is read as the true classes" in done.output
    runs = runs_of(Sweep("sweep")).sort("classifier", "run_index")
    expected = [np.mean(label(10 * at + seed) == Y) for at in range(n_models) for seed in RUNS]
    assert runs["accuracy"].to_list() == pytest.approx(expected)


def test_files_that_hold_predictions_are_runs_whatever_they_are_called(tmp_path: Path) -> None:
    for number, name in enumerate(("labels", "seed1")):
        np.savez(tmp_path / f"{name}.npz", labels=label(number)[None], y_true=Y)
    done = command("import", tmp_path, "--out", tmp_path / "sweep")
    assert "Imported 2 runs" in done.stdout, done.output


def of_lengths(folder: Path, kind: str, odd: int, *, with_truth: bool) -> None:
    """Write four files of predictions, one of them of fewer points."""
    folder.mkdir()
    for seed in range(4):
        n = 35 if seed == odd else len(Y)
        labels, y = label(seed)[:n], Y[:n]
        if kind == "csv":
            table = {"prediction": labels} | ({"truth": y} if with_truth else {})
            pl.DataFrame(table).write_csv(folder / f"seed{seed}.csv")
        else:
            table = {"labels": labels} | ({"y_true": y} if with_truth else {})
            np.savez(folder / f"seed{seed}.npz", **table)


@pytest.mark.parametrize("with_truth", [True, False])
@pytest.mark.parametrize("odd", [0, 1, 2])
@pytest.mark.parametrize("kind", ["npz", "csv"])
def test_the_file_of_other_points_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, odd: int, *, with_truth: bool
) -> None:
    monkeypatch.chdir(tmp_path)
    of_lengths(Path("runs"), kind, odd, with_truth=with_truth)
    np.save("y.npy", Y)
    given = () if with_truth else ("--truth", "y.npy")
    done = command("import", "runs", "--out", "sweep", *given)
    assert done.returncode == 2
    assert done.stderr.startswith(f"error: runs/seed{odd}.{kind}: "), done.stderr


@pytest.mark.parametrize("truth", ["y.npy", "y.npz", "y.csv"])
@pytest.mark.parametrize("kind", ["npz", "csv"])
def test_true_classes_of_other_points_than_all_runs_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, truth: str
) -> None:
    monkeypatch.chdir(tmp_path)
    of_lengths(Path("runs"), kind, -1, with_truth=False)
    np.save("y.npy", Y[1:])
    np.savez("y.npz", y_true=Y[1:])
    pl.DataFrame({"y": Y[1:]}).write_csv("y.csv")
    done = command("import", "runs", "--out", "sweep", "--truth", truth)
    assert done.returncode == 2
    said = f"error: {truth}: --truth: holds 39 true classes, but seed0.{kind} predicts 40 points"
    assert said in done.stderr


def shuffled(file: Path, true: Path, seed: int) -> float:
    """Save a run and its true classes in an order of its own; return its accuracy."""
    order = np.random.default_rng(100 + seed).permutation(len(Y))
    file.parent.mkdir(parents=True, exist_ok=True)
    if file.suffix == ".npy":
        np.save(file, label(seed)[order])
    else:
        pl.DataFrame({"prediction": label(seed)[order]}).write_csv(file)
    np.save(true, Y[order])
    return float(np.mean(label(seed) == Y))


@pytest.mark.parametrize("kind", ["npy", "csv"])
@pytest.mark.parametrize("name", ["y_true", "labels"])
def test_true_classes_beside_each_run_are_not_ignored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, name: str
) -> None:
    monkeypatch.chdir(tmp_path)
    for at, model in enumerate("AB"):
        for seed in RUNS:
            folder = Path("tree", model, f"{100 + seed}")
            shuffled(folder / f"preds.{kind}", folder / f"{name}.npy", 10 * at + seed)
    given = ("import", "tree", "--name", f"{{classifier}}/{{run}}/preds.{kind}", "--out", "sweep")
    one = f"tree/A/100/{name}.npy"
    refused = command(*given, "--truth", one)
    assert refused.returncode == 2
    assert f"{one}: --truth: 5 files {name}.npy beside the predictions differ" in refused.stderr
    for words in (given, ("import", "tree", "--out", "sweep")):
        refused = command(*words)
        what = "in another order" if kind == "npy" else "has other rows or true classes"
        assert (refused.returncode, what in refused.stderr) == (2, True), refused.stderr
    assert not Path("sweep").exists()


@pytest.mark.parametrize("form", ["tree/{}/preds.npy", "flat/seed{}_preds.npy"])
def test_runs_with_true_classes_of_their_own_are_test_sets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    monkeypatch.chdir(tmp_path)
    files = [Path(form.format(seed)) for seed in (98, 99, 100)]
    accuracies = [
        shuffled(file, Path(str(file).replace("preds", "y_true")), seed)
        for seed, file in enumerate(files)
    ]
    top = form.partition("/")[0]
    refused = command("import", top, "--out", "sweep")
    assert refused.returncode == 2
    assert "has the classes of" in refused.stderr
    assert "each file is a test set: manyseed import" in refused.stderr
    words = shlex.split(re.findall("manyseed (import .*)", refused.stderr)[0])
    assert command(*words).returncode == 0
    runs = runs_of(Sweep("sweep")).sort("repeat_index")
    assert runs["accuracy"].to_list() == pytest.approx(accuracies)
    one = str(files[0]).replace("preds", "y_true")
    refused = command("import", top, "--truth", one, "--out", "new", *words[4:])
    assert "2 files" in refused.stderr
    assert "beside the predictions differ" in refused.stderr
    assert not Path("new").exists()


def test_labels_beside_scores_that_are_predicted_are_no_truth(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    np.save("y.npy", Y)
    for seed in RUNS:
        folder = Path("tree", str(seed))
        shuffled(folder / "preds.npy", folder / "labels.npy", seed)
        np.save(folder / "preds.npy", label(seed))
        np.save(folder / "labels.npy", label(seed))
    given = ("import", "tree", "--name", "{run}/preds.npy", "--truth", "y.npy", "--out", "sweep")
    assert command(*given).returncode == 0


@pytest.mark.parametrize("options", [(), ("--truth", "lab/seed_0/y_true.npy")])
def test_a_run_that_lacks_its_own_true_classes_is_not_given_those_of_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...]
) -> None:
    monkeypatch.chdir(tmp_path)
    draws = np.random.default_rng(0)
    for seed in range(4):
        folder = Path("lab") / f"seed_{seed}"
        folder.mkdir(parents=True)
        np.save(folder / "preds.npy", draws.integers(0, 3, 50))
        if seed != 2:
            np.save(folder / "y_true.npy", draws.integers(0, 3, 50))
    done = command("import", "lab", "--out", "s", "--name", "seed_{run}/preds.npy", *options)
    assert done.returncode == 2
    said = " ".join(done.output.split())
    assert "lab/seed_2/preds.npy: has no true classes beside it; others have y_true.npy" in said
    assert "add its y_true.npy, or import the others without it" in said
    assert not Path("s").exists()


@pytest.mark.parametrize("own", ["y_test.npy", "gold.npy", "targets.npz"])
@pytest.mark.parametrize("is_folder", [True, False])
def test_true_classes_are_found_with_the_name_that_is_proposed(
    tmp_path: Path, own: str, *, is_folder: bool
) -> None:
    folder = tmp_path / "files"
    folder.mkdir()
    true = np.arange(30) % 3
    for number in (1, 4, 9):
        np.save(folder / f"run_seed{number}.npy", np.where(np.arange(30) % 7 < number % 7, 0, true))
    (np.savez if own.endswith("npz") else np.save)(folder / own, true)
    given = [folder] if is_folder else sorted(folder.iterdir())
    words = ("import", *given, "--dataset", "mine", "--out")
    code, said = inside(*words, tmp_path / "first")
    assert code == 0, said
    found = re.search("To keep those: (.*)", said)
    assert found is not None
    code, said = inside(*words, tmp_path / "second", *shlex.split(found[1]))
    assert code == 0, said
    assert f"{own} is read as the true classes" in said
    assert "was not read" not in said
    runs = Sweep(tmp_path / "second").runs("mine", "imported")
    assert sorted(runs.run_index.values.tolist()) == [1, 4, 9]


def test_files_that_may_be_predicted_are_not_taken_as_true_classes_with_a_name(
    tmp_path: Path,
) -> None:
    for number in (1, 4):
        np.save(tmp_path / f"run_seed{number}.npy", np.arange(30) % 3)
    np.save(tmp_path / "labels.npy", np.arange(30) % 3)
    words = ("import", tmp_path, "--name", "run_seed{run}.npy", "--out", tmp_path / "out")
    code, said = inside(*words)
    assert (code, "--truth" in said) == (2, True), said
