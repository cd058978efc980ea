"""Layers that draw from given generators, never from torch's global one.

Weights start like those of torch's own layers, uniform within ±1/sqrt(fan in).
"""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from manyseed.jobs.run import raw


class Linear(nn.Linear):
    """A linear layer that `initialise` fills."""

    def reset_parameters(self) -> None:
        """Draw nothing: torch would draw from its global generator here."""


_BLOCK = 16
"""Input channels from which oneDNN is correct: 8 on AVX2; 16 on AVX-512, according to its issue."""


class Conv2d(nn.Conv2d):
    """A convolution that `initialise` fills.

    A strided 1×1 convolution of few channels drops the skipped pixels first, which changes nothing
    but rounding: with channels last, oneDNN may write the weights' gradient past the end of a
    buffer, so that it is wrong or the process dies or hangs (uxlfoundation/oneDNN issue 6035).
    """

    def reset_parameters(self) -> None:
        """Draw nothing: torch would draw from its global generator here."""

    def _conv_forward(self, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        down, right = self.stride
        is_one_pixel = self.kernel_size == (1, 1) and self.padding == (0, 0) and self.groups == 1
        if is_one_pixel and (down, right) != (1, 1) and self.in_channels < _BLOCK:
            return functional.conv2d(x[:, :, ::down, ::right], weight, bias)
        out: Tensor = super()._conv_forward(x, weight, bias)
        return out


class Dropout(nn.Module):
    """Dropout with masks from a given generator; draws nothing if `p` is 0."""

    def __init__(self, p: float, generator: torch.Generator) -> None:
        super().__init__()
        self.p = p
        self.generator = generator

    def forward(self, x: Tensor) -> Tensor:
        """Zero each value with probability `p` and scale up the rest, in training mode."""
        if not self.training or self.p == 0:
            return x
        keep = 1 - self.p
        # Takes two thirds of the time of bernoulli_ on a CPU.
        kept = torch.rand(x.shape, generator=self.generator, device=x.device) < keep
        return x * kept / keep


class ChannelsFirst(nn.Module):
    """Views images (row, height, width, channel) as convolutions expect them, without copying."""

    def forward(self, x: Tensor) -> Tensor:
        """Return a view (row, channel, height, width)."""
        return x.permute(0, 3, 1, 2)


class MeanOfPixels(nn.Module):
    """Averages each channel over an image: (row, channel, height, width) to (row, channel)."""

    def forward(self, x: Tensor) -> Tensor:
        """Return the means."""
        return x.mean((2, 3))


class SkipConnection(nn.Module):
    """Layers with a connection that skips them."""

    def __init__(self, *layers: nn.Module) -> None:
        super().__init__()
        self.block = nn.Sequential(*layers)

    def forward(self, x: Tensor) -> Tensor:
        """Add the layers' output to their input."""
        out: Tensor = x + self.block(x)
        return out


def torch_generator(stream: np.random.Generator, device: torch.device) -> torch.Generator:
    """Return a generator on a device, seeded by one raw word of a run's stream."""
    return torch.Generator(device).manual_seed(int(raw(stream, 1)[0]))


def initialise(model: nn.Module, stream: np.random.Generator) -> None:
    """Fill all weights of a model on the CPU from a run's stream, in module order."""
    generator = torch_generator(stream, torch.device("cpu"))
    for module in model.modules():
        if isinstance(module, Linear | Conv2d):
            fill(module, generator)


def fill(module: Linear | Conv2d, generator: torch.Generator) -> None:
    """Draw a layer's weights, then its biases, uniform within ±1/√(fan in)."""
    nn.init.kaiming_uniform_(module.weight, a=math.sqrt(5), generator=generator)
    if module.bias is not None:
        bound = 1 / math.sqrt(module.weight[0].numel())
        nn.init.uniform_(module.bias, -bound, bound, generator=generator)
