"""Columns of Parquet files as other programs write them: samples, or a refusal that names them."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from manyseed.jobs.checks import Refused
from manyseed.jobs.datasets import DatasetInfo, fetch, load, resolve

N = 60
X = [i + 0.5 for i in range(N)]
FRAME = pl.DataFrame({"x": X, "y": ["ab"[i % 2] for i in range(N)]})


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MANYSEED_DATA", str(tmp_path / "home"))


def read(folder: Path, **columns: Any) -> tuple[DatasetInfo, Any]:
    path = folder / "table.parquet"
    FRAME.with_columns(**columns).write_parquet(path)
    info = resolve(f"file:{path}", target="y")
    fetch(info)
    return info, load(info.canonical)


@pytest.mark.parametrize(
    ("x", "expected"),
    [
        (pl.Series([Decimal(f"{v:.2f}") for v in X]), X),
        (pl.Series(range(N), dtype=pl.Int128), range(N)),
        (pl.Series([2**64 - 1 - 2**20 * i for i in range(N)], dtype=pl.UInt64), None),
        (pl.Series(X, dtype=pl.Float32), X),
        (pl.Series([float("nan"), *X[1:]]), [np.nan, *X[1:]]),
        (pl.Series([None, *X[1:]]), [np.nan, *X[1:]]),
    ],
    ids=["decimal", "128 bits", "unsigned", "float32", "NaN", "null"],
)
def test_numbers_of_any_type_are_numbers(tmp_path: Path, x: pl.Series, expected: Any) -> None:
    info, data = read(tmp_path, x=x)
    assert info.columns[0].kind == "continuous"
    expected = [float(v) for v in x] if expected is None else expected
    np.testing.assert_array_equal(data.X[:, 0], [*expected])


@pytest.mark.parametrize(
    ("x", "labels"),
    [
        (pl.Series([*"uvw"] * 20, dtype=pl.Categorical), 3),
        (pl.Series([*"uv"] * 30, dtype=pl.Enum(["v", "u", "unused"])), 2),
        (pl.Series(["NA", "None", "nan"] * 20), 3),
        (pl.Series(["", "u", "v"] * 20), 3),
        (pl.Series([True, False, None] * 20), 2),
    ],
    ids=["categorical", "enum", "words", "empty", "bool"],
)
def test_labels_are_those_that_occur(tmp_path: Path, x: pl.Series, labels: int) -> None:
    info, data = read(tmp_path, x=x)
    assert (info.columns[0].kind, info.columns[0].n_labels) == ("categorical", labels)
    assert data.cardinality.tolist() == [labels]


@pytest.mark.parametrize(
    ("y", "names"),
    [
        (pl.Series([*"ab"] * 30, dtype=pl.Enum(["b", "a", "z"])), ("a", "b")),
        (pl.Series([0.0, 1.0] * 30), ("0.0", "1.0")),
        (pl.Series([True, False] * 30), ("false", "true")),
        (pl.Series([10, 9] * 30, dtype=pl.UInt8), ("9", "10")),
    ],
    ids=["enum", "floats", "bool", "unsigned"],
)
def test_classes_are_those_that_occur(tmp_path: Path, y: pl.Series, names: Any) -> None:
    assert read(tmp_path, y=y)[0].class_names == names


def test_what_a_user_should_check_is_found(tmp_path: Path) -> None:
    shuffled = [7 * i % N for i in range(N)]
    info, _ = read(
        tmp_path,
        nothing=pl.Series([None] * N),
        __index_level_0__=pl.Series(shuffled),
        row=pl.Series([f"r{i}" for i in shuffled]),
    )
    looks = {column.name: column.looks for column in info.columns}
    assert looks == {"x": "", "nothing": "constant", "__index_level_0__": "id", "row": "distinct"}


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ({"x": pl.Series([b"q"] * N)}, "holds Binary in column 'x', not numbers or labels"),
        ({"x": pl.Series([None] * N, dtype=pl.Time)}, "holds Time in column 'x'"),
        ({"x": pl.Series([[1]] * N)}, r"holds List\(Int64\) in column 'x'"),
        ({"x": pl.Series([{"a": 1}] * N)}, "holds Struct.* in column 'x'"),
        ({"y": pl.Series([b"a", b"b"] * 30)}, "holds Binary in column 'y'"),
        ({"y": pl.Series([float("nan"), *[0.0, 1.0] * 30][:N])}, "1 of 60 values are missing"),
    ],
    ids=["bytes", "time", "list", "struct", "target of bytes", "missing class"],
)
def test_what_is_neither_is_refused_by_its_name(
    tmp_path: Path, columns: dict[str, pl.Series], said: str
) -> None:
    with pytest.raises(Refused, match=said):
        read(tmp_path, **columns)


def test_a_table_without_rows_is_refused(tmp_path: Path) -> None:
    FRAME.head(0).write_parquet(tmp_path / "none.parquet")
    with pytest.raises(Refused, match="is empty: 0 samples"):
        resolve(f"file:{tmp_path / 'none.parquet'}", target="y")
