"""``cnn``: the convolutional network of the CIFAR-10 study (RKS), for images of any size."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Any

from manyseed.jobs.classifiers.images import network_on_pixels
from manyseed.jobs.classifiers.record import ClassifierInfo
from manyseed.jobs.datasets.info import DatasetInfo

if TYPE_CHECKING:
    import torch


def cnn_network(shape: tuple[int, ...], n_classes: int, *_: Any) -> torch.nn.Module:
    """Build 3×3 convolutions to 32 and 16 channels with 2×2 max-pooling, 64 hidden units, logits.

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


def _cnn_seconds(dataset: DatasetInfo, info: ClassifierInfo, rows: float) -> float:
    step = 1e-3 / min(float(info.hparams["batch"]), rows)
    return float(info.canonical["epochs"]) * rows * (step + 1.2e-7 * dataset.n_features)


CNN = network_on_pixels("cnn", cnn_network, core_seconds=_cnn_seconds, first_block="relu1")
