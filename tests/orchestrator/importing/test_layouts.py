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


def probabilities_by_class() -> dict[str, list[float]]:
    names = ["cat", "dog", "owl"]
    for seed in range(3):
        p = np.exp(logits(seed)) / np.exp(logits(seed)).sum(axis=1, keepdims=True)
        rows = [
            {"id": n, "label": names[Y[n]], "probs": dict(zip(names, row, strict=True))}
            for n, row in enumerate(p.tolist())
        ]
        (folder("lab") / f"seed{seed}.jsonl").write_text("\n".join(map(json.dumps, rows)))
    return {"imported": [right(seed) for seed in range(3)]}


@pytest.mark.parametrize(
    "write", [models_in_folders, json_lines, lists_in_parquet, probabilities_by_class]
)
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


@pytest.mark.parametrize("levels", ["{model}/{dataset}", "{dataset}/{model}"])
@pytest.mark.parametrize("file", ["seed_{seed}/preds.npz", "seed_{seed}.npz"])
def test_folders_of_models_and_data_sets_are_told_by_true_classes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, levels: str, file: str
) -> None:
    monkeypatch.chdir(tmp_path)
    for at, model in enumerate(("cnn", "vit")):
        for dataset, n in (("digits", N), ("iris", N - 20)):
            for seed in range(2):
                path = Path(
                    "lab", f"{levels}/{file}".format(model=model, dataset=dataset, seed=seed)
                )
                folder(str(path.parent))
                label = logits(2 * at + seed)[:n].argmax(axis=1)
                np.savez(path, labels=label, y_true=Y[:n])
    code, said = inside("import", "lab", "--out", "s")
    (words,) = re.findall("manyseed (import .*)", said)
    form = f"{levels}/{file}".format(model="{classifier}", dataset="{dataset}", seed="{run}")
    assert (code, form in words) == (2, True), said
    code, said = inside(*shlex.split(words))
    assert code == 0, said
    runs = Sweep("s").runs("digits", "vit")
    is_right = np.squeeze(np.asarray(runs["label"])) == Y
    assert is_right.mean(axis=-1).tolist() == pytest.approx([right(2), right(3)])


@pytest.mark.parametrize("names", [("digits", "iris", "wine"), ("seed0", "seed1", "seed2")])
def test_tables_of_other_sizes_and_true_classes_are_data_sets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, names: tuple[str, ...]
) -> None:
    monkeypatch.chdir(tmp_path)
    for n, name in enumerate(names):
        rng = np.random.default_rng(n)
        true = rng.integers(0, K, N - n)
        own = np.where(rng.random(N - n) < 0.8, true, 0)
        pl.DataFrame({"y_true": true, "y_pred": own}).write_csv(folder("lab") / f"{name}.csv")
    code, said = inside("import", "lab", "--out", "s")
    assert (code, "--name '{dataset}.csv'" in said) == (2, True), said
    (words,) = re.findall("manyseed (import .*)", said)
    code, said = inside(*shlex.split(words))
    assert (code, "Imported 3 runs" in said) == (0, True), said


@pytest.mark.parametrize("models", [("cnn",), ("cnn", "vit")])
def test_jobs_of_hydra_are_numbered_by_their_seeds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, models: tuple[str, ...]
) -> None:
    monkeypatch.chdir(tmp_path)
    for job, (model, seed) in enumerate((model, seed) for model in models for seed in (7, 42, 13)):
        at = folder(f"multirun/2026-01-02/03-04-05/{job}")
        (folder(f"{at}/.hydra") / "overrides.yaml").write_text(f"- model={model}\n- seed={seed}\n")
        np.savez(at / "preds.npz", labels=logits(job).argmax(axis=1), y_true=Y)
    code, said = inside("import", "multirun", "--out", "s")
    (words,) = re.findall("manyseed (import .*)", said)
    code, said = inside(*shlex.split(words))
    assert (code, "Runs are numbered by seed" in said) == (0, True), said
    for at, model in enumerate(models if len(models) > 1 else ["imported"]):
        runs = Sweep("s").runs("multirun", model)
        found = np.squeeze(np.asarray(runs["label"]))
        for label, job in zip(found, (0, 2, 1), strict=True):
            assert label.tolist() == logits(3 * at + job).argmax(axis=1).tolist()


@pytest.mark.parametrize(("name", "value"), [("lr", 7), ("seed", 7)])
def test_paths_number_runs_where_settings_do_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, value: int
) -> None:
    monkeypatch.chdir(tmp_path)
    for job in range(3):
        at = folder(f"multirun/{job}")
        (folder(f"{at}/.hydra") / "overrides.yaml").write_text(f"- {name}={value}\n")
        np.savez(at / "preds.npz", labels=logits(job).argmax(axis=1), y_true=Y)
    code, said = inside("import", "multirun", "--out", "s", "--name", "{run}/preds.npz")
    assert (code, "Runs are numbered" in said) == (0, False), said


def test_tables_of_wandb_are_runs_of_one_classifier(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    names = np.array(["ant", "bee", "cat"])
    for seed in range(3):
        at = folder(f"wandb/run-20240101_00000{seed}-ab{seed}/files/media/table")
        own = {"score": np.full(N, 0.5), "label": names[Y]}
        table = pl.DataFrame({**own, "guess": names[logits(seed).argmax(axis=1)]})
        table.write_parquet(at / f"val_preds_0_{seed}abcdef123.table.parquet")
    code, said = inside("import", "wandb", "--out", "s")
    (words,) = re.findall("manyseed (import .*)", said)
    code, said = inside(*shlex.split(words))
    assert (code, "Imported 3 runs" in said) == (0, True), said
    found = np.squeeze(np.asarray(Sweep("s").runs("wandb", "imported")["label"]))
    assert sorted((found == Y).mean(axis=1)) == pytest.approx(sorted(map(right, range(3))))
    assert said.splitlines()[-1] == "Next: manyseed analyze s && manyseed answers s"
