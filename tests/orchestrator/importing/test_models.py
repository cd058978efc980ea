"""Files whose names tell models apart, tables with a column a run, logits in tables."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from manyseed.orchestrator.importing.filenames import form_of_one, form_of_tree, models_apart
from manyseed.orchestrator.sweep import Sweep
from tests.orchestrator.conftest import inside
from tests.orchestrator.importing.conftest import runs_of

SAMPLES, RUNS = 60, 3
CLASSES = np.array(["ant", "bee", "cat"])
Y = np.random.default_rng(0).permutation(np.arange(SAMPLES) % len(CLASSES))


def predicted(n_wrong: int) -> np.ndarray:
    label = Y.copy()
    label[:n_wrong] = (label[:n_wrong] + 1) % len(CLASSES)
    return label


def accuracies(sweep: Path) -> dict[str, list[float]]:
    runs = runs_of(Sweep(sweep))
    return {
        str(name): part["accuracy"].sort().to_list()
        for (name,), part in runs.group_by("classifier")
    }


def followed(*given: object) -> Path:
    """Import as the first refusal proposes."""
    code, said = inside("import", *given, "--out", "refused")
    assert (code, Path("refused").exists()) == (2, False), said
    line = re.findall(r"manyseed import (.*)", said)[0]
    words = ["made" if word == "refused" else word for word in shlex.split(line)]
    code, said = inside("import", *words)
    assert code == 0, said
    return Path("made")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(
    "models", [("cnn", "mlp"), ("resnet18", "resnet50"), ("vit-b16", "vit-l16")]
)
@pytest.mark.parametrize("form", ["{}.npz", "preds_{}.npz", "{}_seed0.npz", "{}/preds.npz"])
def test_a_file_for_each_model(form: str, models: tuple[str, ...]) -> None:
    wrong = {models[0]: 6, models[1]: 12}
    files = []
    for model, n in wrong.items():
        files.append(Path("lab") / form.format(model))
        files[-1].parent.mkdir(parents=True, exist_ok=True)
        np.savez(files[-1], labels=predicted(n), y_true=Y)
    given = ["lab"] if form.endswith(".npz") and "/" not in form else files
    found = accuracies(followed(*given))
    assert found == {name: [1 - n / SAMPLES] for name, n in wrong.items()}


def test_files_of_one_model_named_by_words() -> None:
    files = [f"{name}.npz" for name in ("night", "day")]
    for file in files:
        np.savez(file, labels=predicted(6), y_true=Y)
    code, said = inside("import", *files, "--out", "no", "--dataset", "d")
    assert (code, "if they are one classifier: --classifier NAME" in said) == (2, True), said
    options = ("--dataset", "d", "--classifier", "cnn")
    assert inside("import", *files, "--out", "made", *options)[0] == 0
    assert accuracies(Path("made")) == {"cnn": [0.9, 0.9]}


@pytest.mark.parametrize(
    ("names", "form"),
    [
        ("cnn.npz mlp.npz", "{classifier}.npz"),
        ("y_cnn_test.csv y_vit_test.csv", "y_{classifier}_test.csv"),
        ("resnet18.npz vit.npz", "{classifier}.npz"),
        ("lr.npz lrcv.npz", "{classifier}.npz"),
        ("cnn/p.npz mlp/p.npz", "{classifier}/p.npz"),
        ("a.pt b.npz", "{classifier}.*"),
        ("seed_a.npz seed_b.npz", ""),  # runs
        ("run-x.npz run-y.npz", ""),
        ("random_state=a.npz random_state=b.npz", ""),
        ("1.npz 2.npz", ""),
        ("vit1.npz vit2.npz", ""),
        ("cnn1.npz cnn2.npz", ""),
        ("a/x.npz b/y.npz", ""),
        ("resnet18.npz resnet50.npz", "{classifier}.npz"),
        ("wrn-a.npz wrn28-10.npz", "{classifier}.npz"),
    ],
)
def test_words_in_names_of_files(names: str, form: str) -> None:
    files = [Path("lab") / name for name in names.split()]
    assert models_apart(files)[0] == form


@pytest.mark.parametrize(
    ("paths", "form"),
    [
        ("cnn/seed0.npz cnn/seed1.npz vit/seed0.npz", "{classifier}/seed{run}.npz"),
        ("seed=0/rf.npz seed=0/svm.npz seed=1/rf.npz", "seed={run}/{classifier}.npz"),
        ("42/cnn.csv 42/vit.csv", "{classifier}.csv"),
        ("resnet18/s0/p.npy resnet50/s0/p.npy", "{classifier}/s0/p.npy"),
        ("resnet18/1.npy resnet50/2.npy", "{classifier}/{run}.npy"),
        ("0/cnn_1.npz 1/cnn_2.npz", ""),  # which is the run?
        ("a/x/1.npz b/y/1.npz", ""),
        ("a/1.npz b/x/1.npz", ""),
        ("a/1.npz", ""),
    ],
)
def test_a_tree_of_folders(paths: str, form: str) -> None:
    assert form_of_tree([Path(path) for path in paths.split()]) == form


@pytest.mark.parametrize(
    ("path", "form"),
    [
        ("rep1/preds.npy", "rep{run}/preds.npy"),
        ("cnn/seed-3.npz", "{classifier}/seed-{run}.npz"),
        ("cnn/seed3/test1.csv", "{classifier}/seed{run}/test1.csv"),
        ("cnn/7.npz", "{classifier}/{run}.npz"),
        ("cnn/preds.npz", "{classifier}/preds.npz"),
    ],
)
def test_a_tree_of_one_file(path: str, form: str) -> None:
    assert form_of_one(path) == form


@pytest.mark.parametrize("where", ["lab", "."])
def test_true_classes_are_found_for_entries_and_trees(where: str) -> None:
    for model, n in (("cnn", 6), ("mlp", 12)):
        Path("lab", model).mkdir(parents=True)
        np.savez(f"lab/{model}/rep0.npz", preds=predicted(n))
    np.save(f"{where}/y_test.npy", Y)
    found = accuracies(followed("lab"))
    assert found == {"cnn": [0.9], "mlp": [0.8]}


def test_what_a_pattern_leaves_out_is_told() -> None:
    for model in ("rf", "svm"):
        for run in range(2):
            Path("lab", f"s{run}").mkdir(parents=True, exist_ok=True)
            np.savez(f"lab/s{run}/{model}.npz", labels=predicted(run), y_true=Y)
    code, said = inside("import", "lab", "--out", "one", "--name", "s{run}/rf.npz")
    assert code == 0
    assert "2 files beside those that match --name s{run}/rf.npz were not read, such as s0/svm" in (
        " ".join(said.split())
    )
    code, said = inside("import", "lab", "--out", "all", "--name", "s{run}/{classifier}.npz")
    assert (code, "not read" in said) == (0, False)


def test_a_column_of_runs_is_no_share() -> None:
    columns = {f"s{run}": predicted(run) for run in range(RUNS)}
    pl.DataFrame({"label": Y, **columns}).write_csv("wide.csv")  # three classes, 0 to 2
    expected = sorted(1 - run / SAMPLES for run in range(RUNS))
    assert accuracies(followed("wide.csv")) == {"imported": pytest.approx(expected)}


@pytest.mark.parametrize(
    "name", ["random_state{}", "seed={}", "init{}", "rep_{}", "attempt{}", "torch_seed_{}"]
)
def test_what_numbers_runs_is_no_model(name: str) -> None:
    for run in range(RUNS):
        np.savez(f"{name.format(run)}.npz", labels=predicted(run), y_true=Y)
    files = [f"{name.format(run)}.npz" for run in range(RUNS)]
    code, said = inside("import", *files, "--out", "made", "--dataset", "d")
    assert code == 0, said
    expected = sorted(1 - run / SAMPLES for run in range(RUNS))
    assert accuracies(Path("made")) == {"imported": pytest.approx(expected)}


@pytest.mark.parametrize("form", ["seed{}", "run_{}", "rf{}"])
def test_a_column_for_each_run(form: str) -> None:
    columns = {form.format(run + 7): CLASSES[predicted(run)] for run in range(RUNS)}
    pl.DataFrame({"id": range(SAMPLES), "label": CLASSES[Y], **columns}).write_csv("wide.csv")
    expected = sorted(1 - run / SAMPLES for run in range(RUNS))
    assert accuracies(followed("wide.csv")) == {"imported": pytest.approx(expected)}
    assert set(runs_of(Sweep("made"))["run_index"]) == {7, 8, 9}


def test_the_only_column_of_classes_is_the_prediction() -> None:
    held = {"id": range(SAMPLES), "y": CLASSES[Y], "guess": CLASSES[predicted(6)]}
    pl.DataFrame({**held, "seconds": np.linspace(0, 1, SAMPLES)}).write_csv("one.csv")
    assert accuracies(followed("one.csv")) == {"imported": [0.9]}


def test_logits_in_tables() -> None:
    logits = np.random.default_rng(1).normal(size=(SAMPLES, len(CLASSES)))
    logits[np.arange(SAMPLES), Y] += 1
    columns = {f"logit_{name}": logits[:, at] for at, name in enumerate(CLASSES)}
    table = pl.DataFrame({"id": range(SAMPLES), "label": CLASSES[Y], **columns})
    table.write_csv("one.csv")
    sweep = followed("one.csv")
    right = logits.argmax(axis=1) == Y
    assert accuracies(sweep) == {"imported": [pytest.approx(right.mean())]}
    p = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    loss = -np.log(p[np.arange(SAMPLES), Y]).mean()
    (found,) = Sweep(sweep).analyze(metrics=["proper_scores"])["runs"]["log_loss"]
    assert found == pytest.approx(loss, abs=1e-6)
    option = ("--columns", "truth=label,confidence=logit_{class},row_id=id")
    code, said = inside("import", "one.csv", "--out", "no", *option)
    assert (code, "--columns logits='logit_{class}'" in said) == (2, True), said
    shares = {f"logit_{name}": p[:, at] for at, name in enumerate(CLASSES)}
    table.with_columns(**{name: pl.Series(of) for name, of in shares.items()}).write_csv("p.csv")
    option = ("--columns", "truth=label,logits=logit_{class},row_id=id")
    code, said = inside("import", "p.csv", "--out", "no", *option)
    assert (code, "look like probabilities" in said) == (2, True), said


@pytest.mark.parametrize(("own", "true"), [("scores", "y_true"), ("logits", "y")])
def test_whole_numbers_called_scores_are_labels(own: str, true: str) -> None:
    labels = np.stack([predicted(6), predicted(12)])
    np.savez("a.npz", **{own: labels, true: Y})
    assert accuracies(followed("a.npz")) == {"imported": [0.8, 0.9]}


def test_an_index_that_a_library_wrote_is_no_id_beside_one() -> None:
    ids = [f"img_{n:03d}.png" for n in range(SAMPLES)]
    columns = {f"pred_seed{run}": CLASSES[predicted(run)] for run in range(2)}
    table = pl.DataFrame({"": range(SAMPLES), "id": ids, "y": CLASSES[Y], **columns})
    table.write_csv("wide.csv")
    code, said = inside("import", "wide.csv", "--out", "no")
    assert (code, "row_id=id" in said) == (2, True), said


def test_several_arrays_of_whole_numbers_are_labels() -> None:
    np.savez("a.npz", forest=predicted(1)[None], net=predicted(2)[None], y=Y)
    code, said = inside("import", "a.npz", "--out", "no")
    assert (code, "--key labels='{classifier}',y_true=y" in said) == (2, True), said


def test_logits_in_tables_without_true_classes() -> None:
    logits = np.random.default_rng(1).normal(size=(SAMPLES, len(CLASSES)))
    columns = {f"logit_{name}": logits[:, at] for at, name in enumerate(("cat", "cow", "emu"))}
    pl.DataFrame({"id": range(SAMPLES), **columns}).write_csv("one.csv")
    code, said = inside("import", "one.csv", "--out", "no")
    assert (code, "logits='logit_{class}'" in said) == (2, True), said
    assert "prediction" not in said.splitlines()[-1]


def test_folds_that_become_test_sets_are_told() -> None:
    Path("cv").mkdir()
    for run in range(2):
        for fold, rows in enumerate(np.split(np.arange(SAMPLES), 3)):
            held = {"idx": rows, "y_true": Y[rows], "y_pred": predicted(6 + run)[rows]}
            pl.DataFrame(held).write_csv(f"cv/seed{run}_fold{fold}.csv")
    columns = "truth=y_true,prediction=y_pred,row_id=idx"
    options = ("--columns", columns, "--name", "seed{run}_fold{repeat}.csv")
    code, said = inside("import", "cv", "--out", "made", *options)
    told = " ".join(said.split())
    assert (code, "each of 3 folds is a test set of 20 points" in told) == (0, True), said
