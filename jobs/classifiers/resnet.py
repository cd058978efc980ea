"""``resnet``: residual networks (He et al. 2016, arXiv 1512.03385) of depth 18, 34 or 50."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from manyseed.jobs.classifiers.images import deep_network, ranges
from manyseed.jobs.classifiers.optimizers import with_optimizer
from manyseed.jobs.classifiers.record import Options, Settings
from manyseed.jobs.classifiers.work import Convolution, residual, residual_blocks
from manyseed.jobs.datasets.info import DatasetInfo
from manyseed.jobs.hparams.kinds import Ordinal
from manyseed.jobs.training.network import Named, Shape

if TYPE_CHECKING:
    import torch

BLOCKS: Mapping[int, tuple[int, ...]] = {18: (2, 2, 2, 2), 34: (3, 4, 6, 3), 50: (3, 4, 6, 3)}
"""Blocks of each stage, by depth."""

BOTTLENECKS = (50,)

SMALL = 64
"""Pixels of the longer side up to which the first layer keeps an image's size."""


def blocks(hparams: Named) -> Iterator[tuple[tuple[int, int, int], ...]]:
    """Return the convolutions of each block (`residual_blocks`)."""
    depth = hparams["depth"]
    return residual_blocks(BLOCKS[depth], hparams["width"], narrow=depth in BOTTLENECKS)


def network(
    shape: Shape, n_classes: int, _: Named, hparams: Named, *_masks: object
) -> torch.nn.Module:
    """Build a stem, four stages of residual blocks, the mean of all pixels, logits.

    For images up to 64 pixels the stem is a 3×3 convolution of stride 1, as is usual for CIFAR; for
    larger ones it is a 7×7 convolution of stride 2 and 3×3 max-pooling of stride 2, as published.
    At depth 50 blocks are bottlenecks with the stride in the 3×3 convolution. The hparam ``width``
    is the channels of the first stage. Parameters are those of
    `jobs.training.network.Network.build`.
    """
    from torch import nn

    from manyseed.jobs.training.layers import ChannelsFirst, Conv2d, Linear, MeanOfPixels
    from manyseed.jobs.training.residual import Residual

    *sides, inputs = shape
    channels, small = hparams["width"], max(sides) <= SMALL
    stem: list[nn.Module] = [
        Conv2d(inputs, channels, 3, padding=1, bias=False)
        if small
        else Conv2d(inputs, channels, 7, 2, padding=3, bias=False),
        nn.BatchNorm2d(channels),
        # pooling before ReLU: the same numbers for less work
        nn.Identity() if small else nn.MaxPool2d(3, 2, padding=1),
        nn.ReLU(),
    ]
    layers: dict[str, nn.Module] = {"images": ChannelsFirst(), "stem": nn.Sequential(*stem)}
    for number, steps in enumerate(blocks(hparams), 1):
        layers[f"block{number}"] = Residual(channels, steps)
        channels = steps[-1][0]
    layers["mean"] = MeanOfPixels()
    layers["logits"] = Linear(channels, n_classes)
    return nn.Sequential(OrderedDict(layers))


def _layers(dataset: DatasetInfo, hparams: Named) -> Iterator[Convolution]:
    assert dataset.image is not None
    height, width, inputs = dataset.image
    large = max(height, width) > SMALL
    if large:
        height, width = -(-height // 2), -(-width // 2)
    yield Convolution(inputs, hparams["width"], 7 if large else 3, height * width)
    if large:
        height, width = -(-height // 2), -(-width // 2)
    yield from residual((height, width), hparams["width"], blocks(hparams), dataset)


def _settings(_: DatasetInfo, options: Options) -> Settings:
    return with_optimizer({"optimizer": "adam", "schedule": "plateau"}, options)


RESNET = deep_network(
    "resnet",
    network,
    _layers,
    space=ranges(lr=1e-4, weight_decay=1e-8, batch=1024),
    hparams=(
        Ordinal("depth", tuple(BLOCKS), 18, structural=True),
        Ordinal("width", range(1, 257), 64, structural=True),
    ),
    settings=_settings,
    epochs=100,
    first_block="stem",
)
