"""Estimators and arrays of a program as a sweep file: what is described is built again."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from sklearn.base import BaseEstimator
from sklearn.ensemble import BaggingClassifier, RandomForestClassifier
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler

from manyseed.jobs.own import estimator
from manyseed.orchestrator.errors import UserError
from manyseed.orchestrator.grids import objects

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
    table = objects.table_of(model)
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
        (Inner(), "inside of a function"),
        (RandomForestClassifier, "is a class"),
        (3, "no estimator"),
        (LogisticRegression(C=np.zeros(3)), "no form for ndarray"),
        (make_pipeline(FunctionTransformer(lambda X: X)), "inside of a function|<lambda>"),
    ):
        with pytest.raises(UserError, match=said):
            objects.table_of(wrong)


def test_what_a_notebook_defines_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    made = type("Mine", (LogisticRegression,), {"__module__": "__main__"})
    monkeypatch.delattr("__main__.__file__", raising=False)
    with pytest.raises(UserError, match="%%writefile"):
        objects.table_of(made())
    monkeypatch.setattr("__main__.__file__", "/x/train.py", raising=False)
    assert objects.table_of(made())["estimator"] == "train:Mine"


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
