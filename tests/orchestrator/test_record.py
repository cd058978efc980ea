"""One record is all that a classifier needs to be planned, trained and stored."""

from __future__ import annotations

from time import perf_counter

import numpy as np
import pytest

from manyseed import Sweep
from manyseed.jobs.checks import Option
from manyseed.jobs.classifiers import CLASSIFIERS, Classifier
from manyseed.jobs.hparams import Categorical, Continuous
from manyseed.jobs.run import Cell, Run, seed31
from manyseed.jobs.trainer import Trainer
from manyseed.jobs.training.handling import Fitted
from manyseed.orchestrator.plans.layout import Groups
from manyseed.orchestrator.plans.plan import Plan
from manyseed.orchestrator.store.journal import encode_row
from tests.encoded import dense

SWEEP = """
name = "toy"
seed = 3
repeats = 2
runs = 2
[[grid]]
dataset = ["sklearn:wine", "sklearn:breast_cancer"]
classifier = ["centroids", "wide"]
perturb_hparams = ["none", "absolute:0.5"]
[classifier.wide]
kind = "centroids"
power = 2
hparams = { noise = 0.0 }
"""


def fit(given):
    """Score classes by the distance to their means, which are moved at random."""
    started = perf_counter()
    settings, hparams, data, generators, _ = given
    X, X_test = dense(data)
    rng = np.random.default_rng(seed31(generators.init) if hparams["noise"] else 0)
    centre = {"mean": np.mean, "median": np.median}[hparams["centre"]]
    means = np.array([centre(X[data.y == c], axis=0) for c in range(data.n_classes)])
    means += hparams["noise"] * rng.normal(size=means.shape)
    seconds = perf_counter() - started
    distances = np.linalg.norm(X_test[:, None] - means, axis=2) ** settings["power"]
    return Fitted(-distances[None], seconds)


CENTROIDS = Classifier(
    name="centroids",
    space=(
        Continuous("noise", 0.0, 1.0, 0.1),
        Categorical("centre", ("mean", "median"), "mean"),
    ),
    probability="softmax",
    streams=frozenset({"init"}),
    draws=lambda hparams: hparams["noise"] > 0,
    settings=lambda _, options: {"power": options.get("power", 1)},
    options={"power": Option("Power of the distances.", int, 1, least=1)},
    devices=("cpu",),
    core_seconds=lambda dataset, info, rows: 1e-6 * rows * dataset.n_features,
    fit=fit,
)


@pytest.fixture
def sweep(tmp_path, monkeypatch):
    monkeypatch.setitem(CLASSIFIERS, CENTROIDS.name, CENTROIDS)
    file = tmp_path / "sweep.toml"
    file.write_text(SWEEP)
    return Sweep.plan(file, tmp_path / "sweep")


def test_a_record_is_planned_trained_and_stored(sweep):
    cells = Plan.read(sweep.paths).cells
    assert len(cells) == 8
    assert cells.filter("identical").select("classifier", "perturb_hparams").unique().rows() == [
        ("wide", "none")
    ]
    assert cells["core_seconds"].is_between(0.005, 0.1).all()
    specs = {spec.number: spec for spec in Groups.read(sweep.paths).specs}
    trainer = Trainer()
    for row in cells.iter_rows(named=True):
        cell = Cell.from_text(row["canonical"])
        power = 2 if row["classifier"] == "wide" else 1
        assert cell.classifier == {"name": "centroids", "version": 1, "power": power}
        test = trainer.test_set(cell, 1)
        one, other = (trainer.train(Run(cell, 1, run)) for run in range(2))
        points, classes = len(test.index), len(np.unique(test.y_true))
        assert one.scores.shape == ((1, points) if classes == 2 else (1, points, classes))
        assert one.label.shape == one.confidence.shape == (1, points)
        assert (one.label[0] == test.y_true).mean() > 0.8
        assert np.array_equal(one.scores, other.scores) == row["identical"]
        assert encode_row(specs[row["group"]], one, test.y_true).sizes[0] == points
