"""Predictions in folders whose names say what they are, and maps: options in a file."""

from __future__ import annotations

import os
import re
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from manyseed import Sweep
from manyseed.orchestrator.errors import UserError
from manyseed.orchestrator.importing.patterns import Pattern
from tests.orchestrator.conftest import command, inside, write
from tests.orchestrator.importing.conftest import runs_of
from tests.orchestrator.importing.test_as_it_comes import EXPECTED, NAMES, SCORES, Y, table

HYDRA = """
name = "lr={hparams},model={classifier},seed={run}/test.csv"
dataset = "bugs"
columns = { truth = "true", prediction = "pred", confidence = "p_{class}" }
"""


def multirun(folder: Path) -> Path:
    """Write what a sweep of two models with two learning rates and three seeds leaves behind."""
    for model in ("cnn", "vit"):
        for lr in ("0.1", "0.01"):
            for run in range(3):
                place = folder / "2026-01-02" / f"lr={lr},model={model},seed={run}"
                (place / ".hydra").mkdir(parents=True)
                (place / ".hydra" / "config.yaml").write_text("seed: 1")
                (place / "train.csv").write_text("loss\n1\n")
                table((run + (model == "vit")) % 3).write_csv(place / "test.csv")
    return folder


def test_folders_that_name_classifier_hparams_and_seed(tmp_path: Path) -> None:
    folder = multirun(tmp_path / "multirun")
    done = command(
        "import", folder, "--out", tmp_path / "out", "--map", write(tmp_path / "m", HYDRA)
    )
    assert done.returncode == 0, done.output
    assert "Imported 12 runs" in done.stdout
    runs = runs_of(Sweep(tmp_path / "out")).sort("classifier", "hparams", "run_index")
    assert runs["dataset"].unique().to_list() == ["bugs"]
    assert runs["hparams"].unique(maintain_order=True).to_list() == ["0.01", "0.1"]
    assert runs["accuracy"].to_list() == [*EXPECTED * 2, *np.roll(EXPECTED, -1).tolist() * 2]
    # an option counts more than the map
    done = command(
        *("import", folder, "--out", tmp_path / "other", "--map", tmp_path / "m"),
        *("--name", "lr={hparams},model=cnn,seed={run}/test.csv", "--classifier", "net"),
    )
    assert "Imported 6 runs" in done.stdout, done.output


def test_hidden_files_of_other_programs_are_no_runs(tmp_path: Path) -> None:
    """A Mac writes ``._NAME`` beside each file on other disks; notebooks keep hidden folders."""
    folder = tmp_path / "bugs"
    for name in ("cnn-0.csv", "._cnn-0.csv", ".ipynb_checkpoints/cnn-1.csv"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        table(0).write_csv(folder / name)
    found = [*Pattern("{classifier}-{run}.csv").files([folder], [".csv"])]
    assert found == [folder / "cnn-0.csv"]


def test_arrays_take_what_their_paths_say(tmp_path: Path) -> None:
    for fraction in ("0.5", "1"):
        for run, held in enumerate(SCORES):
            place = tmp_path / "digits" / f"cnn-{fraction}"
            place.mkdir(parents=True, exist_ok=True)
            np.savez(place / f"s{run}.npz", scores=held, y_true=Y)
    sweep = Sweep.import_predictions(
        [tmp_path / "digits"],
        tmp_path / "out",
        name="{classifier}-{train_fraction}/s{run}.npz",
    )
    runs = runs_of(sweep).sort("train_fraction", "run_index")
    assert runs["accuracy"].to_list() == EXPECTED * 2
    assert runs["train_fraction"].to_list() == [0.5] * 3 + [1.0] * 3
    assert runs["run_index"].to_list() == [0, 1, 2] * 2
    assert set(runs["dataset"]) == {"digits"}


def test_amlb_keeps_a_table_for_each_fold(tmp_path: Path) -> None:
    """Columns named like the classes, ``predictions`` and ``truth``; folds that are test sets."""
    for fold in range(2):
        place = tmp_path / "predictions" / "bugs" / str(fold)
        place.mkdir(parents=True)
        frame = table(fold).rename({f"p_{name}": name for name in NAMES})
        frame.rename({"pred": "predictions", "true": "truth"}).write_csv(place / "predictions.csv")
    text = """
name = "predictions/{dataset}/{repeat}/predictions.csv"
classifier = "RandomForest"
columns = { prediction = "predictions", confidence = "{class}" }
"""
    options = ("--out", tmp_path / "out", "--map", write(tmp_path / "amlb.toml", text))
    done = command("import", tmp_path / "predictions", *options)
    assert done.returncode == 0, done.output
    runs = runs_of(Sweep(tmp_path / "out")).sort("repeat_index")
    assert runs["accuracy"].to_list() == EXPECTED[:2]
    assert runs["repeat_index"].to_list() == [0, 1]


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("seed.csv", "names no part of paths"),
        ("{seed}.csv", "unknown part"),
        ("{run}/{run}.csv", "stands in it twice"),
        ("{classifier}/{run}.csv", r"no file in it matches .*\n.*12 files|no file in it matches"),
    ],
)
def test_patterns_that_cannot_be(tmp_path: Path, name: str, said: str) -> None:
    folder = multirun(tmp_path / "multirun")
    with pytest.raises(UserError) as caught:
        Sweep.import_predictions([folder], tmp_path / "out", name=name)
    assert re.search(said, str(caught.value)), caught.value
    assert not (tmp_path / "out").exists()


