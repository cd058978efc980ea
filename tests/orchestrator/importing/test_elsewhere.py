"""Layouts of other tools: one model does not become several, nor several one."""

from __future__ import annotations

import json
import pickle
import re
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from manyseed import Sweep
from manyseed.orchestrator.errors import UserError
from tests.orchestrator.conftest import inside
from tests.orchestrator.importing.test_models import SAMPLES, accuracies, followed

NAMES = np.array(["ant", "bee", "cat"])
TRUE = np.arange(SAMPLES) % 3


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def labels(n_wrong: int, first: int = 0) -> np.ndarray:
    found = TRUE.copy()
    wrong = (np.arange(n_wrong) + first) % SAMPLES
    found[wrong] = (found[wrong] + 1) % 3
    return found


def table(n_wrong: int, first: int = 0) -> pl.DataFrame:
    return pl.DataFrame({"y_true": NAMES[TRUE], "y_pred": NAMES[labels(n_wrong, first)]})


def written(path: str, frame: pl.DataFrame) -> Path:
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    frame.write_csv(path)
    return Path(path)


def right(*n_wrong: int) -> list[float]:
    return sorted(1 - n / SAMPLES for n in n_wrong)


def refused(*words: object) -> str:
    code, said = inside("import", *words, "--out", "made")
    assert (code, Path("made").exists()) == (2, False), said
    return " ".join(said.split())


def test_folders_named_by_the_time_of_their_start_are_runs() -> None:
    for n, wrong in enumerate((5, 9, 12)):
        name = f"wandb/run-20240101_12000{n}-x{n}k2/files/media/table/predictions.csv"
        written(name, table(wrong, n))
    assert accuracies(followed("wandb")) == {"imported": pytest.approx(right(5, 9, 12))}


@pytest.mark.parametrize("key", ["model", "net.name", "lr"])
def test_settings_beside_files_tell_models_apart(key: str) -> None:
    """Numbered folders of a sweep over models, or over hparams, are not runs of one classifier."""
    values = ("0.1", "0.01") if key == "lr" else ("cnn", "mlp")
    for number, wrong in enumerate((5, 6, 12, 14)):
        at = f"multirun/2024-01-01/12-00-00/{number}"
        written(f"{at}/preds.csv", table(wrong, number))
        Path(at, ".hydra").mkdir()
        said = f"- {key}={values[number // 2]}\n- seed={number % 2}\n- id=x{number}\n"
        Path(at, ".hydra", "overrides.yaml").write_text(said)
    said = refused(
        "multirun", "--name", "{run}/preds.csv", "--columns", "truth=y_true,prediction=y_pred"
    )
    assert f"{key} is {values[0]} beside it, {values[1]} beside" in said
    (line,) = re.findall(r"manyseed import (.*)", said)
    assert inside("import", *shlex.split(line))[0] == 0
    names = [f"{key}-{value}" if key == "lr" else value for value in values]
    found = accuracies(Path("made"))
    assert found == {names[0]: pytest.approx(right(5, 6)), names[1]: pytest.approx(right(12, 14))}


