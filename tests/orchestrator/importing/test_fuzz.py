"""Files of predictions from anybody: imported, or refused with one message and nothing written."""

from __future__ import annotations

import io
import random
import re
import resource
import time
import warnings
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from manyseed import Sweep
from manyseed.orchestrator.store.exchange import SCHEMA
from tests.orchestrator.conftest import inside

RUNS, SAMPLES = 3, 8


def whole() -> dict[str, Any]:
    rng = np.random.default_rng(0)
    return {
        "scores": rng.normal(size=(RUNS, SAMPLES, 3)).astype(np.float32),
        "y_true": rng.integers(0, 3, SAMPLES),
        "repeat": np.zeros(RUNS, np.int64),
        "run": np.arange(RUNS),
        "train_fraction": np.ones(RUNS),
        "hparams": np.array(["default"] * RUNS),
        "fit_seconds": np.ones(RUNS),
        "class_names": np.array(["a", "b", "c"]),
        "test_index": np.arange(SAMPLES),
    }


class Evil:
    """An object that would be noticed if it was unpickled."""

    def __reduce__(self) -> tuple[Any, ...]:
        return (print, ("UNPICKLED",))


def header(descr: str, shape: str) -> bytes:
    """Return an NPY file whose header says what it will."""
    text = f"{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}, }}".ljust(117) + "\n"
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text.encode() + bytes(96)


HEADERS = [
    header(descr, shape)
    for descr in ("'<f8'", "'|O'", "'<U0'", "'<U9999999'", "'<M8[s]'", "[('a', '<f8')]", "'x'")
    for shape in ("(12,)", "(10**12,)", f"({10**15},)", "(-1,)", "()", f"({2**40}, {2**40})")
]
ARRAYS: list[Any] = [
    *(np.array(7), np.zeros((0,)), np.zeros((RUNS, 0)), np.full(RUNS, 65535), np.full(RUNS, -1)),
    *(np.full(RUNS, 2**62), np.full(RUNS, np.nan), np.full(RUNS, np.inf), np.full(RUNS, 1e300)),
    *(
        np.full(SAMPLES, 10**18),
        np.full(SAMPLES, -1),
        np.full(SAMPLES, 2.5),
        np.arange(SAMPLES) * 1j,
    ),
    *(np.array(["\xff"] * RUNS), np.array([b"\xff\xfe"] * RUNS), np.array(["[/]", "a\x1b", "b\n"])),
    *(np.array(["x" * 5000] * RUNS), np.array(["a", "a", "b"]), np.array(["", "b", "c"])),
    *(np.full((RUNS, SAMPLES, 3), 1e300), np.full((RUNS, SAMPLES, 3), np.nan, np.float16)),
    *(np.zeros((RUNS, SAMPLES, 1)), np.zeros((RUNS, SAMPLES), np.longdouble)),
    *(np.zeros((2, SAMPLES), int), np.array(["2020-01-01"] * RUNS, "M8[D]"), np.array([True] * 3)),
]


def packed(value: Any) -> bytes:
    if isinstance(value, bytes):
        return value
    file = io.BytesIO()
    np.lib.format.write_array(file, np.asarray(value), allow_pickle=True)
    return file.getvalue()


def npz(dice: random.Random, file: Path) -> None:
    """Write an NPZ that lies in one place or two."""
    entries = whole()
    for _ in range(dice.choice((0, 1, 1, 1, 2))):
        key = dice.choice(list(entries))
        form = dice.randrange(8)
        if form < 4:
            entries[key] = dice.choice(ARRAYS)
        elif form < 6:
            entries[key] = dice.choice(HEADERS)
        elif form == 6:
            entries[key] = np.array([Evil()] * RUNS, dtype=object)
        else:
            del entries[key]
    method = dice.choice((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED))
    with zipfile.ZipFile(file, "w", method) as archive:
        for name, value in entries.items():
            archive.writestr(f"{name}.npy", packed(value))


