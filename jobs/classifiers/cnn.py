"""The convolutional network of the CIFAR-10 study (RKS), for images of any size: ``cnn``."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Any

import numpy as np

from manyseed.jobs.classifiers.optimizers import OPTIONS, with_optimizer
from manyseed.jobs.classifiers.record import Classifier, ClassifierInfo
from manyseed.jobs.datasets.info import DatasetInfo
from manyseed.jobs.hparams.kinds import Continuous, Hparam, Ordinal
from manyseed.jobs.training.encode import pixels
from manyseed.jobs.training.network import Network

if TYPE_CHECKING:
    import torch

IMAGES: tuple[Hparam, ...] = (
    Continuous("lr", 1e-5, 0.1, 1e-3, log=True),
    Continuous("weight_decay", 1e-8, 0.1, 1e-8, log=True),
    Ordinal("batch", (16, 32, 64, 128), 32),
)
"""The space of all networks for images: a choice, since their sources give no ranges."""

_BATCH = 32  # of the measured times


def network(shape: tuple[int, ...], n_classes: int, *_: Any) -> torch.nn.Module:
    """Build convolutions 3×3 to 32 and 16 channels, each with 2×2 max-pooling; 64 hidden; logits.

    Convolutions keep the image's size; pooling rounds odd sizes up, so any image will do. ReLU
    follows the pooling: the same numbers for a quarter of the work.
    """
    from torch import nn

    from manyseed.jobs.training.layers import ChannelsFirst, Conv2d, Linear

    height, width, channels = shape
    layers: dict[str, nn.Module] = {
        "images": ChannelsFirst(),
        "conv1": Conv2d(channels, 32, 3, padding=1),
        "pool1": nn.MaxPool2d(2, ceil_mode=True),
        "relu1": nn.ReLU(),
        "conv2": Conv2d(32, 16, 3, padding=1),
        "pool2": nn.MaxPool2d(2, ceil_mode=True),
        "relu2": nn.ReLU(),
        "flat": nn.Flatten(),
        "hidden": Linear(16 * -(-height // 4) * -(-width // 4), 64),
        "relu3": nn.ReLU(),
        "logits": Linear(64, n_classes),
    }
    return nn.Sequential(OrderedDict(layers))


def initialise(model: torch.nn.Module, stream: np.random.Generator) -> None:
    """Fill all weights of a network of convolutions from a run's stream."""
    import torch
    from torch.nn.utils import convert_conv2d_weight_memory_format

    from manyseed.jobs.training import layers

    layers.initialise(model, stream)
    convert_conv2d_weight_memory_format(model, torch.channels_last)  # faster; the same numbers


def _core_seconds(dataset: DatasetInfo, info: ClassifierInfo, rows: float) -> float:
    return float(info.canonical["epochs"]) * rows * (2.5e-3 / _BATCH + 2e-7 * dataset.n_features)


CNN = Classifier(
    name="cnn",
    space=IMAGES,
    probability="softmax",
    streams=frozenset({"init", "batch"}),
    settings=lambda _, options: with_optimizer(
        {"optimizer": "adam", "schedule": "constant"}, options
    ),
    options=OPTIONS,
    epochs=50,
    images_only=True,
    core_seconds=_core_seconds,
    packages=("torch",),
    fit=Network(
        build=network,
        encode=lambda data, *_: pixels(data),
        initialise=initialise,
        first_block="relu1",
    ),
)
