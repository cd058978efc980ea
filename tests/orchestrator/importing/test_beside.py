"""Files that are no runs, and files of several models, in what is imported together."""

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

N = 120
Y = np.random.default_rng(1).integers(0, 4, N)


def labels(seed: int, accuracy: float = 0.7) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return np.where(rng.random(N) < accuracy, Y, rng.integers(0, 4, N))


def proposed(said: str) -> list[str]:
    """Return the words of an import, as a shell expands them."""
    found = re.search(r"manyseed import (.*)", said)
    assert found is not None, said
    words = list[str]()
    for word in shlex.split(found[1]):
        place = Path(word).absolute()
        words += sorted(map(str, place.parent.glob(place.name))) if "*" in word else [word]
    return words


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "lab").mkdir()
    for seed in range(4):
        np.save(f"lab/p{seed}.npy", labels(seed))
    np.save("lab/y.npy", Y)
    return tmp_path / "lab"


def runs(out: str) -> dict[str, int]:
    held = runs_of(Sweep(Path(out))).group_by("classifier").len()
    return dict(held.rows())


@pytest.mark.parametrize("truth", ["lab/y.npy", "./lab/../lab/y.npy", "link.npy"])
@pytest.mark.parametrize("files", [["lab"], ["lab/*"]])
def test_a_file_of_an_option_is_no_run(lab: Path, truth: str, files: list[str]) -> None:
    Path("link.npy").symlink_to(lab / "y.npy")
    files = [str(one) for form in files for one in sorted(Path().glob(form))]
    code, said = inside("import", *files, "--truth", truth, "--dataset", "d", "--out", "s")
    assert code == 0, said
    assert runs("s") == {"imported": 4}


def test_a_map_among_the_files_is_no_run(lab: Path) -> None:
    (lab / "a.toml").write_text('truth = "y.npy"\ndataset = "d"\n')
    code, said = inside("import", *sorted(lab.iterdir()), "--map", "lab/a.toml", "--out", "s")
    assert (code, runs("s")) == (0, {"imported": 4}), said


def test_a_file_that_also_holds_runs_stays(lab: Path) -> None:
    np.savez("a.npz", labels=labels(8)[None], y_true=Y)
    np.savez("b.npz", labels=labels(9)[None])
    files = ("a.npz", "b.npz", "--truth", "a.npz", "--dataset", "d", "--out", "s")
    files += ("--classifier", "imported")
    assert inside("import", *files)[0] == 0
    assert runs("s") == {"imported": 2}


@pytest.mark.parametrize("name", ["labels", "true_labels", "classes"])
def test_true_classes_that_may_be_predicted_ones_are_proposed(lab: Path, name: str) -> None:
    (lab / "y.npy").rename(lab / f"{name}.npy")
    code, said = inside("import", "lab", "--out", "s")
    assert code == 2
    assert f"--truth lab/{name}.npy" in said
    assert inside("import", *proposed(said))[0] == 0
    assert runs("s") == {"imported": 4}


@pytest.mark.parametrize("name", ["y", "y_test", "targets", "gold"])
@pytest.mark.parametrize("is_folder", [True, False])
def test_true_classes_beside_the_files_are_read_and_told(
    lab: Path, name: str, is_folder: bool
) -> None:
    (lab / "y.npy").rename(lab / f"{name}.npy")
    given = ["lab"] if is_folder else sorted(lab.iterdir())
    code, said = inside("import", *given, "--dataset", "d", "--out", "s")
    assert (code, f"{name}.npy is read as the true classes" in said) == (0, True), said
    assert runs("s") == {"imported": 4}


def test_of_two_files_of_true_classes_none_is_taken(lab: Path) -> None:
    np.save("lab/gold.npy", 3 - Y)
    code, said = inside("import", "lab", "--out", "s")
    assert (code, "read as the true classes" in said) == (2, False), said


def test_true_classes_of_other_points_are_not_proposed(lab: Path) -> None:
    np.save("lab/y.npy", Y[:-1])
    code, said = inside("import", "lab", "--out", "s")
    assert (code, "those of these points" in said, "--truth lab/y.npy" in said) == (2, True, False)
    assert "lab/y.npy: --truth: holds" in said


