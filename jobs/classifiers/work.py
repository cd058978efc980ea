"""What training a network of many convolutions takes, from its shape alone: nothing is built."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from manyseed.jobs.classifiers.record import ClassifierInfo
from manyseed.jobs.datasets.info import DatasetInfo


class Convolution(NamedTuple):
    """One of its convolutions: channels in and out, the kernel's side, pixels of its output.

    A linear layer is one of a kernel of 1 with one pixel.
    """

    inputs: int
    outputs: int
    kernel: int
    pixels: int

    @property
    def products(self) -> int:
        """Multiplications for a row."""
        return self.kernel**2 * self.inputs * self.outputs * self.pixels


# On one core, of training: of a step and layer, a row and layer, a value that a layer yields, with
# what follows it, and a product; the optimizer's step of a weight.
_STEP, _ROW, _VALUE, _PRODUCT, _WEIGHT = 1.3e-4, 6.1e-6, 4.2e-9, 3.0e-11, 5.1e-9


def core_seconds(info: ClassifierInfo, rows: float, layers: Iterable[Convolution]) -> float:
    """Return what a fit of such layers is expected to take on one core.

    Parameters
    ----------
    info : ClassifierInfo
        With its epochs, and rows per step in the hparam ``batch``.
    rows : float
        It is trained on.
    layers : iterable of Convolution
    """
    found = [*layers]
    weights = sum(each.kernel**2 * each.inputs * each.outputs for each in found)
    step = _STEP * len(found) + _WEIGHT * weights
    row = _ROW * len(found)
    row += sum(_VALUE * each.outputs * each.pixels + _PRODUCT * each.products for each in found)
    batch = min(float(info.hparams["batch"]), rows)
    return float(info.canonical["epochs"]) * rows * (step / batch + row)


def residual_blocks(
    counts: Sequence[int], channels: int, *, narrow: bool = False
) -> Iterator[tuple[tuple[int, int, int], ...]]:
    """Yield the convolutions of residual blocks: channels out, the kernel's side, the stride.

    Each stage but the first begins with a block of stride 2, and has twice the channels of the one
    before.

    Parameters
    ----------
    counts : sequence of int
        Blocks of each stage.
    channels : int
        Of the first stage.
    narrow : bool
        Whether blocks are bottlenecks, which have four times the channels out.
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
    """Yield the layers of residual blocks on an image, of their shortcuts, and the logits.

    Parameters
    ----------
    sides : tuple of int
        (height, width) of what comes in.
    inputs : int
        Its channels.
    blocks : iterable of sequences
        Of the convolutions of each block: channels out, the kernel's side, the stride.
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