def test_what_path_and_file_both_say_or_contradict_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "bugs"
    folder.mkdir()
    np.savez(folder / "run-3.npz", scores=SCORES, y_true=Y)
    with pytest.raises(UserError, match="holds 3 runs, but its path names one"):
        Sweep.import_predictions([folder], tmp_path / "out", name="run-{run}.npz")
    np.savez(folder / "run-3.npz", scores=SCORES[0], y_true=Y, run=[4])
    with pytest.raises(UserError, match="in the file and in its path"):
        Sweep.import_predictions([folder], tmp_path / "out", name="run-{run}.npz")
    table(0).with_columns(run=pl.lit(1)).write_csv(tmp_path / "run-3.csv")
    columns = {"truth": "true", "prediction": "pred", "run": "run"}
    with pytest.raises(UserError, match="is a column, and a part of the path"):
        Sweep.import_predictions(
            [tmp_path / "run-3.csv"], tmp_path / "out", name="run-{run}.csv", columns=columns
        )
    with pytest.raises(UserError, match="does not match"):
        Sweep.import_predictions([tmp_path / "run-3.csv"], tmp_path / "out", name="run-{run}.npz")
    assert not (tmp_path / "out").exists()


def test_maps_with_mistakes(tmp_path: Path) -> None:
    for text, said in {
        "name = 3": "must be text in quotes",
        "colums = {}": "did you mean",
        "columns = { turth = 'x' }": 'did you mean "truth"?',
        "row_id = 'id'": 'names of columns stand in one table: columns = { row_id = "id" }',
        "columns = { truth = 1 }": "must be a table of texts",
        "probabilities = 'yes'": "must be true or false",
        "name = ": "is not a TOML file",
    }.items():
        file = write(tmp_path / "map.toml", text)
        done = command("import", tmp_path / "x.csv", "--out", tmp_path / "out", "--map", file)
        assert done.returncode == 2
        assert said in done.stderr, done.stderr
        assert "map.toml" in done.stderr
    os.mkfifo(tmp_path / "pipe.toml")
    done = command("import", "x.csv", "--out", tmp_path / "out", "--map", tmp_path / "pipe.toml")
    assert done.returncode == 2
    assert "is not a plain file" in done.stderr
    done = command("import", "x.csv", "--out", tmp_path / "out", "--map", tmp_path / "none.toml")
    assert done.returncode == 2
    assert "cannot be read" in done.stderr


