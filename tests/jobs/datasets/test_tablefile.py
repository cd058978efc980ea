import hashlib
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from numpy.typing import NDArray

from manyseed.jobs.checks import Refused
from manyseed.jobs.datasets import fetch, load, resolve
from manyseed.jobs.datasets.columns import column_info, told_by
from manyseed.jobs.datasets.info import ColumnInfo
from manyseed.jobs.run import MachineError
from manyseed.orchestrator.grids.plannotes import data_notes

TABLE = pl.DataFrame(
    {
        "width": [0.5, None, 2.0, 3.0, 4.0, 5.0],
        "grade": [10, 2, 10, 2, 3, None],
        "colour": ["red", None, "blue", "red", "red", "blue"],
        "round": [True, False, True, True, False, True],
        "kind": ["b", "a", "a", "b", "a", "b"],
    }
)
X = [
    [0.5, 2, 1, 1],
    [np.nan, 0, np.nan, 0],
    [2, 2, 0, 1],
    [3, 0, 1, 1],
    [4, 1, 1, 0],
    [5, np.nan, 0, 1],
]


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("MANYSEED_DATA", str(tmp_path / "home"))


def csv(tmp_path, text):
    path = tmp_path / "table.csv"
    path.write_text(text)
    return f"file:{path}"


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_a_table_is_encoded(tmp_path, suffix):
    path = tmp_path / f"table.{suffix}"
    getattr(TABLE, f"write_{suffix}")(path)
    info = resolve(f"file:{path}", target="kind", categorical=["grade"], test=2)
    assert (info.n_samples, info.n_features, info.n_categorical) == (6, 4, 3)
    assert info.class_names == ("a", "b")
    assert info.class_counts == (3, 3)
    assert fetch(info)
    data = load(info.canonical)
    np.testing.assert_array_equal(data.X, X)
    assert data.y.tolist() == [1, 0, 0, 1, 0, 1]
    assert data.cardinality.tolist() == [0, 3, 2, 2]


def test_arrays_are_encoded(tmp_path):
    path = tmp_path / "arrays.npz"
    codes = np.array([[1, 2.5], [7, 1], [7, np.nan], [np.nan, 3], [1, 0], [7, 0]])
    np.savez(path, X=codes, species=np.array(["x", "y", "x", "y", "y", "x"]))
    info = resolve(f"file:{path}", target="species", categorical=["0"], test=2)
    fetch(info)
    data = load(info.canonical)
    np.testing.assert_array_equal(data.X[:, 0], [0, 1, 1, np.nan, 0, 1])
    np.testing.assert_array_equal(data.X[:, 1], codes[:, 1])
    assert data.y.tolist() == [0, 1, 0, 1, 1, 0]
    assert data.cardinality.tolist() == [2, 0]


def test_a_file_is_its_content_wherever_it_lies(tmp_path, monkeypatch):
    source = csv(tmp_path, "x,y\n1,a\n2,b\n3,a\n4,b\n")
    (tmp_path / "deep").mkdir()
    copy = tmp_path / "deep" / "other.csv"
    copy.write_bytes((tmp_path / "table.csv").read_bytes())
    info = resolve(source, target="y", test=2)
    assert info.id == "f275a5e773fbaa5bc1cf8777221b55db"
    assert info.canonical == {
        "source": "file",
        "digest": hashlib.sha256((tmp_path / "table.csv").read_bytes()).hexdigest(),
        "target": "y",
        "categorical": [],
        "positive": "b",
        "test": 2,
        "preparation": 1,
    }
    assert resolve(f"file:{copy}", target="y", test=2).id == info.id
    monkeypatch.chdir(tmp_path)
    assert resolve("file:table.csv", target="y", test=2).id == info.id
    assert resolve(source, target="y", categorical=["x"], test=2).id != info.id
    copy.write_text("x,y\n1,a\n2,b\n3,a\n5,b\n")
    assert resolve(f"file:{copy}", target="y", test=2).id != info.id


def test_a_file_that_changed_since_it_was_planned_is_refused(tmp_path):
    source = csv(tmp_path, "x,y\n1,a\n2,b\n3,a\n4,b\n")
    info = resolve(source, target="y", test=2)
    csv(tmp_path, "x,y\n1,a\n2,b\n3,a\n5,b\n")
    with pytest.raises(MachineError, match=r"table\.csv has changed: its SHA-256 is"):
        fetch(info)


