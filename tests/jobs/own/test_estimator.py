"""Estimators: the labels that they give by themselves, and what goes wrong in them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.datasets import load_wine
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression, RidgeClassifier
from sklearn.neighbors import NearestCentroid
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC
from sklearn.tree import DecisionTreeClassifier

from manyseed.jobs import classifiers
from manyseed.jobs.own import calling, estimator
from manyseed.jobs.own.calling import OwnError
from manyseed.jobs.run import Generators, Prediction, TrainingSet, seed31, stream
from manyseed.jobs.training.handling import Handling
from tests.jobs.classifiers.examples import binary, multiclass

HERE = "tests.jobs.own.test_estimator"
SCALER = StandardScaler().fit(multiclass()[0].X)


class Odd:
    """What it returns, `returns` says."""

    returns: Callable[[int], Any]

    def fit(self, X: Any, y: Any) -> None:
        del X, y

    def predict_proba(self, X: Any) -> Any:
        return Odd.returns(len(X))


class Listing(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """As CatBoost: lists what was set alone, has two names for its seed, writes where it is.

    Labels come as a column, in an order of its own that `classes_` tells.
    """

    def __init__(
        self,
        depth: Any = None,
        random_seed: Any = None,
        allow_writing_files: Any = None,
        thread_count: Any = None,
        random_state: Any = None,
        class_names: Any = None,
    ) -> None:
        self.set = {name: value for name, value in locals().items() if value is not None}
        del self.set["self"]

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        del deep
        return {**self.set}

    def set_params(self, **given: Any) -> Listing:
        self.set |= given
        return self

    def fit(self, X: Any, y: Any) -> Listing:
        if {"random_seed", "random_state"} <= {*self.set}:
            raise ValueError("only one of random_seed and random_state")
        if self.set.get("allow_writing_files") is not False:
            Path("listing_info").mkdir()
        if self.set.get("thread_count") != 1:
            raise ValueError("threads")
        seed = self.set.get("random_seed", self.set.get("random_state", 0))
        rows = np.random.default_rng(seed).integers(len(y), size=len(y))
        self.inner = LogisticRegression(max_iter=50).fit(X[rows], y[rows])
        order = self.set.get("class_names", np.arange(len(self.inner.classes_)))
        self.classes_ = np.asarray(order)
        return self

    def predict_proba(self, X: Any) -> Any:
        return self.inner.predict_proba(X)[:, self.classes_]

    def predict(self, X: Any) -> Any:
        return self.classes_[self.predict_proba(X).argmax(axis=1)][:, np.newaxis]


class Leaves(LogisticRegression):
    """Ends the process, or reads a file that is not there."""

    def fit(self, X: Any, y: Any) -> Any:
        if self.C == 1:
            raise SystemExit(3)
        return open("/nowhere/at/all")  # noqa: PTH123


def settings(entry: str, how: str = "predict_proba", **changes: Any) -> dict[str, Any]:
    return {
        "name": entry,
        "version": 1,
        "own": 1,
        "form": "estimator",
        "encode": "raw",
        "scores": how,
        "seeds": {},
        **changes,
    }


def generators(run: int = 0) -> Generators:
    return Generators(*(stream(1, name, run) for name in ("init", "batch", "dropout")))


def fit(canonical: dict[str, Any], data: TrainingSet, run: int = 0, **hparams: Any) -> Prediction:
    return classifiers.fit(canonical, hparams, data, generators(run), Handling())


@pytest.mark.parametrize("data", [binary()[0], multiclass()[0]])
@pytest.mark.parametrize(
    ("model", "how"),
    [
        (RandomForestClassifier(n_estimators=10), "predict_proba"),
        (DecisionTreeClassifier(max_features=1), "predict_proba"),
        (LogisticRegression(), "predict_proba"),
        (SVC(), "decision_function"),
        (RidgeClassifier(), "decision_function"),
        (NearestCentroid(), "predict"),
    ],
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,
)
def test_labels_are_those_of_the_same_estimator_outside(
    data: TrainingSet, model: Any, how: str
) -> None:
    """Ties included: a forest of ten trees has many, and those go to the first class."""
    entry = f"{type(model).__module__}:{type(model).__name__}"
    free, _ = estimator.takes_seeds(model)
    given = {name: value for name, value in model.get_params().items() if value is not None}
    changed = {k: v for k, v in given.items() if v != type(model)().get_params()[k]}
    for run in range(3):
        found = fit(settings(entry, how, seeds=dict.fromkeys(free, "batch")), data, run, **changed)
        model.set_params(**{name: seed31(generators(run).batch) for name in free})
        model.fit(data.X, data.y.astype(int))
        np.testing.assert_array_equal(found.label[0], model.predict(data.X_test))


def test_probabilities_are_kept_as_they_are() -> None:
    data, _ = multiclass()
    found = fit(settings("sklearn.linear_model:LogisticRegression"), data, C=0.5)
    expected = LogisticRegression(C=0.5).fit(data.X, data.y).predict_proba(data.X_test)
    p = np.exp(found.scores[0]) / np.exp(found.scores[0]).sum(axis=1, keepdims=True)
    np.testing.assert_allclose(p, expected, atol=1e-6)
    np.testing.assert_allclose(found.confidence[0], expected.max(axis=1), atol=1e-6)


def test_a_pipeline_is_built_of_tables_and_seeded_all_through() -> None:
    data, _ = multiclass()
    forest = {
        "estimator": "sklearn.ensemble:RandomForestClassifier",
        "params": {"n_estimators": 3, "max_depth": {"none": True}},
    }
    steps = [["scale", {"estimator": "sklearn.preprocessing:StandardScaler"}], ["forest", forest]]
    canonical = settings("sklearn.pipeline:Pipeline", params={"steps": steps})
    built = estimator.build(canonical["name"], canonical["params"])
    assert estimator.takes_seeds(built) == (["forest__random_state"], [])
    canonical["seeds"] = {"forest__random_state": "batch"}
    found = fit(canonical, data, 4)
    outside = Pipeline(
        [("scale", StandardScaler()), ("forest", RandomForestClassifier(n_estimators=3))]
    ).set_params(forest__random_state=seed31(generators(4).batch))
    outside.fit(data.X, data.y)
    np.testing.assert_array_equal(found.label[0], outside.predict(data.X_test))
    assert not np.array_equal(found.label, fit(canonical, data, 5).label)


def test_a_seed_that_is_given_stays() -> None:
    model = RandomForestClassifier(random_state=3)
    assert estimator.takes_seeds(model) == ([], ["random_state"])


@pytest.mark.parametrize("how", ["predict_proba", "predict"])
@pytest.mark.parametrize("params", [{}, {"class_names": [2, 0, 3, 1]}])
def test_what_an_estimator_takes_without_listing_it_is_given(
    params: dict[str, Any], how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its seed, one thread, and that it writes no files."""
    monkeypatch.chdir(tmp_path)
    data, _ = multiclass()
    steps = [["scale", {"import": "tests.jobs.own.test_estimator:SCALER"}]]
    steps += [["own", {"estimator": f"{HERE}:Listing", "params": params}]]
    for entry, prefix, given in (
        (f"{HERE}:Listing", "", params),
        ("sklearn.pipeline:Pipeline", "own__", {"steps": steps}),
    ):
        free, fixed = estimator.takes_seeds(estimator.build(entry, given))
        assert (free, fixed) == ([f"{prefix}random_state"], [])
        canonical = settings(entry, how, seeds=dict.fromkeys(free, "batch"), params=given)
        for run in (0, 1):
            found = fit(canonical, data, run)
            model = Listing(**params, allow_writing_files=False, thread_count=1)
            model.set_params(random_state=seed31(generators(run).batch))
            X, X_test = data.X, data.X_test
            if prefix:
                X, X_test = SCALER.transform(X), SCALER.transform(X_test)
            expected = model.fit(X, data.y.astype(int)).predict(X_test)
            np.testing.assert_array_equal(found.label[0], expected[:, 0])
    assert not [*tmp_path.iterdir()]


