"""Arrays as other frameworks write them: imported with their own accuracy, or one message."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch

from manyseed import Sweep
from manyseed.analysis.options import Options
from tests.orchestrator.conftest import inside

RUNS, SAMPLES, CLASSES = 2, 44, 11
Y = np.arange(SAMPLES) % CLASSES
SCORES = np.random.default_rng(0).normal(size=(RUNS, SAMPLES, CLASSES)) + 3 * np.eye(CLASSES)[Y]
LABELS = SCORES.argmax(axis=2)
EXPECTED = (LABELS == Y).mean(axis=1).tolist()


@pytest.mark.parametrize(
    "arrays",
    [
        {"scores": SCORES.astype(">f4"), "y_true": Y.astype(">i8")},
        {"scores": SCORES.astype(">f8"), "y_true": Y.astype(">u2")},
        {"scores": SCORES.astype(">f2"), "y_true": Y.astype("u1")},
        {"scores": SCORES.astype(np.longdouble), "y_true": Y},
        {"labels": LABELS.astype("u1"), "y_true": Y.astype("u1")},
        {"labels": LABELS.astype(">u2"), "y_true": Y.astype(">i2")},
    ],
    ids=["big-endian", "big-endian-8", "big-endian-2", "longdouble", "bytes", "big-endian-labels"],
)
def test_numbers_of_every_form_are_taken(tmp_path: Path, arrays: dict[str, Any]) -> None:
    np.savez(tmp_path / "d.npz", **arrays)
    of_file = Sweep.import_predictions([tmp_path / "d.npz"], tmp_path / "file")
    of_memory = Sweep.from_predictions(arrays, tmp_path / "memory")
    for sweep in (of_file, of_memory):
        runs = sweep.analyze(Options(resamples=3))["runs"]
        assert runs["accuracy"].to_list() == pytest.approx(EXPECTED)


@pytest.mark.parametrize(
    ("arrays", "said"),
    [
        ({"y_true": np.eye(CLASSES)[Y]}, ["y_true: has shape (44, 11)", "y_true.argmax(axis=1)"]),
        ({"y_true": np.eye(CLASSES, dtype=int)[Y]}, ["a row of 0 and 1", "y_true.argmax(axis=1)"]),
        ({"y_true": Y.astype(complex)}, ["y_true: has dtype complex128", "y_true.astype(int)"]),
        ({"y_true": np.where(Y == 3, -1, Y)}, ["y_true: goes from -1 to 10", "from 0"]),
        ({"y_true": Y.astype(object)}, ["y_true: holds Python objects", "y_true.astype(str)"]),
        ({"scores": None, "arr_0": SCORES, "arr_1": Y}, ["--key scores=arr_0,y_true=arr_1"]),
    ],
    ids=["one-hot", "one-hot-int", "complex", "minus-1", "objects", "arr_0"],
)
def test_a_truth_of_another_form_is_one_message(
    tmp_path: Path, arrays: dict[str, Any], said: list[str]
) -> None:
    held = {k: v for k, v in ({"scores": SCORES} | arrays).items() if v is not None}
    np.savez(tmp_path / "d.npz", **held)
    code, told = inside("import", tmp_path / "d.npz", "--out", tmp_path / "sweep")
    told = " ".join(told.split())
    assert code == 2, told
    assert "d.npz: " in told
    for part in said:
        assert part in told
    assert [file.name for file in tmp_path.iterdir()] == ["d.npz"]


def test_arrays_without_names_are_taken_as_the_message_says(tmp_path: Path) -> None:
    np.savez(tmp_path / "d.npz", SCORES, Y)
    option = "scores=arr_0,y_true=arr_1"
    code, told = inside("import", tmp_path / "d.npz", "--out", tmp_path / "sweep", "--key", option)
    assert code == 0, told
    runs = Sweep(tmp_path / "sweep").analyze(Options(resamples=3))["runs"]
    assert runs["accuracy"].to_list() == pytest.approx(EXPECTED)


def damaged(folder: Path, name: str) -> Path:
    """Write a file of predictions of which a library cannot read the content."""
    file = folder / name
    if file.suffix == ".parquet":
        pl.DataFrame({"row_id": range(9), "truth": ["a"] * 9}).write_parquet(file)
        content = bytearray(file.read_bytes())
        content[len(content) // 2 : len(content) - 8] = b"?" * (len(content) // 2 - 8)
    elif file.suffix == ".pt":
        torch.save({"scores": torch.zeros(2, 9)}, file)
        content = bytearray(file.read_bytes()[:-200])
    else:
        np.save(file.with_suffix(".npy"), SCORES)
        content = bytearray(file.with_suffix(".npy").read_bytes())
        content[10:20] = b"{'descr':("
        file.with_suffix(".npy").unlink()
    file.write_bytes(content)
    return file


@pytest.mark.parametrize(
    ("name", "what"),
    [("a.parquet", "a Parquet file"), ("a.pt", "a PyTorch file"), ("a.npy", "a NumPy array")],
)
def test_a_damaged_file_is_told_in_our_own_words(tmp_path: Path, name: str, what: str) -> None:
    file = damaged(tmp_path, name)
    np.save(tmp_path / "y.npy", Y)
    options = ("--truth", tmp_path / "y.npy") if name != "a.parquet" else ()
    code, told = inside("import", file, "--out", tmp_path / "sweep", *options)
    told = " ".join(told.split())
    assert code == 2, told
    key = "a: " if name == "a.npy" else ""
    remedy = "copy it again, or write it anew"
    assert told == f"error: {file}: {key}is damaged, or is not {what} {remedy}"
