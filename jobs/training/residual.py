"""Residual blocks of convolutions, activated after the sum or before each convolution."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Sequence

import torch
from torch import Tensor, nn

from manyseed.jobs.training.layers import ChannelsFirst, Conv2d, Dropout, Linear, MeanOfPixels

Step = tuple[int, int, int]
"""A convolution without bias: channels out, side of the kernel, stride."""


def _convolution(inputs: int, step: Step) -> Conv2d:
    outputs, kernel, stride = step
    return Conv2d(inputs, outputs, kernel, stride, padding=kernel // 2, bias=False)


class Residual(nn.Module):
    """Convolutions with batch norm, and ReLU between them and after the sum (He et al. 2016).

    If input and output differ in shape, the input goes through a 1×1 convolution with batch norm.

    Parameters
    ----------
    inputs : int
        Channels of the input.
    steps : sequence of Step
    """

    def __init__(self, inputs: int, steps: Sequence[Step]) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        channels, stride = inputs, 1
        for step in steps:
            layers += [_convolution(channels, step), nn.BatchNorm2d(step[0]), nn.ReLU()]
            channels, stride = step[0], stride * step[2]
        self.block = nn.Sequential(*layers[:-1])
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or channels != inputs:
            joined = _convolution(inputs, (channels, 1, stride))
            self.shortcut = nn.Sequential(joined, nn.BatchNorm2d(channels))

    def forward(self, x: Tensor) -> Tensor:
        """Return the activated sum."""
        return torch.relu(self.block(x) + self.shortcut(x))


class PreActivated(nn.Module):
    """Convolutions, each after batch norm and ReLU, added to the input (He et al. 2016b).

    Parameters
    ----------
    inputs : int
        Channels of the input.
    steps : sequence of Step
    dropout : tuple of float and torch.Generator, optional
        Probability and generator of dropout before the last convolution.
    activated_shortcut : bool
        If input and output differ in shape, the input goes through a 1×1 convolution, either after
        the first activation (Zagoruyko and Komodakis 2016) or as it is.
    """

    def __init__(
        self,
        inputs: int,
        steps: Sequence[Step],
        dropout: tuple[float, torch.Generator] | None = None,
        *,
        activated_shortcut: bool = False,
    ) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        channels, stride = inputs, 1
        for place, step in enumerate(steps):
            layers += [nn.BatchNorm2d(channels), nn.ReLU()]
            if dropout is not None and place == len(steps) - 1:
                layers.append(Dropout(*dropout))
            layers.append(_convolution(channels, step))
            channels, stride = step[0], stride * step[2]
        self.activation, self.block = nn.Sequential(*layers[:2]), nn.Sequential(*layers[2:])
        self.activated_shortcut = activated_shortcut
        self.shortcut: nn.Module | None = None
        if stride != 1 or channels != inputs:
            self.shortcut = _convolution(inputs, (channels, 1, stride))

    def forward(self, x: Tensor) -> Tensor:
        """Return the sum, without activation."""
        activated = self.activation(x)
        if self.shortcut is not None:
            x = self.shortcut(activated if self.activated_shortcut else x)
        out: Tensor = x + self.block(activated)
        return out


def pre_activated(
    inputs: int,
    channels: int,
    blocks: Iterable[Sequence[Step]],
    n_classes: int,
    *,
    dropout: tuple[float, torch.Generator] | None = None,
    activated_shortcut: bool = False,
) -> nn.Sequential:
    """Build a 3×3 convolution, pre-activated blocks, batch norm, ReLU, the mean, logits.

    Parameters
    ----------
    inputs, channels : int
        Channels of an image, and of the first convolution.
    blocks : iterable of sequences of Step
    n_classes : int
    dropout, activated_shortcut
        As in `PreActivated`.
    """
    layers: dict[str, nn.Module] = {
        "images": ChannelsFirst(),
        "stem": Conv2d(inputs, channels, 3, padding=1, bias=False),
    }
    for number, steps in enumerate(blocks, 1):
        layers[f"block{number}"] = PreActivated(
            channels, steps, dropout, activated_shortcut=activated_shortcut
        )
        channels = steps[-1][0]
    layers |= {"norm": nn.BatchNorm2d(channels), "relu": nn.ReLU(), "mean": MeanOfPixels()}
    layers["logits"] = Linear(channels, n_classes)
    return nn.Sequential(OrderedDict(layers))
