"""Folders and tables as researchers leave them: what is no run of its own, and runs in columns."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from manyseed import Sweep
from manyseed.orchestrator.importing.mapping import models_of, numbers_in
from tests.orchestrator.conftest import command

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
    runs = Sweep(here / "sweep").analyze()["runs"].sort("classifier", "run_index")
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
    runs = Sweep(tmp_path / "sweep").analyze()["runs"].sort("run_index")
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
