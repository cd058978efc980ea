"""Predictions with faults in their data: numbered from 1, not finite, cut short, out of order."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch

from manyseed.orchestrator.paths import SweepPaths
from manyseed.orchestrator.store.groups import list_groups
from manyseed.orchestrator.store.reader import read_array
from manyseed.orchestrator.store.testsets import truth
from tests.orchestrator.conftest import command, inside

RUNS, SAMPLES, CLASSES = 4, 60, 4
RNG = np.random.default_rng(0)
Y = RNG.permutation(np.arange(SAMPLES) % CLASSES)
SCORES = (RNG.normal(size=(RUNS, SAMPLES, CLASSES)) + 2 * np.eye(CLASSES)[Y]).astype(np.float32)
LABELS = SCORES.argmax(axis=2)
P = np.exp(SCORES) / np.exp(SCORES).sum(axis=2, keepdims=True)
NAMES = np.array(["ant", "bee", "cat", "dog"])


def folder(path: Path, run: Any) -> Path:
    """Make a folder of NPZ files, with the entries that `run` returns for a number."""
    (path / "seeds").mkdir()
    for number in range(RUNS):
        np.savez(path / "seeds" / f"seed-{number}.npz", **run(number))
    return path / "seeds"


def tables(path: Path, run: Any) -> Path:
    """The same of CSVs, with the columns that `run` returns."""
    (path / "seeds").mkdir()
    for number in range(RUNS):
        pl.DataFrame(run(number)).write_csv(path / "seeds" / f"seed-{number}.csv")
    return path / "seeds"


def labels(out: Path) -> tuple[tuple[str, ...], list[list[str]], list[str]]:
    """Return the classes of an import, its runs' predictions by name, and the true classes."""
    (group,) = groups = [*list_groups(SweepPaths(out).store)]
    names = np.array(group.spec.class_names)
    rows = read_array(group, "label")[read_array(group, "status") == 1][:, -1]
    y_true = truth(group.spec.dataset, groups)[0][0]
    return group.spec.class_names, names[rows].tolist(), names[y_true].tolist()


def imported(path: Path, *arguments: object) -> Any:
    done = command("import", *arguments, "--out", path / "sweep")
    assert done.returncode == 0, done.output
    return labels(path / "sweep")


def refused(path: Path, *arguments: object) -> str:
    done = command("import", *arguments, "--out", path / "sweep")
    assert done.returncode == 2, done.output
    assert not (path / "sweep").exists()
    return str(done.output)


def run_proposed(path: Path, output: str) -> Any:
    """Run the command that a refusal proposes."""
    (line,) = re.findall(r"manyseed (import .*)", output)
    done = command(*shlex.split(line))
    assert done.returncode == 0, done.output
    return labels(path / "sweep")


# numbered from 1


@pytest.mark.parametrize("dtype", [np.int64, np.uint8, np.float64])
def test_labels_from_1_have_no_class_0(tmp_path: Path, dtype: type) -> None:
    given = folder(
        tmp_path,
        lambda n: {"labels": (LABELS[n] + 1).astype(dtype), "y_true": (Y + 1).astype(dtype)},
    )
    names, found, true = imported(tmp_path, given)
    assert names == ("1", "2", "3", "4")
    assert found == (LABELS + 1).astype(str).tolist()
    assert true == (Y + 1).astype(str).tolist()


def test_a_0_in_any_file_means_numbers_from_0(tmp_path: Path) -> None:
    def run(number: int) -> dict[str, Any]:
        mine = LABELS[number] + 1
        mine[5] = 0 if number == 2 else mine[5]
        return {"labels": mine, "y_true": Y + 1}

    names, found, _ = imported(tmp_path, folder(tmp_path, run))
    assert names == ("0", "1", "2", "3", "4")
    assert found[2][5] == "0"


def test_more_runs_with_labels_from_1(tmp_path: Path) -> None:
    given = folder(tmp_path, lambda n: {"labels": LABELS[n] + 1, "y_true": Y + 1})
    *first, last = sorted(given.iterdir())
    imported(tmp_path, *first, "--dataset", "d")
    assert command("import", tmp_path / "sweep", last).returncode == 0
    names, found, _ = labels(tmp_path / "sweep")
    assert names == ("1", "2", "3", "4")
    assert found == (LABELS + 1).astype(str).tolist()


def test_scores_beside_true_classes_from_1(tmp_path: Path) -> None:
    given = folder(tmp_path, lambda n: {"scores": SCORES[n], "y_true": Y + 1})
    done = command("import", given, "--out", tmp_path / "sweep")
    assert done.output.count("true classes are numbered from 1 to 4, so scores are read") == 1
    names, found, true = labels(tmp_path / "sweep")
    assert names == ("1", "2", "3", "4")
    assert found == (LABELS + 1).astype(str).tolist()
    assert true == (Y + 1).astype(str).tolist()


