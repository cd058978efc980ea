"""Data at the edge of what can be trained: runs train, or planning refuses; none fails."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from manyseed.jobs.classifiers.record import Unsuitable
from manyseed.jobs.datasets import fetch, load, resolve
from manyseed.jobs.run import TrainingSet
from tests.jobs.classifiers import examples
from tests.jobs.classifiers.examples import OPTIONS, PIXELS, fit

N = 120
Y = np.arange(N) % 2
TEXT = ["uv"[label] for label in Y]


@pytest.mark.parametrize("side", [1, 5])
@pytest.mark.parametrize("name", [*PIXELS, "mlp"])
def test_small_images_and_one_row_beyond_whole_batches(name: str, side: int) -> None:
    rng = np.random.default_rng(0)
    y = (np.arange(44) % 2).astype(np.uint16)
    X = rng.random((44, side * side)) * 200 + 50 * y[:, None]
    image = (side, side, 1)
    kinds = np.zeros(side * side, dtype=np.int32)
    data = TrainingSet(X[:33], y[:33], X[33:], 2, kinds, image)  # two batches of 16, and a row
    options: dict[str, Any] = {**OPTIONS[name], "epochs": 1}
    if name == "mlp":
        options["batch_size"] = 16
    else:
        options["hparams"] = {**options["hparams"], "batch": 16}
    if name == "vgg":
        with pytest.raises(Unsuitable, match="needs images of"):
            fit(name, data, options)
        return
    assert np.isfinite(fit(name, data, options).scores).all()


def column(values: Any) -> dict[str, Any]:
    return {"e": [*values]}


TABLES: dict[str, tuple[dict[str, Any], list[str]]] = {
    "rare class": ({}, ["c" if i in (3, 60) else label for i, label in enumerate(TEXT)]),
    "empty": (column([None] * N), TEXT),
    "one known": (column("1.5" if i == 7 else None for i in range(N)), TEXT),
    "one label": (column("k" if i == 9 else None for i in range(N)), TEXT),
    "constant": (column(["3.25"] * N), TEXT),
    "beyond float32": (column(f"{1e39 * (1 + i)}" for i in range(N)), TEXT),
    "beyond squares": (column(f"{1e300 * (1 + i)}" for i in range(N)), TEXT),
    "tiny": (column(f"{1e-310 * i}" for i in range(N)), TEXT),
    "offset": (column(f"{1.7e9 + 40 * label + i % 7}" for i, label in enumerate(Y)), TEXT),
}


@pytest.mark.parametrize("case", TABLES)
def test_columns_that_break_other_programs(
    case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MANYSEED_DATA", str(tmp_path / "home"))
    rng = np.random.default_rng(0)
    columns, target = TABLES[case]
    plain = {"a": rng.normal(size=N), "b": rng.normal(size=N)}
    path = tmp_path / "t.csv"
    pl.DataFrame({**plain, **columns, "y": target}).write_csv(path)
    info = resolve(f"file:{path}", target="y")
    fetch(info)
    found = load(info.canonical)
    y = found.y
    data = TrainingSet(
        found.rows(np.arange(40)),
        y[:40],
        found.rows(np.arange(40, N)),
        len(info.class_names),
        found.cardinality,
    )
    for name in ("lr-sgd", "svm-sgd", "xgb", "mlp"):
        result = fit(name, data, examples.LEARNING[name])
        assert np.isfinite(result.scores).all(), name
        if case == "offset":
            assert (result.label[0] == y[40:]).mean() > 0.9, name
