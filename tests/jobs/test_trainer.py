"""What a run is given, and that its result depends on the run alone."""

import dataclasses
import itertools
import random

import numpy as np
import pytest

from manyseed.jobs import classifiers, trainer
from manyseed.jobs.cells import resolve_cell
from manyseed.jobs.datasets import load, resolve, sources
from manyseed.jobs.datasets.split import split
from manyseed.jobs.ensembling import methods as ensembling
from manyseed.jobs.perturb import perturb_labels
from manyseed.jobs.run import MachineError, Run, raw, stream
from manyseed.jobs.trainer import Trainer, generators, run_hparams, stream_keys
from manyseed.jobs.training.handling import Fitted

MIXED = resolve("synthetic:gaussian", n_samples=200, n_features=5, n_categorical=2)


def make_cell(dataset=MIXED, classifier="lr-sgd", **values):
    return resolve_cell(7, dataset, classifiers.resolve(classifier, {}, dataset), **values).cell


def same(a, b):
    return all(
        np.array_equal(getattr(a, name), getattr(b, name), equal_nan=True)
        for name in ("scores", "label", "confidence")
    )


@pytest.mark.parametrize("classifier", ["lr-sgd", "xgb"])
def test_a_run_alone_equals_the_run_among_others_in_any_order(classifier):
    cells = [
        make_cell(classifier=classifier),
        make_cell(classifier=classifier, train_fraction=0.5, perturb_continuous="neighbour:0.5"),
        make_cell(
            classifier=classifier,
            vary="init+batch+train",
            perturb_categorical="label:0.1",
            perturb_hparams="relative:0.2",
        ),
        make_cell(resolve("sklearn:iris"), classifier, train_fraction=20),
    ]
    runs = [Run(*key) for key in itertools.product(cells, range(2), range(2))]
    alone = {run_key(run): Trainer().train(run) for run in runs}
    warm = Trainer(cache_bytes=20_000)  # small: some things are dropped and made again
    for seed in (1, 2):
        random.Random(seed).shuffle(runs)
        for run in runs:
            assert same(warm.train(run), alone[run_key(run)])


def run_key(run):
    return run.cell.id, run.repeat, run.run


def test_the_test_set_is_the_splits_and_never_perturbed():
    cell = make_cell(
        perturb_continuous="sig-digit:0", perturb_categorical="label:0.5", vary="init+train"
    )
    data = load(cell.dataset)
    part = split(7, MIXED.id, 1, data.y, 0.25)
    chosen = Trainer().test_set(cell, 1)
    np.testing.assert_array_equal(chosen.index, part.test)
    np.testing.assert_array_equal(chosen.y_true, data.y[part.test])
    assert chosen.index.dtype == np.int64
    assert chosen.y_true.dtype == np.uint16
    for run in range(3):
        given = Trainer().training_set(Run(cell, 1, run))
        np.testing.assert_array_equal(given.X_test, data.X[part.test])


def test_all_cells_of_a_dataset_share_test_sets_and_repeats_do_not():
    warm = Trainer()
    cells = [make_cell(), make_cell(classifier="xgb", train_fraction=0.3, vary="train")]
    sets = [[warm.test_set(cell, repeat).index.tolist() for repeat in range(3)] for cell in cells]
    assert sets[0] == sets[1]
    assert sets[0][0] != sets[0][1] != sets[0][2]


def test_unperturbed_runs_are_given_their_rows_as_they_are():
    cell = make_cell(train_fraction=0.4)
    data = load(cell.dataset)
    rows = {row.tobytes(): label for row, label in zip(data.X, data.y, strict=True)}
    given = Trainer().training_set(Run(cell, 0, 0))
    assert len(given.y) == 60
    assert [rows[row.tobytes()] for row in given.X] == given.y.tolist()
    tested = {row.tobytes() for row in given.X_test}
    assert not tested & {row.tobytes() for row in given.X}
    assert given.cardinality.tolist() == [0, 0, 0, 4, 4]