def test_predictions_from_1_and_truth_from_0(tmp_path: Path) -> None:
    given = folder(tmp_path, lambda n: {"labels": LABELS[n] + 1, "y_true": Y})
    output = refused(tmp_path, given)
    assert "labels: goes from 1 to 4, but the 4 classes are numbered from 0 to 3" in output
    assert "labels - 1" in output


def test_predictions_from_0_and_truth_from_1(tmp_path: Path) -> None:
    given = folder(tmp_path, lambda n: {"labels": LABELS[n], "y_true": Y + 1})
    output = refused(tmp_path, given)
    assert "predicted classes go from 0 to 3, true ones from 1 to 4" in output
    assert "subtract 1 from the true classes" in output


def test_tables_with_predictions_from_1_and_truth_from_0(tmp_path: Path) -> None:
    given = tables(tmp_path, lambda n: {"prediction": LABELS[n] + 1, "truth": Y})
    output = refused(tmp_path, given)
    assert "predicted classes go from 1 to 4, true ones from 0 to 3" in output
    assert "subtract 1 from the predicted classes" in output


# not finite


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_the_file_whose_scores_are_not_finite_is_named(tmp_path: Path, value: float) -> None:
    def run(number: int) -> dict[str, Any]:
        mine = SCORES[number].copy()
        mine[7, 1] = value if number == 2 else mine[7, 1]
        return {"scores": mine, "y_true": Y}

    output = refused(tmp_path, folder(tmp_path, run))
    assert "seed-2.npz: run 0: has scores that are not finite in 1 of 60 points" in output
    assert f"{value:g} in point 7" in output


# saved in other types


def test_floats_that_are_no_whole_numbers_are_no_labels(tmp_path: Path) -> None:
    given = folder(tmp_path, lambda n: {"labels": LABELS[n] + 0.5, "y_true": Y})
    assert "seed-0.npz: labels: holds" in refused(tmp_path, given)


def test_true_classes_that_are_missing(tmp_path: Path) -> None:
    y_true = np.where(np.arange(SAMPLES) == 3, np.nan, Y)
    given = folder(tmp_path, lambda n: {"labels": LABELS[n], "y_true": y_true})
    assert "y_true: holds nan" in refused(tmp_path, given)


def test_labels_as_floats(tmp_path: Path) -> None:
    given = folder(tmp_path, lambda n: {"labels": LABELS[n] * 1.0, "y_true": Y * 1.0})
    names, found, _ = imported(tmp_path, given)
    assert names == ("0", "1", "2", "3")
    assert found == LABELS.astype(str).tolist()


# one file of many


def _unfinished(number: int) -> slice:
    return slice(40 if number == 2 else SAMPLES)


@pytest.mark.parametrize("kind", ["npz", "npz, truth whole", "npy", "csv", "csv, ids", "scores"])
def test_an_unfinished_run_is_named_and_can_be_left_out(tmp_path: Path, kind: str) -> None:
    def run(number: int) -> dict[str, Any]:
        some = _unfinished(number)
        if kind.startswith("csv"):
            ids = {"row_id": np.arange(SAMPLES)[some]} if "ids" in kind else {}
            return ids | {"prediction": NAMES[LABELS[number][some]], "truth": NAMES[Y[some]]}
        own = {"scores": SCORES[number][some]} if kind == "scores" else {}
        own = own or {"labels": LABELS[number][some]}
        return own | {"y_true": Y if "whole" in kind else Y[some]}

    given = (tables if kind.startswith("csv") else folder)(tmp_path, run)
    if kind == "npy":
        for file in sorted(given.iterdir()):
            np.save(file.with_suffix(".npy"), np.load(file)["labels"])
            file.unlink()
        np.save(given / "y_true.npy", Y)
    output = refused(tmp_path, given)
    assert re.search(r"seed-2\.\w+: ", output)
    assert "40" in output
    assert "60" in output
    names, found, _ = run_proposed(tmp_path, output)
    whole = LABELS[[0, 1, 3]]
    expected = NAMES[whole] if kind.startswith("csv") else whole.astype(str)
    assert found == expected.tolist()
    assert len(names) == CLASSES


def test_a_run_that_is_not_finite_can_be_left_out(tmp_path: Path) -> None:
    def run(number: int) -> dict[str, Any]:
        return {"scores": SCORES[number] * (np.nan if number == 1 else 1), "y_true": Y}

    output = refused(tmp_path, folder(tmp_path, run))
    assert "seed-1.npz: run 0: has scores that are not finite in 60 of 60 points" in output
    _, found, _ = run_proposed(tmp_path, output)
    assert found == LABELS[[0, 2, 3]].astype(str).tolist()


def test_a_copy_can_be_left_out(tmp_path: Path) -> None:
    def run(number: int) -> dict[str, Any]:
        return {"scores": SCORES[1 if number == 2 else number], "y_true": Y}

    output = refused(tmp_path, folder(tmp_path, run))
    assert "seed-2.npz: seed-2.npz holds the same predictions as seed-1.npz" in output
    _, found, _ = run_proposed(tmp_path, output)
    assert found == LABELS[[0, 1, 3]].astype(str).tolist()