def test_a_prepared_copy_outlives_its_file(tmp_path):
    info = resolve(csv(tmp_path, "x,y\n1,a\n2,b\n3,a\n4,b\n"), target="y", test=2)
    fetch(info)
    (tmp_path / "table.csv").unlink()
    assert load(info.canonical).X[:, 0].tolist() == [1, 2, 3, 4]


GOOD = "x,z,y\n1,0,a\n2,0,b\n3,1,a\n4,1,b\n"


@pytest.mark.parametrize(
    ("text", "parameters", "message"),
    [
        (GOOD, {}, "target = None: must be the name of the column to predict"),
        (GOOD, {"target": "Y"}, "target = 'Y': unknown column; there are x, z, y"),
        (GOOD, {"target": "y", "categorical": "x"}, "categorical = 'x': must be a list of columns"),
        (
            GOOD,
            {"target": "y", "categorical": ["zz"]},
            "categorical = 'zz': unknown column; there are x, z$",
        ),
        (
            GOOD,
            {"target": "y", "categorical": ["y"]},
            "categorical = 'y': is the target already$",
        ),
        (GOOD, {"target": "y", "catgorical": []}, r"catgorical = \[\]: unknown; .*categorical"),
        ("x,y\n", {"target": "y"}, "is empty: 0 samples with 1 features"),
        ("", {"target": "y"}, r"cannot be read as \.csv"),
        ("y\na\nb\n", {"target": "y"}, "has no features: its only column is 'y'; columns must be"),
        (
            "x|y\n1|a\n2|b\n",
            {"target": "x|y"},
            r"its only column is 'x\|y'; columns must be separated by commas, semicolons or tabs",
        ),
        (
            "x|y\n1|a\n2|b\n",
            {"target": "y"},
            r"unknown column; the only one is 'x\|y', as columns must be separated by commas",
        ),
        (
            "x,z,y\n1,2,a\n2,2,b\n",
            {"target": "y", "ignore": ["x", "z"]},
            "has no features: every column but the target is ignored",
        ),
        ("x,y\n1,a\n2,a\n", {"target": "y"}, "target = 'y': has a single class, 'a'"),
        (
            "x,y\n1,a\n2,\n3,NaN\n4,b\n",
            {"target": "y"},
            "target = 'y': 2 of 4 values are missing",
        ),
        ("x,y\n1,.5\n2,.7\n3,.9\n", {"target": "y"}, "has 3 classes in 3 samples"),
        ("x,y\n1,a\ninf,a\n3,b\n4,b\n", {"target": "y"}, "infinite numbers in column 'x'"),
        ("x,y\n1,a\n2,2,b\n", {"target": "y"}, r"cannot be read as \.csv"),
    ],
)
def test_what_no_study_could_use_is_refused_when_it_is_planned(tmp_path, text, parameters, message):
    with pytest.raises(ValueError, match=message):
        resolve(csv(tmp_path, text), **parameters)


def test_files_that_are_not_what_they_are_called_are_refused(tmp_path):
    (tmp_path / "a.feather").touch()
    with pytest.raises(ValueError, match=r"'\.feather': unknown kind of file; there are \.csv"):
        resolve(f"file:{tmp_path}/a.feather", target="y")
    for name in ("a.csv", "a.npz", "a.npy", "a.zarr", "a"):
        with pytest.raises(
            ValueError, match=rf"file:{tmp_path}/{name}': does not exist(; did you mean|$)"
        ):
            resolve(f"file:{tmp_path}/{name}", target="y")
    for name in ("a.parquet", "a.npz"):
        (tmp_path / name).write_text("no such thing")
        with pytest.raises(ValueError, match=rf"cannot be read as \{name[1:]}"):
            resolve(f"file:{tmp_path}/{name}", target="y")
    np.savez(tmp_path / "a.npz", X=np.zeros(4), y=np.zeros(4))
    with pytest.raises(ValueError, match=r"not numbers .sample, feature."):
        resolve(f"file:{tmp_path}/a.npz", target="y")
    pl.DataFrame({"x": [[1], [2]], "y": [0, 1]}).write_parquet(tmp_path / "a.parquet")
    with pytest.raises(ValueError, match=r"holds List.* in column 'x'"):
        resolve(f"file:{tmp_path}/a.parquet", target="y")


