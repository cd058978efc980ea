"""Folders as other tools leave them: the first message is the one command that reads them."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from manyseed import Sweep
from tests.orchestrator.conftest import inside

N, K = 60, 3
Y = np.random.default_rng(5).integers(0, K, N)


def logits(seed: int) -> Any:
    return np.random.default_rng(seed).normal(size=(N, K)).round(4) + 1.5 * np.eye(K)[Y]


def right(seed: int) -> float:
    return float((logits(seed).argmax(axis=1) == Y).mean())


def folder(path: str) -> Path:
    Path(path).mkdir(parents=True, exist_ok=True)
    return Path(path)


def csv(file: Path, seed: int) -> None:
    pl.DataFrame({"y_true": Y, "y_pred": logits(seed).argmax(axis=1)}).write_csv(file)


def imported(path: str) -> dict[str, list[float]]:
    """Import a folder by the command that is proposed; return accuracies by classifier."""
    code, said = inside("import", path, "--out", "s")
    assert (code, "NAME" in said) == (2, False), said
    (words,) = re.findall("manyseed (import .*)", said)
    code, said = inside(*shlex.split(words))
    assert code == 0, said
    text = Path("s/sweep.toml").read_text("utf-8")
    found = {}
    for model in re.findall(r'classifier = \["(.*)"\]', text):
        runs = Sweep("s").runs(re.findall(r'dataset    = \["(.*)"\]', text)[0], model)
        is_right = np.squeeze(np.asarray(runs["label"])) == np.squeeze(np.asarray(runs["y_true"]))
        found[model] = np.ravel(is_right.mean(axis=-1)).tolist()
    return found


def models_in_folders() -> dict[str, list[float]]:
    for seed, model in enumerate(("gpt2", "t5")):
        csv(folder(f"lab/{model}") / "preds.csv", seed)
    return {"gpt2": [right(0)], "t5": [right(1)]}


def json_lines() -> dict[str, list[float]]:
    for seed in range(3):
        of = folder(f"lab/run{seed}")
        rows = [
            {"idx": n, "label": int(Y[n]), "logits": row}
            for n, row in enumerate(logits(seed).tolist())
        ]
        (of / "predictions.jsonl").write_text("\n".join(map(json.dumps, rows)))
        (of / "predict_results.json").write_text(json.dumps({"test_accuracy": 0.9}))
        (of / "trainer_state.json").write_text("{}")
    return {"imported": [right(seed) for seed in range(3)]}


def lists_in_parquet() -> dict[str, list[float]]:
    for seed in range(3):
        own = pl.DataFrame({"label": Y, "logits": logits(seed).tolist()})
        own.write_parquet(folder("lab") / f"seed{seed}.parquet")
    return {"imported": [right(seed) for seed in range(3)]}


@pytest.mark.parametrize("write", [models_in_folders, json_lines, lists_in_parquet])
def test_the_first_message_is_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, write: Callable[[], dict[str, list[float]]]
) -> None:
    monkeypatch.chdir(tmp_path)
    expected = write()
    found = imported("lab")
    assert found.keys() == expected.keys()
    for model, accuracies in expected.items():
        assert found[model] == pytest.approx(accuracies)


def test_metrics_are_not_proposed_for_conversion(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (folder("lab/run0") / "all_results.json").write_text("{}")
    code, said = inside("import", "lab", "--out", "s")
    assert (code, "holds metrics or settings" in said, "python -c" in said) == (2, True, False)