REFUSED = {  # text of a map, and what is said of it for a file of arrays and for a table
    'name = "{seed}.npz"': ['MAP: name = "seed": unknown part'] * 2,
    'name = "{run}.xyz"': ["FILE: does not match name of MAP {run}.xyz"] * 2,
    'name = "x"': ['MAP: name = "x": names no part'] * 2,
    'name = ""': ['MAP: name = "": must be text in quotes, and not empty'] * 2,
    'truth = ""': ['MAP: truth = "": must be text in quotes, and not empty'] * 2,
    'probability = "odd"': ['MAP: probability = "odd": unknown'] * 2,
    "probabilities = true": ["without probabilities of MAP", None],
    'columns = { odd = "nope" }': ['MAP: columns = "odd": unknown name'] * 2,
    'columns = { confidence = "x" }': ['MAP: columns = "x": needs a column for each class'] * 2,
    'columns = { truth = "nope" }': [
        "MAP: columns: is for CSV and Parquet tables (FILE)",
        "FILE: nope: there is no such column, as columns of MAP says",
    ],
    'key = { odd = "nope" }': ['MAP: key = "odd": unknown name'] * 2,
    'key = { scores = "nope" }': [
        "FILE: nope: has no such entry, as key of MAP says",
        "MAP: key: is for NPZ and PyTorch files (FILE)",
    ],
}


@pytest.mark.parametrize("text", REFUSED)
def test_what_a_map_asks_for_is_refused_there(tmp_path: Path, text: str) -> None:
    np.savez(tmp_path / "a.npz", scores=SCORES[:1], y_true=Y)
    table(0).write_csv(tmp_path / "x.csv")
    asked = write(tmp_path / "m.toml", text)
    for name, said in zip(("a.npz", "x.csv"), REFUSED[text], strict=True):
        if said is None:
            continue
        file = tmp_path / name
        done = command("import", file, "--out", tmp_path / "out", "--map", asked)
        told = done.stderr.replace(str(asked), "MAP").replace(str(file), "FILE")
        assert (done.returncode, said in told) == (2, True), told
        assert f"--{text.partition(' ')[0]} " not in told
        assert not (tmp_path / "out").exists()


def test_an_option_that_is_given_is_named_beside_a_map(tmp_path: Path) -> None:
    (tmp_path / "x.csv").touch()
    asked = write(tmp_path / "m.toml", 'name = "{run}.csv"')
    out = ("--out", tmp_path / "out", "--map", asked, "--name", "{seed}.csv")
    done = command("import", tmp_path / "x.csv", *out)
    assert 'error: --name = "seed": unknown part' in done.stderr


def test_folders_above_do_not_matter() -> None:
    pattern = Pattern("{classifier}-{hparams}/*_{run}.csv")
    file = Path("/a b/x/cnn-lr/a_b_07.csv")
    assert pattern.read(file) == {"classifier": "cnn", "hparams": "lr", "run": 7}
    assert pattern.read(Path("/cnn-1/x_1.csv/y")) is None
    assert pattern.read(Path("/cnn-1/x_a.csv")) is None


@pytest.mark.parametrize(
    ("pattern", "path", "read"),
    [
        ("{classifier}{run}.csv", "resnet50.csv", {"classifier": "resnet", "run": 50}),
        ("{classifier}-{run}.csv", "lr-sgd-12.csv", {"classifier": "lr-sgd", "run": 12}),
        ("{classifier}-{train_fraction}.csv", "a-b-0.5.csv", {"train_fraction": 0.5}),
        ("*{run}*.csv", "a7b.csv", {"run": 7}),
        ("{classifier}-{hparams}.csv", "lr-sgd-1.csv", r'classifier may be "lr" or "lr-sgd"'),
        ("{classifier}{hparams}.csv", "mlp.csv", r'classifier may be "m" or "ml"'),
        ("{classifier}*.csv", "mlp.csv", "classifier may be"),
        ("*{run}*.csv", "a7b8.csv", 'run may be "7" or "8"'),
    ],
)
def test_a_path_that_can_be_read_in_two_ways_is_refused(
    pattern: str, path: str, read: dict[str, object] | str
) -> None:
    if isinstance(read, str):
        with pytest.raises(UserError, match=read):
            Pattern(pattern).read(Path("/x") / path)
    else:
        found = Pattern(pattern).read(Path("/x") / path)
        assert found is not None
        assert found.items() >= read.items()


