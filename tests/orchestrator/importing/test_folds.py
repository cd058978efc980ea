"""Files of a fold each, with test points of their own: test sets of one data set."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from manyseed import Sweep
from tests.orchestrator.conftest import command

FOLDS, N = 5, 20
PLACES = np.random.default_rng(9).permutation(FOLDS * N).reshape(FOLDS, N)
Y = np.random.default_rng(1).integers(0, 3, (FOLDS, N))
Y[:, :3] = [0, 1, 2]


def fold(number: int, seed: int = 0) -> np.ndarray:
    draws = np.random.default_rng(100 * seed + number)
    return np.where(draws.random(N) < 0.3, (Y[number] + 1) % 3, Y[number])


def written(folder: Path, form: str, index: str, seeds: int = 1, last: int = N) -> None:
    folder.mkdir()
    for number in range(FOLDS):
        n = last if number == FOLDS - 1 else N
        for seed in range(seeds):
            held: dict[str, Any] = {"labels": fold(number, seed)[:n], "y_true": Y[number][:n]}
            if index == "numbers":
                held["test_index"] = PLACES[number][:n]
            if index == "names":
                held["test_index"] = np.array([f"p{place:03d}" for place in PLACES[number][:n]])
            np.savez(folder / form.format(fold=number + 1, seed=seed), **held)


@pytest.mark.parametrize("index", ["", "numbers", "names"])
@pytest.mark.parametrize(("form", "seeds"), [("fold{fold}.npz", 1), ("cv{fold}_seed{seed}.npz", 2)])
def test_each_fold_is_a_test_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str, seeds: int, index: str
) -> None:
    monkeypatch.chdir(tmp_path)
    written(Path("runs"), form, index, seeds)
    done = command("import", "runs", "--out", "sweep")
    assert done.returncode == 2
    assert "is of another fold, with rows of its own" in done.stderr
    words = shlex.split(re.findall("manyseed (import .*)", done.stderr)[0])
    done = command(*words)
    assert done.returncode == 0, done.output
    sweep = Sweep("sweep")
    tables = sweep.analyze()
    runs = tables["runs"].sort("repeat_index", "run_index")
    assert runs["repeat_index"].to_list() == [at for at in range(FOLDS) for _ in range(seeds)]
    expected = [np.mean(fold(at, seed) == Y[at]) for at in range(FOLDS) for seed in range(seeds)]
    assert runs["accuracy"].to_list() == pytest.approx(expected)
    points = sweep.query("points").sort("index")
    assert len(points) == FOLDS * N
    if index:
        truth = np.empty(FOLDS * N, dtype=int)
        truth[PLACES.ravel()] = Y.ravel()
        assert points["truth"].cast(int).to_list() == truth.tolist()
    if index == "names":
        assert points["row_id"].to_list() == [f"p{place:03d}" for place in range(FOLDS * N)]
    assert sweep.verify()["findings"] == []


def test_folds_of_other_sizes_are_refused(tmp_path: Path) -> None:
    written(tmp_path / "runs", "fold{fold}.npz", "numbers", last=N - 1)
    for more in ((), ("--name", "fold{repeat}.npz")):
        done = command("import", tmp_path / "runs", "--out", tmp_path / "sweep", *more)
        assert done.returncode == 2
        assert "have 19 to 20" in done.stderr
        assert "put the folds of each run into one table" in done.stderr
        assert not (tmp_path / "sweep").exists()


def test_files_of_one_fold_must_have_the_same_points(tmp_path: Path) -> None:
    written(tmp_path / "runs", "fold{fold}_seed{seed}.npz", "numbers", 2)
    other = tmp_path / "runs/fold2_seed1.npz"
    np.savez(other, labels=fold(1, 1), y_true=Y[1], test_index=PLACES[1][::-1])
    form = ("--name", "fold{repeat}_seed{run}.npz")
    done = command("import", tmp_path / "runs", "--out", tmp_path / "sweep", *form)
    assert done.returncode == 2
    assert re.search(r"fold2_seed[01].npz: y_true: its test set differs from that", done.stderr)