PATIENTS = pl.DataFrame(
    {
        "patient_id": list(range(4000, 4040)),
        "admitted": [f"2020-03-{1 + i % 28:02d}" for i in range(40)],
        "day": [20200301 + i % 28 for i in range(40)],
        "ward": [f"w{i % 3}" for i in range(40)],
        "note": [f"text {i}" for i in range(40)],
        "size": [i / 7 for i in range(40)],
        "visits": [i % 11 for i in range(40)],
        "code": [str(i % 5) if i else "n/a" for i in range(40)],
        "ill": ["yes", "no"] * 20,
    }
)


def test_columns_that_never_change_are_found(tmp_path):
    header = "number,label,date,flag,mark,nothing,changes,y\n"
    rows = [
        f"7,a,2020-01-01,{'1' * (i % 2)},{'x' * (i % 2)},,{i % 3},{'ab'[i % 2]}" for i in range(9)
    ]
    info = resolve(csv(tmp_path, header + "\n".join(rows)), target="y", test=2)
    found = [column.name for column in info.columns if column.looks == "constant"]
    assert found == ["number", "label", "date", "nothing"]


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_columns_are_described_and_those_to_look_at_are_found(tmp_path, suffix):
    path = tmp_path / f"patients.{suffix}"
    getattr(PATIENTS, f"write_{suffix}")(path)
    info = resolve(f"file:{path}", target="ill", ignore=["note"])
    found = {one.name: (one.kind, one.n_labels, one.looks) for one in info.columns}
    assert found == {
        "patient_id": ("continuous", 0, "id"),
        "admitted": ("categorical", 28, "date"),
        "day": ("continuous", 0, "date"),
        "ward": ("categorical", 3, ""),
        "note": ("ignored", 0, ""),
        "size": ("continuous", 0, ""),
        "visits": ("continuous", 0, ""),
        "code": ("categorical", 6, "numbers"),
    }
    assert info.n_features == 7
    assert info.canonical["ignore"] == ["note"]
    whole = resolve(f"file:{path}", target="ill")
    assert "ignore" not in whole.canonical
    assert {one.name: one.looks for one in whole.columns}["note"] == "distinct"
    fetch(info)
    fetch(whole)
    assert (load(info.canonical).X.shape[1], load(whole.canonical).X.shape[1]) == (7, 8)


def test_columns_that_are_ignored_may_hold_anything(tmp_path):
    path = tmp_path / "table.parquet"
    dates = pl.date_range(pl.date(2020, 1, 1), pl.date(2020, 1, 6), eager=True)
    TABLE.with_columns(when=dates, many=pl.Series([[1.0]] * 6)).write_parquet(path)
    with pytest.raises(Refused, match="'when'") as found:
        resolve(f"file:{path}", target="kind", test=2)
    assert found.value.needs == {"ignore": ["when"]}
    info = resolve(f"file:{path}", target="kind", ignore=["many", "when"], test=2)
    plain = tmp_path / "plain.parquet"
    TABLE.write_parquet(plain)
    other = resolve(f"file:{plain}", target="kind", test=2)
    fetch(info)
    fetch(other)
    np.testing.assert_array_equal(load(info.canonical).X, load(other.canonical).X)


def test_labels_that_are_numbers_are_read_as_such_where_asked_for(tmp_path):
    text = "x,y\n" + "".join(f"{v},{'ab'[i % 2]}\n" for i, v in enumerate(["1", "2.5", "?", "7"]))
    path = tmp_path / "table.parquet"
    pl.DataFrame({"x": ["1", "2.5", None, "7"], "y": ["a", "b", "a", "b"]}).write_parquet(path)
    info = resolve(f"file:{path}", target="y", continuous=["x"], test=2)
    fetch(info)
    np.testing.assert_array_equal(load(info.canonical).X[:, 0], [1, 2.5, np.nan, 7])
    source = csv(tmp_path, text.replace("7,", "seven,"))
    with pytest.raises(Refused, match="continuous = 'x': holds 'seven', which is not a number"):
        resolve(source, target="y", continuous=["x"], test=2)
    with pytest.raises(Refused, match="ignore = 'x': is in continuous, too"):
        resolve(source, target="y", continuous=["x"], ignore=["x"], test=2)
    with pytest.raises(Refused, match="ignore = 'y': is the target already"):
        resolve(source, target="y", ignore=["y"], test=2)


