"""What is measured of trained models, against models that are trained again."""

from __future__ import annotations

import copy
from dataclasses import replace

import numpy as np
import pytest

from manyseed.jobs import classifiers
from manyseed.jobs.run import DatasetRows
from manyseed.jobs.training import loop
from manyseed.jobs.training.checkpoint import Checkpoint
from manyseed.jobs.training.handling import PLAIN, Alive, Handling, measure, train_accuracy
from tests.jobs.classifiers import examples
from tests.jobs.classifiers.examples import CASES, IDS, fit, info

NAME = "final_train_accuracy"
ALL = (NAME,)
DATA = {name: examples.of(name) for name in classifiers.names()}
every_classifier = pytest.mark.parametrize("name", classifiers.names())


@pytest.mark.parametrize(("name", "make"), CASES, ids=IDS)
def test_train_accuracy_is_that_of_the_same_model_tested_on_its_training_rows(name, make):
    data, _ = make()
    kept = fit(name, data, measures=ALL)
    assert kept.measured is not None
    value = kept.measured[NAME]
    assert (value.shape, value.dtype) == ((), np.float32)
    again = fit(name, replace(data, X_test=data.X))  # no fit looks at its test rows
    assert value == np.float32((again.label[-1] == data.y).mean())


@every_classifier
def test_a_prediction_is_the_same_bit_for_bit_and_so_is_every_stream(name):
    data, y_test = DATA[name]()
    data = replace(data, y_test=y_test)
    resolved = classifiers.resolve(name, {**examples.OPTIONS[name]}, info(data))
    found = []
    for measures in ((), ALL):
        generators = examples.generators()
        handling = Handling(resolved.snapshots, curves=True, measures=measures)
        one = classifiers.fit(resolved.canonical, resolved.hparams, data, generators, handling)
        states = [copy.deepcopy(g.bit_generator.state) for g in vars_of(generators)]
        found.append((one, states))
    (plain, before), (measured, after) = found
    for field in ("scores", "label", "confidence"):
        np.testing.assert_array_equal(getattr(plain, field), getattr(measured, field))
    for curve, values in (plain.curves or {}).items():
        np.testing.assert_array_equal(values, (measured.curves or {})[curve])
    assert before == after
    assert plain.measured is None


def vars_of(generators):
    return generators.init, generators.batch, generators.dropout


@pytest.mark.parametrize("name", ["mlp", "vit"])
def test_it_is_of_the_last_epoch_whatever_snapshots_are_kept(name):
    data, _ = DATA[name]()
    options = {**examples.OPTIONS[name], "snapshots": [1, 2]}
    assert fit(name, data, options, measures=ALL).measured == fit(name, data, measures=ALL).measured


def test_trees_of_any_depth_learn_random_labels_by_heart():
    rng = np.random.default_rng(0)
    data, y_test = examples.binary()
    y, noise = rng.permutation(data.y), rng.normal(size=data.X.shape)
    deep = {"max_depth": 20, "min_child_weight": 0.1, "gamma": 0.1, "lambda": 1e-10}
    learned = fit("xgb", replace(data, X=noise, y=y), hparams=deep, measures=ALL)
    assert learned.measured is not None
    assert learned.measured[NAME] == 1
    assert 0.2 < (learned.label[0] == y_test).mean() < 0.8


def test_a_classifier_that_cannot_learn_is_right_for_the_largest_class():
    data, _ = examples.binary()
    y = np.zeros_like(data.y)
    y[:30] = 1
    alike = replace(data, X=np.ones_like(data.X), X_test=np.ones_like(data.X_test), y=y)
    kept = fit("xgb", alike, measures=ALL)
    assert kept.measured is not None
    assert kept.measured[NAME] == np.float32(130 / 160)


def test_a_continued_training_has_the_same(tmp_path, monkeypatch):
    data, _ = examples.binary()
    whole = fit("mlp", data, measures=ALL)
    checkpoint = Checkpoint(tmp_path / "one.checkpoint", "key", every=0.0)
    saved = []
    save = loop.save

    def killed(*arguments):
        save(*arguments)
        saved.append(1)
        if len(saved) == 2:
            raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(loop, "save", killed)
        with pytest.raises(KeyboardInterrupt):
            fit("mlp", data, checkpoint=checkpoint, measures=ALL)
    again = fit("mlp", data, checkpoint=checkpoint, measures=ALL)
    assert checkpoint.path.exists()
    np.testing.assert_array_equal(again.scores, whole.scores)
    assert again.measured == whole.measured


@pytest.mark.parametrize(
    ("scores", "right"),
    [
        (np.array([-1.0, 0.0, 2.0, -1e-300]), 3 / 4),  # a tie is class 1; so is what rounds to -0
        (np.array([[1.0, 0.0], [0.0, 0.0], [0.0, 2.0], [5.0, 1.0]]), 1.0),
        (np.array([[0.0, 0.0, 0.0], [1, 2, 1], [0, 0, 3], [2, 2, 1]]), 3 / 4),  # the first of ties
        (np.array([1.0, np.nan, 2.0, 3.0]), np.nan),
        (np.array([1.0, 1e300, 2.0, 3.0]), np.nan),
    ],
)
def test_scores_are_read_as_those_of_the_test_set(scores, right):
    data = replace(examples.binary()[0], y=np.array([0, 1, 1, 0], dtype=np.uint16))
    found = train_accuracy(Alive(None, lambda _: scores), data)
    np.testing.assert_equal(found, np.float32(right))


def test_a_fit_without_a_model_is_told():
    data, _ = examples.binary()
    assert measure(PLAIN.measures, None, data) is None
    with pytest.raises(ValueError, match="hands over no model"):
        measure(ALL, None, data)


def test_rows_of_the_dataset_are_looked_up_as_before():
    """Features that a backbone makes once are those of the rows in the dataset."""
    data, _ = examples.image()
    every = np.vstack([data.X, data.X_test])
    train, test = np.arange(len(data.X)), np.arange(len(data.X), len(every))
    known = replace(data, in_dataset=DatasetRows("d", every, train, test))
    one, other = (fit("vit-transfer", d, measures=ALL).measured for d in (known, data))
    assert one == other
