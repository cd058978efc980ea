"""Convolutional networks of images without residual connections.

``cnn`` is that of the CIFAR-10 study (RKS). ``convnet`` has any depth and width; its hparams depth,
width and batch_norm are structural: a grid of them gives a family of networks on which complexity
measures can be compared. ``vgg`` is that of Simonyan and Zisserman (2015, arXiv 1409.1556) in PIT's
variant: depth 11, 13, 16 or 19, with or without batch norm; two hidden layers of 512 units after
dropout (PIT, Ashukha et al. 2020, arXiv 2002.06470, appendix D).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from manyseed.jobs.classifiers.images import (
    Convolution,
    by_sgd,
    deep_network,
    network_on_pixels,
    ranges,
)
from manyseed.jobs.classifiers.record import ClassifierInfo, Options, Settings, Unsuitable
from manyseed.jobs.datasets.info import DatasetInfo
from manyseed.jobs.hparams.kinds import Categorical, Continuous, Ordinal
from manyseed.jobs.training.network import Named, Shape

if TYPE_CHECKING:
    import torch


def network(
    shape: Shape, n_classes: int, _: Named, hparams: Named, *_masks: object
) -> torch.nn.Module:
    """Build `depth` 3×3 convolutions of `width` channels, one 2×2 max-pooling, logits.

    ReLU follows each convolution, after batch norm if requested. Convolutions keep the image's
    size; pooling rounds odd sizes up, so any image will do. The last ReLU follows the pooling: the
    same numbers for a quarter of the work. Parameters are those of
    `jobs.training.network.Network.build`.
    """
    from torch import nn

    from manyseed.jobs.training.layers import ChannelsFirst, Conv2d, Linear

    height, width, channels = shape
    depth, filters, norm = hparams["depth"], hparams["width"], hparams["batch_norm"]
    layers: dict[str, nn.Module] = {"images": ChannelsFirst()}
    for number in range(1, depth + 1):
        # a batch norm has a bias of its own
        layers[f"conv{number}"] = Conv2d(channels, filters, 3, padding=1, bias=not norm)
        if norm:
            layers[f"norm{number}"] = nn.BatchNorm2d(filters)
        if number == depth:
            layers["pool"] = nn.MaxPool2d(2, ceil_mode=True)
        layers[f"relu{number}"] = nn.ReLU()
        channels = filters
    layers["flat"] = nn.Flatten()
    layers["logits"] = Linear(filters * -(-height // 2) * -(-width // 2), n_classes)
    return nn.Sequential(OrderedDict(layers))


def _core_seconds(dataset: DatasetInfo, info: ClassifierInfo, rows: float) -> float:
    assert dataset.image is not None
    height, width, channels = dataset.image
    depth, filters = (int(info.hparams[name]) for name in ("depth", "width"))
    layers = depth * (1.5 if info.hparams["batch_norm"] else 1.0)
    step = (5e-4 + 1.5e-4 * layers) / int(info.hparams["batch"])
    products = 9 * filters * (channels + (depth - 1) * filters)
    pixel = 4.7e-9 * filters * layers + 3e-11 * products
    return float(info.canonical["epochs"]) * rows * (step + 3.6e-6 + height * width * pixel)


CONVNET = network_on_pixels(
    "convnet",
    network,
    hparams=(
        Ordinal("depth", range(1, 17), 2, structural=True),
        Ordinal("width", range(1, 513), 16, structural=True),
        Categorical("batch_norm", (False, True), default=False, structural=True),
    ),
    epochs=40,
    core_seconds=_core_seconds,
    smallest_batch=2,
    first_block="relu1",
)


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


STAGES: Mapping[int, tuple[int, ...]] = {
    11: (1, 1, 2, 2, 2),
    13: (2, 2, 2, 2, 2),
    16: (2, 2, 3, 3, 3),
    19: (2, 2, 4, 4, 4),
}
"""Convolutions per stage, by depth; each stage ends with a pooling."""

CHANNELS = (1, 2, 4, 8, 8)  # channels of each stage, as multiples of the width

HIDDEN = 8  # units of each hidden layer, as a multiple of the width

SMALLEST = 17
"""Least pixels of the shorter side with which all five poolings have something to pool."""


def vgg_network(
    shape: Shape, n_classes: int, _: Named, hparams: Named, masks: torch.Generator
) -> torch.nn.Module:
    """Build five stages of 3×3 convolutions, each with 2×2 max-pooling, and two hidden layers.

    Convolutions keep the image's size, pooling rounds odd sizes up: 32×32 pixels become 1×1. ReLU
    follows the pooling: the same numbers for a quarter of the work. The hparam ``width`` is the
    channels of the first stage. Parameters are those of `jobs.training.network.Network.build`.
    """
    from torch import nn

    from manyseed.jobs.training.layers import ChannelsFirst, Conv2d, Dropout, Linear

    height, width, inputs = shape
    layers: dict[str, nn.Module] = {"images": ChannelsFirst()}
    number = 0
    for count, times in zip(STAGES[hparams["depth"]], CHANNELS, strict=True):
        outputs = times * hparams["width"]
        for place in range(count):
            number += 1
            layers[f"conv{number}"] = Conv2d(inputs, outputs, 3, padding=1)
            if hparams["batch_norm"]:
                layers[f"norm{number}"] = nn.BatchNorm2d(outputs)
            if place == count - 1:
                layers[f"pool{number}"] = nn.MaxPool2d(2, ceil_mode=True)
                height, width = -(-height // 2), -(-width // 2)
            layers[f"relu{number}"] = nn.ReLU()
            inputs = outputs
    layers["flat"] = nn.Flatten()
    units, inputs = HIDDEN * hparams["width"], inputs * height * width
    for hidden in (1, 2):
        layers[f"dropout{hidden}"] = Dropout(hparams["dropout"], masks)
        layers[f"hidden{hidden}"] = Linear(inputs, units)
        layers[f"relu_hidden{hidden}"] = nn.ReLU()
        inputs = units
    layers["logits"] = Linear(units, n_classes)
    return nn.Sequential(OrderedDict(layers))


def _layers(dataset: DatasetInfo, hparams: Named) -> Iterator[Convolution]:
    assert dataset.image is not None
    height, width, inputs = dataset.image
    for count, times in zip(STAGES[hparams["depth"]], CHANNELS, strict=True):
        for _ in range(count):
            outputs = times * hparams["width"]
            yield Convolution(inputs, outputs, 3, height * width)
            inputs = outputs
        height, width = -(-height // 2), -(-width // 2)
    units = HIDDEN * hparams["width"]
    for taken in (inputs * height * width, units):
        yield Convolution(taken, units, 1, 1)
    yield Convolution(units, len(dataset.class_names), 1, 1)


def _settings(dataset: DatasetInfo, options: Options) -> Settings:
    assert dataset.image is not None
    height, width, _ = dataset.image
    if min(height, width) < SMALLEST:
        reason = (
            f"vgg pools five times, so it needs images of {SMALLEST} × {SMALLEST} pixels or more, "
            f"and these have {height} × {width}: take resnet or convnet"
        )
        raise Unsuitable("image", dataset.image, reason)
    return by_sgd(dataset, options)


VGG = deep_network(
    "vgg",
    vgg_network,
    _layers,
    space=ranges(lr=0.05, weight_decay=5e-4, batch=128),
    hparams=(
        Continuous("dropout", 0.0, 0.8, 0.5),
        Ordinal("depth", tuple(STAGES), 16, structural=True),
        Ordinal("width", range(1, 257), 64, structural=True),
        Categorical("batch_norm", (False, True), default=True, structural=True),
    ),
    settings=_settings,
    epochs=400,
    first_block="relu1",
)