def test_columns_of_arrays_are_ignored_by_number(tmp_path):
    path = tmp_path / "arrays.npz"
    np.savez(path, X=np.arange(12.0).reshape(6, 2), y=np.array(list("ababab")))
    info = resolve(f"file:{path}", target="y", ignore=["0"], test=2)
    fetch(info)
    np.testing.assert_array_equal(load(info.canonical).X[:, 0], np.arange(1, 12, 2))


def table_of(**columns):
    rows = zip(*columns.values(), strict=True)
    return "\n".join([",".join(columns), *(",".join(map(str, row)) for row in rows)]) + "\n"


AGES = [f"{20 + i / 7:.2f}" for i in range(38)]


@pytest.mark.parametrize(
    ("values", "shown"),
    [
        (["-", "n/a", *AGES], ("-", "n/a")),
        (["NULL", "#N/A", *AGES], ("#N/A", "NULL")),
        (["<5", *AGES, "7"], ("<5",)),
        (["1", "-"] * 20, ("-",)),
        ([f" {age}" for age in ["3", *AGES, "7"]], ()),
    ],
)
def test_numbers_that_are_taken_as_labels_are_found(tmp_path, values, shown):
    text = table_of(age=values, y=["a", "b"] * 20)
    (column,) = resolve(csv(tmp_path, text), target="y").columns
    assert (column.kind, column.looks, column.shown) == ("categorical", "numbers", shown)
    (column,) = resolve(csv(tmp_path, text), target="y", categorical=["age"]).columns
    assert (column.looks, column.shown) != ("numbers", shown)


@pytest.mark.parametrize(
    "each",
    ["{}%", "${}.50", "{} €", "{} kg", "1\u00a0{:03d}", "1'{:03d}.5", "\u2212{}.5", "{},000,000"],
)
def test_numbers_with_units_and_signs_are_found(tmp_path, each):
    text = table_of(
        x=[f'"{each.format(i % 40)}"' for i in range(80)], y=["a", "a", "b"] * 26 + ["b"] * 2
    )
    info = resolve(csv(tmp_path, text), target="y")
    assert (info.columns[0].kind, info.columns[0].looks) == ("categorical", "numbers")
    (note,) = data_notes(info)
    assert "write numbers alone" in note
    declared = resolve(csv(tmp_path, text), target="y", categorical=["x"])
    assert declared.columns[0].looks != "numbers"


@pytest.mark.parametrize("values", [["4WD", "2WD"], ["1st", "2nd", "3rd"], ["A1", "B2"], ["1-5"]])
def test_labels_with_digits_are_labels(tmp_path, values):
    text = table_of(x=(values * 40)[:40], z=range(40), y=["a", "b"] * 20)
    assert resolve(csv(tmp_path, text), target="y").columns[0].looks in ("", "constant")