def test_runs_share_their_rows_where_nothing_draws_or_changes_them():
    warm = Trainer()
    plain = [warm.training_set(Run(make_cell(), 1, run)) for run in (0, 1)]
    assert plain[0] is plain[1]
    assert plain[0] is warm.training_set(Run(make_cell(classifier="xgb"), 1, 0))
    assert plain[0] is not warm.training_set(Run(make_cell(), 0, 0))
    for drawn in (
        {"train_fraction": 0.5},
        {"vary": "init+train"},
        {"perturb_continuous": "relative:0.1"},
        {"perturb_categorical": "label:0.1"},
        {"perturb_labels": "flip:0.1"},
    ):
        sets = [warm.training_set(Run(make_cell(**drawn), 1, run)) for run in (0, 0, 1)]
        assert len({id(one) for one in (*sets, plain[0])}) == 4
    first = warm.train(Run(make_cell(), 1, 0))
    assert plain[0].shared.keys() == {"dense"}
    assert plain[0].nbytes > plain[0].X.nbytes + plain[0].X_test.nbytes
    assert same(warm.train(Run(make_cell(), 1, 0)), first)
    assert dataclasses.replace(plain[0], X=plain[0].X + 1).shared == {}


def test_fractions_are_nested_for_each_run():
    warm = Trainer()
    for run in range(2):
        rows = [
            {x.tobytes() for x in warm.training_set(Run(make_cell(train_fraction=f), 0, run)).X}
            for f in (0.25, 0.5, 1.0)
        ]
        assert rows[0] < rows[1] < rows[2]


def test_train_in_vary_bootstraps_the_subsample_to_its_own_size():
    plain = make_cell(train_fraction=0.5, vary="init")
    varied = make_cell(train_fraction=0.5, vary="init+train")
    warm = Trainer()
    subsampled = {x.tobytes() for x in warm.training_set(Run(plain, 0, 0)).X}
    drawn = [x.tobytes() for x in warm.training_set(Run(varied, 0, 0)).X]
    assert len(drawn) == len(subsampled)
    assert set(drawn) < subsampled


def test_neighbours_are_sought_before_downsampling(monkeypatch):
    sizes = []
    find = trainer.find_neighbours
    monkeypatch.setattr(trainer, "find_neighbours", lambda X: sizes.append(X.shape) or find(X))
    warm = Trainer()
    for fraction, run in itertools.product((0.25, 0.5), range(3)):
        cell = make_cell(train_fraction=fraction, perturb_continuous="neighbour:0.5")
        warm.training_set(Run(cell, 0, run))
    assert sizes == [(150, 3)]  # once a repeat: all training points, continuous features


def test_data_is_read_once(monkeypatch):
    reads = []
    read = sources.of
    monkeypatch.setattr(sources, "of", lambda c: reads.append(c) or read(c))
    warm = Trainer()
    for repeat, run in itertools.product(range(3), range(3)):
        warm.training_set(Run(make_cell(), repeat, run))
    assert len(reads) == 1


def test_only_axes_with_a_scheme_are_perturbed():
    warm = Trainer()
    plain = warm.training_set(Run(make_cell(), 0, 0)).X
    moved = warm.training_set(Run(make_cell(perturb_continuous="relative:0.1"), 0, 0)).X
    assert (moved[:, :3] != plain[:, :3]).all()
    np.testing.assert_array_equal(moved[:, 3:], plain[:, 3:])
    moved = warm.training_set(Run(make_cell(perturb_categorical="label:0.5"), 0, 0)).X
    np.testing.assert_array_equal(moved[:, :3], plain[:, :3])
    assert (moved[:, 3:] != plain[:, 3:]).any()


@pytest.mark.parametrize(
    ("vary", "run_keys"),
    [
        ("init+batch", {"init": (3,), "batch": (3,), "dropout": (3,)}),
        ("init", {"init": (3,), "batch": (), "dropout": ()}),
        ("batch", {"init": (), "batch": (3,), "dropout": (3,)}),
        ("train", {"init": (), "batch": (), "dropout": ()}),
    ],
)
def test_streams_of_a_fit_leave_the_run_out_where_vary_does(vary, run_keys):
    given = generators(Run(make_cell(classifier="mlp", vary=vary), 2, 3))
    for name, run_key in run_keys.items():
        expected = stream(7, name, MIXED.id, "mlp@1", 2, *run_key)
        assert raw(getattr(given, name), 3).tolist() == raw(expected, 3).tolist()


def test_schemes_and_fractions_are_compared_with_paired_seeds():
    plain = generators(Run(make_cell(), 0, 1))
    other = generators(Run(make_cell(train_fraction=0.5, perturb_continuous="relative:0.1"), 0, 1))
    assert raw(plain.batch, 3).tolist() == raw(other.batch, 3).tolist()


