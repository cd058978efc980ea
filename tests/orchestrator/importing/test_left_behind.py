"""Folders and tables as researchers leave them: what is no run of its own, and runs in columns."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import torch

from manyseed import Sweep
from manyseed.orchestrator.importing.filenames import models_of
from manyseed.orchestrator.importing.mapping import numbers_in
from tests.orchestrator.conftest import command
from tests.orchestrator.importing.conftest import runs_of

RUNS, SAMPLES, CLASSES = 3, 60, 4
RNG = np.random.default_rng(0)
Y = RNG.integers(0, CLASSES, SAMPLES)
EARLY, FINAL = (
    (RNG.normal(size=(RUNS, SAMPLES, CLASSES)) + gain * np.eye(CLASSES)[Y]).astype(np.float32)
    for gain in (0.5, 2.0)
)
NAMES = np.array(["ant", "bee", "cat", "dog"])


def right(scores: np.ndarray) -> list[float]:
    accuracy: list[float] = (scores.argmax(axis=2) == Y).mean(axis=1).tolist()
    return accuracy


def save(file: Path, scores: np.ndarray) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    np.savez(file, scores=scores, y_true=Y)


def proposed(output: str) -> list[str]:
    found = re.search(r"manyseed (import .*)", output)
    assert found, output
    return shlex.split(found[1])


def imported(monkeypatch: pytest.MonkeyPatch, here: Path, *words: str) -> dict[str, list[float]]:
    """Run the command that the first one's message proposes; accuracies by classifier."""
    monkeypatch.chdir(here)
    done = command("import", *words, "--out", "sweep")
    assert (done.returncode, (here / "sweep").exists()) == (2, False), done.output
    again = command(*proposed(done.output))
    assert again.returncode == 0, again.output
    runs = runs_of(Sweep(here / "sweep")).sort("classifier", "run_index")
    found: dict[str, list[float]] = {}
    for row in runs.iter_rows(named=True):
        found.setdefault(row["classifier"], []).append(row["accuracy"])
    return found


@pytest.mark.parametrize(
    ("early", "final"),
    [
        ("seed{}_epoch1.npz", "seed{}_epoch10.npz"),
        ("s{}_epoch3.npz", "s{}_final.npz"),
        ("{}-best.npz", "{}-last.npz"),
        ("seed{}_val.npz", "seed{}_test.npz"),
        ("train_{}.npz", "test_{}.npz"),
    ],
)
def test_epochs_and_splits_of_a_run_are_no_further_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, early: str, final: str
) -> None:
    for run in range(RUNS):
        save(tmp_path / "left" / early.format(run), EARLY[run])
        save(tmp_path / "left" / final.format(run), FINAL[run])
    assert imported(monkeypatch, tmp_path, "left") == {"imported": pytest.approx(right(FINAL))}


@pytest.mark.parametrize("name", ["ensemble", "mean", "majority_vote"])
def test_an_ensemble_beside_its_runs_is_no_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    for run in range(RUNS):
        save(tmp_path / "left" / f"seed{run}.npz", FINAL[run])
    save(tmp_path / "left" / f"{name}.npz", FINAL.mean(axis=0))
    assert imported(monkeypatch, tmp_path, "left") == {"imported": pytest.approx(right(FINAL))}


@pytest.mark.parametrize(
    "form",
    ["best_seed{}.npz", "final-{}.npz", "test_{}.npz", "epoch10_{}.npz", "mean_{}.npz"],
)
def test_runs_of_one_kind_are_read_at_once(tmp_path: Path, form: str) -> None:
    for run in range(RUNS):
        save(tmp_path / "left" / form.format(run), FINAL[run])
    (tmp_path / "left" / "latest.npz").symlink_to(form.format(1))  # the same run
    done = command("import", tmp_path / "left", "--out", tmp_path / "sweep")
    assert done.returncode == 0, done.output
    runs = runs_of(Sweep(tmp_path / "sweep")).sort("run_index")
    assert runs["accuracy"].to_list() == pytest.approx(right(FINAL))


