"""Networks trained by other optimizers than their records': against plain torch, and as sweeps."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from manyseed.jobs.run import stream
from manyseed.jobs.training import loop
from manyseed.jobs.training.checkpoint import Checkpoint
from manyseed.jobs.training.layers import initialise
from tests.encoded import dense
from tests.jobs.classifiers import examples
from tests.jobs.classifiers.examples import fit

SGD = {
    "optimizer": "sgd",
    "momentum": 0.8,
    "epochs": 10,
    "batch_size": 32,
    "hparams": {"lr": 0.05, "weight_decay": 5e-4, "width1": 32, "width2": 33, "dropout": 0.0},
}
NETWORKS = {name: examples.of(name) for name in examples.IMAGES_ONLY}
NETWORKS["mlp"] = examples.multiclass


def test_it_is_sgd_with_momentum_and_the_published_rates_written_out(monkeypatch):
    """torch's own layers and autograd; momentum, decay and rates by hand."""
    data, _ = examples.multiclass()
    built = []
    train = loop.train

    def watched(model, *arguments, **options):
        built.append(model)
        return train(model, *arguments, **options)

    monkeypatch.setattr(loop, "train", watched)
    found = fit("mlp", data, SGD)
    X, X_test = (torch.tensor(part, dtype=torch.float32) for part in dense(data))
    y = torch.tensor(data.y.astype(np.int64))
    (model,) = built
    initialise(model, stream(9, "init", 0))
    for layer in model.modules():
        if isinstance(layer, nn.BatchNorm1d):
            layer.reset_running_stats()
            nn.init.ones_(layer.weight)
            nn.init.zeros_(layer.bias)
    velocity = [torch.zeros_like(weights) for weights in model.parameters()]
    order = stream(9, "batch", 0)
    for epoch in range(10):
        share = epoch / 10
        rate = 0.05 if share <= 0.5 else 0.05 * (1 - 0.99 * (share - 0.5) / 0.4)
        rate = 0.05 * 0.01 if share >= 0.9 else rate
        model.train()
        for rows in loop.batches(order, len(X), 32, 2):
            model.zero_grad()
            nn.functional.cross_entropy(model(X[rows]), y[rows]).backward()
            with torch.no_grad():
                for v, weights in zip(velocity, model.parameters(), strict=True):
                    v.mul_(0.8).add_(weights.grad + 5e-4 * weights)
                    weights.sub_(rate * v)
    with torch.no_grad():
        expected = model.eval()(X_test).numpy()
    np.testing.assert_allclose(found.scores[0], expected, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("name", NETWORKS)
def test_every_network_learns_by_it(name):
    data, y_test = NETWORKS[name]()
    options = {**examples.LEARNING[name], "optimizer": "sgd", "epochs": 12}
    options["hparams"] = {**options["hparams"], "lr": 0.05}
    found, plain = fit(name, data, options), fit(name, data)
    assert (found.label[-1] == y_test).mean() > 0.6
    assert not np.array_equal(found.scores[-1], plain.scores[-1])
    np.testing.assert_array_equal(found.scores, fit(name, data, options).scores)


def test_what_is_said_of_the_record_s_own_optimizer_changes_no_bit():
    data, _ = examples.multiclass()
    said = {**examples.OPTIONS["mlp"], "optimizer": "adamw", "schedule": "cosine"}
    np.testing.assert_array_equal(fit("mlp", data, said).scores, fit("mlp", data).scores)


def test_without_momentum_it_is_another_training():
    data, _ = examples.multiclass()
    one, none = (fit("mlp", data, {**SGD, "momentum": m}).scores for m in (0.9, 0))
    assert not np.array_equal(one, none)


def test_a_continued_training_keeps_its_momentum(tmp_path, monkeypatch):
    data, y_test = examples.multiclass()
    data = replace(data, y_test=y_test)
    whole = fit("mlp", data, {**SGD, "snapshots": [3]}, curves=True)
    checkpoint = Checkpoint(tmp_path / "one.checkpoint", "key", every=0.0)
    saved, save = [], loop.save

    def killed(*arguments):
        save(*arguments)
        saved.append(1)
        if len(saved) == 6:
            raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(loop, "save", killed)
        with pytest.raises(KeyboardInterrupt):
            fit("mlp", data, {**SGD, "snapshots": [3]}, curves=True, checkpoint=checkpoint)
    again = fit("mlp", data, {**SGD, "snapshots": [3]}, curves=True, checkpoint=checkpoint)
    np.testing.assert_array_equal(again.scores, whole.scores)
    for name, curve in whole.curves.items():
        np.testing.assert_array_equal(again.curves[name], curve)
