"""Estimators and arrays of a program as a sweep file: what is described is built again."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from sklearn.base import BaseEstimator
from sklearn.compose import make_column_transformer
from sklearn.ensemble import BaggingClassifier, RandomForestClassifier
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler

import manyseed
from manyseed.jobs import datasets
from manyseed.jobs.own import estimator
from manyseed.orchestrator.errors import UserError
from manyseed.orchestrator.grids import objects
from manyseed.orchestrator.paths import SweepPaths
from manyseed.orchestrator.plans.plan import Plan
from manyseed.orchestrator.plans.planning import plan_objects

ESTIMATORS = [
    RandomForestClassifier(n_estimators=np.int64(7), max_features=None, random_state=3),
    LogisticRegression(C=0.5, class_weight={"a b": 1.0}),
    make_pipeline(StandardScaler(with_mean=False), LogisticRegression(tol=1e-5)),
    Pipeline([("log", FunctionTransformer(np.log1p)), ("fit", RandomForestClassifier())]),
    BaggingClassifier(LogisticRegression(max_iter=7), n_estimators=3),
    TfidfVectorizer(ngram_range=(1, 2), dtype=np.float32),
]


def parameters(model: Any) -> dict[str, Any]:
    """Return all parameters, with estimators as their types and parameters."""
    return {
        name: (type(value), parameters(value)) if isinstance(value, BaseEstimator) else value
        for name, value in model.get_params(deep=False).items()
        if name not in ("random_state", "steps")
    } | {
        f"step {number}": (name, type(value), parameters(value))
        for number, (name, value) in enumerate(getattr(model, "steps", []))
    }


@pytest.mark.parametrize("model", ESTIMATORS, ids=lambda model: type(model).__name__)
def test_an_estimator_is_built_again_from_its_table(model: Any) -> None:
    table = objects.table_of(model, "estimator")
    kind = {"seed": 1, "repeats": 1, "runs": 1, "test": 0.25}
    text = objects.sweep_text("x", table, Path("d.npz"), grid={}, **kind)
    read = tomllib.loads(text)["classifier"]["x"]
    assert read == table
    again = estimator.build(read["estimator"], read.get("params", {}))
    assert type(again) is type(model)
    assert parameters(again) == parameters(model)
    assert getattr(again, "random_state", None) is None


def test_what_no_other_process_can_make_is_refused() -> None:
    class Inner(LogisticRegression):
        pass

    for wrong, said in (
        (Inner(), "inside a function"),
        (RandomForestClassifier, "is a class"),
        (3, "not an estimator"),
        (LogisticRegression(C=np.zeros(3)), "cannot hold values of type ndarray"),
        (make_pipeline(FunctionTransformer(lambda X: X)), "inside a function|<lambda>"),
    ):
        with pytest.raises(UserError, match=said):
            objects.table_of(wrong, "estimator")


def test_what_a_notebook_defines_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    made = type("Mine", (LogisticRegression,), {"__module__": "__main__"})
    monkeypatch.delattr("__main__.__file__", raising=False)
    with pytest.raises(UserError, match="%%writefile"):
        objects.table_of(made(), "estimator")
    monkeypatch.setattr("__main__.__file__", "/x/train.py", raising=False)
    assert objects.table_of(made(), "estimator")["estimator"] == "train:Mine"


def test_the_same_data_is_the_same_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MANYSEED_DATA", str(tmp_path))
    X, y = np.eye(4), np.array(["a", "b", "a", "b"])
    file = objects.keep_data(X, y)
    assert objects.keep_data(X.copy(), y) == file
    assert objects.keep_data(2 * X, y) != file
    frame = pl.DataFrame({"colour": ["red", "blue", "red", None], "size": [1.0, 2, 3, None]})
    given = objects.keep_data(frame, y)
    assert pl.read_parquet(given).equals(frame.with_columns(y=pl.Series(y)))
    for wrong in (X[0], X.astype(str), np.eye(3)):
        with pytest.raises(UserError, match="are needed"):
            objects.keep_data(wrong, y)
    with pytest.raises(UserError, match="has a column 'y'"):
        objects.keep_data(frame.rename({"size": "y"}), y)


@pytest.mark.parametrize("rows", [np.eye(6, 2), np.eye(6, 2).tolist(), np.eye(6, 2).astype(object)])
def test_classes_are_text_of_any_kind(
    rows: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pandas = pytest.importorskip("pandas")
    monkeypatch.setenv("MANYSEED_DATA", str(tmp_path))
    text = ["a", "b", "a", "b", "a", "b"]
    expected = objects.keep_data(np.eye(6, 2), np.array(text))
    for classes in (
        text,
        np.array(text, dtype=object),
        pandas.Series(text, index=range(6, 0, -1)),
        pandas.Series(text, dtype="string"),
        pandas.Series(text, dtype="category"),
        pl.Series(text),
        pl.Series(text, dtype=pl.Categorical),
    ):
        assert objects.keep_data(rows, classes) == expected
    for whole in (np.array([1, 2] * 3, dtype=object), pandas.Series([1, 2] * 3, dtype="Int64")):
        assert objects.keep_data(rows, whole) == objects.keep_data(rows, np.array([1, 2] * 3))


@pytest.mark.parametrize("rows", [np.eye(6, 2), pl.DataFrame(np.eye(6, 2))])
def test_rows_without_a_class_are_refused(
    rows: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pandas = pytest.importorskip("pandas")
    monkeypatch.setenv("MANYSEED_DATA", str(tmp_path))
    text = ["a", "b", "a", "b", "a"]
    for classes in (
        [*text, None],
        [*text, np.nan],
        [0, 1, 0, 1, 0, np.nan],
        np.array([*text, None], dtype=object),
        pandas.Series([*text, None], dtype="string"),
        pandas.Series([*text, None], dtype="category"),
        pandas.Series([0, 1, 0, 1, 0, None], dtype="Int64"),
        pl.Series([*text, None]),
        np.array(["2020-01-01"] * 5 + ["NaT"], dtype="datetime64[D]"),
    ):
        with pytest.raises(
            UserError, match=r"^y: 1 of 6 values are missing\n  leave these rows out"
        ):
            objects.keep_data(rows, classes)
    for wrong in ([{}] * 6, [[1], [1, 2]] * 3, np.full(6, 1j)):
        with pytest.raises(UserError, match=r"^y: is .*; text or numbers \(6,\) are needed"):
            objects.keep_data(rows, wrong)
    with pytest.raises(UserError, match=r"^groups: is missing in 1 rows"):
        objects.keep_data(rows, np.arange(6), [*text, None])
    with pytest.raises(UserError, match=r"^X: is .*; numbers"):
        objects.keep_data([[1, 2], [1]], np.arange(2))
    assert not [*tmp_path.rglob("*.npz"), *tmp_path.rglob("*.parquet")]


def test_groups_are_an_array_or_a_column_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MANYSEED_DATA", str(tmp_path))
    X, y, groups = np.arange(32.0).reshape(16, 2), np.arange(16) % 2, np.arange(16) // 4
    kind = {"seed": 1, "repeats": 1, "runs": 1, "test": 0.25}
    whole = {}
    for name, rows in (("array", X), ("frame", pl.DataFrame({"a": X[:, 0]}))):
        file = objects.keep_data(rows, y, groups)
        assert file != objects.keep_data(rows, y)
        text = objects.sweep_text("x", {}, file, grid={}, is_grouped=True, **kind)
        table = tomllib.loads(text)["dataset"]["data"]
        info = datasets.resolve(table.pop("source"), **table)
        assert info.group_sizes == (4, 4, 4, 4)
        assert info.n_test == 4
        datasets.fetch(info)
        whole[name] = datasets.load(info.canonical)
    assert [each.X.shape[1] for each in whole.values()] == [2, 1]
    for wrong in (groups[1:], groups[:, None], np.full(16, 1j)):
        with pytest.raises(UserError, match=r"groups: is .*are needed"):
            objects.keep_data(X, y, wrong)
    with pytest.raises(UserError, match="has a column 'group'"):
        objects.keep_data(pl.DataFrame({"group": X[:, 0]}), y, groups)


def test_an_index_that_names_rows_names_points(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pandas = pytest.importorskip("pandas")
    monkeypatch.setenv("MANYSEED_DATA", str(tmp_path / "data"))
    values = np.random.default_rng(0).normal(size=(40, 2))
    y = [f"{value > 0}" for value in values[:, 0]]
    called = [f"pt-{n:04d}" for n in range(40)]
    frames = [pandas.DataFrame(values, columns=["a", "b"], index=of) for of in (called, None)]
    plain = _planned(frames[1], y, tmp_path / "plain")
    (info,) = plain
    assert datasets.names_of(info) is None
    assert _planned(frames[0], y, tmp_path / "named") == plain
    names = datasets.names_of(info)
    assert names is not None
    assert (names.kind, [*names.of]) == ("row_id", called)
    frame = pandas.DataFrame(values, columns=["a", "b"], index=called[::-1])
    for _ in range(2):  # no row is called by another's name
        assert _planned(frame, y, tmp_path / "otherwise") == plain
        assert datasets.names_of(info) is None


def _planned(X: Any, y: Any, directory: Path) -> list[Any]:
    numbers = {"seed": 0, "repeats": 1, "runs": 2, "test": 0.25}
    given = {"options": {}, "grid": {}, "check": lambda _: None}
    plan_objects("lr-sgd", X, y, directory=directory, **given, **numbers)
    plan = Plan.read(SweepPaths(directory))
    return [plan.cell(cell).dataset for cell in plan.all_cells["cell"]]


@pytest.mark.parametrize(
    ("index", "names"),
    [
        (["a", "b", "c"], ["a", "b", "c"]),
        ([7, 3, 5], ["7", "3", "5"]),
        ([0, 1, 2], None),
        (["a", "a", "b"], None),
        ([0.5, 1.5, 2.5], None),
        (["a", None, "b"], None),
    ],
)
def test_an_index_names_rows_if_each_has_its_own(index: list[Any], names: list[str] | None) -> None:
    pandas = pytest.importorskip("pandas")
    assert objects.row_names(pandas.DataFrame({"x": [1, 2, 3]}, index=index)) == names
    assert objects.row_names(np.zeros((3, 1))) is None
    assert objects.row_names(pl.DataFrame({"x": [1]})) is None


def test_frames_of_pandas_need_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pandas = pytest.importorskip("pandas")
    monkeypatch.setenv("MANYSEED_DATA", str(tmp_path))
    monkeypatch.setattr(pl, "from_pandas", lambda _: (_ for _ in ()).throw(ImportError("pyarrow")))
    given = {
        "text": ["a", None, "c"],
        "number": [1.5, np.nan, 2.0],
        "whole": pandas.array([1, None, 3], dtype="Int64"),
        "kind": pandas.Categorical(["u", "v", None]),
        "right": [True, False, True],
    }
    file = objects.keep_data(pandas.DataFrame(given, index=[5, 6, 7]), np.array(["x", "y", "x"]))
    assert pl.read_parquet(file).to_dict(as_series=False) == {
        "text": ["a", None, "c"],
        "number": [1.5, None, 2.0],
        "whole": [1, None, 3],
        "kind": ["u", "v", None],
        "right": [True, False, True],
        "y": ["x", "y", "x"],
    }


def test_rows_of_other_indexes_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pandas = pytest.importorskip("pandas")
    monkeypatch.setenv("MANYSEED_DATA", str(tmp_path))
    table = pandas.DataFrame({"a": np.arange(8.0), "y": [*"uvuvuvuv"], "of": [*"iijjkkll"]})
    X, y, groups = table[["a"]], table["y"], table["of"]
    mixed = X.sample(frac=1, random_state=1)
    order = "has the index of X in another order"
    with pytest.raises(UserError, match=f"^y: {order}\n  y = y.loc\\[X.index\\]; .*to_numpy"):
        objects.keep_data(mixed, y)
    with pytest.raises(UserError, match=f"^y: {order}"):
        objects.keep_data(X, y.loc[mixed.index])
    with pytest.raises(UserError, match=f"^groups: {order}"):
        objects.keep_data(mixed, y.loc[mixed.index], groups)
    with pytest.raises(UserError, match=r"^groups: has the index of y in another order"):
        objects.keep_data(mixed.to_numpy(), y.loc[mixed.index], groups)
    with pytest.raises(UserError, match=r"^y: has no row for 2 of the 3 labels in the index of X"):
        objects.keep_data(X.iloc[[7, 2, 4]], y.iloc[[1, 2, 3]])
    left = X[X["a"] > 1]
    for one, other in ((left, y[2:].reset_index(drop=True)), (X.iloc[:6], y[2:])):
        with pytest.raises(UserError, match=r"^y: has no row for 2 of the 6 labels in the index"):
            objects.keep_data(one, other)
    named = [X.set_axis([*"abcdefgh"]), y.set_axis([*"hgfedcba"])]
    with pytest.raises(UserError, match=f"^y: {order}"):
        objects.keep_data(*named)
    twice = [pandas.concat([X, X]), pandas.concat([y, y]).sample(frac=1, random_state=1)]
    with pytest.raises(UserError, match=f"^y: {order}\n  sort, sample or split the frame before"):
        objects.keep_data(*twice)
    assert not [*tmp_path.rglob("*.parquet")]
    right = objects.keep_data(mixed, y.loc[mixed.index])
    for same in (y.loc[mixed.index].to_numpy(), pl.Series(y.loc[mixed.index].to_list())):
        assert objects.keep_data(mixed, same) == right
    for one in (X.iloc[:2], X.iloc[5:7].reset_index(drop=True), pl.DataFrame({"a": [1.0, 2.0]})):
        objects.keep_data(one, y.iloc[4:6] if one.shape[0] == 2 else y)
        objects.keep_data(one, y.iloc[4:6].reset_index(drop=True))


def test_classes_may_be_a_frame_of_one_column(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pandas = pytest.importorskip("pandas")
    monkeypatch.setenv("MANYSEED_DATA", str(tmp_path))
    X, y = np.eye(4), ["a", "b", "a", "b"]
    expected = objects.keep_data(X, np.array(y), np.array(y))
    for frame in (pandas.DataFrame({"c": y}), pl.DataFrame({"c": y}), pl.LazyFrame({"c": y})):
        assert objects.keep_data(X, frame, frame) == expected
    table = pandas.DataFrame({"id": range(4), "one": [1] * 4, "churn": y, "at": [*"wxyz"]})
    with pytest.raises(UserError, match=r'^y: is a frame of 4 columns.*\n  name it: y\["churn"\]'):
        objects.keep_data(X, table)
    one_hot = pandas.get_dummies(pandas.Series(y))
    with pytest.raises(UserError, match=r'^y: is a frame of 2 columns.*\n  .*y\["a"\].*idxmax'):
        objects.keep_data(X, one_hot)
    with pytest.raises(UserError, match=r"^y: has the shape \(4, 1\).*\n  y.ravel\(\)"):
        objects.keep_data(X, np.array(y)[:, None])
    with pytest.raises(UserError, match=r"^y: has the shape \(4, 2\).*\n  y.argmax\(axis=1\)"):
        objects.keep_data(X, one_hot.to_numpy())


def test_frames_that_no_table_can_hold_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pandas = pytest.importorskip("pandas")
    monkeypatch.setenv("MANYSEED_DATA", str(tmp_path))
    twice = pandas.DataFrame(np.eye(2), columns=["a", "a"])
    with pytest.raises(UserError, match=r"^X: .*two columns are called 'a'; rename one"):
        objects.keep_data(twice, np.arange(2))
    mixed = "Expected bytes, got a 'int' object"  # as pyarrow says of text and numbers
    monkeypatch.setattr(pl, "from_pandas", lambda _: (_ for _ in ()).throw(TypeError(mixed)))
    with pytest.raises(UserError, match=rf"^X: is a frame that cannot be read: .*{mixed}"):
        objects.keep_data(pandas.DataFrame({"a": ["x", 1]}), np.arange(2))


@manyseed.classifier("planted", params={"depth": None, "size": (1, 2)}, version=3)
class Planted(LogisticRegression):
    """Registered where it is defined."""


@manyseed.classifier("function", space={"lr": {"low": 0.1, "high": 1.0, "default": 0.5}})
def function(X: Any, y: Any, X_test: Any, hparams: Any) -> Any:
    """Registered where it is defined."""


def test_registered_classifiers_have_the_table_that_they_need(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked = {
        "name": "x",
        "grid": {"dataset": ["sklearn:iris"], "classifier": ["planted", "function", "lr-sgd"]},
        "classifier": {"planted": {"version": 4}},
    }
    with objects.written(asked) as file:
        read = tomllib.loads(file.read_text())["classifier"]
    assert read == {
        "planted": {
            "estimator": f"{__name__}:Planted",
            "params": {"depth": {"none": True}, "size": {"tuple": [1, 2]}},
            "version": 4,
        },
        "function": {
            "train": f"{__name__}:function",
            "space": {"lr": {"low": 0.1, "high": 1.0, "default": 0.5}},
        },
    }
    with pytest.raises(UserError, match=r'form = "trian".*unknown form'):
        manyseed.classifier("other", form="trian")
    with pytest.raises(
        UserError, match="test_objects:function is already registered under this name"
    ):
        manyseed.classifier("function")(Planted)
    manyseed.classifier("function")(function)  # as where a cell of a notebook runs again

    def inner(X: Any, y: Any, X_test: Any) -> Any:
        del X, y, X_test

    manyseed.classifier("inner")(inner)
    with (
        pytest.raises(UserError, match="inner is defined inside a function"),
        objects.written({"grid": [{"classifier": ["inner"]}]}),
    ):
        pass
    cell = type("Mine", (), {"__module__": "__main__"})
    monkeypatch.delattr("__main__.__file__", raising=False)
    manyseed.classifier("cell")(cell)
    with (
        pytest.raises(UserError, match="%%writefile"),
        objects.written({"grid": [{"classifier": ["cell"]}]}),
    ):
        pass


SCRIPT = """
import numpy as np
import manyseed