def test_true_classes_lie_above_the_folders_of_models(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for model, scores in (("cnn", FINAL), ("vit", EARLY)):
        for run in range(RUNS):
            folder = tmp_path / "left" / model / f"seed_{run}"
            folder.mkdir(parents=True)
            np.save(folder / "preds.npy", scores[run])
    np.save(tmp_path / "left" / "y_true.npy", Y)
    expected = {"cnn": pytest.approx(right(FINAL)), "vit": pytest.approx(right(EARLY))}
    assert imported(monkeypatch, tmp_path, "left") == expected


@pytest.mark.parametrize(
    ("paths", "form", "names"),
    [
        (
            ["model=cnn,seed=0/t.csv", "model=vit,seed=0/t.csv"],
            "model={classifier},seed={run}/t.csv",
            "cnn vit",
        ),
        (["preds_cnn_s0.npz", "preds_vit_s0.npz"], "preds_{classifier}_s{run}.npz", "cnn vit"),
        (["resnet_a-0.npz", "resnet_b-0.npz"], "{classifier}-{run}.npz", "resnet_a resnet_b"),
        (["0/preds.npz", "1/preds.npz"], "{run}/preds.npz", ""),
        (["0.npz", "cnn-1.npz"], "", None),
    ],
)
def test_what_stands_before_the_names_of_models(
    tmp_path: Path, paths: list[str], form: str, names: str | None
) -> None:
    found = models_of([tmp_path / path for path in paths])
    assert found[0] == form
    assert [*found[1]] == ([] if names is None else names.split(" "))


def test_columns_of_predictions_are_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    columns = {f"pred_s{run}": NAMES[FINAL[run].argmax(axis=1)] for run in range(RUNS)}
    table = pl.DataFrame({"id": np.arange(SAMPLES), "label": NAMES[Y]} | columns)
    table.write_csv(tmp_path / "wide.csv")
    found = imported(monkeypatch, tmp_path, "wide.csv")
    assert found == {"imported": pytest.approx(right(FINAL))}
    for other, told in (("p{run}", "no such column"), ("pred_s{run}", "beside a column run")):
        table.with_columns(run=pl.lit(1)).write_csv(tmp_path / "wide.csv")
        option = f"truth=label,prediction={other}"
        done = command("import", "wide.csv", "--out", "no", "--columns", option)
        assert (done.returncode, told in done.output) == (2, True), done.output


@pytest.mark.parametrize("form", ["seed_{:02d}", "{}", "s{}"])
def test_seeds_may_be_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str) -> None:
    parts = [
        pl.DataFrame({"label": NAMES[Y], "pred": NAMES[FINAL[run].argmax(axis=1)]}).with_columns(
            seed=pl.lit(form.format(run))
        )
        for run in range(RUNS)
    ]
    pl.concat(parts).write_csv(tmp_path / "long.csv")
    found = imported(monkeypatch, tmp_path, "long.csv")
    assert found == {"imported": pytest.approx(right(FINAL))}


@pytest.mark.parametrize(
    ("words", "numbers"),
    [
        (["s1", "s02", "s1"], [1, 2, 1]),
        (["s1", "t1"], None),
        (["s1", "s01"], None),  # not one run
        (["a", "b"], None),
        (["1-1", "1-2"], None),
        ([None, "s1"], None),
        ([], None),
    ],
)
def test_numbers_in_words(words: list[str | None], numbers: list[int] | None) -> None:
    found = numbers_in(pl.Series(words, dtype=pl.String))
    assert (None if found is None else found.to_list()) == numbers


@pytest.mark.parametrize("shuffled", [False, True])
def test_the_index_that_pandas_writes_names_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shuffled: bool
) -> None:
    (tmp_path / "left").mkdir()
    for run in range(RUNS):
        label = NAMES[FINAL[run].argmax(axis=1)]
        table = pl.DataFrame({"": np.arange(SAMPLES), "label": NAMES[Y], "pred": label})
        table = table.sample(fraction=1, shuffle=True, seed=run) if shuffled else table
        table.write_csv(tmp_path / "left" / f"seed{run}.csv")
    found = imported(monkeypatch, tmp_path, "left")
    assert found == {"imported": pytest.approx(right(FINAL))}


def test_a_form_of_confidences_leaves_out_our_own_columns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    p = np.exp(FINAL) / np.exp(FINAL).sum(axis=2, keepdims=True)
    (tmp_path / "left").mkdir()
    for run in range(RUNS):
        own = {"truth": Y, "prediction": p[run].argmax(axis=1)}
        of_class = {f"p{k}": p[run, :, k] for k in range(CLASSES)}
        pl.DataFrame(own | of_class).write_csv(tmp_path / "left" / f"seed{run}.csv")
    found = imported(monkeypatch, tmp_path, "left")
    assert found == {"imported": pytest.approx(right(FINAL))}


def test_an_only_other_entry_holds_the_predictions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    np.savez(tmp_path / "a.npz", z=FINAL, label_ids=Y)
    found = imported(monkeypatch, tmp_path, "a.npz")
    assert found == {"imported": pytest.approx(right(FINAL))}


