"""Files with a split of their own, and images in files."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from manyseed.jobs.checks import Refused
from manyseed.jobs.datasets import fetch, load, resolve
from manyseed.jobs.datasets.split import split
from manyseed.jobs.run import MachineError

N = 12
TABLE = pl.DataFrame(
    {
        "x": [float(i) for i in range(N)],
        "day": [f"2026-01-{(5 * i) % N + 1:02d}" for i in range(N)],
        "part": ["train", "Test", "train", "train"] * 3,
        "kind": ["a", "b", "b"] * 4,
    }
)


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MANYSEED_DATA", str(tmp_path / "home"))


def written(tmp_path: Path, suffix: str, table: pl.DataFrame = TABLE) -> str:
    path = tmp_path / f"table.{suffix}"
    if suffix == "npz":
        others = {name: table[name].to_numpy().astype(str) for name in table.columns[1:]}
        np.savez(path, X=table.select("x").to_numpy(), **others)
    else:
        getattr(table, f"write_{suffix}")(path)
    return f"file:{path}"


def parts(info: Any) -> tuple[list[float], list[float]]:
    fetch(info)
    data = load(info.canonical)
    found = split(1, info.id, 0, data.y, info.canonical["test"], data.official_test)
    values = data.X[:, 0]
    return values[found.train].tolist(), values[found.test].tolist()


@pytest.mark.parametrize("suffix", ["csv", "parquet", "npz"])
def test_a_column_says_what_is_the_test_set(tmp_path: Path, suffix: str) -> None:
    source = written(tmp_path, suffix, TABLE.drop("day"))
    info = resolve(source, target="kind", split="part")
    assert (info.n_features, info.n_train, info.n_test) == (1, 9, 3)
    assert info.n_test_sets == 1
    train, test = parts(info)
    assert test == [1.0, 5.0, 9.0]
    assert train == [float(i) for i in range(N) if i % 4 != 1]
    assert info.canonical["split"] == "part"


@pytest.mark.parametrize("last", [0.25, 3])
def test_the_last_rows_are_the_test_set(tmp_path: Path, last: float) -> None:
    source = written(tmp_path, "csv")
    info = resolve(source, target="kind", last=last, ignore=["day", "part"])
    assert parts(info) == ([*map(float, range(9))], [9.0, 10.0, 11.0])


@pytest.mark.parametrize("as_date", [False, True])
def test_rows_are_ordered_by_time_first(tmp_path: Path, as_date: bool) -> None:
    table = TABLE.with_columns(pl.col("day").str.to_date()) if as_date else TABLE
    source = written(tmp_path, "parquet", table)
    info = resolve(source, target="kind", last=0.25, order="day", ignore=["part"])
    by_day = sorted(range(N), key=lambda i: (5 * i) % N)
    assert parts(info) == ([*map(float, by_day[:9])], [*map(float, by_day[9:])])
    assert info.n_features == 1


def test_numbers_are_ordered_as_numbers(tmp_path: Path) -> None:
    table = TABLE.with_columns(day=pl.Series([float(2 * N - 2 * i) for i in range(N)]))
    source = written(tmp_path, "csv", table)
    info = resolve(source, target="kind", last=2, order="day", ignore=["part"])
    assert parts(info)[1] == [1.0, 0.0]


def test_classes_that_are_left_out_take_their_test_rows_along(tmp_path: Path) -> None:
    table = TABLE.with_columns(kind=pl.Series(["a", "b", "c"] * 4))
    source = written(tmp_path, "csv", table.drop("day"))
    info = resolve(source, target="kind", split="part", classes={"a": ["a"], "b": ["b"]})
    train, test = parts(info)
    kept = [i for i in range(N) if i % 3 != 2]
    assert test == [float(i) for i in kept if i % 4 == 1]
    assert (info.n_train, info.n_test) == (len(train), len(test))


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"split": "prat"}, "unknown column"),
    ({"split": "kind"}, "is the target already"),
    ({"split": "part", "ignore": ["part"]}, "take it out of ignore"),
    ({"split": "day"}, "each row is train or test"),
    ({"split": "part", "last": 0.5}, "split names the test set already"),
    ({"order": "day"}, "the share of the rows"),
    ({"last": 1.5}, "below 1"),
    ({"last": 1}, "at least 2"),
    ({"last": 11}, "both parts need 2"),
    ({"split": "part", "test": 0.25}, "split says what the test set is"),
    ({"split": 3}, "the name of a column"),
]


@pytest.mark.parametrize(("options", "said"), REFUSED)
def test_what_says_no_split_is_refused(tmp_path: Path, options: dict[str, Any], said: str) -> None:
    with pytest.raises(Refused, match=said):
        resolve(written(tmp_path, "csv"), target="kind", **options)


def test_without_a_split_of_its_own_nothing_changes(tmp_path: Path) -> None:
    info = resolve(written(tmp_path, "csv"), target="kind", ignore=["day", "part"])
    assert info.canonical["test"] == 0.25
    assert {*info.canonical} == {
        *("source", "digest", "target", "categorical", "ignore", "test", "positive", "preparation")
    }


@pytest.mark.parametrize("shape", [(40, 6, 5, 3), (40, 6, 5)])
@pytest.mark.parametrize("kind", [np.uint8, np.float32, np.int16])
def test_images_in_a_file(tmp_path: Path, shape: tuple[int, ...], kind: type[Any]) -> None:
    rng = np.random.default_rng(0)
    X = rng.integers(0, 200, size=shape).astype(kind)
    part = np.array(["train", "test"])[(np.arange(40) % 5 == 0).astype(int)]
    np.savez(tmp_path / "images.npz", X=X, y=np.arange(40) % 4, part=part)
    info = resolve(f"file:{tmp_path / 'images.npz'}", target="y", split="part")
    channels = 3 if len(shape) == 4 else 1
    assert info.image == (6, 5, channels)
    assert (info.n_train, info.n_test, info.class_names) == (32, 8, ("0", "1", "2", "3"))
    fetch(info)
    data = load(info.canonical)
    assert data.image == (6, 5, channels)
    assert data.X.dtype == (np.uint8 if kind is np.uint8 else np.float64)
    expected = X.reshape(40, -1)
    order = np.concatenate([np.flatnonzero(np.arange(40) % 5), np.arange(0, 40, 5)])
    np.testing.assert_array_equal(data.X, expected[order])
    np.testing.assert_array_equal(data.y, (np.arange(40) % 4)[order])


def test_what_are_no_images_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "images.npz"
    for X, said in (
        (np.zeros((8, 2, 2, 2, 2)), "not images"),
        (np.full((8, 2, 2), np.nan), "not finite"),
    ):
        np.savez(path, X=X, y=np.arange(8) % 2)
        with pytest.raises(Refused, match=said):
            resolve(f"file:{path}", target="y")
    np.savez(path, X=np.zeros((8, 2, 2)), y=np.arange(8) % 2)
    with pytest.raises(Refused, match="have no columns"):
        resolve(f"file:{path}", target="y", ignore=["0"])


@pytest.mark.parametrize("suffixes", [("csv", "csv"), ("parquet", "csv")])
def test_a_second_table_is_the_test_set(tmp_path: Path, suffixes: tuple[str, str]) -> None:
    table = TABLE.with_columns(colour=pl.Series(["red", "green", "blue"] * 4)).drop("part")
    source = written(tmp_path, suffixes[0], table[:8])
    (tmp_path / "test").mkdir()
    test = written(tmp_path / "test", suffixes[1], table[8:].select(table.columns[::-1]))
    given = {"target": "kind", "ignore": ["day"], "test_file": test.removeprefix("file:")}
    info = resolve(source, **given)
    assert (info.n_train, info.n_test, info.class_names) == (8, 4, ("a", "b"))
    assert "test_file" not in info.canonical
    fetch(info)
    data = load(info.canonical)
    np.testing.assert_array_equal(data.X[:, 0], range(N))
    np.testing.assert_array_equal(data.X[:, 1], [2, 1, 0] * 4)  # one code for both files
    assert data.official_test is not None
    assert data.official_test.tolist() == [8, 9, 10, 11]
    written(tmp_path / "test", suffixes[1], table[7:])
    assert resolve(source, **given).id != info.id
    with pytest.raises(MachineError, match="has changed"):
        fetch(replace(info, canonical={**info.canonical, "test_digest": "0"}))


def test_second_files_of_another_form_are_refused(tmp_path: Path) -> None:
    table = TABLE.drop("day", "part")
    source = written(tmp_path, "csv", table[:8])
    (tmp_path / "test").mkdir()
    path = written(tmp_path / "test", "csv", table[8:]).removeprefix("file:")
    for other, said in (
        (table[8:].drop("x"), "column 'x' is not in the test file"),
        (table[8:].with_columns(z=1), "column 'z' is not in the source"),
        (table[8:].with_columns(x=pl.lit("low")), "'x' holds labels, in the source numbers"),
        (table[8:].drop("kind"), "column 'kind' is not in the test file"),
        (table[:0], "has no rows"),
    ):
        written(tmp_path / "test", "csv", other)
        with pytest.raises(Refused, match=said):
            resolve(source, target="kind", test_file=path)
    written(tmp_path / "test", "csv", table[8:])
    for given, said in (
        ({"test_file": path, "last": 2}, "test_file is the test set already"),
        ({"test_file": path, "test": 0.5}, "test_file says what the test set is"),
        ({"test_file": 3}, "the path of a file"),
        ({"test_file": f"{path}.npz"}, "another kind of file"),
        ({"test_file": f"{path[:-9]}none.csv"}, "does not exist"),
    ):
        with pytest.raises(Refused, match=said):
            resolve(source, target="kind", **given)


def test_groups_of_a_second_file_must_be_others(tmp_path: Path) -> None:
    table = TABLE.drop("day", "part").with_columns(who=pl.Series([f"w{i // 2}" for i in range(N)]))
    (tmp_path / "test").mkdir()
    for cut, torn in ((8, False), (9, True)):
        source = written(tmp_path, "csv", table[:cut])
        path = written(tmp_path / "test", "csv", table[cut:]).removeprefix("file:")
        if torn:
            with pytest.raises(Refused, match="torn apart"):
                resolve(source, target="kind", group="who", test_file=path)
        else:
            assert resolve(source, target="kind", group="who", test_file=path).n_test == 4
