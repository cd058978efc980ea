from __future__ import annotations

import random
import sys
from dataclasses import replace

import numpy as np
import pytest
import torch
import xgboost
from sklearn.linear_model import SGDClassifier

from manyseed.jobs import classifiers
from manyseed.jobs.hparams import Categorical
from manyseed.jobs.run import MachineError, Prediction, TrainingSet, seed31
from tests.encoded import dense
from tests.jobs.classifiers import examples
from tests.jobs.classifiers.examples import CASES, IDS, fit, generators, info

every_case = pytest.mark.parametrize(("name", "make"), CASES, ids=IDS)
DATA = {name: examples.of(name) for name in classifiers.names()}
every_classifier = pytest.mark.parametrize("name", classifiers.names())


def assert_equal(one: Prediction, other: Prediction) -> None:
    for field in ("scores", "label", "confidence"):
        np.testing.assert_array_equal(getattr(one, field), getattr(other, field))


def global_state() -> list[object]:
    name, words, *rest = np.random.get_state()  # noqa: NPY002
    return [random.getstate(), name, words.tolist(), *rest, torch.get_rng_state().tolist()]


@every_case
def test_a_fit_predicts_every_test_row_better_than_chance(name, make):
    data, y_test = make()
    result = fit(name, data, examples.LEARNING[name])
    n, k = len(data.X_test), data.n_classes
    assert result.scores.shape == ((1, n) if k == 2 else (1, n, k))
    assert result.scores.dtype == result.confidence.dtype == np.float32
    assert result.label.dtype == np.uint16
    assert np.isfinite(result.scores).all()
    assert result.fit_seconds > 0
    known = np.isin(y_test, data.y)
    accuracy = (result.label[0, known] == y_test[known]).mean()
    chance = 1 / len(np.unique(data.y))
    assert accuracy > chance + 0.6 * (1 - chance)


@every_case
def test_labels_and_confidences_follow_from_the_scores(name, make):
    data, _ = make()
    result = fit(name, data)
    if data.n_classes == 2:
        np.testing.assert_array_equal(result.label, result.scores >= 0)
    else:
        np.testing.assert_array_equal(result.label, result.scores.argmax(axis=2))
    if name == "svm-sgd":
        assert np.isnan(result.confidence).all()
    else:
        assert (result.confidence > 1 / data.n_classes).all()
        assert (result.confidence <= 1).all()


@every_case
def test_an_absent_class_has_finite_scores_and_is_not_predicted(name, make):
    data, _ = make()
    missing = np.setdiff1d(np.arange(data.n_classes), data.y)
    assert not np.isin(fit(name, data).label, missing).any()


@every_classifier
def test_equal_generators_give_equal_bits_in_any_order(name):
    data, _ = DATA[name]()
    other, _ = examples.other_of(name)()
    first, second = fit(name, data), fit(name, other, init=1)
    fit(name, data, init=2, batch=2, dropout=2)
    assert_equal(fit(name, other, init=1), second)
    assert_equal(fit(name, data), first)


@every_classifier
def test_global_random_state_is_neither_read_nor_changed(name):
    data, _ = DATA[name]()
    expected = fit(name, data)
    with torch.random.fork_rng():
        for seed in (1, 2):
            random.seed(seed)
            np.random.seed(seed)  # noqa: NPY002
            torch.manual_seed(seed)
            before = global_state()
            assert_equal(fit(name, data), expected)
            assert global_state() == before


@every_classifier
def test_a_fit_draws_from_the_streams_it_names_and_no_other(name):
    data, _ = DATA[name]()
    base = fit(name, data).scores
    named = classifiers.resolve(name, examples.OPTIONS[name], info(data)).consumes
    for source in ("init", "batch"):
        changed = not np.array_equal(fit(name, data, **{source: 1}).scores, base)
        assert changed == (source in named)
    dropped = not np.array_equal(fit(name, data, dropout=1).scores, base)
    assert dropped == (name in ("mlp", "vgg", "wide-resnet", "vit"))


