"""The search for tuned hparams: where its points lie, what it sees, what it chooses."""

from dataclasses import replace

import numpy as np
import pytest

from manyseed.jobs import classifiers
from manyseed.jobs.cells import resolve_cell
from manyseed.jobs.datasets import resolve
from manyseed.jobs.datasets.split import n_points, stratified_order
from manyseed.jobs.hparams import SPACE_VERSION, draw
from manyseed.jobs.hparams.kinds import Continuous
from manyseed.jobs.perturb import find_neighbours, perturb_continuous, perturb_labels
from manyseed.jobs.run import MachineError, Run, raw, stream
from manyseed.jobs.trainer import Trainer
from manyseed.jobs.tuning import (
    Draw,
    best,
    drawn,
    evaluate,
    n_draws,
    search_id,
    searched,
    validation,
)

SOURCE = resolve("synthetic:gaussian", n_samples=200, n_features=4, separation=4.0)
GOLDEN = {
    "alpha": 0.004030633200391819,
    "l1_ratio": 0.4168186913968137,
    "eta0": 0.015343252472969294,
    "penalty": "l1",
    "average": True,
}
SEARCH = {"draws": 5, "space": SPACE_VERSION}


def tuned(classifier="lr-sgd", options=None, **axes):
    info = classifiers.resolve(classifier, options or {}, SOURCE)
    cell = resolve_cell(1, SOURCE, info, **axes).cell
    return replace(cell, hparams={**(options or {}).get("hparams", {}), "tuned": SEARCH})


@pytest.mark.parametrize("name", classifiers.names())
def test_draws_cover_the_space_evenly(name):
    space = classifiers.CLASSIFIERS[name].space
    draws = [draw(space, {}, stream(1, "tune", "d", "c", n)) for n in range(400)]
    for hparam in space:
        values = [each[hparam.name] for each in draws]
        if hparam.structural:  # never searched for
            assert set(values) == {hparam.default}
            continue
        assert [hparam.check(value) for value in values] == values
        if isinstance(hparam, Continuous):
            low, high = hparam.ends
            shares = (np.array([hparam.position(v) for v in values]) - low) / (high - low)
        else:
            shares = np.array([hparam.levels.index(v) for v in values]) / len(hparam.levels)
            shares += 0.5 / len(hparam.levels)
        assert abs(shares.mean() - 0.5) < 4 * np.sqrt(1 / 12 / 400)


def test_a_draw_is_written_out():
    assert drawn(tuned(options={"hparams": {"penalty": "l1"}}), 3) == pytest.approx(GOLDEN)


def test_fixed_hparams_leave_the_others_where_they_are():
    free, fixed = drawn(tuned(), 2), drawn(tuned(options={"hparams": {"eta0": 0.5}}), 2)
    assert fixed == free | {"eta0": 0.5}


def test_the_search_never_sees_the_first_test_set_and_judges_all_draws_alike():
    trainer, cell = Trainer(), tuned()
    data = validation(trainer, cell)
    test = trainer.test_set(cell, 0).index
    fit, judged = data.in_dataset.train, data.in_dataset.test
    assert not np.intersect1d(np.concatenate([fit, judged]), test).size
    assert not np.intersect1d(fit, judged).size
    assert len(judged) == round(0.25 * (len(fit) + len(judged)))
    X, y = data.in_dataset.X, trainer.training_set(Run(cell, 0, 0))
    np.testing.assert_array_equal(data.X, X[fit])
    np.testing.assert_array_equal(data.X_test, X[judged])
    assert abs(data.y_test.mean() - y.y.mean()) < 1 / len(judged)  # stratified
    other = validation(trainer, tuned("xgb", perturb_continuous="relative:0.5", vary="train"))
    np.testing.assert_array_equal(other.X, data.X)
    np.testing.assert_array_equal(other.X_test, data.X_test)


def test_a_draw_depends_on_nothing_but_itself():
    trainer, cell = Trainer(), tuned("mlp", {"epochs": 2})
    alone = evaluate(Trainer(), cell, 3)
    evaluate(trainer, tuned(), 0)
    among = evaluate(trainer, cell, 3)
    assert (among.hparams, among.accuracy) == (alone.hparams, alone.accuracy)
    assert alone.hparams == drawn(cell, 3)


def test_all_cells_of_a_dataset_and_classifier_share_their_search():
    cell = tuned()
    assert search_id(cell) == search_id(tuned(train_fraction=0.5, perturb_hparams="relative:0.1"))
    assert search_id(cell) != search_id(tuned("svm-sgd"))
    assert search_id(cell) != search_id(replace(cell, seed=2))
    assert search_id(cell) != search_id(tuned(options={"hparams": {"eta0": 0.5}}))
    assert n_draws(cell) == 5
    with pytest.raises(ValueError, match="version 2; this is 1"):
        n_draws(replace(cell, hparams={"tuned": {"draws": 5, "space": 2}}))


AS_RUNS = {"draws": 5, "space": SPACE_VERSION, "data": "runs"}
MIXED = resolve("synthetic:gaussian", n_samples=200, n_features=4, n_categorical=2)


def as_runs(classifier="lr-sgd", source=SOURCE, **axes):
    info = classifiers.resolve(classifier, {}, source)
    cell = resolve_cell(1, source, info, **axes).cell
    return replace(cell, hparams={"tuned": AS_RUNS})