def test_all_settings_that_tell_models_apart_are_named_at_once() -> None:
    """Of a model and its learning rate; more of them are named with their values."""
    wrong = [*range(4, 22, 3)]
    for number, n in enumerate(wrong):
        own = (("cnn", "0.001"), ("cnn", "0.01"), ("mlp", "0.001"))[number // 2]
        at = f"multirun/2024-01-01/12-00-00/{number}"
        written(f"{at}/preds.csv", table(n, number))
        Path(at, ".hydra").mkdir()
        said = f"- model={own[0]}\n- model.lr={own[1]}\n- seed={number % 2}\n"
        Path(at, ".hydra", "overrides.yaml").write_text(said)
    said = refused("multirun")
    assert "name classifiers by model and model.lr: " in said
    (line,) = re.findall(r"manyseed import (.*)", said)
    assert "--classifier '{model}-{model.lr}'" in line
    assert inside("import", *shlex.split(line))[0] == 0
    assert accuracies(Path("made")) == {
        "cnn-0.001": pytest.approx(right(*wrong[:2])),
        "cnn-0.01": pytest.approx(right(*wrong[2:4])),
        "mlp-0.001": pytest.approx(right(*wrong[4:])),
    }
    by_model = shlex.split(line.replace("-{model.lr}", "").replace("made", "other"))
    code, said = inside("import", *by_model)
    assert (code, "--classifier '{model}-model.lr-{model.lr}'" in said) == (2, True), said


def test_settings_that_differ_in_seeds_and_ids_alone_are_of_one_model() -> None:
    for number, wrong in enumerate((5, 9)):
        written(f"logs/version_{number}/test.csv", table(wrong, number))
        said = f"model: cnn\nseed: {number}\nid: x{number}\nout: /tmp/{number}\n"
        Path(f"logs/version_{number}/hparams.yaml").write_text(said)
        written(f"logs/version_{number}/metrics.csv", pl.DataFrame({"epoch": [1], "loss": [0.1]}))
    assert accuracies(followed("logs")) == {"imported": pytest.approx(right(5, 9))}


def test_files_without_the_setting_get_a_name_in_the_command() -> None:
    for number, said in enumerate(("- model=cnn\n", "- seed=1\n", "- model=cnn\n")):
        written(f"lab/{number}/p.csv", table(5 + number, number))
        Path(f"lab/{number}/overrides.yaml").write_text(said)
    options = ("--columns", "truth=y_true,prediction=y_pred")
    said = refused("lab", "--name", "{run}/p.csv", *options)
    assert "model is cnn beside it, not set beside lab/1/p.csv" in said
    (line,) = re.findall(r"manyseed import (.*)", said)
    assert inside("import", *shlex.split(line))[0] == 0
    assert accuracies(Path("made")).keys() == {"cnn", "unnamed"}


@pytest.mark.parametrize("kind", ["csv", "npz"])
@pytest.mark.parametrize("given", [[], ["--name", "*/{run}/p.*"]])
def test_settings_of_many_files_name_their_classifiers(kind: str, given: list[str]) -> None:
    wrong = [*range(3, 19)]
    for number, n in enumerate(wrong):
        at = Path("multirun/12-00-00", str(number))
        written(f"{at}/p.csv", table(n, number))
        if kind == "npz":
            held = pl.read_csv(at / "p.csv")
            pred, true = (held[name].to_numpy().astype(str) for name in ("y_pred", "y_true"))
            np.savez(at / "p.npz", pred=pred, y_true=true)
            (at / "p.csv").unlink()
        (at / ".hydra").mkdir()
        said = f"- net.name={'cnn' if number < 8 else 'vit'}\n- seed={number % 8}\n"
        (at / ".hydra" / "overrides.yaml").write_text(said)
    given = [word.replace("p.*", f"p.{kind}") for word in given]
    said = refused("multirun", *given)
    assert "net.name is cnn beside it, vit beside multirun/12-00-00/8/" in said
    assert "--classifier '{net.name}'" in said
    (line,) = re.findall(r"manyseed import (.*)", said)
    code, said = inside("import", *shlex.split(line))
    assert code == 0, said
    found = accuracies(Path("made"))
    assert found == {
        "cnn": pytest.approx(right(*wrong[:8])),
        "vit": pytest.approx(right(*wrong[8:])),
    }
    line = line.replace("net.name", "net").replace("--out made", "--out other")
    code, said = inside("import", *shlex.split(line))
    assert (code, "there is no setting net beside this file" in said) == (2, True), said


@pytest.mark.parametrize("models", [("cnn", "cnn"), ("cnn", "mlp")])
def test_settings_below_value_are_those_of_what_stands_above(models: tuple[str, str]) -> None:
    """As Weights & Biases writes them: seeds that several models share say nothing."""
    for number, wrong in enumerate((5, 9, 12, 14)):
        at = f"wandb/run-20240101_12000{number}-x{number}k2/files"
        written(f"{at}/predictions.csv", table(wrong, number))
        settings = {"seed": number % 2, "model": models[number // 2]}
        said = "".join(f"{key}:\n  desc: null\n  value: {v}\n" for key, v in settings.items())
        Path(at, "config.yaml").write_text(
            f"wandb_version: 1\n{said}z_seed:\n  value: {number // 2}\n"
        )
    words = ("--name", "run-*/files/predictions.csv", "--columns", "truth=y_true,prediction=y_pred")
    if models == ("cnn", "mlp"):
        assert "model is cnn beside it, mlp beside" in refused("wandb", *words)
        return
    assert inside("import", "wandb", "--out", "made", *words)[0] == 0
    assert accuracies(Path("made")) == {"imported": pytest.approx(right(5, 9, 12, 14))}


@pytest.mark.parametrize("name", ["epoch", "global_step"])
def test_rows_of_several_epochs_are_no_further_runs(name: str) -> None:
    parts = [
        table(wrong + 4 * seed, seed).with_columns(pl.lit(epoch).alias(name), seed=pl.lit(seed))
        for seed in (0, 1)
        for epoch, wrong in enumerate((20, 9, 3))
    ]
    pl.concat(parts).write_csv("all.csv")
    said = refused("all.csv", "--columns", "truth=y_true,prediction=y_pred,run=seed")
    assert f"{name}: its 3 values are moments of a training" in said
    (code,) = re.findall(r"such as (pl\..*?\)), and import", said)
    eval(code, {"pl": pl}).drop(name).write_csv("last.csv")
    words = ("last.csv", "--out", "made", "--columns", "truth=y_true,prediction=y_pred,run=seed")
    assert inside("import", *words)[0] == 0
    assert accuracies(Path("made")) == {"imported": pytest.approx(right(3, 7))}


def test_rows_that_repeat_an_id_are_refused() -> None:
    frame = table(6).with_columns(id=pl.int_range(SAMPLES))
    pl.concat([frame, frame[:5]]).write_csv("a.csv")
    said = refused("a.csv", "--columns", "truth=y_true,prediction=y_pred")
    assert f"id: is not read, but 5 of its {SAMPLES + 5} rows repeat an id" in said


def test_networks_with_numbers_in_their_names_are_models() -> None:
    frame = pl.DataFrame({"y_true": NAMES[TRUE]})
    for name, wrong in (("resnet18", 5), ("resnet50", 9)):
        frame = frame.with_columns(pl.Series(name, NAMES[labels(wrong)]))
    frame.write_csv("wide.csv")
    found = accuracies(followed("wide.csv"))
    assert found == {"resnet18": pytest.approx(right(5)), "resnet50": pytest.approx(right(9))}


def test_of_two_columns_of_classes_with_names_that_say_nothing_none_is_taken() -> None:
    frame = table(6).rename({"y_true": "species", "y_pred": "guess"})
    frame.write_csv("a.csv")
    said = inside("import", "a.csv", "--out", "made")[1]
    commands = re.findall(r"manyseed import (.*)", said)
    assert len(commands) == 2
    assert "if species does: " in said
    for place, line in enumerate(commands):
        words = ["made" + str(place) if word == "made" else word for word in shlex.split(line)]
        assert inside("import", *words)[0] == 0
        assert accuracies(Path(f"made{place}")) == {"imported": pytest.approx(right(6))}


def test_a_flag_beside_the_true_class_is_left_aside() -> None:
    frame = table(6)
    frame.with_columns(correct=(frame["y_true"] == frame["y_pred"]).cast(pl.Int8)).write_csv(
        "a.csv"
    )
    assert accuracies(followed("a.csv")) == {"imported": pytest.approx(right(6))}


def test_what_was_read_is_told_by_runs_and_accuracies() -> None:
    for name, wrong in (("cnn-0", 5), ("cnn-1", 9), ("mlp-0", 12)):
        written(f"lab/{name}.csv", table(wrong))
    words = ("lab", "--out", "made", "--name", "{classifier}-{run}.csv")
    code, said = inside("import", *words, "--columns", "truth=y_true,prediction=y_pred")
    assert code == 0
    low, high = (f"{one:.3f}" for one in right(5, 9))
    assert f"  cnn: 2 runs, accuracy {low} to {high}" in said
    assert f"  mlp: 1 run, accuracy {right(12)[0]:.3f}" in said


@pytest.mark.parametrize("suffix", [".json", ".tsv", ".pkl"])
@pytest.mark.parametrize("is_folder", [False, True])
def test_formats_that_are_not_read_come_with_what_makes_them_readable(
    suffix: str, is_folder: bool
) -> None:
    Path("lab").mkdir()
    for seed, wrong in enumerate((5, 9)):
        file, frame = Path(f"lab/seed{seed}{suffix}"), table(wrong)
        if suffix == ".json":
            file.write_text(json.dumps(frame.to_dicts()))
        elif suffix == ".tsv":
            frame.write_csv(file, separator="\t")
        else:
            held = {"y_true": TRUE, "labels": labels(wrong)}
            file.write_bytes(pickle.dumps(held))
    given = "lab" if is_folder else f"lab/seed0{suffix}"
    said = inside("import", given, "--out", "made")[1]
    (line,) = re.findall(r"python -c .*", said)
    words = [sys.executable, *shlex.split(line)[1:]]
    subprocess.run(words, check=True)
    made = sorted(Path("lab").glob("*.npz" if suffix == ".pkl" else "*.parquet"))
    assert len(made) == (2 if is_folder else 1)
    options = () if suffix == ".pkl" else ("--columns", "truth=y_true,prediction=y_pred")
    assert inside("import", *made, "--out", "made", "--dataset", "d", *options)[0] == 0
    assert accuracies(Path("made")) == {"imported": pytest.approx(right(5, 9)[-len(made) :])}


@pytest.mark.parametrize("suffix", [".npz", ".npy"])
def test_an_array_of_several_models_comes_with_what_makes_files_of_them(suffix: str) -> None:
    every = np.array([[labels(5), labels(9)], [labels(12), labels(20)]])
    if suffix == ".npz":
        np.savez("all.npz", yhat=every, gt=TRUE)
        words = ["all.npz", "--key", "labels=yhat,y_true=gt"]
    else:
        np.save("all.npy", every)
        np.save("truth.npy", TRUE)
        words = ["all.npy", "--truth", "truth.npy"]
    code, said = inside("import", *words, "--out", "made")
    assert code == 2
    (line,) = re.findall(r"python -c .*", said)
    subprocess.run([sys.executable, *shlex.split(line)[1:]], check=True)
    files = [f"model-{i}{suffix}" for i in range(2)]
    name = ("--name", f"{{classifier}}{suffix}", *(words[1:] if suffix == ".npy" else ()))
    assert inside("import", *files, "--out", "made", *name)[0] == 0
    assert accuracies(Path("made")) == {
        "model-0": pytest.approx(right(5, 9)),
        "model-1": pytest.approx(right(12, 20)),
    }


@pytest.mark.parametrize(
    ("entries", "names"),
    [
        ({"models": ["ViT-B/16 (ours)", "ResNet 50"]}, ["ViT-B/16 (ours)", "ResNet 50"]),
        ({"which": ["ours", "theirs"]}, ["ours", "theirs"]),
        ({"which": ["ours", "theirs"], "models": ["a", "b"]}, ["a", "b"]),
        ({"classes": ["ape", "bee"]}, ["model-0", "model-1"]),
        ({"models": ["a", "a"]}, ["model-0", "model-1"]),
        ({"models": ["lr=0.1", "lr=1"]}, ["model-0", "model-1"]),
        ({"models": ["a", "b", "c"]}, ["model-0", "model-1"]),
        ({"one": ["a", "b"], "other": ["c", "d"]}, ["model-0", "model-1"]),
    ],
)
def test_the_models_of_an_array_are_imported_by_what_is_said_with_their_names(
    entries: dict[str, list[str]], names: list[str]
) -> None:
    every = np.array([[labels(5), labels(9)], [labels(12), labels(20)]])
    np.savez("all.npz", preds=every, y=TRUE, **{of: np.array(it) for of, it in entries.items()})
    given = ("--dataset", "mine", "--key", "labels=preds,y_true=y")
    code, said = inside("import", "all.npz", "--out", "made", *given)
    assert code == 2
    (line,) = re.findall(r"python -c .*", said)
    subprocess.run([sys.executable, *shlex.split(line)[1:]], check=True)
    (line,) = re.findall(r"then import them: manyseed (.*)", said)
    code, said = inside(*shlex.split(line))
    assert (code, "dataset mine" in said) == (0, True), said
    found = dict(zip(names, (right(5, 9), right(12, 20)), strict=True))
    assert accuracies(Path("made")) == {name: pytest.approx(of) for name, of in found.items()}


def test_an_entry_that_is_unknown_beside_ours_is_left_out_by_what_is_said() -> None:
    np.savez("all.npz", labels=np.array([labels(5)]), y_true=TRUE, models=np.array(["a"]))
    said = inside("import", "all.npz", "--out", "made")[1]
    (line,) = re.findall(r"say which is which: manyseed (.*)", said)
    assert inside(*shlex.split(line))[0] == 0


def test_an_array_of_several_models_in_memory_is_given_by_name() -> None:
    every = np.array([[labels(5), labels(9)], [labels(12), labels(20)]])
    with pytest.raises(UserError, match=r"give such arrays for each, by its name") as caught:
        Sweep.from_predictions({"labels": every, "y_true": TRUE}, "made")
    assert "np.load" not in str(caught.value)


def test_a_pickled_dict_of_arrays_comes_with_what_makes_it_readable() -> None:
    held = {"y_true": TRUE, "labels": labels(6)}
    np.save("a.npy", np.array(held, dtype=object), allow_pickle=True)
    said = inside("import", "a.npy", "--out", "made")[1]
    (line,) = re.findall(r"python -c .*", said)
    subprocess.run([sys.executable, *shlex.split(line)[1:]], check=True)
    assert inside("import", "a.npz", "--out", "made")[0] == 0
    assert accuracies(Path("made")) == {"imported": pytest.approx(right(6))}


@pytest.mark.parametrize(
    ("models", "path", "form"),
    [
        (("cnn", "vit"), "seed{s}_{m}.csv", "seed{run}_{classifier}.csv"),
        (("resnet18", "resnet50"), "run{s}-{m}.csv", "run{run}-{classifier}.csv"),
        (("bs32", "bs64"), "{m}/seed{s}.csv", "{classifier}/seed{run}.csv"),
        (("lr0.1", "lr0.5"), "{m}/s{s}.csv", "{classifier}/s{run}.csv"),
        (("gpt2", "t5"), "{m}/0{s}.csv", "{classifier}/{run}.csv"),
        (("2026-05-01", "2026-05-02"), "{m}/{s}/p.csv", "{classifier}/{run}/p.csv"),
    ],
)
def test_seeds_are_runs_wherever_the_model_stands(
    models: tuple[str, ...], path: str, form: str
) -> None:
    wrong = {models[0]: (5, 6), models[1]: (12, 14)}
    for model, each in wrong.items():
        for seed, n_wrong in enumerate(each):
            written(f"lab/{path.format(m=model, s=seed)}", table(n_wrong, seed))
    said = refused("lab")
    assert form in said
    found = accuracies(followed("lab"))
    assert found == {model: pytest.approx(right(*each)) for model, each in wrong.items()}


def test_no_form_is_proposed_that_leaves_out_files_of_its_kind() -> None:
    for seed in (0, 1):
        for epoch in (1, 2):
            written(f"lab/seed{seed}/rep{epoch}.csv", table(5 + seed, epoch))
    said = refused("lab")
    assert "--name what their paths" in said
    assert "manyseed import" not in said


@pytest.mark.parametrize("name", ["predictions_{}_abc.table.json", "seed{}.json"])
def test_tables_with_their_columns_apart_come_with_a_command(name: str) -> None:
    """As Weights & Biases and pandas write them."""
    Path("lab").mkdir()
    for number, wrong in enumerate((5, 9)):
        frame = table(wrong, number)
        held = {"columns": frame.columns, "data": [list(row) for row in frame.rows()]}
        Path("lab", name.format(number)).write_text(json.dumps(held))
    said = refused("lab")
    (line,) = re.findall(r"python -c .*", said)
    exec(shlex.split(line)[2], {})
    assert accuracies(followed("lab")) == {"imported": pytest.approx(right(5, 9))}


@pytest.mark.parametrize("suffix", [".joblib", ".xlsx", ".feather"])
def test_other_formats_come_with_a_command(suffix: str) -> None:
    Path("lab").mkdir()
    for number, wrong in enumerate((5, 9)):
        frame, file = table(wrong, number), Path(f"lab/seed{number}{suffix}")
        if suffix == ".joblib":
            held = {name: frame[name].to_numpy().astype(str) for name in frame.columns}
            pytest.importorskip("joblib").dump(held, file)
        elif suffix == ".feather":
            frame.write_ipc(file)
        else:
            pytest.importorskip("openpyxl")
            pytest.importorskip("pandas").DataFrame(frame.to_dict()).to_excel(file, index=False)
    said = refused("lab")
    (line,) = re.findall(r"python -c .*", said)
    exec(shlex.split(line)[2], {})
    assert accuracies(followed("lab")) == {"imported": pytest.approx(right(5, 9))}


def test_lists_of_probabilities_come_with_the_option_that_reads_them() -> None:
    rng = np.random.default_rng(0)
    for number in range(2):
        p = rng.dirichlet(np.ones(3), SAMPLES)
        rows = zip(NAMES[TRUE], NAMES[p.argmax(axis=1)], p.tolist(), strict=True)
        lines = [json.dumps({"label": t, "prediction": y, "probs": q}) for t, y, q in rows]
        written(f"lab/seed{number}.jsonl", pl.DataFrame())
        Path(f"lab/seed{number}.jsonl").write_text("\n".join(lines) + "\n")
    code, said = inside("import", "lab", "--out", "a", "--columns", "truth=label")
    (columns,) = re.findall(r"to read them: --columns (\S+)", " ".join(said.split()))
    code, said = inside("import", "lab", "--out", "b", "--columns", columns)
    assert (code, "were not read" in said, "is read as" in said) == (0, False, False), said
    pair = [Sweep(Path(name)).analyze()["runs"]["log_likelihood"].null_count() for name in "ab"]
    assert pair == [2, 0]
