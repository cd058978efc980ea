"""The network of the tabular study (MV; after Martinez et al. 2017, arXiv 1705.03098): ``mlp``."""

from __future__ import annotations

from collections.abc import Mapping
from time import perf_counter
from typing import Any

import torch
from torch import Tensor, nn

from jobs.run import Generators, Prediction, TrainingSet
from jobs.training.device import torch_device
from jobs.training.encode import dense
from jobs.training.handling import Handling
from jobs.training.layers import Dropout, Linear, initialise, torch_generator
from jobs.training.loop import Plan, cosine
from jobs.training.network import fit_network


def fit(
    canonical: Mapping[str, Any],
    hparams: Mapping[str, Any],
    data: TrainingSet,
    generators: Generators,
    handling: Handling,
) -> Prediction:
    """Train with AdamW and a cosine schedule; see `jobs.classifiers.fit`."""
    started = perf_counter()
    place = torch_device(handling.device)
    X, X_test = dense(data)
    masks = torch_generator(generators.dropout, place)
    model = network(X.shape[1], data.n_classes, hparams, masks)
    initialise(model, generators.init)
    model.to(place)
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=hparams["lr"], weight_decay=hparams["weight_decay"], fused=True
    )
    plan = Plan(
        epochs=canonical["epochs"],
        batch_size=canonical["batch_size"],
        learning_rate=cosine(hparams["lr"], canonical["epochs"]),
        snapshots=handling.snapshots,
        smallest_batch=2,
    )
    order = generators.batch
    return fit_network(
        model, optimizer, X, X_test, data, plan, order, handling, started=started, masks=masks
    )


def network(
    n_features: int, n_classes: int, hparams: Mapping[str, Any], masks: torch.Generator
) -> nn.Module:
    """Build the network, its weights not yet initialised."""
    width1, width2, dropout = hparams["width1"], hparams["width2"], hparams["dropout"]
    return nn.Sequential(
        *_dense(n_features, width1),
        _Residual(width1, dropout, masks),
        *_dense(width1, width2),
        _Residual(width2, dropout, masks),
        Linear(width2, n_classes),
    )


def _dense(n_in: int, n_out: int) -> list[nn.Module]:
    return [Linear(n_in, n_out, bias=False), nn.BatchNorm1d(n_out), nn.LeakyReLU()]


class _Residual(nn.Module):
    """Two dense layers with dropout, and a connection that skips them."""

    def __init__(self, width: int, dropout: float, masks: torch.Generator) -> None:
        super().__init__()
        layers = [[*_dense(width, width), Dropout(dropout, masks)] for _ in range(2)]
        self.block = nn.Sequential(*layers[0], *layers[1])

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = x + self.block(x)
        return out
