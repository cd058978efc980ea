"""Numbers of seeds that do not begin at 0: they are kept, and no run is missing."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest

from manyseed import Sweep
from manyseed.orchestrator.errors import UserError
from manyseed.orchestrator.runs import find_run
from tests.orchestrator.conftest import command

SAMPLES, CLASSES = 30, 3
Y = np.arange(SAMPLES) % CLASSES


def predicted(seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return np.where(rng.random(SAMPLES) < 0.7, Y, rng.integers(0, CLASSES, SAMPLES))


def long_table(seeds: list[int]) -> pl.DataFrame:
    return pl.concat(
        pl.DataFrame({"truth": Y, "prediction": predicted(seed), "run": [seed] * SAMPLES})
        for seed in seeds
    )


def test_seeds_from_100_are_all_runs_that_there_are(tmp_path: Path) -> None:
    long_table([*range(100, 106)]).write_csv(tmp_path / "long.csv")
    out = tmp_path / "sweep"
    command("import", tmp_path / "long.csv", "--out", out, "--classifier", "mlp")
    assert "runs    = 6" in (out / "sweep.toml").read_text()
    sweep = Sweep(out)
    sweep.analyze()
    assert sweep.query(by=["classifier"])["coverage"].to_list() == [1]
    methods = command("methods", out).output
    assert "6 runs" in methods and "up to" not in methods
    assert not [name for name in ("Paszke", "torch", "Unfinished") if name in methods]
    with pytest.raises(UserError, match="runs 100 to 105"):
        find_run(sweep.paths, "0:0:3")

    long_table([106, 107]).write_csv(tmp_path / "more.csv")
    command("import", out, tmp_path / "more.csv")
    assert "runs    = 8" in (out / "sweep.toml").read_text()
    sweep = Sweep(out)
    sweep.analyze()
    assert sweep.query(by=["classifier"])["coverage"].to_list() == [1]
    assert sweep.results["repeats"]["coverage"].to_list() == [1]


@pytest.mark.parametrize("classifier", ["mlp", "xgb", "lr-sgd", "resnet18"])
def test_methods_of_an_import_cite_no_library(tmp_path: Path, classifier: str) -> None:
    long_table([0, 1]).write_csv(tmp_path / "long.csv")
    command("import", tmp_path / "long.csv", "--out", tmp_path / "s", "--classifier", classifier)
    Sweep(tmp_path / "s").analyze()
    methods = command("methods", tmp_path / "s").output.lower()
    assert not [name for name in ("torch", "xgboost", "scikit-learn") if name in methods]