@pytest.mark.parametrize("compressed", [False, True])
@pytest.mark.parametrize(("own", "form"), [("scores", "seed{}"), ("labels", "pred_s{}")])
def test_entries_of_a_file_are_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own: str, form: str, *, compressed: bool
) -> None:
    given = FINAL if own == "scores" else FINAL.argmax(axis=2)
    held = {form.format(2 * run + 9): given[run] for run in (2, 0, 1)}
    save = np.savez_compressed if compressed else np.savez
    save(tmp_path / "a.npz", y_true=Y, note=np.array(["x"]), **held)
    assert imported(monkeypatch, tmp_path, "a.npz") == {"imported": pytest.approx(right(FINAL))}
    runs = runs_of(Sweep(tmp_path / "sweep"))
    assert sorted(runs["run_index"].to_list()) == [9, 11, 13]
    held[form.format(9)] = given[0, :-1]
    save(tmp_path / "a.npz", y_true=Y, **held)
    key = f"{own}={form.format('{run}')}"
    done = command("import", "a.npz", "--key", key, "--out", "no")
    assert (done.returncode, "save each run in one form" in done.output) == (2, True), done.output


def test_tensors_of_a_file_are_runs(tmp_path: Path) -> None:
    held = {f"seed{run}": torch.tensor(FINAL[run]) for run in range(RUNS)}
    torch.save({**held, "y_true": torch.tensor(Y)}, tmp_path / "a.pt")
    key = {"scores": "seed{run}"}
    sweep = Sweep.import_predictions([tmp_path / "a.pt"], tmp_path / "sweep", key=key)
    runs = runs_of(sweep).sort("run_index")
    assert runs["accuracy"].to_list() == pytest.approx(right(FINAL))


def fold_files(folder: Path, form: str, sizes: tuple[int, ...]) -> None:
    (folder / "cv").mkdir()
    start = 0
    for fold, n in enumerate(sizes):
        for seed in range(2):
            rows = range(start, start + n)
            label = NAMES[FINAL[seed].argmax(axis=1)[rows]]
            table = pl.DataFrame({"row_id": rows, "truth": NAMES[Y[rows]], "prediction": label})
            table.write_csv(folder / "cv" / form.format(fold, seed))
        start += n


@pytest.mark.parametrize("form", ["fold{}_seed{}.csv", "s{1}-cv_fold_{0}.csv"])
def test_folds_are_test_sets_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    fold_files(tmp_path, form, (20, 20, 20))
    assert len(imported(monkeypatch, tmp_path, "cv")["imported"]) == 6
    runs = runs_of(Sweep(tmp_path / "sweep")).sort("repeat_index", "run_index")
    rows = [range(20 * fold, 20 * fold + 20) for fold in range(3)]
    expected = [
        (FINAL[seed].argmax(axis=1) == Y)[each].mean() for each in rows for seed in range(2)
    ]
    assert runs["accuracy"].to_list() == pytest.approx(expected)


def test_folds_of_other_sizes_need_one_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    fold_files(tmp_path, "fold{}_seed{}.csv", (20, 19, 21))
    done = command("import", "cv", "--out", "sweep")
    assert (done.returncode, "folds have 19 to 21 rows" in done.output) == (2, True), done.output
    assert "with columns fold and row_id" in done.output


def test_folds_that_look_like_one_test_set_are_told(tmp_path: Path) -> None:
    for fold in range(3):
        own = {"truth": NAMES[Y], "prediction": NAMES[FINAL[fold].argmax(axis=1)]}
        pl.DataFrame(own).write_csv(tmp_path / f"fold{fold}.csv")
    files = sorted(tmp_path.iterdir())
    done = command("import", *files, "--out", tmp_path / "sweep")
    assert (done.returncode, "files are named as folds" in done.output) == (0, True), done.output
    assert "--name 'fold{repeat}.csv'" in done.output
    name = ("--name", "fold{repeat}.csv", "--out", tmp_path / "other")
    done = command("import", *files, *name)
    assert (done.returncode, "as folds" in done.output) == (0, False), done.output


def test_splits_are_no_one_test_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    label = NAMES[FINAL[0].argmax(axis=1)]
    split = np.array(["train", "val", "Test"])[np.arange(SAMPLES) % 3]
    table = pl.DataFrame({"label": NAMES[Y], "pred": label, "part": split})
    table.write_csv(tmp_path / "a.csv")
    assert len(imported(monkeypatch, tmp_path, "a.csv")["imported"]) == 3
    runs = runs_of(Sweep(tmp_path / "sweep")).sort("dataset")
    assert runs["dataset"].to_list() == ["Test", "train", "val"]
    expected = [(FINAL[0].argmax(axis=1) == Y)[split == part].mean() for part in runs["dataset"]]
    assert runs["accuracy"].to_list() == pytest.approx(expected)


