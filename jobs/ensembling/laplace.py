"""Laplace's approximation with Kronecker factors (Ritter et al. 2018; PIT, section 4).

The curvature is the empirical Fisher: gradients are those of the true labels. Martens and Grosse
2015 (arXiv 1503.05671) have the factors of dense layers, Grosse and Martens 2016 (arXiv 1602.01407)
those of convolutions.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from manyseed.jobs.ensembling.ensemble import Ensembling
from manyseed.jobs.ensembling.layers import Weighted, weighted
from manyseed.jobs.ensembling.members import Members

if TYPE_CHECKING:
    from manyseed.jobs.ensembling.ensemble import Material

ROWS_AT_ONCE = 128


class Factors:
    """The two factors of a layer's curvature, as sums over rows.

    Attributes
    ----------
    inputs : tensor (input, input)
        Σ a aᵀ over rows and positions, a the layer's input there, with a 1 for the bias.
    outputs : tensor (output, output)
        Σ g gᵀ over rows and positions, g the gradient of a row's loss by the layer's output there.
    rows, positions : int
        How many of both: positions are 1 where the layer's input is a vector.
    """

    def __init__(self, layer: Weighted) -> None:
        self._layer, like = layer, layer.weight
        size = like[0].numel() + (layer.bias is not None)
        self.inputs = torch.zeros(size, size, dtype=like.dtype, device=like.device)
        self.outputs = torch.zeros(len(like), len(like), dtype=like.dtype, device=like.device)
        self.rows, self.positions = 0, 1

    def see(self, _: nn.Module, given: tuple[Tensor, ...], out: Tensor) -> None:
        """Add what goes through the layer, and what comes back (a forward hook)."""
        layer, rows = self._layer, len(out)
        if isinstance(layer, nn.Conv2d):
            patches = _patches(layer, given[0].detach())
        else:
            patches = given[0].detach().reshape(-1, layer.in_features)
        if layer.bias is not None:
            patches = functional.pad(patches, (0, 1), value=1.0)
        self.inputs.addmm_(patches.T, patches)
        self.rows += rows
        self.positions = len(patches) // rows

        def back(gradient: Tensor) -> None:
            channels_last = gradient.movedim(1, -1) if gradient.ndim == 4 else gradient
            flat = channels_last.reshape(-1, len(self.outputs))
            self.outputs.addmm_(flat.T, flat)

        out.register_hook(back)


def _patches(layer: nn.Conv2d, x: Tensor) -> Tensor:
    """Return what each position of a convolution sees, (row and position, weight)."""
    if isinstance(layer.padding, str) or layer.groups != 1 or layer.padding_mode != "zeros":
        raise ValueError("Kronecker factors are those of plain convolutions")
    columns = functional.unfold(x, layer.kernel_size, layer.dilation, layer.padding, layer.stride)
    return columns.movedim(1, -1).reshape(-1, columns.shape[1])


def factors(model: nn.Module, X: Tensor, y: Tensor) -> dict[Weighted, Factors]:
    """Return the factors of all layers with a posterior, over training rows.

    Parameters
    ----------
    model : torch.nn.Module
        Trained; it is in evaluation mode afterwards.
    X : tensor (row, ...)
    y : int64 tensor (row,)
    """
    model.eval()
    found = {layer: Factors(layer) for layer in weighted(model)}
    hooks = [layer.register_forward_hook(own.see) for layer, own in found.items()]
    try:
        for rows, labels in zip(X.split(ROWS_AT_ONCE), y.split(ROWS_AT_ONCE), strict=True):
            # all gradients are wanted within the model, and none is kept
            loss = functional.cross_entropy(model(rows), labels, reduction="sum")
            torch.autograd.grad(loss, [*model.parameters()], allow_unused=True)
    finally:
        for hook in hooks:
            hook.remove()
    return found


@dataclass(frozen=True, slots=True)
class Posterior:
    """A layer's posterior N(W, (N·A⊗G + Nλ·I)⁻¹), in the eigenbasis of its factors.

    A = (1/N)·Σ a aᵀ and G = (1/(N·T))·Σ g gᵀ over N rows of T positions. The damping is exact
    there; PIT divides it between the factors.

    Attributes
    ----------
    layer
    inputs, outputs : tensor
        Eigenvectors of A and of G, in columns.
    sd : tensor (output, input)
        (N·a_i·g_j + Nλ)^(−½), a_i and g_j their eigenvalues.
    """

    layer: Weighted
    inputs: Tensor
    outputs: Tensor
    sd: Tensor

    @classmethod
    def of(cls, layer: Weighted, own: Factors, weight_decay: float) -> Posterior:
        """Return the posterior of a layer; eigenvectors are found in float64, layer by layer."""
        n = own.rows
        a, u_a = torch.linalg.eigh(own.inputs.double() / n)
        g, u_g = torch.linalg.eigh(own.outputs.double() / (n * own.positions))
        curvature = n * torch.outer(g.clamp_min(0), a.clamp_min(0))
        sd, dtype = (curvature + n * weight_decay).rsqrt(), layer.weight.dtype
        return cls(layer, u_a.to(dtype), u_g.to(dtype), sd.to(dtype))

    def draw(self, generator: torch.Generator, scale: float) -> None:
        """Add scale·U_G(sd ∘ Z)U_Aᵀ to the layer's weights, with the bias in the last column."""
        z = torch.randn(
            self.sd.shape, generator=generator, device=self.sd.device, dtype=self.sd.dtype
        )
        moved = scale * (self.outputs @ (self.sd * z) @ self.inputs.T)
        weight, bias = self.layer.weight, self.layer.bias
        if bias is not None:
            bias.add_(moved[:, -1])
            moved = moved[:, :-1]
        weight.add_(moved.reshape(weight.shape))