@pytest.mark.parametrize(
    "hparam", ["subsample", "colsample_bylevel", "colsample_bynode", "colsample_bytree"]
)
def test_xgboost_draws_where_it_samples(hparam):
    data, _ = examples.multiclass()
    options = {"hparams": {hparam: 0.5}}
    assert classifiers.resolve("xgb", options, info(data)).consumes == {"batch"}
    one, other, again = (fit("xgb", data, options, batch=batch).scores for batch in (0, 1, 0))
    assert not np.array_equal(one, other)
    np.testing.assert_array_equal(one, again)


@every_classifier
def test_test_rows_have_no_influence_on_each_other(name):
    data, _ = DATA[name]()
    rows = data.X_test.copy()
    rows[20:] = np.nan_to_num(rows[20:])[::-1]
    rows[20:, data.cardinality == 0] *= 100
    changed = fit(name, replace(data, X_test=rows)).scores
    np.testing.assert_array_equal(changed[:, :20], fit(name, data).scores[:, :20])
    assert not np.array_equal(changed, fit(name, data).scores)


def test_the_librarys_defaults_are_those_of_the_library():
    """As scikit-learn and XGBoost fit when they are given no hparam at all."""
    data, _ = examples.binary()
    X, X_test = dense(data)
    seed = seed31(generators().batch)
    for name, loss in (("lr-sgd", "log_loss"), ("svm-sgd", "hinge")):
        model = SGDClassifier(loss=loss, random_state=seed).fit(X, data.y)
        found = fit(name, data, {"defaults": "library"}).scores[0]
        np.testing.assert_allclose(found, model.decision_function(X_test), rtol=1e-6)
        assert not np.array_equal(found, fit(name, data).scores[0])
    matrices = [xgboost.DMatrix(rows) for rows in (data.X, data.X_test)]
    matrices[0].set_info(label=data.y)
    booster = xgboost.train({"objective": "binary:logistic"}, matrices[0], num_boost_round=100)
    found = fit("xgb", data, {"defaults": "library"}).scores[0]
    expected = booster.predict(matrices[1], output_margin=True)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
    assert not np.array_equal(found, fit("xgb", data).scores[0])


def test_xgboost_splits_categories_natively():
    codes = np.arange(240.0).reshape(-1, 1) % 8
    parity = (codes[:, 0] % 2).astype(np.uint16)
    data = TrainingSet(codes, parity, codes, 2, np.array([8], np.int32))
    resolved = classifiers.resolve("xgb", {"hparams": {"max_depth": 1}}, info(data))
    one_tree = {**resolved.canonical, "rounds": 1}
    result = classifiers.fit(one_tree, resolved.hparams, data, generators())
    np.testing.assert_array_equal(result.label[0], parity)


@pytest.mark.parametrize("name", ["lr-sgd", "svm-sgd"])
def test_absent_classes_have_no_influence_on_the_present_ones(name):
    # Two classes present: each against the rest is the other's mirror image, unless the many
    # absent classes count as examples.
    data, _ = examples.absent_two()
    scores = fit(name, replace(data, n_classes=60)).scores[0]
    present = scores[:, [1, 3]]
    assert abs(present.sum(axis=1).mean()) < 0.1 * np.ptp(present, axis=1).mean()


@pytest.mark.parametrize("name", ["lr-sgd", "svm-sgd", "xgb", "mlp"])
def test_a_label_that_training_lacks_has_finite_scores(name):
    data, _ = examples.mixed()
    rows = data.X_test.copy()
    rows[:, 1] = 4
    assert not (data.X[:, 1] == 4).any()
    assert np.isfinite(fit(name, replace(data, X_test=rows)).scores).all()


