"""Several official test sets: folds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from manyseed.jobs.checks import Refused
from manyseed.jobs.datasets import fetch, load, resolve
from manyseed.jobs.datasets.parts import roles_of
from manyseed.jobs.datasets.split import split

N = 33
TABLE = pl.DataFrame(
    {
        "x": [float(i) for i in range(N)],
        "fold": [i % 10 % 4 for i in range(N)],  # 10, 10, 7 and 6 rows
        "who": [f"w{i % 10 % 4}-{i % 3}" for i in range(N)],
        "kind": ["a", "b", "b"] * (N // 3),
    }
)


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MANYSEED_DATA", str(tmp_path / "home"))
    return tmp_path


def written(home: Path, suffix: str = "csv", table: pl.DataFrame = TABLE) -> str:
    path = home / f"table.{suffix}"
    if suffix == "npz":
        columns = {name: table[name].to_numpy() for name in ("fold",)}
        kind = table["kind"].to_numpy().astype(str)
        np.savez(path, X=table.select("x").to_numpy(), kind=kind, **columns)
    else:
        getattr(table, f"write_{suffix}")(path)
    return f"file:{path}"


@given(
    rows=st.lists(st.tuples(st.integers(0, 3), st.integers(0, 2)), min_size=4, max_size=60),
    seed=st.integers(0, 2**32),
)
@settings(deadline=None)
def test_each_fold_is_a_test_set_of_one_size(rows, seed):
    fold, y = np.array(rows).T
    sizes = np.bincount(fold)
    sizes = sizes[sizes > 0]
    assume(len(sizes) > 1)
    assume(sizes.min() > 1)
    roles = roles_of("fold", fold.astype(np.float64))
    assert len(roles) == len(sizes)
    for repeat, number in enumerate(np.unique(fold)):
        part = split(seed, "dataset", repeat, y, "official", roles=roles)
        assert part.test.size == sizes.min()
        assert part.train.size == len(y) - sizes.max()
        assert {*fold[part.test].tolist()} == {number}
        assert number not in fold[part.train]
        for rows_of in (part.test, part.train):
            assert np.unique(rows_of).size == rows_of.size
        again = split(seed, "dataset", repeat, y, "official", roles=roles)
        assert np.array_equal(again.train, part.train)
    with pytest.raises(ValueError, match="there is no repeat"):
        split(seed, "dataset", len(sizes), y, "official", roles=roles)


@pytest.mark.parametrize("suffix", ["csv", "npz"])
def test_a_column_holds_the_folds(home: Path, suffix: str) -> None:
    ignore = ["who"] if suffix == "csv" else []
    info = resolve(written(home, suffix), target="kind", folds="fold", ignore=ignore)
    assert (info.n_test_sets, info.n_test, info.largest_test, info.n_train) == (4, 6, 10, 23)
    assert (info.canonical["folds"], info.canonical["test"]) == ("fold", "official")
    assert info.n_features == 1
    fetch(info)
    data = load(info.canonical)
    for repeat in range(4):
        part = split(
            1, info.id, repeat, data.y, "official", data.official_test, data.groups, data.roles
        )
        assert (part.test.size, part.train.size) == (6, 23)
        assert set(TABLE["fold"].to_numpy()[data.X[part.test, 0].astype(int)]) == {repeat}


def test_classes_that_are_left_out_leave_smaller_folds(home: Path) -> None:
    table = TABLE.with_columns(kind=pl.Series(["a", "b", "c"] * (N // 3)))
    info = resolve(
        written(home, table=table),
        target="kind",
        folds="fold",
        ignore=["who"],
        classes={"a": ["a"], "b": ["b"]},
    )
    kept = table.filter(pl.col("kind") != "c")
    sizes = kept["fold"].value_counts()["count"]
    assert (info.n_test, info.n_train) == (sizes.min(), len(kept) - sizes.max())
    fetch(info)
    data = load(info.canonical)
    part = split(1, info.id, 3, data.y, "official", roles=data.roles)
    assert (part.test.size, part.train.size) == (info.n_test, info.n_train)


def test_folds_of_whole_groups_are_taken(home: Path) -> None:
    info = resolve(written(home), target="kind", folds="fold", group="who")
    assert info.n_test_sets == 4
    torn = TABLE.with_columns(who=pl.Series([f"w{i % 3}" for i in range(N)]))
    with pytest.raises(Refused, match="torn apart by the file's own split: 3 groups"):
        resolve(written(home, table=torn), target="kind", folds="fold", group="who")


REFUSED: list[tuple[dict[str, Any], list[Any], str]] = [
    ({"folds": "flod"}, [], "unknown column"),
    ({"folds": "kind"}, [], "is the target already"),
    ({"folds": "fold", "test": 0.5}, [], "folds say what the test set is"),
    ({"folds": "fold", "last": 3}, [], "folds are the test sets already"),
    ({"folds": "fold"}, [1] * N, "a single fold"),
    ({"folds": "fold"}, [None, *[1, 2] * 16], "missing in 1 rows"),
    ({"folds": "fold"}, [*range(N)], "the smallest of a single row"),
]


@pytest.mark.parametrize(("options", "column", "said"), REFUSED)
def test_what_are_no_folds_is_refused(
    home: Path, options: dict[str, Any], column: list[Any], said: str
) -> None:
    table = TABLE.with_columns(fold=pl.Series(column or TABLE["fold"]))
    with pytest.raises(Refused, match=said):
        resolve(written(home, "parquet", table), target="kind", ignore=["who"], **options)