def test_hparams_are_perturbed_by_run_and_alike_on_every_dataset():
    perturbed = [run_hparams(Run(make_cell(perturb_hparams="relative:0.2"), 0, r)) for r in (0, 1)]
    assert perturbed[0] != perturbed[1]
    iris = make_cell(resolve("sklearn:iris"), perturb_hparams="relative:0.2")
    assert run_hparams(Run(iris, 0, 0)) == perturbed[0]
    cell = make_cell()
    assert run_hparams(Run(cell, 0, 0)) == cell.hparams


def test_streams_are_keyed_as_the_page_of_identities_says():
    cell = make_cell(
        perturb_continuous="relative:.10",
        perturb_categorical="label:0.1",
        perturb_hparams="relative:0.2",
        vary="batch+train",
    )
    run, dataset = Run(cell, 1, 3), MIXED.id
    keys = {
        "split": [dataset, 1],
        "subsample": [dataset, 1, 3],
        "resample": [dataset, 1, 3],
        "perturb_continuous": [dataset, "relative:0.1", 1, 3],
        "perturb_categorical": [dataset, "label:0.1", 1, 3],
        "perturb_hparams": ["lr-sgd@1", "relative:0.2", 1, 3],
        "init": [dataset, "lr-sgd@1", 1],
        "batch": [dataset, "lr-sgd@1", 1, 3],
        "dropout": [dataset, "lr-sgd@1", 1, 3],
    }
    assert stream_keys(run) == keys
    made = generators(run)
    for name in ("init", "batch", "dropout"):
        again = stream(cell.seed, name, *keys[name])
        assert raw(again, 4).tolist() == raw(getattr(made, name), 4).tolist()


@pytest.mark.parametrize("vary", ["init+batch", "init", "train"])
def test_noise_on_labels_is_drawn_for_each_run_and_changes_nothing_else(vary):
    plain, noisy = make_cell(vary=vary), make_cell(vary=vary, perturb_labels="flip:.20")
    trainer, labels = Trainer(), []
    for number in (3, 4):
        given, before = (trainer.training_set(Run(cell, 1, number)) for cell in (noisy, plain))
        keys = stream_keys(Run(noisy, 1, number))
        assert keys.pop("perturb_labels") == [MIXED.id, "flip:0.2", 1, number]
        assert keys == stream_keys(Run(plain, 1, number))
        drawn = stream(noisy.seed, "perturb_labels", MIXED.id, "flip:0.2", 1, number)
        expected = perturb_labels(before.y, before.n_classes, "flip:0.2", drawn)
        np.testing.assert_array_equal(given.y, expected)
        assert 0 < np.mean(given.y != before.y) < 0.5
        for same in ("X", "X_test", "y_test"):
            np.testing.assert_array_equal(getattr(given, same), getattr(before, same))
        assert given.in_dataset.train is not None  # its features are those of the dataset
        labels.append(given.y != before.y)
    assert (labels[0] != labels[1]).any()
    other = make_cell(vary=vary, classifier="xgb", perturb_labels="flip:0.2")
    np.testing.assert_array_equal(trainer.training_set(Run(other, 1, 4)).y, given.y)


def test_augmentation_goes_with_batch_and_has_a_stream_of_its_own():
    digits = resolve("sklearn:digits")
    for vary, of_batch in (("init+batch", [3]), ("init", [])):
        cell = make_cell(digits, "convnet", augment="shift-x:.10", vary=vary)
        run = Run(cell, 1, 3)
        keys = [digits.id, "convnet@1", "shift-x:0.1", 1, *of_batch]
        assert stream_keys(run)["augment"] == keys
        again = stream(cell.seed, "augment", *keys)
        assert raw(again, 4).tolist() == raw(generators(run).augment, 4).tolist()
        assert Trainer().training_set(run).augment == "shift-x:0.1"
    plain = Run(make_cell(digits, "convnet"), 1, 3)
    assert "augment" not in stream_keys(plain)
    assert generators(plain).augment is None