def test_a_run_that_is_the_truth_is_told(lab: Path) -> None:
    np.save("lab/p9.npy", Y)
    code, said = inside("import", "lab", "--truth", "lab/y.npy", "--out", "s")
    assert (code, "right in every point, as no other run nearly is: p9.npy" in said) == (0, True)
    assert "right in every point" in Path("s/sweep.toml").read_text()


def test_good_runs_may_be_right_in_every_point(lab: Path) -> None:
    for seed in range(4):
        given = Y.copy()
        given[seed : 2 * seed] = 3 - given[seed : 2 * seed]
        np.save(f"lab/p{seed}.npy", given)
    code, said = inside("import", "lab", "--truth", "lab/y.npy", "--out", "s")
    assert (code, "right in every point" in said) == (0, False)


FORMS = ["{}_seed{}.npz", "{}-{}.csv", "{}/{}.csv", "{}/seed{}/test.npz"]


def of_two(form: str) -> list[str]:
    names = []
    for model, n in (("forest", 3), ("tree3", 2)):
        for seed in range(n):
            file = Path("two") / form.format(model, seed)
            file.parent.mkdir(parents=True, exist_ok=True)
            given = labels(seed + 10 * n)
            if file.suffix == ".npz":
                np.savez(file, labels=given[None], y_true=Y)
            else:
                table = {"row_id": range(N), "truth": Y, "prediction": given}
                pl.DataFrame(table).write_csv(file)
            names.append(str(file))
    return names


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("is_folder", [True, False])
def test_files_of_two_models_are_not_pooled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str, is_folder: bool
) -> None:
    monkeypatch.chdir(tmp_path)
    files = of_two(form)
    code, said = inside("import", *(["two"] if is_folder else files), "--out", "s")
    name = form.format("{classifier}", "{run}")
    assert (code, f"--name '{name}'" in said) == (2, True), said
    code, said = inside("import", *(["two"] if is_folder else files), "--name", name, "--out", "s")
    assert (code, runs("s")) == (0, {"forest": 3, "tree3": 2}), said
    assert "classifiers forest (3), tree3 (2)." in said
    if not is_folder:
        one = ("--classifier", "one", "--dataset", "d", "--out", "t")
        assert inside("import", *files, *one)[0] == 0
        assert runs("t") == {"one": 5}


def test_predictions_that_confidences_imply_are_not_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    p = np.random.default_rng(0).dirichlet(np.ones(4), N)
    table = {"label": Y, **{f"p_{k}": p[:, k] for k in range(4)}}
    pl.DataFrame(table).write_csv("a.csv")
    code, said = inside("import", "a.csv", "--out", "s")
    assert (code, "prediction=" in said) == (2, False)
    assert inside("import", *proposed(said))[0] == 0


# true classes in a table of their own


WORDS = np.array(["ant", "bee", "cat", "dog"])


def tables(folder: Path, *, ids: str = "id", seeds: int = 3) -> list[float]:
    """Write a table of predictions for each seed, and one of true classes; rows in any order."""
    folder.mkdir(exist_ok=True)
    accuracy = []
    for seed in range(seeds):
        table = pl.DataFrame({ids: [f"im{row}" for row in range(N)], "pred": WORDS[labels(seed)]})
        table.sample(fraction=1, shuffle=True, seed=seed).write_csv(folder / f"seed{seed}.csv")
        accuracy.append(float((labels(seed) == Y).mean()))
    truth = pl.DataFrame({ids: [f"im{row}" for row in range(N)], "label": WORDS[Y], "note": "x"})
    truth.sample(fraction=1, shuffle=True, seed=9).write_csv(folder.parent / "labels.csv")
    return accuracy


def accuracies(out: str) -> list[float]:
    found: list[float] = runs_of(Sweep(Path(out))).sort("run_index")["accuracy"].to_list()
    return found