def test_a_column_of_models_and_seeds_is_to_be_two(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    parts = [
        pl.DataFrame({"label": NAMES[Y], "pred": NAMES[scores[run].argmax(axis=1)]}).with_columns(
            run_name=pl.lit(f"{model}-seed{run}")
        )
        for model, scores in (("cnn", FINAL), ("vit", EARLY))
        for run in range(RUNS)
    ]
    pl.concat(parts).write_csv("long.csv")
    for also in ("", ",run=run_name"):
        option = ("--columns", f"truth=label,prediction=pred{also}")
        done = command("import", "long.csv", "--out", "sweep", *option)
        assert (done.returncode, Path("sweep").exists()) == (2, False)
        assert 'names classifiers, too, such as "cnn-seed0"' in " ".join(done.output.split())
    (code,) = re.findall(r"pl[.]col[(].*?[)], and", done.output.replace("\n", " "))
    split = pl.read_csv("long.csv").select(eval(code.removesuffix(", and"))).unnest("run_name")
    assert split.columns == ["model", "seed"]
    assert split.unique(maintain_order=True).rows()[:2] == [("cnn", "0"), ("cnn", "1")]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("truth=pred,prediction=pred", '--columns = "pred": is read as truth and as prediction'),
        ("label=truth,pred=prediction", '--columns = "label": unknown name'),
    ],
)
def test_columns_the_wrong_way_round(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: str, said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    pl.DataFrame({"label": NAMES[Y], "pred": NAMES[Y]}).write_csv("a.csv")
    done = command("import", "a.csv", "--out", "sweep", "--columns", given)
    assert (done.returncode, said in done.output) == (2, True), done.output
    assert "our name stands first: truth=label" in done.output or "say it once" in done.output


def test_whether_predictions_are_right_is_no_label(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", correct=FINAL.argmax(axis=2) == Y, y_true=Y)
    done = command("import", tmp_path / "a.npz", "--out", tmp_path / "sweep")
    assert (done.returncode, "no name says that it holds the predictions" in done.output) == (
        2,
        True,
    ), done.output
    key = ("--key", "labels=correct")
    done = command("import", tmp_path / "a.npz", "--out", tmp_path / "sweep", *key)
    assert (done.returncode, "is true or false, but there are 4" in done.output) == (2, True)


@pytest.mark.parametrize("n_classes", [2, CLASSES])
def test_labels_as_floats_are_no_scores(tmp_path: Path, n_classes: int) -> None:
    np.save(tmp_path / "p.npy", (FINAL.argmax(axis=2) % n_classes).astype(np.float32))
    np.save(tmp_path / "y.npy", Y % n_classes)
    truth = ("--truth", tmp_path / "y.npy", "--out", tmp_path / "sweep")
    done = command("import", tmp_path / "p.npy", *truth)
    assert (done.returncode, "labels.astype(int)" in done.output) == (2, True), done.output


def test_a_line_of_data_above_all_is_no_names(tmp_path: Path) -> None:
    label = FINAL[0].argmax(axis=1)
    rows = [f"{one},{one},{other}" for one, other in zip(Y, label, strict=True)]
    (tmp_path / "a.csv").write_text("\n".join(rows))
    done = command("import", tmp_path / "a.csv", "--out", tmp_path / "sweep")
    assert (done.returncode, "put a line with the names" in done.output) == (2, True), done.output


def test_a_file_of_each_seed_folder_is_read_by_its_name(tmp_path: Path) -> None:
    for run in range(RUNS):
        folder = tmp_path / "left" / f"seed_{run}"
        folder.mkdir(parents=True)
        np.save(folder / "preds.npy", FINAL[run])
        np.save(folder / "targets.npy", Y)
    done = command("import", tmp_path / "left", "--out", tmp_path / "sweep")
    told = f"--name 'seed_{{run}}/preds.npy' --truth {tmp_path / 'left/seed_0/targets.npy'}"
    assert (done.returncode, told in done.output) == (2, True), done.output
    options = ("--name", "seed_{run}/preds.npy", "--truth", tmp_path / "left/seed_0/targets.npy")
    done = command("import", tmp_path / "left", "--out", tmp_path / "sweep", *options)
    assert done.returncode == 0, done.output
    runs = runs_of(Sweep(tmp_path / "sweep")).sort("run_index")
    assert runs["accuracy"].to_list() == pytest.approx(right(FINAL))