def test_one_seed_of_two_names_is_found_once() -> None:
    assert estimator.takes_seeds(Listing(random_seed=4)) == ([], ["random_seed"])
    assert estimator.takes_seeds(Listing(depth=4)) == (["random_state"], [])


def test_what_params_say_of_files_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    fit(settings(f"{HERE}:Listing"), multiclass()[0], allow_writing_files=True)
    assert [*tmp_path.iterdir()] == [tmp_path / "listing_info"]


@pytest.mark.parametrize(
    ("changes", "how", "said"),
    [
        ({"classes_": [1, 2, 3, 4]}, "predict_proba", "classes_ of Listing are 1, 2, 3, 4; it was"),
        ({"classes_": ["a", "b"]}, "predict_proba", "are 'a', 'b'; it was given the labels 0 to 3"),
        ({"label": 4}, "predict", "predict returned the label 4; it was given the labels 0 to 3"),
        ({"label": 0.5}, "predict", "predict returned the label 0.5; it was given"),
        ({"label": np.nan}, "predict", "predict returned the label nan; it was given"),
        ({"label": "a"}, "predict", "predict did not return numbers: .*'a'"),
        ({"label": [1, 0]}, "predict", r"predict returned shape \(60, 2\); \(60,\) is needed"),
    ],
)
def test_labels_that_it_was_not_given_fail_the_run(
    changes: dict[str, Any], how: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fitted(self: Any, X: Any, y: Any) -> Any:
        del X, y
        self.classes_ = changes.get("classes_", [0, 1, 2, 3])
        return self

    monkeypatch.setattr(Listing, "fit", fitted)
    monkeypatch.setattr(Listing, "predict_proba", lambda _, X: np.full((len(X), 4), 0.25))
    monkeypatch.setattr(Listing, "predict", lambda _, X: [changes["label"]] * len(X))
    with pytest.raises(OwnError, match=said):
        fit(settings(f"{HERE}:Listing", how), multiclass()[0])


@pytest.mark.parametrize("n_classes", [2, 4])
def test_a_tie_goes_to_the_class_of_the_first_column(n_classes: int) -> None:
    """As in scikit-learn, where `predict` is the first largest of `classes_`."""
    p, columns = np.full((3, n_classes), 1 / n_classes), np.arange(n_classes)[::-1]
    for read in (calling.of_probabilities, calling.of_decisions):
        kept = read(p, "p", 3, columns, n_classes).astype(np.float32)
        label = kept >= 0 if n_classes == 2 else kept.argmax(axis=1)
        assert label.tolist() == [n_classes - 1] * 3


@pytest.mark.parametrize(
    ("entry", "how"),
    [
        ("sklearn.linear_model:LogisticRegression", "predict_proba"),
        ("sklearn.svm:LinearSVC", "decision_function"),
        ("sklearn.neighbors:NearestCentroid", "predict"),
    ],
)
@pytest.mark.parametrize("absent", [[1], [0, 3], [1, 2]])
def test_classes_without_training_rows_are_never_predicted(
    entry: str, how: str, absent: list[int]
) -> None:
    data, _ = multiclass()
    rows = ~np.isin(data.y, absent)
    found = fit(settings(entry, how), replace(data, X=data.X[rows], y=data.y[rows]))
    assert found.scores.shape == (1, len(data.X_test), 4)
    assert not np.isin(found.label, absent).any()
    assert len(np.unique(found.label)) > 1


@pytest.mark.parametrize(
    ("returns", "said"),
    [
        (lambda n: np.full((n, 3), 1 / 3), r"predict_proba returned shape \(60, 3\); \(60, 2\)"),
        (lambda n: np.full((n, 2), 1.5), "1.5, which is not a probability"),
        (lambda n: np.full((n, 2), 0.4), "probabilities of a row that sum to 0.8, not to 1"),
        (lambda n: [["a", "b"]] * n, "did not return numbers"),
        (lambda _: None, "did not return numbers|shape"),
    ],
)
def test_what_is_no_prediction_fails_the_run(returns: Callable[[int], Any], said: str) -> None:
    Odd.returns = staticmethod(returns)
    with pytest.raises(OwnError, match=said):
        fit(settings(f"{HERE}:Odd"), binary()[0])


def test_scores_that_are_not_finite_fail_the_run() -> None:
    Odd.returns = staticmethod(lambda n: np.full((n, 2), np.nan))
    with pytest.raises(FloatingPointError, match="not finite"):
        fit(settings(f"{HERE}:Odd"), binary()[0])


@pytest.mark.parametrize("C", [1, 2])
def test_what_the_code_raises_is_never_taken_for_the_machines_fault(C: int) -> None:
    with pytest.raises(OwnError, match=r"SystemExit: 3|No such file"):
        fit(settings(f"{HERE}:Leaves"), binary()[0], C=C)


def test_near_ties_of_many_classes_keep_their_winner_in_float32() -> None:
    p = np.full((4, 3), 1 / 3)
    p[[0, 1, 2], [0, 1, 2]] += 1e-12
    kept = calling.of_probabilities(p, "p", 4, np.arange(3), 3).astype(np.float32)
    assert kept.argmax(axis=1).tolist() == [0, 1, 2, 0]
    two = calling.of_probabilities(p[:, :2] * 1.5, "p", 4, np.arange(2), 2)
    assert (two.astype(np.float32) >= 0).tolist() == [False, True, False, False]


def test_training_accuracy_is_that_of_the_estimator() -> None:
    X, y = load_wine(return_X_y=True)
    n = np.arange(len(y)) % 3 > 0
    kinds = np.zeros(X.shape[1], np.int32)
    data = TrainingSet(X[n], y[n].astype(np.uint16), X[~n], 3, kinds)
    canonical = settings("sklearn.tree:DecisionTreeClassifier")
    handling = Handling(measures=("final_train_accuracy",))
    found = classifiers.fit(canonical, {"max_depth": 2}, data, generators(), handling)
    model = DecisionTreeClassifier(max_depth=2).fit(X[n], y[n])
    assert found.measured is not None
    assert found.measured["final_train_accuracy"] == np.float32(model.score(X[n], y[n]))


def test_lightgbm_gives_the_labels_that_it_gives_outside() -> None:
    lightgbm = pytest.importorskip("lightgbm")
    data, _ = multiclass()
    params = {"n_estimators": 8, "num_leaves": 5, "bagging_freq": 1, "bagging_fraction": 0.5}
    params |= {"min_child_samples": 5, "verbose": -1}
    canonical = settings("lightgbm:LGBMClassifier", seeds={"random_state": "batch"}, params=params)
    found = [fit(canonical, data, run) for run in (0, 0, 1)]
    for run, one in zip((0, 1), (found[0], found[2]), strict=True):
        model = lightgbm.LGBMClassifier(**params, random_state=seed31(generators(run).batch))
        expected = model.fit(data.X, data.y.astype(int)).predict(data.X_test)
        np.testing.assert_array_equal(one.label[0], expected)
    np.testing.assert_array_equal(found[0].scores, found[1].scores)
    assert not np.array_equal(found[0].scores, found[2].scores)


@pytest.mark.parametrize("data", [binary()[0], multiclass()[0]])
@pytest.mark.parametrize("how", ["predict_proba", "predict"])
@pytest.mark.parametrize("class_names", [None, "descending"])
def test_catboost_gives_the_labels_that_it_gives_outside(
    data: TrainingSet,
    how: str,
    class_names: str | None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    catboost = pytest.importorskip("catboost")
    monkeypatch.chdir(tmp_path)
    params: dict[str, Any] = {"iterations": 8, "depth": 3, "subsample": 0.5, "verbose": 0}
    params["bootstrap_type"] = "Bernoulli"
    if class_names:
        params["class_names"] = [*range(data.n_classes)][::-1]
    entry = "catboost:CatBoostClassifier"
    free, _ = estimator.takes_seeds(estimator.build(entry, params))
    canonical = settings(entry, how, seeds=dict.fromkeys(free, "batch"), params=params)
    found = [fit(canonical, data, run) for run in (0, 0, 1)]
    assert not [*tmp_path.iterdir()]
    for run, one in zip((0, 1), (found[0], found[2]), strict=True):
        seed = seed31(generators(run).batch)
        model = catboost.CatBoostClassifier(**params, random_seed=seed, allow_writing_files=False)
        expected = model.fit(data.X, data.y.astype(int)).predict(data.X_test)
        np.testing.assert_array_equal(one.label[0], expected.ravel())
    np.testing.assert_array_equal(found[0].scores, found[1].scores)
    assert how == "predict" or not np.array_equal(found[0].scores, found[2].scores)