@pytest.mark.parametrize(
    ("values", "shown"),
    [
        ([1.7e9 + 40 * (i % 2) + i % 7 for i in range(40)], ("1700000000.0", "1700000001.0")),
        ([1e39 * (1 + i % 4) for i in range(40)], ("4e+39",)),
        ([1e-50 * (i % 9) for i in range(40)], ("0.0", "1e-50")),
        ([0.3 if i % 2 else 0.1 + 0.2 for i in range(40)], ()),
        ([i / 7 for i in range(40)], ()),
    ],
)
def test_numbers_that_single_precision_merges_are_found(tmp_path, values, shown):
    path = tmp_path / "arrays.npz"
    np.savez(path, X=np.array(values)[:, None], y=np.arange(40) // 3 % 2)
    info = resolve(f"file:{path}", target="y")
    assert (info.columns[0].looks, info.columns[0].shown) == ("single" if shown else "", shown)
    assert [note for note in data_notes(info) if "float32" in note] == [*data_notes(info)]


@pytest.mark.parametrize(
    "same",
    [("caf\u00e9", "cafe\u0301"), ("tea", "tea "), ("a b", "a\u00a0b"), ("x", "x\u200b")],
)
def test_what_looks_the_same_is_one_class_or_refused(tmp_path, same):
    texts = [*same, "other", "other"] * 6
    path = tmp_path / "t.parquet"
    pl.DataFrame({"x": range(24), "g": texts, "y": texts}).write_parquet(path)
    with pytest.raises(Refused, match="the same but for blanks or case") as error:
        resolve(f"file:{path}", target="y", ignore=["g"])
    info = resolve(f"file:{path}", target="y", ignore=["g"], **error.value.needs)
    assert info.class_counts == (12, 12)
    pl.DataFrame({"x": range(24), "g": texts, "y": ["a", "b", "b", "a"] * 6}).write_parquet(path)
    for key in ("group", "folds"):
        with pytest.raises(Refused, match="look the same"):
            resolve(f"file:{path}", target="y", **{key: "g"})
    (column,) = resolve(f"file:{path}", target="y", ignore=["x"]).columns[1:]
    assert (column.looks, column.shown) == ("alike", tuple(sorted(same)))


@pytest.mark.parametrize("more", [{}, {"group": "g"}, {"folds": "f"}, {"last": 9}])
def test_rows_without_a_class_are_left_out_where_classes_are_listed(tmp_path, more):
    rng = np.random.default_rng(1)
    y = np.array([*"abc"] * 20, dtype=object)
    groups = np.arange(60) // 3
    frame = pl.DataFrame({"x": rng.normal(size=60), "g": groups, "f": groups % 4, "y": y})
    gone = rng.permutation(60)[:7]
    y[gone] = None
    marked = tmp_path / "t.parquet"
    frame.with_columns(y=pl.Series(y)).write_parquet(marked)
    (tmp_path / "clean").mkdir()
    clean = tmp_path / "clean" / "t.parquet"
    frame.filter(~pl.Series(np.isin(np.arange(60), gone))).write_parquet(clean)
    given = {"target": "y", "ignore": [] if more else ["g", "f"], **more}
    with pytest.raises(Refused, match="7 of 60 values are missing; leave these rows") as error:
        resolve(f"file:{marked}", **given)
    of_clean = dict(given)
    if "last" in more:  # rows of the file, of which some have no class
        of_clean["last"] = int((~np.isin(np.arange(51, 60), gone)).sum())
    data = []
    for path, options in ((marked, {**given, **error.value.needs}), (clean, of_clean)):
        info = resolve(f"file:{path}", **options)
        assert info.n_dropped == (7 if path == marked else 0)
        fetch(info)
        data.append((info, load(info.canonical)))
    (found, rows), (want, kept) = data
    for name in ("class_names", "class_counts", "n_samples", "n_train", "n_test", "group_sizes"):
        assert getattr(found, name) == getattr(want, name), name
    for name in ("X", "y", "official_test", "groups", "roles"):
        np.testing.assert_array_equal(getattr(rows, name), getattr(kept, name), name)


def test_names_in_messages_are_quoted(tmp_path):
    path = tmp_path / "t.parquet"
    pl.DataFrame({" y": ["a", "b"] * 4, "x,z": range(8), "": range(8)}).write_parquet(path)
    with pytest.raises(Refused, match='there are " y", x,z, ""'):
        resolve(f"file:{path}", target="y")


def test_numbers_that_are_labels_are_not(tmp_path):
    for values in (["1", "2", "K", "U"] * 10, ["?", "", "NA", "NaN", *AGES[:36]]):
        text = table_of(age=values, y=["a", "b"] * 20)
        assert not resolve(csv(tmp_path, text), target="y").columns[0].looks
    path = tmp_path / "table.parquet"
    kinds = pl.Series(["1", "2"] * 20, dtype=pl.Categorical)
    pl.DataFrame({"site": kinds, "y": ["a", "b", "b", "a"] * 10}).write_parquet(path)
    assert not resolve(f"file:{path}", target="y").columns[0].looks


def test_numbers_between_blanks_are_numbers_where_asked_for(tmp_path):
    source = csv(tmp_path, table_of(x=[" 1", "2 ", "3", " 4"], y=["a", "b"] * 2))
    info = resolve(source, target="y", continuous=["x"], test=2)
    fetch(info)
    assert load(info.canonical).X[:, 0].tolist() == [1, 2, 3, 4]
    source = csv(tmp_path, table_of(x=["1", "n/a", "3", "4"], y=["a", "b"] * 2))
    with pytest.raises(Refused, match="'n/a', which is not a number; leave cells of missing"):
        resolve(source, target="y", continuous=["x"], test=2)


def test_labels_that_are_the_same_but_for_blanks_or_case_are_found(tmp_path):
    text = table_of(
        site=["a", "a ", "b", "c"] * 10, who=["p1", "P1", "p2", "p3"] * 10, y=["no", "yes"] * 20
    )
    site, who = resolve(csv(tmp_path, text), target="y", group="who").columns
    assert (site.kind, site.looks, site.shown) == ("categorical", "alike", ("a", "a "))
    assert (who.kind, who.looks, who.shown) == ("ignored", "alike", ("P1", "p1"))


def test_classes_that_differ_only_in_blanks_are_refused_unless_they_are_listed(tmp_path):
    path = tmp_path / "arrays.npz"
    y = ["yes", " yes", "no", "Yes", "no"] * 4
    np.savez(path, X=np.zeros((20, 2)), y=np.array(y))
    source = csv(tmp_path, table_of(x=range(20), y=y))
    for file in (source, f"file:{path}"):
        with pytest.raises(Refused, match="target = 'y': has classes that are the same") as error:
            resolve(file, target="y")
        assert error.value.needs == {"classes": {"no": ["no"], "yes": [" yes", "Yes", "yes"]}}
        info = resolve(file, target="y", **error.value.needs)
        assert dict(zip(info.class_names, info.class_counts, strict=True)) == {"no": 8, "yes": 12}
    listed = resolve(source, target="y", classes={name: [name] for name in {*y}})
    assert "classes" not in listed.canonical  # the identity that it always had
    cased = resolve(csv(tmp_path, table_of(x=range(20), y=["a", "A"] * 10)), target="y")
    assert cased.class_names == ("A", "a")


IRIS = "".join(f"{5 + i % 9 / 10},{3 + i % 7 / 10},{'uvw'[i % 3]}\n" for i in range(30))


@pytest.mark.parametrize(
    "text",
    [
        IRIS,
        IRIS.replace(",", ", "),
        IRIS.replace(",", ";"),
        "0,0,0,1\n" + "3,7,9,0\n4,2,8,1\n" * 9,
        "red,yes\nblue,no\ngreen,no\n" + "red,no\nblue,yes\n" * 9,
        "".join(f"id{i},{i % 4}.5,{'ab'[i % 2]}\n" for i in range(30)),
        "x,y\n1.5,a\n2,b\nx,y\n3.5,a\n4,b\n",
        IRIS.replace("5.2,", "?,").replace("5.0,", ","),
    ],
)
def test_a_table_without_names_of_columns_is_refused(tmp_path, text):
    source = csv(tmp_path, text)
    target = text.partition("\n")[0].replace(";", ",").rpartition(",")[2]
    with pytest.raises(Refused, match=r"table\.csv'?: has no names of columns: .*write a line"):
        resolve(source, target=target)
    other = tmp_path / "other.csv"
    other.write_text("a,b,c\n" + IRIS)
    with pytest.raises(Refused, match=r"table\.csv'?: has no names of columns"):
        resolve(f"file:{other}", target="c", test_file=source.removeprefix("file:"))


@pytest.mark.parametrize(
    ("header", "row"),
    [
        ("0,1,2", "{i}.5,{i},{c}"),
        (",0,1", "{i},{i}.5,{c}"),
        ("1990,1995,y", "{i}.5,{i},{c}"),
        ("0,y", "{i}.5,{yn}"),
        ("0,1,y", "{i}.5,{i},{yn}"),
        ("400,402,404,406", "{i}.5,{i},{i},{c}"),
        ("Tea,Milk,y", "{tea},{milk},{c}"),
        ("Tea,Milk,Sugar", "{tea},{milk},{yn}"),
        ("text,y", "note {i},{yn}"),
        ("x,y", "{i}.5,{yn}"),
    ],
)
def test_names_of_columns_are_not_taken_for_data(tmp_path, header, row):
    rows = [
        row.format(i=i, c=i % 2, yn="yn"[i % 2], tea="Tea" * (i % 3 > 0), milk="Milk" * (i % 4 > 0))
        for i in range(24)
    ]
    source = csv(tmp_path, "\n".join([header, *rows]) + "\n")
    assert resolve(source, target=header.rpartition(",")[2]).n_samples == 24


def test_a_name_may_begin_with_a_tilde_of_nobody(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "~nobody-of-this-name"
    folder.mkdir()
    (folder / "a.csv").write_text(table_of(x=range(8), y=["a", "b"] * 4))
    assert resolve(f"file:{folder.name}/a.csv", target="y").n_samples == 8
    with pytest.raises(Refused, match="does not exist"):
        resolve("file:~nobody-else/a.csv", target="y")


N = 200


def _told(values: NDArray[Any], y: NDArray[Any]) -> str:
    is_label = values.dtype.kind in "OU"
    info = ColumnInfo("x", "categorical" if is_label else "continuous")
    codes = np.unique(values, return_inverse=True)[1] if is_label else values
    return told_by(info, codes.astype(float), y).tells


@pytest.mark.parametrize("rows", [12, 24, 40])
def test_a_strong_feature_on_few_rows_is_not_said_to_tell_the_target(rows: int) -> None:
    """It agrees with the class in 90 of 100 rows."""
    said = 0
    for seed in range(N):
        rng = np.random.default_rng([seed, rows])
        y = rng.integers(0, 2, rows)
        said += _told(np.where(rng.random(rows) < 0.9, y, 1 - y).astype(float), y) != ""
    assert said <= 0.05 * N


@pytest.mark.parametrize("kind", ["normal", "rounded", "sorted", "text", "age", "labels"])
def test_columns_that_tell_much_of_the_target_or_nothing_are_not_said_to(kind: str) -> None:
    for seed in range(N // 4):
        rng = np.random.default_rng([seed, 7])
        y = rng.integers(0, 2, 120)
        values = {
            "normal": rng.normal(y, 0.1),
            "rounded": rng.normal(y, 0.4).round(1),
            "sorted": (rng.normal(y, 0.1) * 30).round(),  # all of one class below a threshold
            "text": np.array([f"name {i}" for i in range(120)]),
            "age": rng.integers(20, 90, 120).astype(float),
            "labels": rng.integers(0, 5, 120).astype(str),
        }[kind]
        assert _told(values, y) == ""


@pytest.mark.parametrize("classes", [2, 3, 12])
def test_values_that_tell_the_class_are_found(classes: int) -> None:
    for seed in range(N // 4):
        rng = np.random.default_rng([seed, classes])
        y = rng.integers(0, classes, 60)
        code = rng.permutation(classes)[y].astype(float)
        assert _told(code, y) == "target"
        code[rng.random(60) < 0.2] = np.nan  # missing in some rows
        assert _told(code, y) == "target"
        patient = rng.permutation(np.repeat(np.arange(50), 3))
        of_patient = rng.integers(0, classes, 50)[patient]
        assert _told(patient.astype(float), of_patient) == "group"
        assert _told(patient.astype(str), of_patient) == "group"
        in_order = np.sort(rng.integers(0, classes, 50))[patient]
        assert _told(patient.astype(float), in_order) == "group"  # three rows each


@pytest.mark.parametrize(
    ("values", "far"),
    [
        ([*range(18, 90), -999, -999], "-999"),
        ([*range(18, 90), 9999, 9999, 9999], "9999"),
        ([*(0.1 * i for i in range(30)), -99, -99], "-99"),
        ([*range(18, 90), -999], ""),  # an outlier
        ([*range(18, 90), -9, -9], ""),
        ([0, 0, 0, *range(40), 57, 57], ""),
        ([0, 1, 2] * 20 + [99, 99], ""),
        ([1.5**i for i in range(30)], ""),
    ],
)
def test_a_number_far_from_all_others_is_named(values: list[float], far: str) -> None:
    info = column_info("x", np.array(values, dtype=float))
    assert (info.shown[:1] if info.looks == "far" else ()) == ((far,) if far else ())


def test_rows_that_no_chance_makes_equal_are_copies(tmp_path) -> None:
    """Measured values hardly repeat; whole numbers and labels do."""
    rng = np.random.default_rng(0)
    measured, few = rng.normal(size=(100, 2)), rng.integers(0, 3, (200, 2))

    def copies(rows: NDArray[Any], **options: str) -> int:
        y = np.arange(len(rows)) % 2
        groups = np.arange(len(rows)) % 50
        head = "y,g," + ",".join(f"x{k}" for k in range(rows.shape[1]))
        lines = [
            ",".join(map(repr, [int(a), int(b), *map(float, row)]))
            for a, b, row in zip(y, groups, rows, strict=True)
        ]
        (tmp_path / "t.csv").write_text("\n".join([head, *lines]))
        kept = options or {"ignore": ["g"]}
        return resolve(f"file:{tmp_path / 't.csv'}", target="y", **kept).copies.n

    assert copies(measured) == 0
    assert copies(np.concatenate([measured] * 5)) == 400
    assert copies(np.concatenate([measured, measured[:3]])) == 3
    assert copies(few.astype(float)) == 0
    ages = np.column_stack([rng.integers(20, 80, 400), rng.integers(0, 2, 400)])
    assert copies(ages.astype(float)) == copies(ages[:, :1].astype(float)) == 0
    incomes = np.column_stack([rng.integers(18, 90, 1500), rng.normal(3e4, 1e4, 1500).round()])
    assert copies(incomes) == copies(np.column_stack([incomes[:, 1], incomes[:, 1] // 1000])) == 0
    assert copies(np.concatenate([incomes, incomes[:60]])) == 60
    assert copies(np.concatenate([measured, measured]), group="g") == 0
    holed = np.where(rng.random((100, 2)) < 0.2, np.nan, measured)
    assert copies(np.concatenate([holed, holed])) >= 100
    info = resolve(f"file:{tmp_path / 't.csv'}", target="y", ignore=["g"])
    (note,) = data_notes(info)
    assert f"{info.copies.n} of 200 rows are copies of others; where one trains" in note
    assert copies(np.concatenate([measured, measured[:1]])) == 1
    info = resolve(f"file:{tmp_path / 't.csv'}", target="y", ignore=["g"])
    assert list(data_notes(info)) == []
    assert copies(np.concatenate([measured, measured[:1], measured[:1]])) == 2
    note, _ = data_notes(resolve(f"file:{tmp_path / 't.csv'}", target="y", ignore=["g"]))
    assert note.startswith("1 of 102 rows is a copy of another in another class: not all")


def test_marks_of_missing_values_are_named(tmp_path: Path) -> None:
    source = csv(tmp_path, "x;z;y\n1,5;k.A.;a\nk.A.;2;b\n3,5;3;a\n4,5;-;b\n")
    before = resolve(source, target="y", test=2)
    assert (before.n_categorical, "missing" in before.canonical) == (2, False)
    assert resolve(source, target="y", test=2, missing=[]).id == before.id
    info = resolve(source, target="y", test=2, missing=["k.A.", "-"])
    assert (info.n_categorical, info.canonical["missing"]) == (0, ["-", "k.A."])
    fetch(info)
    X = [[1.5, np.nan], [np.nan, 2], [3.5, 3], [4.5, np.nan]]
    np.testing.assert_array_equal(load(info.canonical).X, X)
    with pytest.raises(Refused, match="texts as they are written"):
        resolve(source, target="y", missing=[-999])
    np.savez(tmp_path / "t.npz", X=np.zeros((4, 1)), y=[0, 1, 0, 1])
    with pytest.raises(Refused, match=r"is for \.csv and .tsv"):
        resolve(f"file:{tmp_path / 't.npz'}", missing=["-"])


@pytest.mark.parametrize(
    ("written", "read"),
    [
        (["1.014,25", "2,5", "3.014"], [1014.25, 2.5, 3014]),
        (["1,014.25", "2.5", "3"], [1014.25, 2.5, 3]),
        (["1.014,25", "2.5", "3"], None),
        (["1,014", "2,500", "x"], None),
        (["'1", "2", "3"], None),
    ],
)
def test_continuous_takes_thousands_that_one_number_shows(
    tmp_path: Path, written: list[str], read: list[float] | None
) -> None:
    rows = "".join(f'"{value}";{"ab"[i % 2]}\n' for i, value in enumerate([*written, ""]))
    source = csv(tmp_path, f"x;y\n{rows}")
    asked = {"target": "y", "test": 2, "continuous": ["x"]}
    assert resolve(source, target="y", test=2).n_categorical == 1
    if read is None:
        with pytest.raises(Refused, match="is not a number"):
            resolve(source, **asked)
        return
    info = resolve(source, **asked)
    fetch(info)
    np.testing.assert_array_equal(load(info.canonical).X[:, 0], [*read, np.nan])
