"""A collapsed run, from the command to the page: named, and left out where that is asked for."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from typer.testing import CliRunner

from manyseed import Sweep
from manyseed.orchestrator.cli.commands import app
from manyseed.orchestrator.importing import import_predictions

N_TEST = 2000


def test_the_summary_and_the_page_name_it(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    y_true = rng.integers(0, 2, N_TEST)
    gaps = (4.0 * y_true - 2 + rng.normal(size=(10, N_TEST))).astype(np.float32)
    gaps[6] = 60
    np.savez(tmp_path / "one.npz", scores=gaps, y_true=y_true)
    import_predictions([tmp_path / "one.npz"], tmp_path / "sweep")

    def analyze(*options: str) -> str:
        result = CliRunner().invoke(
            app, ["analyze", str(tmp_path / "sweep"), "--metrics", "accuracy,alpha_hat", *options]
        )
        assert result.exit_code == 0, result.output
        return " ".join(result.output.split())

    sweep = Sweep(tmp_path / "sweep")
    told = "Without run 6 (cell 0, repeat 0), no resample is rejected at every level."
    assert told in analyze()
    assert told in " ".join(sweep.report().read_text().split())
    assert sweep.results["runs"]["alpha_hat"].min() == 1
    told = "Left out of references, because others fail against them: run 6 (cell 0, repeat 0)."
    assert told in analyze("--alpha-reference", "others-trimmed")
    assert told in " ".join(sweep.report().read_text().split())
    levels = sweep.results["runs"]["alpha_hat"].to_numpy()
    assert levels[6] == 1
    assert np.delete(levels, 6).max() < 0.05
    as_json = analyze("--alpha-reference", "others-trimmed", "--json")
    assert told in json.loads(as_json)["infeasible"][0]
