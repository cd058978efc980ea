"""Shared parts of the records of image networks; their training time, from their shape."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from manyseed.jobs.checks import Refused
from manyseed.jobs.classifiers.record import (
    OPTIONS,
    STACK,
    TORCH,
    Classifier,
    ClassifierInfo,
    Options,
    Settings,
    with_optimizer,
)
from manyseed.jobs.datasets.info import DatasetInfo
from manyseed.jobs.hparams.kinds import Continuous, Hparam, Ordinal
from manyseed.jobs.training.encode import pixel_encoder
from manyseed.jobs.training.network import Build, FirstBlock, Network

if TYPE_CHECKING:
    import torch


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

    `info`: with its epochs, and rows per step in the hparam ``batch``. `rows`: training rows.
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

    `counts`: blocks of each stage. `channels`: channels of the first stage. `narrow`: whether
    blocks are bottlenecks, with four times as many channels out.
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

    `sides`: (height, width) of the first block's input. `inputs`: channels of that input. `blocks`:
    the convolutions of each block, as from `residual_blocks`.
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


SPACE: tuple[Hparam, ...] = (
    Continuous("lr", 1e-5, 0.1, 1e-3, log=True),
    Continuous("weight_decay", 1e-8, 0.1, 1e-8, log=True),
    Ordinal("batch", (16, 32, 64, 128), 32),
)
"""Hparams of small networks: our choice, since their sources give no ranges."""

BATCHES = (16, 32, 64, 128, 256, 512, 1024, 2048, 4096)


def ranges(lr: float, weight_decay: float, batch: int) -> tuple[Hparam, ...]:
    """Return a large network's hparams with these defaults; the ranges suit Adam and SGD."""
    return (
        Continuous("lr", 1e-6, 1.0, lr, log=True),
        Continuous("weight_decay", 1e-8, 0.1, weight_decay, log=True),
        Ordinal("batch", BATCHES, batch),
    )


def initialise(model: torch.nn.Module, stream: np.random.Generator) -> None:
    """Fill all weights of a convolutional network from a run's stream."""
    import torch
    from torch.nn.utils import convert_conv2d_weight_memory_format

    from manyseed.jobs.training import layers

    layers.initialise(model, stream)
    convert_conv2d_weight_memory_format(model, torch.channels_last)  # faster; the same numbers


def he_normal(model: torch.nn.Module, stream: np.random.Generator) -> None:
    """Fill a deep network from a run's stream so that signals neither grow nor vanish with depth.

    Weights of convolutions are N(0, 2 / (k² c)) for c channels out and k × k kernels, their biases
    0 (He et al. 2015, arXiv 1502.01852, fan-out mode); linear layers are filled as in
    `jobs.training.layers`.
    """
    import torch
    from torch import nn
    from torch.nn.utils import convert_conv2d_weight_memory_format

    from manyseed.jobs.training import layers

    generator = layers.torch_generator(stream, torch.device("cpu"))
    for module in model.modules():
        if isinstance(module, layers.Conv2d):
            nn.init.kaiming_normal_(
                module.weight, mode="fan_out", nonlinearity="relu", generator=generator
            )
            if module.bias is not None:
                nn.init.zeros_(module.bias)
        elif isinstance(module, layers.Linear):
            layers.fill(module, generator)
    convert_conv2d_weight_memory_format(model, torch.channels_last)


def _adam(_: DatasetInfo, options: Options) -> Settings:
    return with_optimizer({"optimizer": "adam", "schedule": "constant"}, options)


def by_sgd(_: DatasetInfo, options: Options) -> Settings:
    """Return the settings of PIT's networks: SGD with momentum and linearly falling rates."""
    return with_optimizer({"optimizer": "sgd", "schedule": "piecewise-linear"}, options)


def network_on_pixels(
    name: str,
    build: Build,
    *,
    core_seconds: Callable[[DatasetInfo, ClassifierInfo, float], float],
    first_block: FirstBlock,
    space: tuple[Hparam, ...] = SPACE,
    hparams: tuple[Hparam, ...] = (),
    settings: Callable[[DatasetInfo, Options], Settings] = _adam,
    epochs: int = 50,
    initialise: Callable[[Any, np.random.Generator], object] = initialise,
    smallest_batch: int = 1,
    packages: tuple[str, ...] = ("torch",),
) -> Classifier:
    """Return the record of a network that is trained from scratch on pixels.

    `build`, `initialise`, `first_block` and `smallest_batch`: as in
    `jobs.training.network.Network`; by default convolutions and linear layers are filled.
    `core_seconds`, `settings`, `epochs` and `packages`: as in a record; by default Adam trains at a
    constant rate. `space` and `hparams`: the learning rate, weight decay and batch; and the
    network's own hparams.
    """

    def checked(dataset: DatasetInfo, options: Options) -> Settings:
        found = settings(dataset, options)
        if options.get("precision") == "bf16" and options.get("stack", 1) != 1:
            # torch.autocast leaves convolutions inside vmap in float32 on a CPU
            reason = "networks on images are stacked in float32 alone"
            raise Refused("stack", options["stack"], reason, needs={"precision": None})
        return found

    return Classifier(
        name=name,
        space=(*space, *hparams),
        probability="softmax",
        streams=frozenset({"init", "batch"}),
        settings=checked,
        options={**OPTIONS, **STACK},
        epochs=epochs,
        images_only=True,
        augments=True,
        core_seconds=core_seconds,
        packages=packages,
        imports=TORCH,
        fit=Network(
            build=build,
            encoder=pixel_encoder,
            initialise=initialise,
            smallest_batch=smallest_batch,
            first_block=first_block,
            stacks=True,
        ),
    )


def deep_network(
    name: str,
    build: Build,
    layers: Callable[[DatasetInfo, Mapping[str, Any]], Iterable[Convolution]],
    *,
    space: tuple[Hparam, ...],
    hparams: tuple[Hparam, ...],
    epochs: int,
    first_block: str,
    settings: Callable[[DatasetInfo, Options], Settings] = by_sgd,
) -> Classifier:
    """Return the record of a deep convolutional network.

    `name`, `build`, `space`, `hparams`, `epochs`, `first_block` and `settings`: as in
    `network_on_pixels`; by default SGD trains it. `layers`: ``layers(dataset, hparams)`` returns
    all its convolutions, which determine `core_seconds`.
    """

    def seconds(dataset: DatasetInfo, info: ClassifierInfo, rows: float) -> float:
        return core_seconds(info, rows, layers(dataset, info.hparams))

    return network_on_pixels(
        name,
        build,
        space=space,
        hparams=hparams,
        settings=settings,
        epochs=epochs,
        core_seconds=seconds,
        initialise=he_normal,
        smallest_batch=2,
        first_block=first_block,
    )