@pytest.mark.parametrize("columns", [[], ["prediction=pred"], ["prediction=pred,row_id=id"]])
def test_tables_are_joined_with_their_true_classes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, columns: list[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    expected = tables(tmp_path / "lab")
    option = ["--columns", *columns] if columns else []
    words = ["lab", "--truth", "labels.csv", "--out", "s", *option]
    if not columns:
        code, said = inside("import", *words)
        assert (code, "--truth labels.csv" in said, "truth=" in said) == (2, True, False), said
        words = proposed(said)
    code, said = inside("import", *words)
    assert (code, "not read" in said) == (0, False), said
    assert accuracies("s") == pytest.approx(expected)


@pytest.mark.parametrize("place", ["lab/y_true.csv", "lab/labels.csv"])
def test_a_table_of_true_classes_in_the_folder_of_tables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    monkeypatch.chdir(tmp_path)
    expected = tables(tmp_path / "lab")
    Path("labels.csv").rename(place)
    words = ["--out", "s", "--columns", "prediction=pred"]
    code, said = inside("import", "lab", *words)
    assert code == 0, said
    assert accuracies("s") == pytest.approx(expected)
    if "y_true" not in place:
        words[1] = "t"
        code, said = inside("import", *sorted(Path("lab").iterdir()), *words)
        assert (code, "--truth lab/labels.csv" in said) == (2, True), said
        assert inside("import", *proposed(said))[0] == 0
        assert accuracies("t") == pytest.approx(expected)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda t: t[1:], "seed0.csv alone has id im"),
        (lambda t: t.vstack(t[:1].with_columns(id=pl.lit("x"))), "labels.csv alone has id x"),
        (lambda t: t.rename({"id": "image_no"}), "no column of ids, each once, that seed0.csv"),
        (lambda t: t.vstack(t[:1]), "no column of ids, each once, that seed0.csv"),
        (lambda t: t.with_columns(right=pl.lit("a")).drop("label"), "has several columns"),
        (
            lambda t: t.with_columns(pl.when(pl.col("id") != t["id"][3]).then("label")),
            "labels.csv: label: has missing values",
        ),
    ],
    ids=["lacks", "more", "other name", "twice", "no truth", "a missing one"],
)
def test_true_classes_of_other_rows_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: Any, said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    tables(tmp_path / "lab")
    change(pl.read_csv("labels.csv")).write_csv("labels.csv")
    words = ("lab", "--truth", "labels.csv", "--out", "s", "--columns", "prediction=pred")
    code, told = inside("import", *words)
    assert (code, said in " ".join(told.split()), Path("s").exists()) == (2, True, False), told


def test_true_classes_without_ids_have_the_order_of_the_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    pl.DataFrame({"prediction": labels(0)}).write_csv("a.csv")
    pl.DataFrame({"y": Y}).write_csv("y.csv")
    code, said = inside("import", "a.csv", "--truth", "y.csv", "--out", "s")
    assert code == 0, said
    assert accuracies("s") == pytest.approx([(labels(0) == Y).mean()])


@pytest.mark.parametrize("form", [".csv", ".npz"])
def test_true_classes_that_contradict_a_file_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    monkeypatch.chdir(tmp_path)
    if form == ".csv":
        table = {"row_id": range(N), "truth": Y, "prediction": labels(0)}
        pl.DataFrame(table).write_csv("a.csv")
    else:
        np.savez("a.npz", labels=labels(0)[None], y_true=Y)
    for n, code in ((0, 0), (3, 2)):
        truth = np.where(np.arange(N) < n, 3 - Y, Y)
        pl.DataFrame({"row_id": range(N), "y_true": truth}).write_csv("t.csv")
        done, said = inside("import", f"a{form}", "--truth", "t.csv", "--out", f"s{n}")
        assert done == code, said
        assert not n or "3 are others in t.csv" in said or "differs in 3 points" in said, said


@pytest.mark.parametrize("name", ["labels.csv", "y_test.csv", "targets.parquet"])
def test_a_table_beside_arrays_is_no_run(lab: Path, name: str) -> None:
    (lab / "y.npy").unlink()
    table = pl.DataFrame({"id": range(N), "label": Y}).sample(fraction=1, shuffle=True, seed=1)
    (table.write_csv if name.endswith("csv") else table.write_parquet)(lab / name)
    code, said = inside("import", "lab", "--out", "s")
    assert (code, runs("s")) == (0, {"imported": 4}), said
    code, said = inside("import", *sorted(lab.iterdir()), "--dataset", "d", "--out", "t")
    is_asked = name == "labels.csv"  # it may hold predicted ones
    assert (code, f"--truth {lab / name}" in said) == (2 * is_asked, is_asked), said
    assert not is_asked or inside("import", *proposed(said))[0] == 0
    assert (accuracies("t"), runs("t")) == (accuracies("s"), {"imported": 4})
    table[1:].write_csv(lab / "labels.csv")
    if name == "labels.csv":
        code, said = inside("import", "lab", "--out", "u")
        assert (code, Path("u").exists()) == (2, False), said


