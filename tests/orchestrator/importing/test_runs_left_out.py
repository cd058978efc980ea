"""Long tables: faulty rows are told with their run, which --exclude leaves out."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from tests.orchestrator.conftest import inside

TRUE = np.array(["ape", "bee", "cat"])[np.arange(30) % 3]
READ = "prediction=predicted,run=seed,classifier=model,row_id=row"


def table() -> pl.DataFrame:
    frames = []
    for number, model in enumerate(("cnn", "ViT B/16")):
        for seed in (1, 2, 3):
            draws = np.random.default_rng(10 * number + seed).random(30)
            of = {"model": model, "seed": seed, "row": np.arange(30), "truth": TRUE}
            frames.append(pl.DataFrame({**of, "predicted": np.where(draws < 0.3, "ape", TRUE)}))
    return pl.concat(frames)


IS_FAULTY = (pl.col("model") == "ViT B/16") & (pl.col("seed") == 2) & pl.col("row").is_in([4, 17])


@pytest.mark.parametrize("fault", ["missing values", "missing rows"])
def test_a_faulty_run_of_a_table_is_named_and_left_out(tmp_path: Path, fault: str) -> None:
    file, words = tmp_path / "long.csv", ["--out", str(tmp_path / "out"), "--columns", READ]
    frame = table()
    if fault == "missing values":
        empty = pl.when(~IS_FAULTY).then("predicted")
        frame = frame.with_columns(empty.alias("predicted"))
    else:
        frame = frame.filter(~IS_FAULTY)
    frame.sample(fraction=1, shuffle=True, seed=0).write_csv(file)
    code, said = inside("import", file, *words)
    assert code == 2
    assert "run 2 of ViT B/16" in said
    if fault == "missing values":
        assert "has missing values: 2 of 90, in rows" in said
    found = re.search("--exclude .*", said)
    assert found is not None
    code, said = inside("import", file, *words, *shlex.split(found[0]))
    assert code == 0, said
    assert "classifiers ViT B/16 (2), cnn (3)" in said or "cnn (3), ViT B/16 (2)" in said


def test_all_runs_with_missing_values_are_told_at_once_in_a_whole_command(tmp_path: Path) -> None:
    file, out = tmp_path / "long.csv", tmp_path / "out"
    names = {"cnn": "cnn, [wide]*", "ViT B/16": "ViT B/16"}
    frame = table().with_columns(pl.col("model").replace(names))
    is_faulty = pl.col("row").is_in([4, 17]) & pl.any_horizontal(
        (pl.col("model") == model) & (pl.col("seed") == seed)
        for model, seed in (("cnn, [wide]*", 3), ("ViT B/16", 2), ("ViT B/16", 1))
    )
    is_odd = (pl.col("model") == "cnn, [wide]*") & (pl.col("seed") == 2) & (pl.col("row") == 3)
    frame = pl.concat(
        [
            frame,
            frame.filter(pl.col("seed") == 3).with_columns(seed=pl.lit(4)),
            frame.filter(pl.col("seed") == 3).with_columns(seed=pl.lit(5)),
        ]
    )
    frame = frame.with_columns(
        pl.when(~is_faulty).then("predicted").alias("predicted"),
        pl.when(~is_odd).then("truth").alias("truth"),
    )
    frame.write_csv(file)
    code, said = inside("import", file, "--out", out)
    assert (code, f"--columns {READ}" in said) == (2, True), said  # whatever values are missing
    words = ("--out", out, "--columns", READ, "--dataset", "mine", "--exclude", "ViT B/16/3")
    code, said = inside("import", file, *words)
    assert code == 2
    assert said.count("run 3 of cnn, [wide]*") == said.count("runs 1, 2 of ViT B/16") == 1
    assert "missing values: 6 of 270, in" in said
    found = re.search("leave these runs out: manyseed (.*)", said)
    assert found is not None, said
    code, said = inside(*shlex.split(found[1]))
    assert (code, "dataset mine" in said) == (0, True), said
    assert "cnn, [wide]* (3)" in said
    assert "ViT B/16 (2)" in said
    assert "lacks" not in said


@pytest.mark.parametrize("seed", ["{}", "seed_{}"])
def test_runs_that_were_left_out_are_not_asked_about(tmp_path: Path, seed: str) -> None:
    file, many = tmp_path / "long.csv", range(1, 6)
    frames = [table().filter(pl.col("seed") == 1).with_columns(seed=pl.lit(n)) for n in many]
    frame = pl.concat(frames).with_columns(pl.format(seed, "seed").alias("seed"))
    frame = frame.filter((pl.col("model") == "cnn").or_(pl.col("seed") != seed.format(2)))
    frame.write_csv(file)
    words = ("import", file, "--columns", READ, "--out")
    left = f"ViT B/16/{seed.format(3)}"
    code, said = inside(*words, tmp_path / "out", "--exclude", left)
    assert (code, "ViT B/16 lacks run 2, which cnn has." in said) == (0, True), said
    files = tmp_path / "files"
    for model in ("cnn", "vit", "mlp"):
        (files / model).mkdir(parents=True)
        for number in range(6):
            np.save(files / model / f"seed-{number}.npy", (np.arange(30) + number) % 3)
    np.save(files / "y_true.npy", np.arange(30) % 3)
    (files / "mlp" / "seed-4.npy").unlink()
    name = ("--name", "{classifier}/seed-{run}.npy", "--exclude", "vit/seed-2.npy")
    code, said = inside("import", files, "--out", tmp_path / "tree", *name)
    assert code == 0, said
    assert re.findall(r"(\w+) lacks runs? ([0-9, ]+),", said) == [("mlp", "4")]


def test_rows_that_are_there_twice_are_counted(tmp_path: Path) -> None:
    file = tmp_path / "long.csv"
    pl.concat([table(), table()[[3, 40, 50, 60]]]).write_csv(file)
    code, said = inside("import", file, "--out", tmp_path / "out", "--columns", READ)
    assert code == 2
    assert "rows are repeated exactly" in said
    assert "another number" not in said


def test_all_runs_of_a_classifier_may_be_left_out(tmp_path: Path) -> None:
    file, words = tmp_path / "long.csv", ["--columns", READ, "--exclude"]
    table().write_csv(file)
    code, said = inside("import", file, "--out", tmp_path / "out", *words, "cnn/*")
    assert (code, "Imported 3 runs" in said) == (0, True), said
    code, said = inside("import", file, "--out", tmp_path / "other", *words, "cnn/9")
    assert code == 2
    assert "no file matches it, nor a run" in said
    assert not (tmp_path / "other").exists()


@pytest.mark.parametrize("name", ["row", "image", "id"])
def test_a_named_column_of_ids_counts_more_than_an_index_without_name(
    tmp_path: Path, name: str
) -> None:
    frame = table().rename({"row": name})
    frame = frame.select(pl.col(name).alias(""), *frame.columns)
    file = tmp_path / "long.csv"
    frame.sample(fraction=1, shuffle=True, seed=0).write_csv(file)
    code, said = inside("import", file, "--out", tmp_path / "out")
    assert code == 2
    assert f"row_id={name}" in said
