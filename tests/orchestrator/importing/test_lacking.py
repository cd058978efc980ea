"""Where no name says what is meant, words say what is needed: a command has no placeholders."""

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

N, RUNS, FOLDS = 60, 4, 5
Y = np.random.default_rng(5).integers(0, 3, N)


def labels(seed: int, truth: Any = Y) -> Any:
    rng = np.random.default_rng(seed)
    return np.where(rng.random(N) < 0.8, truth, rng.integers(0, 3, N))


def folds(*, drawn_anew: bool = False, truth: Any = Y, ids: bool = False) -> pl.DataFrame:
    """Return a long table of folds, a row for each run and point."""
    tables = []
    for number, model in enumerate(("rf", "svm")):
        for seed in range(RUNS):
            of = np.random.default_rng(seed * drawn_anew).permutation(N) % FOLDS
            rows = np.concatenate([np.flatnonzero(of == fold) for fold in range(FOLDS)])
            table = {"model": [model] * N, "seed": [seed] * N, "fold": of[rows]}
            table |= {"idx": rows} if ids else {}
            label = labels(10 * number + seed, truth)
            tables.append(pl.DataFrame(table | {"y_true": truth[rows], "y_pred": label[rows]}))
    return pl.concat(tables)


def accuracies(directory: str, dataset: str, model: str) -> list[float]:
    runs = Sweep(directory).runs(dataset, model)
    right = np.squeeze(np.asarray(runs["label"])) == np.squeeze(np.asarray(runs["y_true"]))
    return sorted(np.ravel(right.mean(axis=-1)).tolist())


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def proposed(said: str) -> list[str]:
    return shlex.split(re.findall("manyseed (import .*)", said)[0])


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize("ids", [False, True])
def test_folds_without_ids_are_told_apart_by_their_place(ids: bool) -> None:
    folds(ids=ids, drawn_anew=ids).write_csv("cv.csv")
    code, said = inside("import", "cv.csv", "--out", "s")
    assert (code, "NAME" in said, "row_id=idx" in said) == (2, False, ids), said
    code, said = inside(*proposed(said))
    assert (code, "told apart by their place" in said) == (0, not ids), said
    for number, model in enumerate(("rf", "svm")):
        own = sorted((labels(10 * number + seed) == Y).mean() for seed in range(RUNS))
        assert accuracies("s", "cv", model) == pytest.approx(own)


@pytest.mark.usefixtures("here")
def test_folds_drawn_anew_need_ids() -> None:
    folds(drawn_anew=True).write_csv("cv.csv")
    code, said = inside("import", "cv.csv", "--out", "s")
    assert (code, "NAME" in said, "row_id that names its test point" in said) == (2, False, True)
    folds(drawn_anew=True, truth=np.sort(Y)).write_csv("sorted.csv")  # true classes would agree
    code, said = inside("import", "sorted.csv", "--out", "t")
    assert (code, "true classes of a fold are sorted" in said, "NAME" in said) == (2, True, False)


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize("suffix", [".npy", ".csv"])
def test_lacking_true_classes_are_asked_for_with_their_shape(suffix: str) -> None:
    Path("lab").mkdir()
    for seed in range(RUNS):
        table = pl.DataFrame({"id": np.arange(N)[::-1], "pred": labels(seed)[::-1]})
        if suffix == ".csv":
            table.write_csv(f"lab/seed{seed}.csv")
        else:
            np.save(f"lab/seed{seed}.npy", labels(seed))
    code, said = inside("import", "lab", "--out", "s")
    assert (code, "FILE" in said, "NAME" in said) == (2, False, False), said
    file, columns = re.findall(r"as (y_true[.]\w+)(?:, columns (.*?))?, one class", said)[0]
    if suffix == ".csv":
        assert columns == "y_true and id"
        pl.DataFrame({"y_true": Y, "id": np.arange(N)}).write_csv(f"lab/{file}")
    else:
        np.save(f"lab/{file}", Y)
    code, said = inside("import", "lab", "--out", "s")
    code, said = inside(*proposed(said)) if code else (code, said)
    assert code == 0, said
    own = sorted((labels(seed) == Y).mean() for seed in range(RUNS))
    assert accuracies("s", "lab", "imported") == pytest.approx(own)


@pytest.mark.usefixtures("here")
def test_runs_without_numbers_are_numbered_by_what_is_said() -> None:
    own = [
        {"img": [f"i{row}" for row in range(N)], "y_true": Y, "y_pred": labels(s)} for s in (0, 1)
    ]
    table = pl.concat(map(pl.DataFrame, own))
    table.write_csv("long.csv")
    code, said = inside("import", "long.csv", "--out", "s")
    assert (code, "NAME" in said) == (2, False), said
    expression = re.findall(r"frame[.]with_columns\((.*)\)$", said.strip())[0]
    assert expression == "run=pl.int_range(pl.len()).over('img')"
    table.with_columns(run=pl.int_range(pl.len()).over("img")).write_csv("long.csv")
    code, said = inside("import", "long.csv", "--out", "s")
    assert inside(*proposed(said))[0] == 0


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize("suffix", [".pt", ".npz", ".csv"])
def test_predictions_alone_are_not_asked_whether_they_are_the_truth(suffix: str) -> None:
    Path("lab").mkdir()
    scores = np.eye(3)[labels(0)] + np.random.default_rng(0).normal(0, 0.1, (N, 3))
    if suffix == ".pt":
        torch = pytest.importorskip("torch")
        torch.save(torch.tensor(scores), "lab/seed0.pt")
    elif suffix == ".npz":
        np.savez("lab/seed0.npz", scores=scores)
    else:
        pl.DataFrame({"prediction": labels(0)}).write_csv("lab/seed0.csv")
    code, said = inside("import", "lab", "--out", "s")
    assert (code, "name it with --truth" in said) == (2, True), said
    assert "no name says" not in said
    assert " does, say" not in said
