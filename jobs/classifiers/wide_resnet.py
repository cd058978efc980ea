"""Wide residual networks (Zagoruyko and Komodakis 2016, arXiv 1605.07146): ``wide-resnet``.

Defaults are those of PIT (Ashukha et al. 2020, arXiv 2002.06470).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from manyseed.jobs.classifiers.images import deep_network, ranges
from manyseed.jobs.classifiers.work import Convolution, residual, residual_blocks
from manyseed.jobs.datasets.info import DatasetInfo
from manyseed.jobs.hparams.kinds import Continuous, Ordinal

if TYPE_CHECKING:
    import torch

STEM = 16
"""Channels of the first convolution, and of a stage of width 1."""


def blocks(hparams: Mapping[str, Any]) -> Iterator[tuple[tuple[int, int, int], ...]]:
    """Return the convolutions of each block: channels out, kernel, stride."""
    return residual_blocks([(hparams["depth"] - 4) // 6] * 3, STEM * hparams["width"])


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
    from manyseed.jobs.training.residual import pre_activated

    return pre_activated(
        shape[2],
        STEM,
        blocks(hparams),
        n_classes,
        dropout=(hparams["dropout"], masks),
        activated_shortcut=True,
    )


def _layers(dataset: DatasetInfo, hparams: Mapping[str, Any]) -> Iterator[Convolution]:
    assert dataset.image is not None
    height, width, inputs = dataset.image
    yield Convolution(inputs, STEM, 3, height * width)
    yield from residual((height, width), STEM, blocks(hparams), dataset)


WIDE_RESNET = deep_network(
    "wide-resnet",
    network,
    _layers,
    space=ranges(lr=0.1, weight_decay=5e-4, batch=128),
    hparams=(
        Continuous("dropout", 0.0, 0.8, 0.0),
        Ordinal("depth", tuple(range(10, 41, 6)), 28, structural=True),
        Ordinal("width", range(1, 21), 10, structural=True),
    ),
    epochs=300,
    # the stem is linear: its output's interpolations are those of the input
    first_block="block1",
)
