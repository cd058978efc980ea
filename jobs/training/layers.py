"""Layers that draw from given generators, never from torch's global one; blocks made of them.

Weights start like those of torch's own layers, uniform within ±1/sqrt(fan in).
"""

from __future__ import annotations

import copy
import math
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeGuard

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel

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
        # Takes half the time of bernoulli_ on a CPU.
        drawn = torch.rand(x.shape, generator=self.generator, device=x.device)
        return _dropped(x, drawn, 1 - self.p)


def _dropped(x: Tensor, drawn: Tensor, keep: float | Tensor) -> Tensor:
    """Keep the values whose number in [0, 1) is less than `keep`, scaled up; overwrite `drawn`.

    The mask is of numbers: to multiply by truth values takes four times as long.
    """
    if x.dtype == drawn.dtype:  # one pass, and one back: what is dropped is divided by infinity
        return x / drawn.lt_(keep).reciprocal_().mul_(keep)
    return x * drawn.lt_(keep).to(x.dtype) / keep


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


class _Stack(nn.Module):
    """A layer of several networks at once: each of its arrays has the networks as first axis.

    Maps values (network, unit, row) to such values. `layers`: the networks' own, which keep theirs.
    """

    def __init__(self, layers: Sequence[nn.Module]) -> None:
        super().__init__()
        for name, _ in layers[0].named_parameters(recurse=False):
            arrays = torch.stack([getattr(each, name).detach() for each in layers])
            self.register_parameter(name, nn.Parameter(arrays))
        for name, _ in layers[0].named_buffers(recurse=False):
            self.register_buffer(name, torch.stack([getattr(each, name) for each in layers]))


class _StackedLinear(_Stack):
    weight: Tensor
    bias: Tensor

    def __init__(self, layers: Sequence[nn.Linear]) -> None:
        super().__init__(layers)
        self._has_bias = layers[0].bias is not None

    def forward(self, x: Tensor) -> Tensor:
        if not self._has_bias:
            return torch.bmm(self.weight, x)
        return torch.baddbmm(self.bias[:, :, None], self.weight, x)


class _StackedNorm(_Stack):
    weight: Tensor
    bias: Tensor
    running_mean: Tensor
    running_var: Tensor
    num_batches_tracked: Tensor

    def __init__(self, layers: Sequence[nn.BatchNorm1d]) -> None:
        super().__init__(layers)
        self._momentum, self._eps = layers[0].momentum or 0.0, layers[0].eps

    def forward(self, x: Tensor) -> Tensor:
        """Normalise each unit of each network over the rows: for torch, units of one row."""
        self.num_batches_tracked += 1
        mean, variance = self.running_mean.view(-1), self.running_var.view(-1)
        weight, bias = self.weight.view(-1), self.bias.view(-1)
        units = x.reshape(1, -1, x.shape[2])
        return functional.batch_norm(
            units, mean, variance, weight, bias, True, self._momentum, self._eps
        ).view(x.shape)


class _StackedDropout(nn.Module):
    def __init__(self, layers: Sequence[Dropout]) -> None:
        super().__init__()
        self._layers = [(each.p, each.generator) for each in layers]

    def forward(self, x: Tensor) -> Tensor:
        """Zero values as each network alone would: its masks are drawn by (row, unit)."""
        return self.dropped(x.transpose(1, 2)).transpose(1, 2)

    def dropped(self, x: Tensor) -> Tensor:
        """Zero values (network, row, ...) as each network alone would."""
        if not any(p for p, _ in self._layers):
            return x
        drawn = torch.zeros(x.shape, device=x.device)
        for values, (p, generator) in zip(drawn, self._layers, strict=True):
            if p:
                torch.rand(values.shape, generator=generator, out=values)
        kind = torch.promote_types(x.dtype, torch.float32)
        keep = torch.tensor([1 - p for p, _ in self._layers], dtype=torch.float64)
        return _dropped(x, drawn, keep.to(x.device, kind).view(-1, *[1] * (x.ndim - 1)))


class _MappedDropout(_StackedDropout):
    """Dropout inside `vmap`, which hands a function of its own the values of all networks."""

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = _OfAll.apply(x, self.dropped)
        return out


class _OfAll(torch.autograd.Function):
    @staticmethod
    def forward(x: Tensor, function: Callable[[Tensor], Tensor]) -> Tensor:
        raise NotImplementedError("only in vmap")

    @staticmethod
    def setup_context(*_: object) -> None:
        """Keep nothing: gradients are those of the function's operations."""

    @staticmethod
    def vmap(
        _: object, places: tuple[int, None], x: Tensor, function: Callable[[Tensor], Tensor]
    ) -> tuple[Tensor, int]:
        return function(x.movedim(places[0], 0)), 0