def table(dice: random.Random, file: Path) -> None:
    """Write a table in OpenML's columns, or as `export` writes it, that lies in one column."""
    if file.suffix == ".csv" or dice.random() < 0.5:
        frame = pl.DataFrame(
            {
                "repeat": [0] * SAMPLES,
                "row_id": range(SAMPLES),
                "prediction": ["a", "b"] * (SAMPLES // 2),
                "truth": ["a"] * SAMPLES,
                "confidence.a": [0.5] * SAMPLES,
                "confidence.b": [0.5] * SAMPLES,
            }
        )
    else:
        row = {
            "dataset": "d",
            "classifier": "c",
            "train_fraction": 1.0,
            "vary": "init",
            **dict.fromkeys(("perturb_continuous", "perturb_categorical"), "none"),
            "perturb_hparams": "none",
            "hparams": "default",
            "cell": 0,
            "repeat_index": 0,
            "run_index": 0,
            "epoch": 0,
            "is_copy": False,
            "fit_seconds": 1.0,
            "recipe": 0,
            "class_names": ["a", "b"],
            "test_index": [0, 1, 2],
            "y_true": [0, 1, 0],
            "label": [0, 1, 1],
        }
        frame = pl.DataFrame([row, row | {"run_index": 1}], schema=SCHEMA)
    as_it_is, name = frame, dice.choice(frame.columns)
    values = (
        None,
        -1,
        65535,
        2**31,
        1e300,
        float("nan"),
        "",
        "[/]",
        "a\x1b",
        "x" * 500,
        [],
        [9, 9],
    )
    value = dice.choice(values)
    try:
        column = pl.Series(name, [value] * len(frame))
        if dice.random() < 0.7:
            column = column.cast(frame.schema[name])
        frame = frame.with_columns(column)
    except (pl.exceptions.PolarsError, TypeError, OverflowError):
        frame = frame.drop(name)
    if dice.random() < 0.2:
        frame = as_it_is
    if file.suffix == ".csv":
        with warnings.catch_warnings(), io.StringIO() as text:
            flat = frame.select(c for c in frame.columns if not frame.schema[c].is_nested())
            flat.write_csv(text)
            file.write_text(text.getvalue())
    else:
        frame.write_parquet(file)


def damaged(dice: random.Random, file: Path) -> None:
    """Flip bits, cut off, or replace the file by noise."""
    content = bytearray(file.read_bytes())
    form = dice.randrange(4)
    if form == 0:
        content = bytearray(dice.randbytes(dice.randrange(2000)))
    elif form == 1:
        del content[dice.randrange(len(content)) :]
    else:
        for _ in range(dice.choice((1, 3, 30))):
            content[dice.randrange(len(content))] ^= 1 << dice.randrange(8)
    file.write_bytes(content)


def fuzz(folder: Path, seed: int, count: int) -> int:
    """Import so many files; return how many could be imported."""
    dice, imported = random.Random(seed), 0
    for number in range(count):
        form = dice.randrange(6)
        suffix = ".npz" if form < 3 else ".csv" if form == 3 else ".parquet"
        file = folder / f"{dice.choice(('given', 'é[]', 'a b'))}{suffix}"
        (npz if suffix == ".npz" else table)(dice, file)
        if dice.random() < 0.3:
            damaged(dice, file)
        began, target = time.process_time(), folder / f"sweep-{number}"
        with warnings.catch_warnings(record=True) as told_of:
            warnings.simplefilter("always")
            code, told = inside("import", file, "--out", target)
        assert code in (0, 2), (number, told)
        assert "UNPICKLED" not in told
        assert not [w for w in told_of if issubclass(w.category, RuntimeWarning)], number
        assert time.process_time() - began < 20, number
        left = {file.name} | ({target.name} if code == 0 else set())
        assert {path.name for path in folder.iterdir()} == left, (number, told)
        if code == 0:
            assert Sweep(target).survey().counts["missing"] == 0
            target.rename(folder.with_name(f"{folder.name}-{number}"))
            imported += 1
        file.unlink()
    return imported


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "files"
    made.mkdir()
    return made


def test_a_file_of_predictions_is_imported_or_refused(folder: Path) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert 3 < fuzz(folder, 0, 45) < 35
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 500_000  # kB


@pytest.mark.slow
def test_many_files_of_predictions_are_imported_or_refused(folder: Path) -> None:
    assert fuzz(folder, 1, 150) > 15


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"repeat": np.full(RUNS, 65535)},
            "repeat = 65535: must be a whole number from 0 to 32766",
        ),
        ({"y_true": header("'<i8'", f"({10**15},)")}, "y_true: has 96 bytes; its shape"),
        ({"y_true": np.full(SAMPLES, 10**15), "class_names": None}, "y_true: goes up to .*65,535"),
        ({"class_names": np.array([b"\xff", b"b", b"c"])}, "class_names: has bytes that are no"),
        ({"class_names": np.array(["a\x1b", "b", "c"])}, "class_names = .*no control characters"),
        ({"test_index": np.full(SAMPLES, 2**40)}, "test_index: goes from 1099511627776"),
        ({"fit_seconds": np.full(RUNS, -1.0)}, "fit_seconds = -1.0: must be seconds at least 0"),
        (
            {"train_fraction": np.full(RUNS, np.nan)},
            "train_fraction = nan: must be a number above 0",
        ),
        ({"hparams": np.array(["x" * 999] * RUNS)}, "hparams = .*at most 200 letters"),
        ({"scores": np.full((RUNS, SAMPLES, 3), 1e300)}, "run 0: has scores that are not finite"),
        ({"y_true": np.array([Evil()] * SAMPLES)}, "y_true: holds Python objects"),
    ],
)
def test_entries_that_lie_are_one_message(
    folder: Path, change: dict[str, Any], message: str
) -> None:
    entries = {k: v for k, v in (whole() | change).items() if v is not None}
    with zipfile.ZipFile(folder / "given.npz", "w") as archive:
        for name, value in entries.items():
            archive.writestr(f"{name}.npy", packed(value))
    code, told = inside("import", folder / "given.npz", "--out", folder / "sweep")
    assert code == 2, told
    assert re.search(message, " ".join(told.split())), told
    assert [path.name for path in folder.iterdir()] == ["given.npz"]


@pytest.mark.parametrize(
    ("option", "name"), [("--dataset", "a\x1bb"), ("--classifier", ""), ("--dataset", "é" * 90)]
)
def test_names_that_no_folder_can_have_are_refused(folder: Path, option: str, name: str) -> None:
    np.savez(folder / "given.npz", **whole())
    code, told = inside("import", folder / "given.npz", "--out", folder / "sweep", option, name)
    assert code == 2, told
    assert not (folder / "sweep").exists()


def test_names_of_quotes_and_markup_come_back_as_they_are(folder: Path) -> None:
    np.savez(folder / "given.npz", **whole())
    sweep = Sweep.import_predictions(
        [folder / "given.npz"], folder / "sweep", dataset='a"b\\[/]', classifier="'é'"
    )
    assert sweep.name == "sweep"
    code, told = inside("status", sweep.directory)
    assert code == 0
    assert 'a"b\\[/]' in told