@pytest.mark.parametrize("make", [folder, tables])
def test_a_file_with_another_truth_can_be_left_out(tmp_path: Path, make: Any) -> None:
    def run(number: int) -> dict[str, Any]:
        y_true = Y.copy()
        y_true[7] = (Y[7] + (number == 2)) % CLASSES
        key, true = ("prediction", "truth") if make is tables else ("labels", "y_true")
        return {key: LABELS[number], true: y_true}

    output = refused(tmp_path, make(tmp_path, run))
    assert re.search(r"seed-2\.\w+: .* row 7", output)
    _, found, _ = run_proposed(tmp_path, output)
    assert found == LABELS[[0, 1, 3]].astype(str).tolist()


def test_many_files_are_not_all_named(tmp_path: Path) -> None:
    (tmp_path / "seeds").mkdir()
    for number in range(60):
        n = 40 if number == 7 else SAMPLES
        np.savez(tmp_path / "seeds" / f"s{number}.npz", labels=RNG.integers(0, 4, n), y_true=Y[:n])
    output = refused(tmp_path, tmp_path / "seeds")
    (line,) = re.findall(r"to leave it out: manyseed import (.*)", output)
    assert "--exclude s7.npz" in line
    assert len(line) < 3 * len(str(tmp_path)) + 60
    assert len(run_proposed(tmp_path, output)[1]) == 59


def test_a_fault_of_all_files_proposes_to_leave_none_out(tmp_path: Path) -> None:
    given = folder(tmp_path, lambda n: {"labels": LABELS[n] + 1, "y_true": Y})
    assert "leave" not in refused(tmp_path, given)


# points in an order of their own


@pytest.mark.parametrize("kind", ["scores", "labels"])
@pytest.mark.parametrize("names", ["numbers", "texts"])
def test_files_with_points_in_orders_of_their_own(tmp_path: Path, names: str, kind: str) -> None:
    of_point = (
        np.arange(SAMPLES) if names == "numbers" else np.array([f"i{n}" for n in range(SAMPLES)])
    )

    def order(number: int) -> Any:
        return np.random.default_rng(number).permutation(SAMPLES)

    def run(number: int) -> dict[str, Any]:
        rows = order(number)
        predicted = (SCORES if kind == "scores" else LABELS)[number][rows]
        return {kind: predicted, "y_true": Y[rows], "test_index": of_point[rows]}

    given = folder(tmp_path, run)
    done = command("import", given, "--out", tmp_path / "sweep")
    assert "points of 3 files were put into the order of seed-0.npz, by test_index" in done.output
    _, found, true = labels(tmp_path / "sweep")
    assert found == LABELS[:, order(0)].astype(str).tolist()
    assert true == Y[order(0)].astype(str).tolist()


def test_other_points_are_not_sorted(tmp_path: Path) -> None:
    def run(number: int) -> dict[str, Any]:
        return {"labels": LABELS[number], "y_true": Y, "test_index": np.arange(SAMPLES) + number}

    assert "are in one of them alone" in refused(tmp_path, folder(tmp_path, run))


# batches


@pytest.mark.parametrize("size", [16, 15, SAMPLES])
@pytest.mark.parametrize("kind", ["scores", "labels", "scores alone", "labels alone"])
def test_batches_of_tensors_are_joined(tmp_path: Path, kind: str, size: int) -> None:
    (tmp_path / "seeds").mkdir()
    for number in range(RUNS):
        name, *alone = kind.split()
        given = torch.tensor((SCORES if name == "scores" else LABELS)[number]).split(size)
        content = [*given] if alone else {name: [*given], "y_true": [*torch.tensor(Y).split(size)]}
        torch.save(content, tmp_path / "seeds" / f"seed-{number}.pt")
        if alone:
            np.save(tmp_path / "seeds" / "y_true.npy", Y)
    assert imported(tmp_path, tmp_path / "seeds")[1] == LABELS.astype(str).tolist()


def test_tensors_of_a_run_each_are_runs(tmp_path: Path) -> None:
    torch.save({"scores": [*torch.tensor(SCORES)], "y_true": torch.tensor(Y)}, tmp_path / "a.pt")
    assert imported(tmp_path, tmp_path / "a.pt")[1] == LABELS.astype(str).tolist()


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_file_of_probabilities_that_are_not_finite_can_be_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bad: float
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("runs").mkdir()
    y = np.arange(40) % 3
    for seed in range(4):
        p = np.random.default_rng(seed).dirichlet(np.ones(3), len(y))
        p[5] = bad if seed == 2 else p[5]
        np.savez(f"runs/seed{seed}.npz", probs=p, targets=y)
    given = ("--key", "scores=probs,y_true=targets", "--probabilities")
    code, said = inside("import", "runs", "--out", "s", *given)
    assert (code, "not finite in 1 of 40 points" in said) == (2, True), said
    (line,) = re.findall(r"to leave it out: manyseed import (.*)", said)
    assert inside("import", *shlex.split(line))[0] == 0
