"""Kept models of every kind: made again, they predict and answer the same, bit for bit."""

from dataclasses import replace

import numpy as np
import pytest

from manyseed.jobs import classifiers, parameters
from manyseed.jobs.cells import resolve_cell
from manyseed.jobs.checks import Refused
from manyseed.jobs.datasets import resolve
from manyseed.jobs.response.measure import ARRAYS, SHIFTED_TOTAL
from manyseed.jobs.response.resolution import resolve as questions
from manyseed.jobs.run import DatasetRows, Run, gaps
from manyseed.jobs.trainer import Trainer, block_of, made, run_hparams
from manyseed.jobs.training.handling import Handling, unpacked
from tests.jobs.classifiers import examples

KEPT = [n for n, record in classifiers.CLASSIFIERS.items() if hasattr(record.fit, "arrays")]
DIGITS = resolve("sklearn:digits", test=0.9)


def in_dataset(data):
    """Return a training set that knows its rows' places in a dataset."""
    every, n = np.vstack([data.X, data.X_test]), len(data.X)
    name = f"of-{n}-{data.n_classes}-{every.shape[1]}"
    rows = DatasetRows(name, every, np.arange(n), np.arange(n, len(every)))
    return replace(data, in_dataset=rows)


@pytest.mark.parametrize("name", KEPT)
def test_a_model_made_of_its_arrays_predicts_the_same(name):
    for make in (examples.of(name), examples.other_of(name)):
        data = in_dataset(make()[0])
        resolved = classifiers.resolve(name, examples.OPTIONS[name], examples.info(data))
        prediction = examples.fit(name, data, measures=("parameters",))
        row = prediction.measured["parameters"]
        fit = classifiers.fit_of(resolved.canonical)
        of = resolved.canonical, resolved.hparams
        columns = (data.cardinality == 0).sum() + (data.cardinality + 1)[data.cardinality > 0].sum()
        shape = (int(columns),)
        if name == "vit-transfer":
            shape = (8 * 16,)
        elif name in examples.IMAGES_ONLY:
            shape = data.image
        arrays = fit.arrays(shape, data.n_classes, *of)
        assert parameters.length(arrays) == len(row)
        alive = fit.revive(*of, data, unpacked(arrays, row), "cpu")
        if name == "vit-transfer":
            rows = alive.look_up(data.in_dataset.test)
        else:
            rows = alive.encode(data.X_test)
        scores = alive.predict(rows)
        scores = (scores if scores.ndim == 1 else gaps(scores)).astype(np.float32)
        np.testing.assert_array_equal(scores, prediction.scores[-1])


def test_heads_trained_at_once_are_as_alone_and_are_made_again():
    """A single step each, in float32."""
    info = classifiers.resolve("vit-transfer", {"epochs": 1, "stack": 3}, DIGITS)
    cell, trainer = resolve_cell(3, DIGITS, info, train_fraction=30).cell, Trainer()
    assert "stack" not in cell.classifier
    block, handling = block_of(Run(cell, 0, 1), 3), Handling(measures=("parameters",))
    outcomes = trainer.train_stack(block, {run.run: handling for run in block})
    layouts = parameters.layouts([cell], DIGITS, "vit-transfer")
    for run in block:
        found, alone = made(outcomes[run.run]), trainer.train(run, handling)
        np.testing.assert_allclose(found.scores, alone.scores, rtol=0, atol=1e-5)
        fit, data = info.record.fit, trainer.training_set(run)
        state = unpacked(layouts[0].arrays, found.measured["parameters"])
        alive = fit.revive(cell.classifier, run_hparams(run), data, state, "cpu")
        scores = alive.predict(alive.look_up(data.in_dataset.test))
        np.testing.assert_array_equal(scores, found.scores[-1])


@pytest.mark.parametrize("scheme", ["none", "relative:0.1"])
def test_a_head_on_features_answers_in_training_and_later(scheme):
    """Its rows go by their places in the dataset: no image goes through the backbone again."""
    info = classifiers.resolve("vit-transfer", {"epochs": 1}, DIGITS)
    cell = resolve_cell(3, DIGITS, info, perturb_continuous=scheme, train_fraction=60).cell
    options = {"transforms": ["intra", "inter"], "rows": 40, "pair_magnitudes": 4}
    asked = questions(options, DIGITS, info.record.fit, ("digits", "vit-transfer"))
    assert asked.responses == (("intra", 0), ("inter", 0))
    trainer, run = Trainer(), Run(cell, 0, 1)
    handling = Handling((1,), measures=("parameters",), response=asked)
    measured = trainer.train(run, handling).measured
    assert measured[SHIFTED_TOTAL].tolist() == [[60, 0, DIGITS.n_test, 0]] * 2
    assert (measured["response_total"][0, 0] > 0).all()
    layouts = parameters.layouts([cell], DIGITS, "vit-transfer")
    assert [one.name for one in layouts[0].arrays] == ["weight", "bias"]
    again = parameters.answers(Trainer(), run, asked, (layouts, measured["parameters"]))
    for name in ARRAYS:
        np.testing.assert_array_equal(again[name], measured[name])
    for transform in ("rotate:90", "shift-x:0.25", "colour:0.25"):
        with pytest.raises(Refused, match="reads features that are computed once"):
            questions({"transforms": [transform]}, DIGITS, info.record.fit, ("digits", "v"))


def test_data_whose_labels_are_not_known_yet_is_refused_before_it_is_fetched(monkeypatch):
    def gone(canonical):
        raise parameters.MachineError("not here")

    dataset = replace(DIGITS, n_categorical=2, n_continuous=62, image=None)
    info = classifiers.resolve("mlp", {}, dataset)
    cell = resolve_cell(3, dataset, info).cell
    monkeypatch.setattr(parameters, "load", gone)
    with pytest.raises(Refused, match="labels of categorical features are not known yet"):
        parameters.layouts([cell], dataset, "mlp")


def test_layouts_are_those_that_models_have():
    for name, options in (("convnet", {"grid": {"depth": [1, 3]}}), ("mlp", {}), ("svm-sgd", {})):
        info = classifiers.resolve(name, options, DIGITS)
        cells = [resolve_cell(3, DIGITS, info).cell]
        (one,) = parameters.layouts(cells, DIGITS, name)
        assert one.fits(run_hparams(Run(cells[0], 0, 0)))
        assert one == type(one).from_attributes(one.to_attributes())