class _Mapped(nn.Module):
    """Networks of any structure at once, by `torch.func.vmap` over their arrays.

    Maps rows (network, row, ...) to logits (network, class, row).
    """

    def __init__(self, models: Sequence[nn.Module]) -> None:
        super().__init__()
        every = [[*model.modules()] for model in models]
        own = {id(each.generator): each.generator for each in every[0] if _drops(each)}
        self.networks = copy.deepcopy(models[0], own)  # generators cannot be copied
        for module, *layers in zip([*self.networks.modules()], *every, strict=True):
            for name, _ in [*module.named_parameters(recurse=False)]:
                arrays = torch.stack([getattr(each, name).detach() for each in layers])
                setattr(module, name, nn.Parameter(arrays))
            for name, _ in [*module.named_buffers(recurse=False)]:
                setattr(module, name, torch.stack([getattr(each, name) for each in layers]))
            for name, child in [*module.named_children()]:
                if _drops(child):
                    mapped = _MappedDropout([getattr(each, name) for each in layers])
                    setattr(module, name, mapped)

    def forward(self, x: Tensor) -> Tensor:
        networks = self.networks

        def logits(arrays: dict[str, Tensor], rows: Tensor) -> Tensor:
            out: Tensor = functional_call(networks, arrays, rows)
            return out

        arrays = {**dict(networks.named_parameters()), **dict(networks.named_buffers())}
        with sdpa_kernel(SDPBackend.MATH):  # other kernels of attention take one network
            out: Tensor = vmap(logits)(arrays, x)
        return out.transpose(1, 2)


def _drops(module: nn.Module) -> TypeGuard[Dropout]:
    return isinstance(module, Dropout)


def stacked(layers: Sequence[Any]) -> nn.Module:
    """Return one network that trains as several do, each on rows of its own.

    It maps rows (network, feature, row), or images (network, row, ...), to logits (network, class,
    row). Names in its state are those of each network, whose arrays it copies; dropout draws from
    the generators of each.

    `layers`: networks of the same structure: of images, or of sequences of `Linear`, batch norm,
    `Dropout`, `SkipConnection` and activations.
    """
    first = layers[0]
    if isinstance(first, nn.Sequential) and isinstance(first[0], ChannelsFirst):
        return _Mapped(layers)
    if isinstance(first, SkipConnection):
        return SkipConnection(*stacked([each.block for each in layers]).children())
    if isinstance(first, nn.Sequential):
        names = [name for name, _ in first.named_children()]
        parts = zip(*layers, strict=True)
        return nn.Sequential(OrderedDict(zip(names, map(stacked, parts), strict=True)))
    kinds: dict[type, Callable[..., nn.Module]] = {
        Linear: _StackedLinear,
        nn.BatchNorm1d: _StackedNorm,
        Dropout: _StackedDropout,
        nn.LeakyReLU: lambda layers: layers[0],
    }
    return kinds[type(first)](layers)


@torch.no_grad()
def unstack(stack: nn.Module, models: Sequence[nn.Module]) -> None:
    """Copy the arrays of a stack to the networks that it was made of."""
    states = [model.state_dict() for model in models]
    for name, values in stack.state_dict().items():
        for state, own in zip(states, values, strict=True):
            state[name.removeprefix("networks.")].copy_(own)


Step = tuple[int, int, int]  # a convolution without bias: channels out, side of the kernel, stride


def _convolution(inputs: int, step: Step) -> Conv2d:
    outputs, kernel, stride = step
    return Conv2d(inputs, outputs, kernel, stride, padding=kernel // 2, bias=False)


class Residual(nn.Module):
    """Convolutions with batch norm, and ReLU between them and after the sum (He et al. 2016).

    If input and output differ in shape, the input goes through a 1×1 convolution with batch norm.

    `inputs`: channels of the input.
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

    `inputs`: channels of the input. `dropout`: probability and generator of dropout before the last
    convolution. `activated_shortcut`: if input and output differ in shape, the input goes through a
    1×1 convolution, either after the first activation (Zagoruyko and Komodakis 2016) or as it is.
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

    `inputs` and `channels`: channels of an image, and of the first convolution. `dropout` and
    `activated_shortcut`: as in `PreActivated`.
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


_LAYERS = (nn.Conv2d, nn.BatchNorm2d, nn.ReLU, nn.MaxPool2d)
_CHANNELS = 16
_BYTES = 2**20
"""Largest output of a convolution, for all rows evaluated at once, that fits a core's cache."""


def evaluation(part: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    """Return a faster equivalent of a network or of a part of one; last bits may differ.

    The layout depends only on the shape of the rows, so the same rows always get the same scores.

    `part`: maps rows (row, ...) to scores or outputs (row, ...); must be in evaluation mode
    whenever the result is called. Returned as it is unless it is a sequence with convolutions.
    """
    if not isinstance(part, nn.Sequential) or not torch.backends.mkldnn.is_available():
        return part
    layers = [*part]
    begin = next((n for n, each in enumerate(layers) if isinstance(each, nn.Conv2d)), len(layers))
    end = begin
    while end < len(layers) and isinstance(layers[end], _LAYERS):
        end += 1
    if begin == end:
        return part
    before, body, after = (
        nn.Sequential(*group) for group in (layers[:begin], layers[begin:end], layers[end:])
    )
    blocks = max(-(-each.out_channels // _CHANNELS) for each in body if isinstance(each, nn.Conv2d))

    def evaluated(rows: Tensor) -> Tensor:
        images = before(rows)
        n_bytes = 4 * images[:, 0].numel() * blocks * _CHANNELS
        is_small = images.dtype == torch.float32 and n_bytes <= _BYTES
        if is_small and images.device.type == "cpu":
            outputs = body(images.to_mkldnn()).to_dense()
        else:
            outputs = body(images)
        scores: Tensor = after(outputs)
        return scores

    return evaluated