@manyseed.classifier("nearest", params={"noise": 0.5})
def fit(X, y, X_test, n_classes, hparams, batch):
    X = X + hparams["noise"] * batch.normal(size=X.shape)
    means = np.stack([X[y == c].mean(axis=0) for c in range(n_classes)])
    return -((X_test[:, None] - means) ** 2).sum(axis=2)

if __name__ == "__main__":
    sweep = manyseed.Sweep.plan(
        {
            "name": "nearest",
            "seed": 1,
            "repeats": 1,
            "runs": 4,
            "grid": [{"dataset": ["sklearn:iris"], "classifier": ["nearest"]}],
        }
    )
    sweep.submit(workers=2)
    sweep.wait()
    print(sweep.status()["runs"]["done"])
"""


@pytest.mark.slow
def test_a_script_registers_what_its_processes_train(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(SCRIPT)
    for guarded in (True, False):
        if not guarded:
            text = SCRIPT.replace('if __name__ == "__main__":', "if True:").replace(
                '"name": "nearest"', '"name": "other"'
            )
            (tmp_path / "script.py").write_text(text)
        ended = subprocess.run(
            [sys.executable, "script.py"],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        if guarded:
            assert ended.stdout.split() == ["4"], ended.stderr
        else:
            assert 'put the call below: if __name__ == "__main__":' in ended.stderr
            assert not (tmp_path / "other").exists()


@pytest.mark.parametrize(
    ("columns", "encode"),
    [
        (["age"], "frame"),
        ("age", "frame"),
        ([0], None),
        ([True, False], None),
    ],
)
def test_columns_by_name_ask_for_data_frames(columns: Any, encode: str | None) -> None:
    chosen = make_column_transformer((StandardScaler(), columns))
    table = objects.table_of(make_pipeline(chosen, LogisticRegression()), "estimator")
    assert table.get("encode") == encode
    assert "encode" not in str(table["params"])