# one file in several places


@pytest.mark.parametrize("form", ["labels", "scores"])
@pytest.mark.parametrize("kind", ["classifiers", "cells"])
def test_runs_that_are_those_of_another_place_are_told(lab: Path, kind: str, form: str) -> None:
    rng, names = np.random.default_rng(0), ("cnn", "vit")
    given = labels(0)[None] if form == "labels" else rng.normal(size=(1, N, 4))
    for number, name in enumerate(names):
        np.savez(lab / f"{name}.npz", y_true=Y, note=number, **{form: given})
    key = ("--key", f"{form}={form}", "--out")
    words = [f"--classifier={name}=lab/{name}.npz" for name in names]
    if kind == "cells":
        words = ["lab/cnn.npz", "lab/vit.npz", "--name", "{hparams}.npz", "--dataset", "d"]
    code, said = inside("import", *words, *key, "s")
    said = " ".join(said.split())
    whose = ("vit", "cnn") if kind == "classifiers" else ("imported", "another cell or test set")
    told = f"vit.npz of {whose[0]} holds the same predictions as cnn.npz of {whose[1]}."
    assert (code, told in said) == (0, True), said
    assert "holds the same predictions" in Path("s/sweep.toml").read_text()
    other = labels(1)[None] if form == "labels" else given + 1e-3 * rng.normal(size=given.shape)
    np.savez("lab/vit.npz", y_true=Y, **{form: other})
    code, said = inside("import", *words, *key, "t")
    assert (code, "same predictions" in said) == (0, False), said


def test_runs_that_err_nowhere_may_agree(tmp_path: Path) -> None:
    for name in "ab":
        np.savez(tmp_path / f"{name}.npz", labels=Y[None], y_true=Y)
    words = [f"--classifier={name}={tmp_path / name}.npz" for name in "ab"]
    code, said = inside("import", *words, "--out", tmp_path / "s")
    assert (code, "same predictions" in said) == (0, False), said


@pytest.mark.parametrize("form", ["y_true_{}", "seed{}_labels"])
def test_a_file_of_true_classes_for_each_seed_is_no_run(lab: Path, form: str) -> None:
    (lab / "y.npy").unlink()
    for seed in range(4):
        np.save(lab / f"{form.format(seed)}.npy", Y)
    code, said = inside("import", "lab", "--out", "s")
    assert (code, runs("s")) == (0, {"imported": 4}), said
    np.save(lab / f"{form.format(2)}.npy", 3 - Y)
    code, said = inside("import", "lab", "--out", "t")
    assert (code, "there can be one file of true classes" in said) == (2, True), said


@pytest.mark.parametrize(
    ("columns", "given", "told"),
    [
        ({"true": Y, "pred": labels(0)}, "truth=pred", "truth=true,prediction=pred"),
        (
            {"label": labels(0), "note": Y},
            "prediction=label",
            "truth=note,prediction=label",
        ),
    ],
)
def test_what_is_proposed_reads_no_column_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, columns: Any, given: str, told: str
) -> None:
    monkeypatch.chdir(tmp_path)
    pl.DataFrame(columns).write_csv("a.csv")
    code, said = inside("import", "a.csv", "--out", "s", "--columns", given)
    assert (code, f"--columns {told}" in said, "NAME" in said) == (2, True, False), said


def test_copies_of_one_name_are_told_with_their_folders(lab: Path) -> None:
    for model in "AB":
        Path("tree", model).mkdir(parents=True)
        for seed in range(5):
            np.savez(f"tree/{model}/seed_{seed}.npz", labels=labels(seed), y_true=Y)
    given = ("tree", "--name", "{classifier}/seed_{run}.npz", "--out", "s")
    code, said = inside("import", *given)
    said = " ".join(said.split())
    assert code == 0, said
    assert "B/seed_0.npz, B/seed_1.npz, B/seed_2.npz and 2 more of B hold the same" in said
    assert "predictions as A/seed_0.npz, A/seed_1.npz, A/seed_2.npz and 2 more of A" in said
