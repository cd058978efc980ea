"""Residual networks of images.

``resnet`` is that of He et al. (2016, arXiv 1512.03385) of depth 18, 34 or 50, ``preresnet`` the
pre-activation network of He et al. (2016, arXiv 1603.05027), ``wide-resnet`` that of Zagoruyko and
Komodakis (2016, arXiv 1605.07146). Shapes and defaults of the last two are those of PIT (Ashukha et
al. 2020, arXiv 2002.06470) and its code.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from manyseed.jobs.classifiers.images import (
    Convolution,
    deep_network,
    ranges,
    residual,
    residual_blocks,
)
from manyseed.jobs.classifiers.record import Options, Settings, with_optimizer
from manyseed.jobs.datasets.info import DatasetInfo
from manyseed.jobs.hparams.kinds import Categorical, Continuous, Ordinal
from manyseed.jobs.training.network import Named, Shape

if TYPE_CHECKING:
    import torch


BLOCKS: Mapping[int, tuple[int, ...]] = {18: (2, 2, 2, 2), 34: (3, 4, 6, 3), 50: (3, 4, 6, 3)}
"""Blocks of each stage, by depth."""

BOTTLENECKS = (50,)

SMALL = 64  # pixels of the longer side up to which the first layer keeps an image's size


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

    from manyseed.jobs.training.layers import ChannelsFirst, Conv2d, Linear, MeanOfPixels, Residual

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


DEPTHS = tuple(range(20, 201, 18))
"""18 n + 2, so that stages have whole numbers of blocks of two or of three convolutions."""


def preactivated_blocks(hparams: Named) -> Iterator[tuple[tuple[int, int, int], ...]]:
    """Return the convolutions of each block (`residual_blocks`)."""
    narrow = hparams["bottleneck"]
    counts = [(hparams["depth"] - 2) // (9 if narrow else 6)] * 3
    return residual_blocks(counts, hparams["width"], narrow=narrow)


def preactivated_network(
    shape: Shape, n_classes: int, _: Named, hparams: Named, *_masks: object
) -> torch.nn.Module:
    """Build a 3×3 convolution, three stages of pre-activated blocks, batch norm, ReLU, logits.

    The hparam ``width`` is the channels of the first stage. Parameters are those of
    `jobs.training.network.Network.build`.
    """
    from manyseed.jobs.training.layers import pre_activated

    return pre_activated(shape[2], hparams["width"], preactivated_blocks(hparams), n_classes)


def _preactivated_layers(dataset: DatasetInfo, hparams: Named) -> Iterator[Convolution]:
    assert dataset.image is not None
    height, width, inputs = dataset.image
    yield Convolution(inputs, hparams["width"], 3, height * width)
    yield from residual((height, width), hparams["width"], preactivated_blocks(hparams), dataset)


PRERESNET = deep_network(
    "preresnet",
    preactivated_network,
    _preactivated_layers,
    space=ranges(lr=0.1, weight_decay=3e-4, batch=128),
    hparams=(
        Ordinal("depth", DEPTHS, 110, structural=True),
        Ordinal("width", range(1, 129), 16, structural=True),
        Categorical("bottleneck", (False, True), default=True, structural=True),
    ),
    epochs=300,
    # the stem is linear, so interpolating its output would be interpolating the input
    first_block="block1",
)


STEM = 16  # channels of the first convolution, and of the first stage at width 1


def wide_blocks(hparams: Named) -> Iterator[tuple[tuple[int, int, int], ...]]:
    """Return the convolutions of each block (`residual_blocks`)."""
    return residual_blocks([(hparams["depth"] - 4) // 6] * 3, STEM * hparams["width"])


def wide_network(
    shape: Shape, n_classes: int, _: Named, hparams: Named, masks: torch.Generator
) -> torch.nn.Module:
    """Build a 3×3 convolution, three stages of pre-activated blocks, batch norm, ReLU, logits.

    Dropout precedes the second convolution of each block; the hparam ``width`` is the paper's k.
    Parameters are those of `jobs.training.network.Network.build`.
    """
    from manyseed.jobs.training.layers import pre_activated

    return pre_activated(
        shape[2],
        STEM,
        wide_blocks(hparams),
        n_classes,
        dropout=(hparams["dropout"], masks),
        activated_shortcut=True,
    )


def _wide_layers(dataset: DatasetInfo, hparams: Named) -> Iterator[Convolution]:
    assert dataset.image is not None
    height, width, inputs = dataset.image
    yield Convolution(inputs, STEM, 3, height * width)
    yield from residual((height, width), STEM, wide_blocks(hparams), dataset)


WIDE_RESNET = deep_network(
    "wide-resnet",
    wide_network,
    _wide_layers,
    space=ranges(lr=0.1, weight_decay=5e-4, batch=128),
    hparams=(
        Continuous("dropout", 0.0, 0.8, 0.0),
        Ordinal("depth", tuple(range(10, 41, 6)), 28, structural=True),
        Ordinal("width", range(1, 21), 10, structural=True),
    ),
    epochs=300,
    # the stem is linear, so interpolating its output would be interpolating the input
    first_block="block1",
)
