"""The source studies' networks on CIFAR-10 as their files say: planned, priced, each fitted."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest

from manyseed.jobs import classifiers
from manyseed.jobs.run import TrainingSet
from manyseed.orchestrator.plans.planning import plan_change
from tests.jobs.classifiers.examples import generators

EXAMPLES = Path(__file__).parents[3] / "examples"
PITFALLS, INVARIANCE = "pitfalls-cifar10", "invariance-cifar10"
CIFAR = "cifar10"


@pytest.fixture(scope="module")
def planned(tmp_path_factory):
    """Return what planning an example, once, would write."""
    found = {}

    def of(name):
        if name not in found:
            found[name] = plan_change(
                EXAMPLES / f"{name}.toml", tmp_path_factory.mktemp(name) / "s"
            )
        return found[name]

    return of


def hours(change):
    """Return the hours of a fit of each group."""
    return {
        group["classifier"]: group["gpu_hours"] / group["fits"]
        for group in change.summary()["by_group"]
    }


def test_methods_are_priced_by_their_epochs(planned):
    """Beside a network of the deep ensemble: 400 epochs of vgg, 300 of the others."""
    found = hours(planned(PITFALLS))
    deep = {"vgg": 400, "preresnet110": 300, "preresnet164": 300, "wide-resnet": 300}
    for name, epochs in deep.items():
        fge = (160 + 99.5 * 2, "fge-vgg") if name == "vgg" else (160 + 99.5 * 4, "fge")
        for trained, method, least, most in (
            (4000, "snapshot", 1, 1.3),  # smaller batches, and a hundred predictions
            (1.3 * 1698, "csgld", 0.97, 1.3),
            (300, "swag", 1, 1.7),  # statistics of a hundred members
            (*fge, 1, 1.2),
            (epochs + 1.5, "kfac-laplace", 1, 1.2),
        ):
            ratio = found[f"{name}~{method}"] / found[name] / (trained / epochs)
            assert least <= ratio <= most, (name, method, ratio)
    assert found["vgg~dropout"] > found["vgg"]
    assert found["wide-resnet"] > 5 * max(found["vgg"], found["preresnet164"])
    summary = planned(PITFALLS).summary()
    assert summary["core_hours"] == 0  # all is asked for on a GPU
    assert summary["gpu_hours"] == pytest.approx(sum(g["gpu_hours"] for g in summary["by_group"]))


def test_deep_ensembles_have_the_source_s_pool(planned):
    cells = planned(PITFALLS).expansion.cells
    deep = cells.filter(pl.col("ensembling") == "none")
    assert deep["runs"].to_list() == [128] * 4
    assert cells.filter(pl.col("ensembling") != "none")["runs"].unique().to_list() == [5]
    assert cells["augment"].unique().to_list() == ["crop-flip:4"]
    assert cells.filter(classifier="vgg")["ensembling"].sort().to_list() == sorted(
        ["none", "snapshot", "csgld", "swag", "fge-vgg", "vi", "kfac-laplace", "dropout"]
    )


def test_the_invariance_study_has_66_configurations_under_nine_trainings(planned):
    change = planned(INVARIANCE)
    cells = change.expansion.cells
    counted = cells.group_by("classifier").agg(pl.col("hparams").n_unique(), pl.len())
    assert sorted(counted.rows()) == [("resnet", 18, 162), ("vgg", 48, 432)]
    assert cells["augment"].n_unique() == 9
    summary = change.summary()
    assert 0 < summary["response_hours"] < 0.1 * summary["gpu_hours"]
    assert not any("an epoch on" in note for note in change.expansion.notes)
    info = change.expansion.classifiers["resnet", CIFAR]
    few = info.at("batch=4096,depth=18,lr=0.0001").hparams["batch"]
    assert -(-47_500 // few) == 12  # steps an epoch


NETWORKS = [
    (PITFALLS, "vgg", None),
    (PITFALLS, "preresnet110", None),
    (PITFALLS, "preresnet164", None),
    (PITFALLS, "wide-resnet", None),
    (PITFALLS, "wide-resnet-dropout", None),
    (INVARIANCE, "vgg", "batch=1024,batch_norm=false,depth=19,lr=1e-05"),
    (INVARIANCE, "resnet", "batch=1024,depth=18,lr=0.0001"),
    (INVARIANCE, "resnet", "batch=1024,depth=50,lr=0.0001"),
]


@pytest.mark.slow
@pytest.mark.parametrize(("file", "name", "configuration"), NETWORKS)
def test_each_network_is_fitted_to_16_images_for_an_epoch(file, name, configuration, planned):
    info = planned(file).expansion.classifiers[name, CIFAR]
    info = info if configuration is None else info.at(configuration)
    rng = np.random.default_rng(1)
    X = rng.integers(0, 256, (26, 32 * 32 * 3)).astype(np.float64)
    y = (np.arange(16) % 10).astype(np.uint16)
    kinds = np.zeros(X.shape[1], np.int32)
    data = TrainingSet(X[:16], y, X[16:], 10, kinds, (32, 32, 3), augment="crop-flip:4")
    found = classifiers.fit({**info.canonical, "epochs": 1}, info.hparams, data, generators())
    assert found.scores.shape == (1, 10, 10)
    assert np.isfinite(found.scores).all()
