"""Estimate the training time of a convolutional network from its shape, without building it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from manyseed.jobs.classifiers.record import ClassifierInfo
from manyseed.jobs.datasets.info import DatasetInfo


class Convolution(NamedTuple):
    """A convolution: channels in and out, side of the kernel, pixels of the output.

    A linear layer counts as a convolution with kernel 1 on one pixel.
    """

    inputs: int
    outputs: int
    kernel: int
    pixels: int

    @property
    def products(self) -> int:
        """Multiplications per row."""
        return self.kernel**2 * self.inputs * self.outputs * self.pixels


# Seconds of training on one core: per step and layer; per row and layer; per output value of a
# layer, including the layers that follow it; per multiplication; per weight in an optimizer's step.
_STEP, _ROW, _VALUE, _PRODUCT, _WEIGHT = 1.3e-4, 6.1e-6, 4.2e-9, 3.0e-11, 5.1e-9


def core_seconds(info: ClassifierInfo, rows: float, layers: Iterable[Convolution]) -> float:
    """Estimate the seconds that a fit of such layers takes on one core.

    Parameters
    ----------
    info : ClassifierInfo
        With its epochs, and rows per step in the hparam ``batch``.
    rows : float
        Training rows.
    layers : iterable of Convolution
    """
    layers = [*layers]
    weights = sum(each.kernel**2 * each.inputs * each.outputs for each in layers)
    step = _STEP * len(layers) + _WEIGHT * weights
    row = _ROW * len(layers)
    row += sum(_VALUE * each.outputs * each.pixels + _PRODUCT * each.products for each in layers)
    batch = min(float(info.hparams["batch"]), rows)
    return float(info.canonical["epochs"]) * rows * (step / batch + row)


def residual_blocks(
    counts: Sequence[int], channels: int, *, narrow: bool = False
) -> Iterator[tuple[tuple[int, int, int], ...]]:
    """Yield the convolutions of each residual block: channels out, side of the kernel, stride.

    Each stage after the first begins with a block of stride 2 and has twice as many channels as the
    one before.

    Parameters
    ----------
    counts : sequence of int
        Blocks of each stage.
    channels : int
        Channels of the first stage.
    narrow : bool
        Whether blocks are bottlenecks, with four times as many channels out.
    """
    for stage, count in enumerate(counts):
        wide = 2**stage * channels
        for place in range(count):
            stride = 2 if stage and not place else 1
            if narrow:
                yield ((wide, 1, 1), (wide, 3, stride), (4 * wide, 1, 1))
            else:
                yield ((wide, 3, stride), (wide, 3, 1))


def residual(
    sides: tuple[int, int],
    inputs: int,
    blocks: Iterable[Sequence[tuple[int, int, int]]],
    dataset: DatasetInfo,
) -> Iterator[Convolution]:
    """Yield the convolutions of residual blocks and their shortcuts, and the layer of logits.

    Parameters
    ----------
    sides : tuple of int
        (height, width) of the first block's input.
    inputs : int
        Channels of that input.
    blocks : iterable of sequences
        The convolutions of each block, as from `residual_blocks`.
    dataset : DatasetInfo
    """
    height, width = sides
    for steps in blocks:
        channels, stride = inputs, 1
        for outputs, kernel, step in steps:
            height, width = -(-height // step), -(-width // step)
            yield Convolution(channels, outputs, kernel, height * width)
            channels, stride = outputs, stride * step
        if stride != 1 or channels != inputs:
            yield Convolution(inputs, channels, 1, height * width)
        inputs = channels
    yield Convolution(inputs, len(dataset.class_names), 1, 1)
