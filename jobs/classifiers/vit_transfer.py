"""A linear head on the features of a pretrained, frozen vision backbone (RKS): ``vit-transfer``."""

from __future__ import annotations

from collections.abc import Mapping
from time import perf_counter
from typing import Any

import torch

from jobs.classifiers.features import features
from jobs.run import Generators, Prediction, TrainingSet
from jobs.training.device import torch_device
from jobs.training.handling import Handling
from jobs.training.layers import Linear, initialise
from jobs.training.loop import Plan, constant
from jobs.training.network import fit_network


def fit(
    canonical: Mapping[str, Any],
    hparams: Mapping[str, Any],
    data: TrainingSet,
    generators: Generators,
    handling: Handling,
) -> Prediction:
    """Train the last layer with Adam at a constant learning rate; see `jobs.classifiers.fit`.

    `fit_seconds` leave out the features, which a dataset's runs share.
    """
    place = torch_device(handling.device)
    X, X_test = features(canonical["backbone"], canonical["weights"], data, place)
    started = perf_counter()
    model = Linear(X.shape[1], data.n_classes)
    initialise(model, generators.init)
    model.to(place)
    optimizer = torch.optim.Adam(
        model.parameters(), lr=hparams["lr"], weight_decay=hparams["weight_decay"], fused=True
    )
    plan = Plan(
        epochs=canonical["epochs"],
        batch_size=hparams["batch"],
        learning_rate=constant(hparams["lr"]),
        snapshots=handling.snapshots,
    )
    return fit_network(
        model, optimizer, X, X_test, data, plan, generators.batch, handling, started=started
    )