CHANGES = {
    "lr-sgd": {
        "alpha": 0.1,
        "l1_ratio": 0.9,
        "eta0": 0.5,
        "penalty": "l1",
        "average": True,
    },
    "svm-sgd": {
        "alpha": 0.1,
        "l1_ratio": 0.9,
        "eta0": 0.5,
        "penalty": "none",
        "average": True,
        "loss": "modified_huber",
    },
    "xgb": {
        "eta": 0.1,
        "lambda": 1e-10,
        "alpha": 1.0,
        "gamma": 1.0,
        "colsample_bylevel": 0.5,
        "colsample_bynode": 0.5,
        "colsample_bytree": 0.5,
        "max_depth": 2,
        "max_delta_step": 1,
        "min_child_weight": 10.0,
        "subsample": 0.5,
    },
    "mlp": {"lr": 0.02, "weight_decay": 0.5, "dropout": 0.5, "width1": 40, "width2": 40},
    "cnn": {"lr": 0.02, "weight_decay": 0.1, "batch": 16},
    "convnet": {
        "lr": 0.02,
        "weight_decay": 0.1,
        "batch": 16,
        "depth": 1,
        "width": 9,
        "batch_norm": False,
    },
    "vgg": {
        "lr": 0.01,
        "weight_decay": 0.01,
        "batch": 16,
        "dropout": 0.2,
        "depth": 13,
        "width": 5,
        "batch_norm": False,
    },
    "resnet": {"lr": 0.03, "weight_decay": 0.1, "batch": 16, "depth": 50, "width": 5},
    "preresnet": {
        "lr": 0.01,
        "weight_decay": 0.01,
        "batch": 16,
        "depth": 38,
        "width": 5,
        "bottleneck": False,
    },
    "wide-resnet": {
        "lr": 0.01,
        "weight_decay": 0.01,
        "batch": 16,
        "dropout": 0.2,
        "depth": 16,
        "width": 2,
    },
    "vit": {"lr": 0.02, "weight_decay": 0.1, "batch": 16, "dropout": 0.2},
    "vit-transfer": {"lr": 0.04, "weight_decay": 0.1, "batch": 16},
}


def other(hparam):
    """Return another value than the default: another level, or the far end of the range."""
    if isinstance(hparam, Categorical):
        return next(level for level in hparam.levels if level != hparam.default)
    default = hparam.position(hparam.default)
    return hparam.settle(max(hparam.ends, key=lambda end: abs(end - default)))


CHANGES |= {
    name: {hparam.name: other(hparam) for hparam in record.space}
    for name, record in classifiers.CLASSIFIERS.items()
    if name not in CHANGES
}


@pytest.mark.parametrize(
    ("name", "hparam"), [(name, hparam) for name, values in CHANGES.items() for hparam in values]
)
def test_every_hparam_reaches_the_model(name, hparam):
    data, _ = DATA[name]()
    base = {"penalty": "elasticnet"} if hparam == "l1_ratio" else {}
    changed = {**base, hparam: CHANGES[name][hparam]}
    one, other = fit(name, data, hparams=base), fit(name, data, hparams=changed)
    assert not np.array_equal(one.scores, other.scores)


@every_classifier
def test_no_hparam_is_left_out_above(name):
    data, _ = DATA[name]()
    assert set(CHANGES[name]) == set(classifiers.resolve(name, {}, info(data)).hparams)


@pytest.mark.parametrize("name", examples.NETWORKS)
def test_snapshots_are_the_same_training_s_earlier_epochs(name):
    data, _ = DATA[name]()
    options = {**examples.OPTIONS[name], "snapshots": [2, 1]}
    kept, last = fit(name, data, options), fit(name, data)
    assert kept.scores.shape[0] == 3
    np.testing.assert_array_equal(kept.scores[-1], last.scores[0])
    assert not np.array_equal(kept.scores[0], kept.scores[1])
    if name in (
        "cnn",
        "convnet",
        "resnet",
        "vit-transfer",
    ):  # whose rate does not depend on the epochs
        short = fit(name, data, {**examples.OPTIONS[name], "epochs": 2})
        np.testing.assert_array_equal(kept.scores[1], short.scores[0])


