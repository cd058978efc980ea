"""What scripts leave behind for each seed: its number, its own test set, objects, accuracies."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from manyseed import Sweep
from manyseed.orchestrator.errors import UserError
from manyseed.orchestrator.plans.plan import Plan
from manyseed.orchestrator.runs import find_run
from tests.orchestrator.conftest import command
from tests.orchestrator.importing.conftest import runs_of

SAMPLES, CLASSES = 30, 3
Y = np.arange(SAMPLES) % CLASSES


def predicted(seed: int) -> Any:
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
    assert "6 runs" in methods
    assert "up to" not in methods
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


def proposed(output: str) -> list[str]:
    """The words of the command in a message."""
    (line,) = [line for line in output.splitlines() if "manyseed import" in line]
    return shlex.split(line[line.index("manyseed import") :])[1:]


def test_numbers_of_seeds_that_are_not_kept_are_told(tmp_path: Path) -> None:
    folder = tmp_path / "mlp"
    folder.mkdir()
    for seed in (0, 1, 10, 42):
        np.savez(folder / f"run_seed={seed}.npz", labels=predicted(seed), y_true=Y)
    output = command("import", folder, "--out", tmp_path / "a").output
    assert "runs are numbered 0 to 3, in the order of their files' numbers (0, 1, 10, 42)" in output
    form = "run_seed={run}.npz"
    assert f"--name '{form}'" in output
    output = command("import", folder, "--out", tmp_path / "b", "--name", form).output
    assert "numbered" not in output
    assert Plan.read(Sweep(tmp_path / "b").paths).rows["run"].to_list() == [0, 1, 10, 42]


@pytest.mark.parametrize(
    ("form", "options"),
    [
        ("seed_{run}.csv", []),
        ("seed={run}.csv", ["--columns", "truth=label,prediction=pred"]),
        ("seed={run}.csv", ["--columns", "truth=label,confidence=p_{class}"]),
        ("{run}.jsonl", []),
        ("{run}.npy", ["--truth", "y.npy"]),
        ("run{run}.parquet", []),
        ("lr0.1/{run}/preds.npy", ["--truth", "y.npy"]),
    ],
)
def test_numbers_of_seeds_are_told_in_every_form(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str, options: list[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    np.save("y.npy", Y)
    for seed in range(98, 102):
        file = Path("mlp", form.format(run=seed))
        file.parent.mkdir(parents=True, exist_ok=True)
        names = ("label", "pred") if options else ("truth", "prediction")
        table = pl.DataFrame(dict(zip(names, (Y, predicted(seed)), strict=True)))
        p = np.eye(CLASSES)[predicted(seed)]
        table = table.with_columns(pl.Series(f"p_{at}", p[:, at]) for at in range(CLASSES))
        table = table if "confidence" in str(options) else table[:, :2]
        if file.suffix == ".npy":
            np.save(file, predicted(seed))
        else:
            write = {".csv": "write_csv", ".jsonl": "write_ndjson", ".parquet": "write_parquet"}
            getattr(table, write[file.suffix])(file)
    files = sorted(map(str, Path("mlp").rglob("*.*[a-z]")), key=lambda one: (len(one), one))
    files = [one for one in files if Path(one).is_file()]
    given = ["--dataset", "mlp", *options]
    output = command("import", *files, "--out", "a", *given).output
    assert "are numbered 0 to 3, in the order of their files' numbers (98, 99, 100, 101)" in output
    name = form.removeprefix("lr0.1/")
    assert f"--name {shlex.quote(name)}" in output
    output = command("import", "mlp", "--out", "b", *given, "--name", name).output
    assert "are numbered" not in output
    assert Plan.read(Sweep("b").paths).rows["run"].to_list() == [98, 99, 100, 101]


def split_by(seed: int) -> pl.DataFrame:
    """What a script writes that splits the data by its own seed."""
    points = np.random.default_rng(seed).permutation(200)[:SAMPLES]
    names, true = np.array(["a", "b", "c"]), points % CLASSES
    guess = np.where(predicted(seed) == Y, true, (true + 1) % CLASSES)
    ids = [f"c{point}" for point in points]
    return pl.DataFrame({"customer": ids, "label": names[true], "pred": names[guess]})


@pytest.mark.parametrize("kind", ["csv", "npz"])
@pytest.mark.parametrize("options", [[], ["--columns", "truth=label,prediction=pred"]])
def test_splits_of_other_sizes_are_data_sets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, options: list[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mlp").mkdir()
    for seed in range(4):
        table = split_by(seed)[seed:]
        if kind == "csv":
            table.write_csv(f"mlp/seed{seed}.csv")
        else:
            labels, true = (table[name].to_numpy().astype(str) for name in ("pred", "label"))
            np.savez(f"mlp/seed{seed}.npz", labels=labels, y_true=true)
    options = options if kind == "csv" else []
    refused = command("import", "mlp", "--out", "a", *options)
    assert refused.returncode == 2
    assert "test sets have 27 to 30 points" in refused.output
    words = proposed(refused.output)
    assert f"{{dataset}}.{kind}" in words
    done = command(*words)
    assert "4 runs" in done.output, done.output
    assert set(runs_of(Sweep("a"))["dataset"]) == {f"seed{seed}" for seed in range(4)}
    words[words.index(f"{{dataset}}.{kind}")] = f"seed{{repeat}}.{kind}"
    words[words.index("a")] = "b"
    refused = command(*words)
    assert "test sets have 27 to 30 points; all must have equally many" in refused.output
    assert "--name with {dataset}" in refused.output


def test_tables_that_are_cut_off_are_no_data_sets(tmp_path: Path) -> None:
    for seed in range(4):
        ids = np.arange(SAMPLES)
        table = pl.DataFrame({"row_id": ids, "truth": Y, "prediction": predicted(seed)})
        table[: SAMPLES - seed].write_csv(tmp_path / f"seed{seed}.csv")
    refused = command("import", tmp_path, "--out", tmp_path / "a")
    assert (refused.returncode, "{dataset}" in refused.output) == (2, False), refused.output


@pytest.mark.parametrize("columns", [[], ["--columns", "truth=label,prediction=pred"]])
def test_splits_by_the_seed_are_test_sets(tmp_path: Path, columns: list[str]) -> None:
    (tmp_path / "mlp").mkdir()
    for seed in range(3):
        split_by(seed).write_csv(tmp_path / f"mlp/seed{seed}.csv")
    refused = command("import", tmp_path / "mlp", "--out", tmp_path / "a", *columns)
    assert refused.returncode == 2
    words = proposed(refused.output)
    assert "truth=label,prediction=pred,row_id=customer" in words
    assert "seed{repeat}.csv" in words
    assert "3 runs" in command(*words).output
    assert Sweep(tmp_path / "a").analyze()["repeats"].height == 3


def test_splits_by_the_seed_in_arrays(tmp_path: Path) -> None:
    (tmp_path / "mlp").mkdir()
    for seed in range(3):
        true = np.random.default_rng(seed).integers(0, CLASSES, SAMPLES)
        np.savez(tmp_path / f"mlp/seed{seed}.npz", labels=(true + (Y > 1)) % CLASSES, y_true=true)
    refused = command("import", tmp_path / "mlp", "--out", tmp_path / "a")
    assert refused.returncode == 2
    words = proposed(refused.output)
    assert "seed{repeat}.npz" in words
    assert "3 runs" in command(*words).output


def test_objects_in_arrays_come_with_what_converts_them(tmp_path: Path) -> None:
    (tmp_path / "mlp").mkdir()
    names = np.array(["a", "b", "c"])
    for seed in range(2):
        proba = np.random.default_rng(seed).dirichlet(np.ones(CLASSES), SAMPLES)
        held = {"y_pred": names[proba.argmax(axis=1)].astype(object), "proba": proba}
        np.savez(tmp_path / f"mlp/seed{seed}.npz", y_true=names[Y].astype(object), **held)
    refused = command("import", tmp_path / "mlp", "--out", tmp_path / "a").output
    assert "y_true: holds Python objects" in refused
    _, flag, code = shlex.split(refused[refused.index("python -c") :])
    assert flag == "-c"
    exec(code, {})
    words = proposed(command("import", tmp_path / "mlp", "--out", tmp_path / "a").output)
    assert words[-3:] == ["--key", "scores=proba", "--probabilities"]
    assert "2 runs" in command(*words).output


@pytest.mark.parametrize("measure", ["accuracy", "test_acc", "macro_f1", "val_loss"])
def test_accuracies_are_no_predictions(tmp_path: Path, measure: str) -> None:
    pl.DataFrame({"seed": [0, 1, 2], measure: [0.8, 0.81, 0.79]}).write_csv(tmp_path / "accs.csv")
    refused = command("import", tmp_path / "accs.csv", "--out", tmp_path / "a")
    assert refused.returncode == 2
    assert f"accs.csv: {measure}: is a measure of each run" in refused.output
    assert "predictions of each test point are needed" in refused.output


@pytest.mark.parametrize("models", ["ab", "aa"])
@pytest.mark.parametrize("tool", ["hydra", "lightning"])
def test_folders_of_tools_have_one_command(tmp_path: Path, tool: str, models: str) -> None:
    top = tmp_path / ("outputs" if tool == "hydra" else "lightning_logs")
    for number, (model, seed) in enumerate((model, seed) for model in models for seed in range(2)):
        if tool == "hydra":
            folder = top / f"2024-01-0{1 + number // 2}/12-0{seed}-33"
            settings = folder / ".hydra/overrides.yaml"
            text = f"- model={model}\n- seed={seed}\n"
        else:
            folder = top / f"version_{number}"
            settings, text = folder / "hparams.yaml", f"model: {model}\nseed: {seed}\n"
        settings.parent.mkdir(parents=True)
        settings.write_text(text)
        np.savez(folder / "preds.npz", labels=predicted(number), y_true=Y)
    refused = command("import", top, "--out", tmp_path / "s")
    assert refused.returncode == 2
    done = command(*proposed(refused.output))
    assert done.returncode == 0, done.output
    assert ("classifiers a, b" in done.output) == (models == "ab")
