"""The search for the scale of a posterior: its rows, its networks, and what is chosen."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from manyseed.jobs import classifiers, datasets, scales, tuning
from manyseed.jobs.cells import resolve_cell
from manyseed.jobs.ensembling import methods
from manyseed.jobs.run import Cell, Run
from manyseed.jobs.scales import SCALES, Trial
from manyseed.jobs.trainer import Trainer

WINE = datasets.resolve("sklearn:wine")
MODEL = classifiers.resolve(
    "mlp",
    {
        "optimizer": "sgd",
        "epochs": 3,
        "batch_size": 32,
        "hparams": {"width1": 32, "width2": 32, "lr": 0.05},
    },
    WINE,
)


def cell(**options):
    method = methods.resolve("kfac-laplace", {"members": 4})
    return resolve_cell(3, WINE, MODEL, ensembling=method, **options).cell


def test_scales_are_evenly_spaced_from_a_hundredth_to_ten():
    assert len(SCALES) == 25
    assert SCALES[0] == pytest.approx(0.01)
    assert SCALES[-1] == pytest.approx(10)
    np.testing.assert_allclose(np.diff(np.log10(SCALES)), 1 / 8)


def test_a_cell_is_searched_for_until_its_scale_is_known():
    asked = cell()
    assert scales.is_searched(asked)
    ready = scales.with_scale(asked, 0.5)
    assert not scales.is_searched(ready)
    assert ready.ensembling["scale"] == 0.5
    assert not scales.is_searched(replace(asked, ensembling=None))
    assert (asked.has_search, ready.has_search) == (True, False)
    assert scales.search_id(asked) != scales.search_id(cell(train_fraction=0.5))


def test_identities_of_searches_are_those_of_stored_files():
    data, model = {"source": "sklearn:wine"}, {"name": "mlp", "version": 1}
    tuned = Cell(5, data, model, {"epochs": 2, "tuned": {"draws": 3, "space": 1}})
    method = {"name": "kfac-laplace", "members": 4, "scale": "tuned"}
    scaled = Cell(5, data, model, {"lr": 0.1}, ensembling=method, test_augment="noise:0.1")
    assert tuning.search_id(tuned) == "4724762f1cb6da87fd290430cb81384b"
    assert scales.search_id(scaled) == "4b60c9be9d8e53efebda86bfcc0cefce"


@pytest.mark.parametrize("options", [{}, {"train_fraction": 0.5}, {"vary": "init+batch+train"}])
def test_validation_rows_are_a_tenth_that_no_network_is_trained_on(options):
    trainer, judged = Trainer(), None
    for number in range(2):
        run = Run(replace(cell(**options), ensembling=None), 0, number)
        data, own = scales.validation(trainer, run), trainer.training_set(run)
        rows = data.in_dataset.test
        assert len(rows) == pytest.approx(WINE.n_train / 10, abs=1)
        assert not {*data.in_dataset.train} & {*rows}
        kept = [row for row in own.in_dataset.train if row not in rows]
        np.testing.assert_array_equal(data.in_dataset.train, kept)
        np.testing.assert_array_equal(data.X, own.X[~np.isin(own.in_dataset.train, rows)])
        assert not {*rows} & {*own.in_dataset.test}  # the test set is not seen
        assert judged is None or (rows == judged).all()  # the same for all networks
        judged = rows


def test_perturbed_rows_are_judged_on_rows_as_they_are():
    trainer = Trainer()
    run = Run(replace(cell(perturb_continuous="relative:0.1"), ensembling=None), 0, 0)
    data = scales.validation(trainer, run)
    plain = scales.validation(trainer, Run(replace(run.cell, perturb_continuous="none"), 0, 0))
    assert data.in_dataset.train is None
    assert (data.X != plain.X).any()
    np.testing.assert_array_equal(data.X_test, plain.X_test)


def test_a_network_judges_all_scales_and_another_one_otherwise():
    first = scales.evaluate(Trainer(), cell(), 0)
    assert first.error is None
    values = np.array(first.log_likelihoods, dtype=float)
    assert values.shape == (25,)
    assert len(np.unique(values)) > 20
    assert values[-1] < values[0]  # weights ten standard deviations away predict nothing
    assert scales.evaluate(Trainer(), cell(), 0).log_likelihoods == first.log_likelihoods
    assert scales.evaluate(Trainer(), cell(), 1).log_likelihoods != first.log_likelihoods


def test_a_fit_that_fails_says_why():
    bad = replace(cell(), hparams={**MODEL.hparams, "lr": 1e30})
    trial = scales.evaluate(Trainer(), bad, 0)
    assert trial.log_likelihoods is None or None in trial.log_likelihoods
    one = replace(cell(), train_fraction=2)
    trial = scales.evaluate(Trainer(), one, 0)
    assert trial.error is None or "class" in trial.error


def test_the_scale_with_the_highest_mean_is_chosen():
    flat = [-1.0] * 25
    first, second = list(flat), list(flat)
    first[3], second[3], second[7] = -0.5, -0.9, -0.6
    found = [Trial(tuple(first), 1.0), Trial(None, 1.0, "x"), Trial(tuple(second), 1.0)]
    assert scales.best(found) == (SCALES[3], pytest.approx(-0.7))
    first[3] = None  # not finite for one network: out of the question
    assert scales.best([Trial(tuple(first), 1.0), found[2]])[0] == SCALES[7]
    assert scales.best([Trial(tuple(flat), 1.0)])[0] == SCALES[0]
    with pytest.raises(ValueError, match="all 1 fits failed, the last one with why"):
        scales.best([Trial(None, 1.0, "why")])
    with pytest.raises(ValueError, match="no scale"):
        scales.best([Trial((None,) * 25, 1.0)])