@every_classifier
def test_curves_change_no_score_and_end_at_the_predicted_labels(name):
    data, y_test = DATA[name]()
    result = fit(name, replace(data, y_test=y_test), curves=True)
    assert_equal(result, fit(name, data))
    epochs = classifiers.resolve(name, examples.OPTIONS[name], info(data)).epochs
    if epochs is None:
        assert result.curves is None
        return
    assert set(result.curves) == {"train_loss", "train_accuracy", "test_loss", "test_accuracy"}
    for curve in result.curves.values():
        assert curve.shape == (epochs,)
        assert curve.dtype == np.float32
    accuracy = (result.label[-1] == y_test).mean()
    assert result.curves["test_accuracy"][-1] == pytest.approx(accuracy, rel=1e-6)
    assert result.curves["train_loss"][-1] < result.curves["train_loss"][0]


def test_curves_need_the_classes_of_the_test_set():
    with pytest.raises(ValueError, match="curves need the test set's classes"):
        fit("mlp", examples.binary()[0], curves=True)


def test_batch_norm_never_sees_a_single_row():
    data, _ = examples.binary()
    odd = replace(data, X=data.X[:65], y=data.y[:65])  # 64 and one row
    assert np.isfinite(fit("mlp", odd).scores).all()


@every_classifier
def test_a_single_class_is_a_failure(name):
    data, _ = DATA[name]()
    with pytest.raises(ValueError, match="160 training rows are of one class"):
        fit(name, replace(data, y=np.ones_like(data.y)))


def test_another_version_of_a_classifier_is_refused():
    data, _ = examples.binary()
    resolved = classifiers.resolve("xgb", {}, info(data))
    with pytest.raises(ValueError, match="xgb of version 2; this is 1"):
        classifiers.fit({**resolved.canonical, "version": 2}, {}, data, generators())


def test_a_missing_xgboost_is_a_fault_of_the_machine(monkeypatch):
    monkeypatch.setitem(sys.modules, "xgboost", None)
    monkeypatch.delitem(sys.modules, "manyseed.jobs.classifiers.xgb", raising=False)
    with pytest.raises(MachineError, match=r"xgb lacks a package: .*xgboost"):
        fit("xgb", examples.binary()[0])


@pytest.mark.parametrize(
    ("scale", "offset"), [(20.0, 1.7e9), (1e39, 0.0), (1e-310, 0.0), (1e307, 1e307), (1.0, 1e12)]
)
def test_trees_see_numbers_that_float32_would_merge(scale, offset):
    rng = np.random.default_rng(0)
    y = (np.arange(200) % 2).astype(np.uint16)
    X = np.stack([offset + scale * (2 * y + rng.random(200)), rng.normal(size=200)], axis=1)
    X[::17, 0] = np.nan
    kinds = np.zeros(2, dtype=np.int32)
    result = fit("xgb", TrainingSet(X[:150], y[:150], X[150:], 2, kinds))
    known = ~np.isnan(X[150:, 0])
    np.testing.assert_array_equal(result.label[0, known], y[150:][known])


def test_test_rows_beyond_float32_are_the_largest():
    y = (np.arange(100) % 2).astype(np.uint16)
    X = y[:, None] + np.linspace(0, 0.5, 100)[:, None]
    X[-2:, 0] = -1e300, 1e300
    kinds = np.zeros(1, dtype=np.int32)
    result = fit("xgb", TrainingSet(X[:90], y[:90], X[90:], 2, kinds))
    assert result.label[0, -2:].tolist() == [0, 1]


@pytest.mark.parametrize("where", ["X", "X_test"])
def test_trees_refuse_infinite_values_instead_of_taking_them_for_large_ones(where):
    data, _ = examples.binary()
    rows = getattr(data, where).copy()
    rows[0, 0] = np.inf
    with pytest.raises(ValueError, match="inf"):
        examples.fit("xgb", replace(data, **{where: rows}))