def test_many_stars_are_one() -> None:
    """Otherwise each of them may end at any place, and all of these are tried."""
    assert Pattern("*" * 60 + "{run}.csv").read(Path("/x/" + "a" * 200 + "_x.csv")) is None


def test_a_link_to_a_file_that_is_gone_is_told(tmp_path: Path) -> None:
    table(0).write_csv(tmp_path / "cnn-0.csv")
    (tmp_path / "cnn-1.csv").symlink_to("nowhere.csv")
    with pytest.raises(UserError, match=r"cnn-1.csv: is a link to a file that is not there"):
        [*Pattern("{classifier}-{run}.csv").files([tmp_path], [".csv"])]
    (tmp_path / "cnn-1.csv").rename(tmp_path / "other.csv")
    assert len([*Pattern("{classifier}-{run}.csv").files([tmp_path], [".csv"])]) == 1


def of_models(folder: Path) -> pl.DataFrame:
    """Write a file for each model, and return all rows below one another."""
    frames = []
    for number, model in enumerate(("cnn", "vit")):
        seeds = [table((run + number) % 3).with_columns(seed=pl.lit(run)) for run in range(3)]
        one = pl.concat(each.with_columns(image=pl.int_range(pl.len())) for each in seeds)
        one[one.columns[:: 1 - 2 * number]].write_csv(folder / f"{model}.csv")
        frames.append(one.with_columns(model=pl.lit(model), source=pl.lit("bugs")))
    return pl.concat(frames)


OF_MODELS = "truth=true,prediction=pred,run=seed,row_id=image"


@pytest.mark.parametrize(
    ("given", "dataset"),
    [
        (["--classifier", "cnn=cnn.csv", "--classifier", "vit=vit.csv"], "imported"),
        (["--classifier", "cnn=cnn.csv", "--classifier", "vit=vit.csv", "--dataset", "d"], "d"),
        (["cnn.csv", "vit.csv", "--name", "{classifier}.csv"], "imported"),
        (["cnn.csv", "vit.csv", "--name", "{classifier}.csv", "--dataset", "d"], "d"),
        (["long.csv", "--columns", "classifier=model"], "long"),
        (["long.csv", "--columns", "classifier=model", "--dataset", "d"], "d"),
        (["long.csv", "--columns", "classifier=model,dataset=source"], "bugs"),
    ],
)
def test_tables_of_several_classifiers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: list[str], dataset: str
) -> None:
    confidence = "" if dataset == "d" else ",confidence=p_{class}"
    of_models(tmp_path).write_csv(tmp_path / "long.csv")
    monkeypatch.chdir(tmp_path)
    code, told = inside("import", *given, "--columns", OF_MODELS + confidence, "--out", "out")
    assert code == 0, told
    assert "Imported 6 runs" in told
    runs = runs_of(Sweep("out")).sort("classifier", "run_index")
    assert runs["accuracy"].to_list() == [*EXPECTED, *np.roll(EXPECTED, -1).tolist()]
    assert runs["classifier"].to_list() == ["cnn"] * 3 + ["vit"] * 3
    assert runs["dataset"].unique().to_list() == [dataset]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["long.csv", "--columns", "classifier=modell"], "there is no such column"),
        (["long.csv", "--columns", "classifier=model,dataset=model"], "say it once"),
        (["long.csv", "--columns", "classifier=model", "--classifier", "cnn"], "say it once"),
        (["long.csv"], f"--columns {OF_MODELS},classifier=model if model names no classifiers"),
    ],
)
def test_columns_that_cannot_name_classifiers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: list[str], said: str
) -> None:
    of_models(tmp_path).write_csv(tmp_path / "long.csv")
    monkeypatch.chdir(tmp_path)
    code, told = inside("import", *given, "--columns", OF_MODELS, "--out", "out")
    assert code == 2, told
    assert said in " ".join(told.split()), told
    assert not Path("out").exists()
