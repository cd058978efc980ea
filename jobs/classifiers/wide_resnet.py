"""``wide-resnet``: wide residual networks (Zagoruyko and Komodakis 2016, arXiv 1605.07146).

Defaults are those of PIT (Ashukha et al. 2020, arXiv 2002.06470).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from manyseed.jobs.classifiers.images import deep_network, ranges
from manyseed.jobs.classifiers.work import Convolution, residual, residual_blocks
from manyseed.jobs.datasets.info import DatasetInfo
from manyseed.jobs.hparams.kinds import Continuous, Ordinal
from manyseed.jobs.training.network import Named, Shape

if TYPE_CHECKING:
    import torch

STEM = 16
"""Channels of the first convolution, and of the first stage at width 1."""


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
    from manyseed.jobs.training.residual import pre_activated

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