def test_a_search_as_for_runs_is_of_its_own_where_their_data_differ():
    plain, half = as_runs(), as_runs(train_fraction=0.5)
    others = [tuned(), half, as_runs(vary="init+batch+train")]
    others += [as_runs(train_fraction=100), as_runs(perturb_continuous="relative:0.1")]
    others += [as_runs(train_fraction=0.5, perturb_labels="flip:0.1")]
    ids = {search_id(cell) for cell in (plain, *others)}
    assert len(ids) == len(others) + 1
    assert search_id(as_runs(perturb_hparams="relative:0.1", vary="init")) == search_id(plain)
    assert drawn(half, 3) == drawn(plain, 3) == drawn(tuned(), 3)  # paired
    assert searched(5, "runs") == AS_RUNS
    assert searched(5) == SEARCH  # as ever


def test_a_search_as_for_runs_fits_what_runs_would_and_judges_on_untouched_rows():
    trainer, plain = Trainer(), validation(Trainer(), tuned())
    axes = {"train_fraction": 0.5, "vary": "init+batch+train", "perturb_labels": "flip:0.3"}
    cell = as_runs(perturb_continuous="relative:0.1", **axes)
    data = validation(trainer, cell)
    np.testing.assert_array_equal(data.X_test, plain.X_test)
    np.testing.assert_array_equal(data.y_test, plain.y_test)
    # the same by the streams alone
    n, dataset = len(plain.y), SOURCE.id
    order = stratified_order(plain.y, raw(stream(1, "tune", dataset, "subsample"), n))
    points = np.sort(order[: n_points(0.5, n)])
    words = raw(stream(1, "tune", dataset, "resample"), len(points))
    points = points[(words % np.uint64(len(points))).astype(int)]
    noise = stream(1, "tune", dataset, "perturb_continuous", "relative:0.1")
    X = perturb_continuous(plain.X[points], plain.cardinality, "relative:0.1", noise, None)
    labels = stream(1, "tune", dataset, "perturb_labels", "flip:0.3")
    np.testing.assert_array_equal(data.X, X)
    np.testing.assert_array_equal(data.y, perturb_labels(plain.y[points], 2, "flip:0.3", labels))
    assert len(set(points)) < len(points)
    assert data.in_dataset.train is None  # else rows would be looked up without their noise
    assert not np.isin(data.X, plain.X).any()
    assert not np.array_equal(data.y, plain.y[points])


def test_noise_on_categorical_features_and_near_neighbours_never_reaches_what_is_judged():
    """Neighbours are of the rows that are fitted: radii know nothing of those that are judged."""
    axes = {"perturb_categorical": "value:0.5", "perturb_continuous": "neighbour:1.0"}
    cell, trainer = as_runs("xgb", MIXED, **axes), Trainer()
    data, plain = validation(trainer, cell), validation(trainer, as_runs("xgb", MIXED))
    moved = (data.X != plain.X).mean(axis=0)
    assert moved[:2].tolist() == [1.0, 1.0]
    assert (moved[2:] > 0.2).all()
    np.testing.assert_array_equal(data.X_test, plain.X_test)
    near = find_neighbours(plain.X[:, :2])
    noise = stream(1, "tune", MIXED.id, "perturb_continuous", "neighbour:1.0")
    X = perturb_continuous(plain.X, plain.cardinality, "neighbour:1.0", noise, near)
    np.testing.assert_array_equal(data.X[:, :2], X[:, :2])


@pytest.mark.parametrize(("fraction", "n"), [(0.5, 56), (60, 60), (149, 112), (0.015, 2)])
def test_a_share_is_of_the_rows_that_are_fitted(fraction, n):
    data = validation(Trainer(), as_runs(train_fraction=fraction))
    assert len(data.y) == n


def test_augmented_runs_are_searched_for_on_augmented_images(monkeypatch):
    digits, seen = resolve("sklearn:digits"), []

    def fit(_classifier, _hparams, data, generators, _handling):
        seen.append((data.augment, generators.augment))
        raise ValueError("seen")

    plain = as_runs("convnet", digits)
    shifted = as_runs("convnet", digits, augment="shift-x:0.1")
    monkeypatch.setattr(classifiers, "fit", fit)
    for cell in (plain, shifted, replace(shifted, hparams={"tuned": SEARCH})):
        assert evaluate(Trainer(), cell, 0).error == "ValueError: seen"
    assert [augment for augment, _ in seen] == ["none", "shift-x:0.1", "none"]
    assert [one is not None for _, one in seen] == [False, True, False]


def test_a_tuned_cell_is_trained_with_what_was_found():
    cell = tuned()
    Trainer().train(Run(replace(cell, hparams=drawn(cell, 0)), 0, 1))


def test_the_best_draw_is_the_first_of_the_most_accurate():
    accuracies = [0.5, None, 0.75, 0.75, 0.25]
    assert best([Draw({}, accuracy, 0.0) for accuracy in accuracies]) == 2
    with pytest.raises(ValueError, match="all 2 draws failed, the last one with diverged"):
        best([Draw({}, None, 0.0, "diverged")] * 2)


@pytest.mark.parametrize("raised", [FloatingPointError("diverged"), ValueError("odd")])
def test_a_fit_that_fails_fails_its_draw(monkeypatch, raised):
    _let_fits_raise(monkeypatch, raised)
    found = evaluate(Trainer(), tuned(), 0)
    assert found.accuracy is None
    assert found.error == f"{type(raised).__name__}: {raised}"


@pytest.mark.parametrize("raised", [MachineError("no GPU"), ImportError("xgboost"), OSError(28)])
def test_the_machine_s_faults_end_the_search(monkeypatch, raised):
    _let_fits_raise(monkeypatch, raised)
    expected = MachineError if isinstance(raised, ImportError) else type(raised)
    with pytest.raises(expected):
        evaluate(Trainer(), tuned(), 0)


def _let_fits_raise(monkeypatch, error):
    def fit(*_):
        raise error

    record = replace(classifiers.CLASSIFIERS["lr-sgd"], fit=fit)
    monkeypatch.setitem(classifiers.CLASSIFIERS, "lr-sgd", record)