class Posteriors:
    """The posteriors of all layers of a trained network.

    Parameters
    ----------
    model : torch.nn.Module
    X : tensor (row, ...)
        Training rows.
    y : int64 tensor (row,)
    weight_decay : float
        λ.
    """

    def __init__(self, model: nn.Module, X: Tensor, y: Tensor, weight_decay: float) -> None:
        found = factors(model, X, y)
        self._layers = [
            Posterior.of(layer, found.pop(layer), weight_decay) for layer in weighted(model)
        ]
        self._means = [
            (value, value.detach().clone())
            for one in self._layers
            for value in (one.layer.weight, one.layer.bias)
            if value is not None
        ]

    @contextmanager
    def drawn(self, generator: torch.Generator, scale: float) -> Iterator[None]:
        """Let all layers have drawn weights within the block, and their own ones after it."""
        with torch.no_grad():
            try:
                for one in self._layers:
                    one.draw(generator, scale)
                yield
            finally:
                for value, mean in self._means:
                    value.copy_(mean)


class Laplace(Ensembling):
    """Members are draws from Laplace's approximation around a trained network.

    Parameters
    ----------
    method : mapping
        As `jobs.ensembling.methods.resolve` returns it, its scale a number.
    members : Members
    material : Material
    generator : torch.Generator
        Draws members, on the model's device.
    """

    def __init__(
        self,
        method: Mapping[str, Any],
        members: Members,
        material: Material,
        generator: torch.Generator,
    ) -> None:
        rate = material.schedule(material.rate, material.epochs)
        super().__init__(material.epochs, rate, members, generator)
        self._material, self._draws, self._scale = material, generator, method["scale"]
        self._posteriors: Posteriors | None = None

    @contextmanager
    def drawn(self) -> Iterator[None]:
        """Let all weights be one draw within the block."""
        own = self._material
        if self._posteriors is None:  # also after an interruption: the same model, the same bits
            self._posteriors = Posteriors(own.model, own.X, own.y, own.weight_decay)
        with self._posteriors.drawn(self._draws, self._scale):
            yield
