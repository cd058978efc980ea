"""Wide residual networks (Zagoruyko and Komodakis 2016, arXiv 1605.07146): ``wide-resnet``.

Defaults are those of PIT (Ashukha et al. 2020, arXiv 2002.06470).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from manyseed.jobs.classifiers.images import by_sgd, he_normal, network_on_pixels, ranges
from manyseed.jobs.classifiers.record import ClassifierInfo
from manyseed.jobs.classifiers.work import Convolution, core_seconds, residual
from manyseed.jobs.datasets.info import DatasetInfo
from manyseed.jobs.hparams.kinds import Continuous, Ordinal

if TYPE_CHECKING:
    import torch

STEM = 16
"""Channels of the first convolution, and of a stage of width 1."""


def blocks(hparams: Mapping[str, Any]) -> Iterator[tuple[tuple[int, int, int], ...]]:
    """Yield the convolutions of each block: channels out, kernel, stride."""
    for stage in range(3):
        channels = 2**stage * STEM * hparams["width"]
        for place in range((hparams["depth"] - 4) // 6):
            yield ((channels, 3, 2 if stage and not place else 1), (channels, 3, 1))


def network(
    shape: tuple[int, ...],
    n_classes: int,
    _: Mapping[str, Any],
    hparams: Mapping[str, Any],
    masks: torch.Generator,
) -> torch.nn.Module:
    """Build a 3×3 convolution, three stages of pre-activated blocks, batch norm, ReLU, logits.

    Parameters
    ----------
    shape : tuple of int
        (height, width, channels).
    n_classes : int
    _
        The settings, which do not shape it.
    hparams : mapping
        With dropout (before the second convolution of each block), depth and width (k).
    masks : torch.Generator
        Draws dropout.
    """
    from torch import nn

    from manyseed.jobs.training.layers import ChannelsFirst, Conv2d, Linear, MeanOfPixels
    from manyseed.jobs.training.residual import PreActivated

    layers: dict[str, nn.Module] = {
        "images": ChannelsFirst(),
        "stem": Conv2d(shape[2], STEM, 3, padding=1, bias=False),
    }
    channels, dropout = STEM, (hparams["dropout"], masks)
    for number, steps in enumerate(blocks(hparams), 1):
        layers[f"block{number}"] = PreActivated(channels, steps, dropout, activated_shortcut=True)
        channels = steps[-1][0]
    layers |= {"norm": nn.BatchNorm2d(channels), "relu": nn.ReLU(), "mean": MeanOfPixels()}
    layers["logits"] = Linear(channels, n_classes)
    return nn.Sequential(OrderedDict(layers))


def _layers(dataset: DatasetInfo, hparams: Mapping[str, Any]) -> Iterator[Convolution]:
    assert dataset.image is not None
    height, width, inputs = dataset.image
    yield Convolution(inputs, STEM, 3, height * width)
    yield from residual((height, width), STEM, blocks(hparams), dataset)


def _core_seconds(dataset: DatasetInfo, info: ClassifierInfo, rows: float) -> float:
    return core_seconds(info, rows, _layers(dataset, info.hparams))


WIDE_RESNET = network_on_pixels(
    "wide-resnet",
    network,
    space=ranges(lr=0.1, weight_decay=5e-4, batch=128),
    hparams=(
        Continuous("dropout", 0.0, 0.8, 0.0),
        Ordinal("depth", tuple(range(10, 41, 6)), 28, structural=True),
        Ordinal("width", range(1, 21), 10, structural=True),
    ),
    settings=by_sgd,
    epochs=300,
    core_seconds=_core_seconds,
    initialise=he_normal,
    smallest_batch=2,
    # the stem is linear: its output's interpolations are those of the input
    first_block="block1",
)
