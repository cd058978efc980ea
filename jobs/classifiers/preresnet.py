"""``preresnet``: pre-activation residual networks (He et al. 2016, arXiv 1603.05027).

Shapes and defaults are those of PIT (Ashukha et al. 2020, arXiv 2002.06470) and its code.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from manyseed.jobs.classifiers.images import deep_network, ranges
from manyseed.jobs.classifiers.work import Convolution, residual, residual_blocks
from manyseed.jobs.datasets.info import DatasetInfo
from manyseed.jobs.hparams.kinds import Categorical, Ordinal
from manyseed.jobs.training.network import Named, Shape

if TYPE_CHECKING:
    import torch

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
    from manyseed.jobs.training.residual import pre_activated

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
