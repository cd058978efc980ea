"""``mlp``: the network of the tabular study (MV; after Martinez et al. 2017, arXiv 1705.03098)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

from manyseed.jobs.classifiers.record import (
    BATCH_SIZE,
    OPTIONS,
    STACK,
    TORCH,
    Classifier,
    ClassifierInfo,
    Options,
    with_optimizer,
)
from manyseed.jobs.datasets.info import DatasetInfo
from manyseed.jobs.hparams.kinds import Continuous, Ordinal
from manyseed.jobs.training.encode import dense_encoder
from manyseed.jobs.training.network import Named, Network, Shape

if TYPE_CHECKING:
    import torch

SizeClass = Literal["small", "medium", "large"]

_BATCH: Mapping[SizeClass, int] = {"small": 64, "medium": 1024, "large": 2048}


def network(
    shape: Shape, n_classes: int, _: Named, hparams: Named, masks: torch.Generator
) -> torch.nn.Module:
    """Build two dense layers, each followed by a residual block with dropout, and logits.

    Parameters are those of `jobs.training.network.Network.build`.
    """
    from torch import nn

    from manyseed.jobs.training.layers import Dropout, Linear, SkipConnection

    def dense_layer(n_in: int, n_out: int) -> list[nn.Module]:
        return [Linear(n_in, n_out, bias=False), nn.BatchNorm1d(n_out), nn.LeakyReLU()]

    def residual(width: int) -> nn.Module:
        layers = [*dense_layer(width, width), Dropout(hparams["dropout"], masks)]
        again = [*dense_layer(width, width), Dropout(hparams["dropout"], masks)]
        return SkipConnection(*layers, *again)

    width1, width2 = hparams["width1"], hparams["width2"]
    return nn.Sequential(
        *dense_layer(shape[0], width1),
        residual(width1),
        *dense_layer(width1, width2),
        residual(width2),
        Linear(width2, n_classes),
    )


def size_class(n_train: int) -> SizeClass:
    """Return the size class of a dataset with so many training rows."""
    if n_train < 2_000:
        return "small"
    return "medium" if n_train < 50_000 else "large"


def _settings(dataset: DatasetInfo, options: Options) -> Mapping[str, Any]:
    batch_size = _BATCH[size_class(dataset.n_train)]
    own = {"batch_size": batch_size, "optimizer": "adamw", "schedule": "cosine"}
    return with_optimizer(own, options)


# Seconds of training on one core: per step; per weight and step, including the optimizer; per row;
# per row and output value of a layer, including the layers that follow it; per row and weight.
_STEP, _STEP_WEIGHT, _ROW, _VALUE, _ROW_WEIGHT = 8e-4, 3e-9, 1.5e-6, 8e-9, 7.2e-11


def _core_seconds(dataset: DatasetInfo, info: ClassifierInfo, rows: float) -> float:
    first, second = (float(info.hparams[name]) for name in ("width1", "width2"))
    weights = first * (dataset.n_features + 2 * first + second)
    weights += second * (2 * second + len(dataset.class_names))
    step = _STEP + _STEP_WEIGHT * weights
    row = _ROW + _VALUE * 3 * (first + second) + _ROW_WEIGHT * weights
    batch = min(float(info.canonical["batch_size"]), rows)
    return float(info.canonical["epochs"]) * rows * (step / batch + row)


MLP = Classifier(
    name="mlp",
    space=(
        Continuous("lr", 1e-5, 0.5, 3e-4, log=True),
        Continuous("weight_decay", 1e-8, 0.5, 1e-4, log=True),
        Continuous("dropout", 0.0, 0.8, 0.1),
        Ordinal("width1", range(32, 1025), 512),
        # The study's networks had width 256; its table says 512, which never took effect.
        Ordinal("width2", range(32, 1025), 256),
    ),
    probability="softmax",
    streams=frozenset({"init", "batch"}),
    settings=_settings,
    options={**OPTIONS, **BATCH_SIZE, **STACK},
    epochs=20,
    augments=True,
    core_seconds=_core_seconds,
    packages=("torch",),
    imports=TORCH,
    fit=Network(
        build=network, encoder=dense_encoder, smallest_batch=2, first_block="2", stacks=True
    ),
)
