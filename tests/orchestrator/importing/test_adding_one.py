"""A single seed's file that is added: its number, and the sweep's true classes by ids."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from manyseed.orchestrator.paths import SweepPaths
from manyseed.orchestrator.plans.plan import Plan
from tests.orchestrator.conftest import inside

N = 40
TRUE = np.array(["ape", "bee", "cat", "dog"])[np.arange(N) % 4]
IDS = np.array([f"IMG_{7 * place % N:03}.jpg" for place in range(N)])


def saved(folder: Path, seed: int) -> Path:
    rng = np.random.default_rng(seed)
    folder.mkdir(exist_ok=True, parents=True)
    label, order = np.where(rng.random(N) < 0.3, "ape", TRUE), rng.permutation(N)
    of = {"image": IDS[order], "pred": label[order], "conf": rng.random(N)}
    pl.DataFrame(of).write_csv(folder / f"seed_{seed}.csv")
    return folder / f"seed_{seed}.csv"


def imported(folder: Path, *, named: bool) -> Path:
    for seed in (1, 2, 4):
        saved(folder / "preds" / "cnn", seed)
    labels = folder / "labels.csv"
    pl.DataFrame({"image": IDS, "label": TRUE}).write_csv(labels)
    words = ["--truth", labels, "--columns", "prediction=pred,row_id=image"]
    words += ["--name", "{classifier}/seed_{run}.csv"] if named else ["--classifier", "cnn"]
    files = [folder / "preds"] if named else [folder / "preds" / "cnn"]
    code, said = inside("import", *files, "--out", folder / "out", *words)
    assert code == 0, said
    return folder / "out"


def runs(sweep: Path) -> list[int]:
    return sorted(Plan.read(SweepPaths(sweep)).all_rows["run"].to_list())


def test_an_added_file_has_the_number_in_its_name_and_the_true_classes_of_the_sweep(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    sweep = imported(Path(), named=True)
    file = saved(Path("preds", "cnn"), 3)
    code, said = inside("import", sweep, file)
    assert code == 2
    assert "truth=" not in said
    words = shlex.split(re.findall("manyseed (import .*)", said)[0])
    code, said = inside(*words)
    assert code == 0, said
    assert "seed_3.csv is added as run 3, as its name says." in said
    assert runs(sweep) == [1, 2, 3, 4]
    label = pl.read_csv(file).sort("image")["pred"].to_numpy()
    right = (label == TRUE[np.argsort(IDS)]).mean()
    assert f"cnn: 1 run, accuracy {right:.3f}" in said


def test_what_keeps_the_number_of_an_added_file_is_told(tmp_path: Path) -> None:
    sweep = imported(tmp_path, named=False)
    file = saved(tmp_path / "preds" / "cnn", 9)
    code, said = inside("import", sweep, file, "--columns", "prediction=pred")
    assert code == 0, said
    assert "seed_9.csv is added as run 3. To keep its number: --name 'seed_{run}.csv'" in said
    assert runs(sweep) == [0, 1, 2, 3]


def test_a_table_with_other_ids_is_not_given_the_true_classes_of_the_sweep(tmp_path: Path) -> None:
    sweep = imported(tmp_path, named=True)
    file = saved(tmp_path / "preds" / "cnn", 3)
    pl.read_csv(file)[1:].write_csv(file)
    code, said = inside("import", sweep, file, "--columns", "prediction=pred,row_id=image")
    assert code == 2
    assert "truth" in said
    assert runs(sweep) == [1, 2, 4]
