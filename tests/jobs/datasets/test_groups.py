"""Rows that belong together are never torn apart."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from manyseed.jobs import classifiers, tuning
from manyseed.jobs.cells import resolve_cell
from manyseed.jobs.checks import Refused
from manyseed.jobs.datasets import fetch, load, resolve
from manyseed.jobs.datasets.split import (
    groups_of_size,
    held_out,
    n_points,
    nearest_size,
    sizes_near,
    split,
)
from manyseed.jobs.run import Run, stream
from manyseed.jobs.trainer import Trainer

sizes = st.lists(st.integers(1, 9), min_size=2, max_size=8).map(np.array)


def all_sums(of: np.ndarray) -> set[int]:
    """Return what some of the groups have together, by trying all."""
    return {sum(some) for k in range(len(of) + 1) for some in combinations(of.tolist(), k)}


def first_fill(in_order: list[int], n: int) -> list[int]:
    """Return the first selection, in the order of taking early groups, that has `n` rows."""
    options = sorted(
        (tuple(i not in some for i in range(len(in_order))), some)
        for k in range(len(in_order) + 1)
        for some in combinations(range(len(in_order)), k)
        if sum(in_order[i] for i in some) == n
    )
    return [*options[0][1]]


@given(of=sizes, share=st.floats(0, 1))
@settings(deadline=None)
def test_the_nearest_sizes_are_those_of_all_selections(of, share):
    n = int(of.sum())
    wanted = round(share * n)
    possible = sorted(all_sums(of) & {*range(2, n - 1)})
    below = max((size for size in possible if size <= wanted), default=None)
    above = min((size for size in possible if size >= wanted), default=None)
    assert sizes_near(of, wanted) == (below, above)
    expected = min(possible, key=lambda size: (abs(size - wanted), size), default=None)
    assert nearest_size(of, wanted) == expected


@given(of=sizes, seed=st.integers(0, 2**32), data=st.data())
@settings(deadline=None)
def test_groups_are_taken_in_their_order_as_long_as_the_rest_fits(of, seed, data):
    order = np.random.default_rng(seed).permutation(len(of))
    n = data.draw(st.sampled_from(sorted(all_sums(of))))
    chosen = groups_of_size(of, order, n)
    assert chosen.tolist() == order[first_fill(of[order].tolist(), n)].tolist()


def test_a_size_that_no_groups_have_fills_nothing():
    with pytest.raises(ValueError, match="no whole groups have 5 rows"):
        groups_of_size(np.array([2, 4, 4]), np.arange(3), 5)


def test_many_groups_are_filled():
    rng = np.random.default_rng(0)
    of = rng.integers(1, 50, 20_000)
    n = int(of.sum()) // 4
    chosen = groups_of_size(of, rng.permutation(of.size), n)
    assert of[chosen].sum() == n
    assert np.unique(chosen).size == chosen.size


rows = st.lists(st.tuples(st.integers(0, 7), st.integers(0, 2)), min_size=6, max_size=60)


@given(rows=rows, seed=st.integers(0, 2**32), share=st.sampled_from([0.1, 0.25, 0.5]))
@settings(deadline=None)
def test_no_group_is_on_both_sides_and_sets_have_one_size(rows, seed, share):
    groups, y = np.array(rows, dtype=np.int64).T
    counts = np.bincount(groups)
    size = nearest_size(counts[counts > 0], n_points(share, y.size))
    assume(size is not None)
    for repeat in range(3):
        part = split(seed, "dataset", repeat, y, share, groups=groups)
        assert part.test.size == size
        assert not np.intersect1d(groups[part.train], groups[part.test]).size
        assert np.array_equal(np.union1d(part.train, part.test), np.arange(y.size))
        again = split(seed, "dataset", repeat, y, share, groups=groups)
        assert np.array_equal(part.test, again.test)


def test_groups_of_one_row_are_split_as_rows_are():
    y = np.random.default_rng(1).integers(0, 3, 200)
    alone = split(7, "dataset", 0, y, 0.25)
    grouped = split(7, "dataset", 0, y, 0.25, groups=np.arange(200))
    assert np.array_equal(alone.test, grouped.test)


def test_classes_of_groups_are_stratified():
    """A rare class of whole groups: a tenth of them, in each test set a tenth."""
    groups = np.repeat(np.arange(100), 4)
    y = (groups % 10 == 0).astype(np.int64)
    for repeat in range(10):
        part = split(3, "dataset", repeat, y, 0.2, groups=groups)
        assert part.test.size == 80
        assert y[part.test].mean() == 0.1


def test_a_split_is_written_out():
    groups = np.array([5, 5, 1, 1, 1, 0, 2, 2, 3, 3, 9, 9])
    y = np.array([0, 1, 0, 0, 1, 1, 0, 0, 1, 1, 0, 1])
    tests = [split(1, "x", repeat, y, 0.4, groups=groups).test.tolist() for repeat in range(4)]
    assert tests == [[2, 3, 4, 10, 11], [5, 6, 7, 8, 9], [0, 1, 5, 10, 11], [2, 3, 4, 8, 9]]


# --- of files -----------------------------------------------------------------------------------


N = 60
TABLE = pl.DataFrame(
    {
        "x": [float(i) for i in range(N)],
        "patient": [f"p{i * 7 % 20}" for i in range(N)],  # 20 of 3 rows
        "kind": ["a", "b", "b"] * (N // 3),
    }
)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MANYSEED_DATA", str(tmp_path / "home"))
    return tmp_path


def written(home: Path, suffix: str, table: pl.DataFrame = TABLE) -> str:
    path = home / f"table.{suffix}"
    if suffix == "npz":
        others = {name: table[name].to_numpy().astype(str) for name in table.columns[1:]}
        np.savez(path, X=table.select("x").to_numpy(), **others)
    elif suffix == "images.npz":
        others = {name: table[name].to_numpy().astype(str) for name in table.columns[1:]}
        X = np.broadcast_to(table["x"].to_numpy().astype(np.uint8)[:, None, None], (N, 3, 4))
        np.savez(path, X=X, **others)
    else:
        getattr(table, f"write_{suffix}")(path)
    return f"file:{path}"


@pytest.mark.parametrize("suffix", ["csv", "parquet", "npz", "images.npz"])
def test_a_column_says_which_rows_belong_together(home: Path, suffix: str) -> None:
    info = resolve(written(home, suffix), target="kind", group="patient", test=0.3)
    assert (info.n_test, info.n_train, info.n_test_asked) == (18, 42, None)
    assert info.group_sizes == (20, 3, 3, 3)
    assert info.n_features == (12 if info.image else 1)
    assert info.canonical["group"] == "patient"
    fetch(info)
    data = load(info.canonical)
    patients = TABLE["patient"].to_numpy()[data.X[:, 0].astype(int)]
    found = set()
    for repeat in range(4):
        part = split(1, info.id, repeat, data.y, 0.3, None, data.groups)
        assert not {*patients[part.train]} & {*patients[part.test]}
        assert len({*patients[part.test]}) == 6
        found.add(tuple(part.test))
    assert len(found) == 4


def test_a_share_makes_the_nearest_size_that_whole_groups_have(home: Path) -> None:
    info = resolve(written(home, "csv"), target="kind", group="patient")
    assert (info.n_test_asked, info.n_test) == (None, 15)
    info = resolve(written(home, "csv"), target="kind", group="patient", test=0.28)  # 17
    assert (info.n_test_asked, info.n_test) == (17, 18)
    assert info.canonical["test"] == 0.28
    fetch(info)
    data = load(info.canonical)
    assert split(1, info.id, 0, data.y, 0.28, None, data.groups).test.size == 18


def test_classes_that_are_left_out_leave_smaller_groups(home: Path) -> None:
    kinds = pl.Series("kind", ["a", "b", "c", "c"] * 15)
    source = written(home, "csv", TABLE.with_columns(kinds))
    info = resolve(
        source, target="kind", group="patient", classes={"a": ["a"], "b": ["b"]}, test=0.5
    )
    fetch(info)
    data = load(info.canonical)
    assert data.groups is not None
    kept = [i for i in range(N) if kinds[i] != "c"]
    patients = TABLE["patient"].to_numpy()[kept]
    assert data.groups.size == info.n_samples == len(kept)
    part = split(1, info.id, 0, data.y, 0.5, None, data.groups)
    assert part.test.size == info.n_test
    assert not {*patients[part.train]} & {*patients[part.test]}


def test_an_official_split_that_keeps_groups_whole_is_taken(home: Path) -> None:
    parts = ["test" if p in ("p3", "p5") else "train" for p in TABLE["patient"]]
    source = written(home, "csv", TABLE.with_columns(part=pl.Series(parts)))
    info = resolve(source, target="kind", group="patient", split="part")
    assert (info.n_test, info.n_test_sets) == (6, 1)
    fetch(info)
    data = load(info.canonical)
    assert data.official_test is not None
    assert data.groups is not None
    assert len({*data.groups[data.official_test].tolist()}) == 2


MIXED = ["a"] * 30 + ["b"] * 30
REFUSED: list[tuple[dict[str, Any], dict[str, list[Any]], str]] = [
    ({"group": "patent"}, {}, "unknown column"),
    ({"group": "kind"}, {}, "is the target already"),
    ({"group": 3}, {}, "the name of a column"),
    ({"group": "patient", "ignore": ["patient"]}, {}, "take it out of ignore"),
    ({"group": "patient"}, {"patient": ["p"] * N}, "a single group"),
    ({"group": "patient"}, {"patient": [None, "p", *["q"] * 58]}, "is missing in 1 rows"),
    ({"group": "patient"}, {"patient": [float("nan"), *[2.0] * 59]}, "is missing in 1 rows"),
    ({"group": "patient", "test": 17}, {}, "no whole groups have 17 rows.*nearest are 15 and 18"),
    ({"group": "patient"}, {"patient": ["p", *["q"] * 59]}, "make no two parts"),
    ({"group": "patient", "last": 10}, {}, "torn apart by the file's own split: 10 groups"),
    (
        {"group": "patient", "classes": {"a": ["a"], "b": ["b"]}},
        {"patient": ["p"] * 50 + ["q"] * 10, "kind": ["a"] * 25 + ["b"] * 25 + ["c"] * 10},
        "a single group",
    ),
]


@pytest.mark.parametrize(("options", "columns", "said"), REFUSED)
def test_groups_that_make_no_split_are_refused(
    home: Path, options: dict[str, Any], columns: dict[str, list[Any]], said: str
) -> None:
    table = TABLE.with_columns(**{name: pl.Series(v, strict=False) for name, v in columns.items()})
    with pytest.raises(Refused, match=said):
        resolve(written(home, "parquet", table), target="kind", **options)


def test_groups_of_another_source_are_refused() -> None:
    with pytest.raises(Refused, match="group"):
        resolve("sklearn:digits", group="patient")


def test_a_search_is_judged_by_other_groups_than_it_is_fitted_on(home: Path) -> None:
    info = resolve(written(home, "csv"), target="kind", group="patient")
    fetch(info)
    model = classifiers.resolve("lr-sgd", {}, info)
    cell = resolve_cell(5, info, model).cell
    data = tuning.validation(Trainer(), cell)
    patients = TABLE["patient"].to_numpy()
    fit, judged = patients[data.X[:, 0].astype(int)], patients[data.X_test[:, 0].astype(int)]
    assert not {*fit} & {*judged}
    assert len(fit) + len(judged) == info.n_train
    assert len(judged) == 12  # of 45, the size of whole groups nearest to a quarter, 11


def test_runs_are_trained_on_other_groups_than_they_are_tested_on(home: Path) -> None:
    info = resolve(written(home, "csv"), target="kind", group="patient")
    fetch(info)
    model = classifiers.resolve("lr-sgd", {}, info)
    cell = resolve_cell(5, info, model, train_fraction=0.5, vary="train").cell
    patients, trainer = TABLE["patient"].to_numpy(), Trainer()
    for repeat in range(3):
        data = trainer.training_set(Run(cell, repeat, 1))
        fit, test = patients[data.X[:, 0].astype(int)], patients[data.X_test[:, 0].astype(int)]
        assert not {*fit} & {*test}
        assert len(test) == info.n_test


def test_a_single_group_cannot_be_held_out() -> None:
    y = np.array([0, 1, 0, 1])
    with pytest.raises(ValueError, match="1 groups of 4 rows"):
        held_out(y, stream(1, "tune", "x"), 1, np.zeros(4, dtype=np.int64))