def test_all_classifiers_and_methods_see_the_same_augmentations_of_the_test_set():
    digits = resolve("sklearn:digits")
    methods = (None, ensembling.resolve("single", {"members": 3}))
    for vary, of_batch in (("init+batch", [3]), ("init", [])):
        for name, method in itertools.product(("convnet", "mlp"), methods):
            cell = make_cell(digits, name, test_augment="crop-flip:1", vary=vary, ensembling=method)
            run = Run(cell, 1, 3)
            keys = [digits.id, "crop-flip:1", 1, *of_batch]
            assert stream_keys(run)["test_augment"] == keys
            again = stream(cell.seed, "test_augment", *keys)
            assert raw(again, 4).tolist() == raw(generators(run).test_augment, 4).tolist()
            assert Trainer().training_set(run).test_augment == "crop-flip:1"
    plain = Run(make_cell(digits, "convnet"), 1, 3)
    assert "test_augment" not in stream_keys(plain)
    assert generators(plain).test_augment is None


def fitted_by(monkeypatch, fit):
    record = dataclasses.replace(classifiers.CLASSIFIERS["lr-sgd"], fit=fit)
    monkeypatch.setitem(classifiers.CLASSIFIERS, "lr-sgd", record)


def test_a_diverged_training_is_a_failure_of_the_run(monkeypatch):
    fitted_by(monkeypatch, lambda *_: Fitted(np.array([[0.0, np.nan, np.inf]]), 0.0))
    with pytest.raises(FloatingPointError, match="2 of 3 scores are not finite"):
        Trainer().train(Run(make_cell(), 0, 0))


def test_a_missing_package_is_a_fault_of_the_machine(monkeypatch):
    def fit(*_, **__):
        raise ModuleNotFoundError("No module named 'xgboost'")

    fitted_by(monkeypatch, fit)
    with pytest.raises(MachineError, match=r"lr-sgd lacks a package.*xgboost"):
        Trainer().train(Run(make_cell(), 0, 0))


def test_other_data_than_planned_is_a_fault_of_the_machine():
    cell = make_cell(resolve("sklearn:iris"))
    other = dataclasses.replace(cell, dataset={**cell.dataset, "digest": "0" * 64})
    with pytest.raises(MachineError, match="sklearn:iris of the installed"):
        Trainer().train(Run(other, 0, 0))


def test_perturbed_hparams_are_one_setting_a_repeat_and_run_whatever_the_dataset():
    settings = []
    for dataset in (MIXED, resolve("sklearn:iris")):
        for fraction in (0.5, 1.0):
            cell = make_cell(dataset, perturb_hparams="relative:0.2", train_fraction=fraction)
            runs = [Run(cell, repeat, run) for repeat in range(3) for run in range(4)]
            settings.append([tuple(run_hparams(run).items()) for run in runs])
    assert len(set(settings[0])) == 12
    assert settings == [settings[0]] * 4
    other = make_cell(perturb_hparams="relative:0.1")
    assert (
        stream_keys(Run(other, 0, 0))["perturb_hparams"]
        != (stream_keys(Run(cell, 0, 0))["perturb_hparams"])
    )


@pytest.mark.parametrize(
    ("axis", "schemes"),
    [
        ("perturb_continuous", ("relative:0.1", "relative:0.2")),
        ("perturb_categorical", ("label:0.4", "label:0.5")),
    ],
)
def test_noise_on_data_is_paired_between_classifiers_not_strengths_or_fractions(axis, schemes):
    kinds = load(MIXED.canonical).cardinality
    columns = np.flatnonzero(kinds == 0 if axis == "perturb_continuous" else kinds > 0)

    def moved(scheme, classifier="lr-sgd", fraction=1.0):
        """By how much each training row is moved, by what it was before."""
        plain, noisy = (
            Trainer().training_set(
                Run(make_cell(classifier=classifier, train_fraction=fraction, **values), 0, 0)
            )
            for values in ({}, {axis: scheme})
        )
        return {
            tuple(before): tuple(after[columns] - before[columns])
            for before, after in zip(plain.X, noisy.X, strict=True)
        }

    weak = moved(schemes[0])
    assert moved(schemes[0], "xgb") == weak
    strong, few = moved(schemes[1]), moved(schemes[0], fraction=0.5)
    assert set(few) < set(weak) == set(strong)
    assert sum(few[row] == weak[row] for row in few) < len(few) * 0.8
    if axis == "perturb_continuous":
        ratios = [np.array(strong[row]) / np.array(weak[row]) for row in weak]
        assert np.std(ratios) > 0.1  # not one draw scaled
