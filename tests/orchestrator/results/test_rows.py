"""Which row of the source a point is, where data are prepared in another order or in part."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest

from manyseed import Sweep
from manyseed.jobs.datasets import cache, fetch, names_of, resolve
from manyseed.orchestrator.plans.plan import Plan
from tests.orchestrator.conftest import inside

N = 240
WRONG = (31, 64, 97, 150)
"""Rows whose labels are wrong."""

FILE = """
name = "rows"
seed = 1
repeats = {repeats}
runs = 6
[[grid]]
dataset = ["t"]
classifier = ["lr-sgd", "svm-sgd"]
[dataset.t]
source = "file:t.csv"
target = "label"
{keys}
"""


@pytest.fixture
def table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> pl.DataFrame:
    """Two classes that are told apart, but for four labels; the first five rows are of a third."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(cache.HOME_VARIABLE, str(tmp_path / "home"))
    rng = np.random.default_rng(0)
    row = np.arange(N)
    is_b = row % 2 == 1
    label = np.where(is_b, "b", "a").astype(object)
    label[[*WRONG]] = np.where(is_b[[*WRONG]], "a", "b")
    label[:5] = "other"
    return pl.DataFrame(
        {
            "x": rng.normal(size=N) + 9 * is_b,
            "z": rng.normal(size=N) + 9 * is_b,
            "day": (N - row).astype(float),
            "part": np.where(rng.random(N) < 0.6, "test", "train"),
            "who": [f"{each:04}" for each in row],
            "label": label,
        }
    )


def trained(table: pl.DataFrame, keys: str, repeats: int) -> Sweep:
    table.write_csv("t.csv")
    Path("rows.toml").write_text(FILE.format(keys=keys, repeats=repeats))
    sweep = Sweep.plan("rows.toml", "rows")
    sweep.submit(workers=1)
    sweep.wait()
    sweep.analyze()
    return sweep


def always_wrong(sweep: Sweep) -> dict[int, str]:
    """Return what is said of each point that is always wrong, by the number that names it."""
    (told,) = (one for one in sweep.answers("points") if "nearly every run" in one.headline)
    return {int("".join(filter(str.isdigit, line.split(":")[0]))): line for line in told.details}


CLASSES = 'classes = { a = ["a"], b = ["b"] }'
KEYS: dict[str, tuple[str, int]] = {
    "plain": ('ignore = ["who", "part", "day"]', 6),
    "split": ('split = "part"\nignore = ["who", "day"]', 1),
    "order": ('last = 0.8\norder = "day"\nignore = ["who", "part"]', 1),
    "classes": (f'{CLASSES}\nignore = ["who", "part", "day"]', 6),
    "split and classes": (f'{CLASSES}\nsplit = "part"\nignore = ["who", "day"]', 1),
    "ids": ('row_id = "who"\nignore = ["part", "day"]', 6),
    "ids and split": ('row_id = "who"\nsplit = "part"\nignore = ["day"]', 1),
    "ids and classes": (f'{CLASSES}\nrow_id = "who"\nignore = ["part", "day"]', 6),
}


@pytest.mark.parametrize("name", KEYS)
def test_points_are_the_rows_of_the_file(table: pl.DataFrame, name: str) -> None:
    keys, repeats = KEYS[name]
    absent = 0 if "classes" in keys else 5
    table = table[absent:]
    sweep = trained(table, keys, repeats)
    told = always_wrong(sweep)
    column = "row_id" if "row_id" in keys else "row"
    shown = sweep.query("points")
    if name == "plain":
        assert {"row", "row_id", "file"}.isdisjoint(shown.columns)
        column = "index"
    tested = {*shown[column].cast(pl.Int64).to_list()}
    places = [row if column == "row_id" else row - absent for row in WRONG]
    assert len(tested & {*places}) > 1
    for place in tested & {*places}:
        called = f"id {place:04}" if column == "row_id" else f"row {place}"
        assert f"t, {called}: wrong 1.00" in told[place]
    labels = table.with_row_index("at").select(
        (pl.col("who") if column == "row_id" else pl.col("at")).cast(pl.Int64).alias(column),
        "label",
    )
    own = shown.with_columns(pl.col(column).cast(pl.Int64), pl.col("truth").cast(pl.String))
    pairs = own.join(labels, on=column)
    assert len(pairs) == len(own) > 0
    assert (pairs["truth"] == pairs["label"]).all()


