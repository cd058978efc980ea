"""The network of the tabular study (MV; after Martinez et al. 2017, arXiv 1705.03098): ``mlp``."""

from __future__ import annotations

import math
from collections.abc import Mapping
from time import perf_counter
from typing import Any

import torch
from torch import Tensor, nn

from jobs.classifiers.registry import Device
from jobs.run import Generators, Prediction, TrainingSet
from jobs.training.encode import dense
from jobs.training.layers import Dropout, Linear, initialise, torch_generator
from jobs.training.loop import Plan, owned, torch_device, train
from jobs.training.prediction import logit_scores, prediction


def fit(
    canonical: Mapping[str, Any],
    hparams: Mapping[str, Any],
    data: TrainingSet,
    generators: Generators,
    snapshots: tuple[int, ...],
    device: Device,
) -> Prediction:
    """Train with AdamW and a cosine schedule; see `jobs.classifiers.fit`."""
    started = perf_counter()
    place = torch_device(device)
    X, X_test = dense(data)
    masks = torch_generator(generators.dropout, place)
    model = network(X.shape[1], data.n_classes, hparams, masks)
    initialise(model, generators.init)
    model.to(place)
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=hparams["lr"], weight_decay=hparams["weight_decay"], fused=True
    )
    epochs = canonical["epochs"]
    plan = Plan(
        epochs=epochs,
        batch_size=canonical["batch_size"],
        learning_rate=lambda epoch: hparams["lr"] * (1 + math.cos(math.pi * epoch / epochs)) / 2,
        snapshots=snapshots,
        smallest_batch=2,
    )
    logits, predicting = train(
        model,
        optimizer,
        owned(X, place, torch.float32),
        owned(data.y, place, torch.int64),
        owned(X_test, place, torch.float32),
        plan,
        generators.batch,
    )
    seconds = perf_counter() - started - predicting
    return prediction(logit_scores(logits), "softmax", seconds)


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
