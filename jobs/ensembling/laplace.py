"""Laplace's approximation with Kronecker factors (Ritter et al. 2018; PIT, section 4).

The curvature is the empirical Fisher, from gradients for the true labels. Factors of dense layers
follow Martens and Grosse 2015 (arXiv 1503.05671), those of convolutions Grosse and Martens 2016
(arXiv 1602.01407).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.nn import functional

from manyseed.jobs.ensembling.ensemble import Ensembling, Weighted, weighted
from manyseed.jobs.ensembling.methods import Members, Options

if TYPE_CHECKING:
    from manyseed.jobs.ensembling.ensemble import Material

ROWS_AT_ONCE = 128


class Factors:
    """The two factors of a layer's curvature, as sums over rows.

    `inputs`, tensor (input, input): Σ a aᵀ over rows and positions, where a is the layer's input,
    with a 1 for the bias. `outputs`, tensor (output, output): Σ g gᵀ over rows and positions, where
    g is the gradient of a row's loss with respect to the layer's output. `rows` and `positions`:
    rows so far, and positions per row, 1 if the layer's input is a vector.
    """

    def __init__(self, layer: Weighted) -> None:
        self._layer, like = layer, layer.weight
        size = like[0].numel() + (layer.bias is not None)
        self.inputs = torch.zeros(size, size, dtype=like.dtype, device=like.device)
        self.outputs = torch.zeros(len(like), len(like), dtype=like.dtype, device=like.device)
        self.rows, self.positions = 0, 1

    def see(self, _: nn.Module, given: tuple[Tensor, ...], out: Tensor) -> None:
        """Add a batch's inputs now and its gradients later (a forward hook)."""
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
    """Return the input patch of each position of a convolution, (row and position, weight)."""
    if isinstance(layer.padding, str) or layer.groups != 1 or layer.padding_mode != "zeros":
        raise ValueError("Kronecker factors need plain convolutions")
    columns = functional.unfold(x, layer.kernel_size, layer.dilation, layer.padding, layer.stride)
    return columns.movedim(1, -1).reshape(-1, columns.shape[1])


def factors(model: nn.Module, X: Tensor, y: Tensor) -> dict[Weighted, Factors]:
    """Return the factors of all layers with a posterior, over training rows.

    `model`: a trained network; it is put into evaluation mode. `X`, tensor (row, ...). `y`, int64
    tensor (row,).
    """
    model.eval()
    by_layer = {layer: Factors(layer) for layer in weighted(model)}
    hooks = [layer.register_forward_hook(factors.see) for layer, factors in by_layer.items()]
    try:
        for rows, labels in zip(X.split(ROWS_AT_ONCE), y.split(ROWS_AT_ONCE), strict=True):
            # runs the backward hooks of all layers without storing any gradient
            loss = functional.cross_entropy(model(rows), labels, reduction="sum")
            torch.autograd.grad(loss, [*model.parameters()], allow_unused=True)
    finally:
        for hook in hooks:
            hook.remove()
    return by_layer


@dataclass(frozen=True, slots=True)
class Posterior:
    """A layer's posterior N(W, (N·A⊗G + Nλ·I)⁻¹), in the eigenbasis of its factors.

    A = (1/N)·Σ a aᵀ and G = (1/(N·T))·Σ g gᵀ over N rows of T positions. The damping is exact in
    this basis; PIT divides it between the factors.

    `inputs` and `outputs`: eigenvectors of A and of G, in columns. `sd`, tensor (output, input):
    (N·a_i·g_j + Nλ)^(−½) for the eigenvalues a_i and g_j.
    """

    layer: Weighted
    inputs: Tensor
    outputs: Tensor
    sd: Tensor

    @classmethod
    def of(cls, layer: Weighted, factors: Factors, weight_decay: float) -> Posterior:
        """Return the posterior of a layer; its eigenvectors are computed in float64."""
        n = factors.rows
        a, u_a = torch.linalg.eigh(factors.inputs.double() / n)
        g, u_g = torch.linalg.eigh(factors.outputs.double() / (n * factors.positions))
        curvature = n * torch.outer(g.clamp_min(0), a.clamp_min(0))
        sd, dtype = (curvature + n * weight_decay).rsqrt(), layer.weight.dtype
        return cls(layer, u_a.to(dtype), u_g.to(dtype), sd.to(dtype))

    def draw(self, generator: torch.Generator, scale: float) -> None:
        """Add scale·U_G(sd ∘ Z)U_Aᵀ to the layer's weights and, by its last column, to the bias."""
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

    `X`, tensor (row, ...): training rows. `y`, int64 tensor (row,). `weight_decay`: λ.
    """

    def __init__(self, model: nn.Module, X: Tensor, y: Tensor, weight_decay: float) -> None:
        by_layer = factors(model, X, y)
        self._posteriors = [
            Posterior.of(layer, by_layer.pop(layer), weight_decay) for layer in weighted(model)
        ]
        self._means = [
            (value, value.detach().clone())
            for posterior in self._posteriors
            for value in (posterior.layer.weight, posterior.layer.bias)
            if value is not None
        ]

    @contextmanager
    def drawn(self, generator: torch.Generator, scale: float) -> Iterator[None]:
        """Give all layers drawn weights within the block, and restore their own afterwards."""
        with torch.no_grad():
            try:
                for posterior in self._posteriors:
                    posterior.draw(generator, scale)
                yield
            finally:
                for value, mean in self._means:
                    value.copy_(mean)


class Laplace(Ensembling):
    """Members are draws from Laplace's approximation around a trained network.

    Parameters are those of `Swag`; the method's ``scale`` is a number.
    """

    def __init__(
        self, method: Options, members: Members, material: Material, generator: torch.Generator
    ) -> None:
        rate = material.schedule(material.rate, material.epochs)
        super().__init__(material.epochs, rate, members, generator)
        self._material, self._draws, self._scale = material, generator, method["scale"]
        self._posteriors: Posteriors | None = None

    @contextmanager
    def drawn(self) -> Iterator[None]:
        """Give the model one draw of all weights within the block."""
        material, decay = self._material, self._material.weight_decay
        if (
            self._posteriors is None
        ):  # after an interruption, too, the same model gives the same bits
            self._posteriors = Posteriors(material.model, material.X, material.y, decay)
        with self._posteriors.drawn(self._draws, self._scale):
            yield