def test_the_rows_of_a_second_file_are_its_own(table: pl.DataFrame) -> None:
    table = table[5:].drop("who", "part", "day")
    table[120:].write_csv("later.csv")
    sweep = trained(table[:120], 'test_file = "later.csv"', 1)
    names = names_of(Plan.read(sweep.paths).cell(0).dataset)
    assert names is not None
    assert (names.kind, len(names.of)) == ("row", 235)
    assert [names.of[at] for at in (0, 119, 120, 234)] == ["0", "119", "0 (test)", "114 (test)"]
    assert f"row {150 - 125} (test)" in str(always_wrong(sweep))


def test_a_copy_of_an_earlier_version_is_told_until_it_is_planned_again(
    table: pl.DataFrame, tmp_path: Path
) -> None:
    sweep = trained(table[5:], *KEYS["split"])
    before = always_wrong(sweep)
    (names,) = (tmp_path / "home").rglob("rows.json")
    names.unlink()
    (told,) = (one for one in sweep.answers("points") if "nearly every run" in one.headline)
    assert all("t, point " in line for line in told.details)
    assert "not as in the source, which is not known here: plan again" in told.cannot_tell
    assert sweep.query("points")["row"].unique().to_list() == ["?"]
    code, said = inside("plan", "rows.toml")
    assert (code, "manyseed status rows" in said) == (0, True), said
    assert always_wrong(sweep) == before


def test_nothing_is_said_of_rows_where_a_file_says_what_is_tested(table: pl.DataFrame) -> None:
    sweep = trained(table[5:], *KEYS["split"])
    assert not any("in no test set" in one.cannot_tell for one in sweep.answers("points"))


def test_rows_in_no_test_set_are_counted(table: pl.DataFrame) -> None:
    sweep = trained(table[5:], *KEYS["plain"])
    (told,) = (one for one in sweep.answers("points") if "nearly every run" in one.headline)
    tested = sweep.query("points")["index"].n_unique()
    left = f"About {1 - tested / 236:.0%} of the rows of t are in no test set, so they are not"
    assert f"{left} judged: repeats = 17 would test 99 %." in told.cannot_tell


def test_whole_numbers_of_arrays_and_parquet_are_ids_as_they_are(table: pl.DataFrame) -> None:
    labels = (table["label"] == "b").to_numpy()
    ids = np.arange(N) + 2**60
    np.savez("t.npz", X=table.select("x", "z").to_numpy(), y=labels.astype(np.int64), ids=ids)
    table.select("x", "z", "label", ids=pl.Series(ids)).write_parquet("t.parquet")
    for source, keys in (("t.npz", {}), ("t.parquet", {"target": "label"})):
        info = resolve(f"file:{source}", row_id="ids", **keys)
        fetch(info)
        names = names_of(info.canonical)
        assert names is not None
        assert names.of[:2] == [str(2**60), str(2**60 + 1)]


@pytest.mark.parametrize("damaged", ["[", "{}", '["1", "2"]', "\x00"])
def test_names_that_are_damaged_or_of_other_data_name_no_row(
    table: pl.DataFrame, tmp_path: Path, damaged: str
) -> None:
    table[5:].write_csv("t.csv")
    info = resolve("file:t.csv", target="label", split="part", ignore=["who", "day"])
    fetch(info)
    before = names_of(info.canonical)
    (file,) = (tmp_path / "home").rglob("rows.json")
    file.write_text(damaged)
    lost = names_of(info.canonical)
    assert lost is not None
    assert (lost.kind, [*lost.of]) == ("row", [])
    fetch(info)
    assert names_of(info.canonical) == before
