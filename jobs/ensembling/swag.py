"""SWAG (Maddox et al. 2019, arXiv 1902.02476): a Gaussian around the mean of SGD's iterates."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from manyseed.jobs.ensembling.ensemble import Ensembling, kept
from manyseed.jobs.ensembling.members import Members
from manyseed.jobs.training.loop import batches

if TYPE_CHECKING:
    from manyseed.jobs.ensembling.ensemble import Material
    from manyseed.jobs.training.schedules import Rate

LEAST_VARIANCE = 1e-30
"""A smaller variance of a weight is mere rounding (PIT's code)."""


def falling_to(first: float, last: float, pretrain: int) -> Rate:
    """Return rates that fall from `first` to `last`, the rate at which iterates are averaged.

    `first` for half of `pretrain` epochs, then linearly to `last` by nine tenths of them. This is
    PIT's code; its text has rates fall to a hundredth of `first`.
    """

    def at(epoch: int, step: int, steps: int) -> float:
        del step, steps
        fallen = min(1.0, max(0.0, (epoch / pretrain - 0.5) / 0.4))
        return first + (last - first) * fallen

    return at


class Moments:
    """Mean and variance of vectors, and the last deviations from the running mean.

    Parameters
    ----------
    rank : int
        Number of deviations to keep.
    """

    def __init__(self, rank: int) -> None:
        self.rank, self.count = rank, 0
        self.mean = self.squares = torch.zeros(0, dtype=torch.float64)
        self.deviations: list[Tensor] = []

    def add(self, vector: Tensor) -> None:
        """Add a vector (weight,); mean and mean of squares are float64."""
        exact = vector.detach().double()
        if not self.count:
            self.mean, self.squares = torch.zeros_like(exact), torch.zeros_like(exact)
        self.count += 1
        # in this form, equal vectors leave the mean unchanged to the last bit
        self.mean += (exact - self.mean) / self.count
        self.squares += (exact.square() - self.squares) / self.count
        self.deviations = [*self.deviations, (exact - self.mean).to(vector.dtype)][-self.rank :]

    def draw(self, generator: torch.Generator) -> Tensor:
        """Return mean + (1/√2)·(σ∘z₁ + Dᵀz₂/√(R − 1)) for the R deviations D kept so far.

        PIT's code uses the requested R instead. The vector has the deviations' dtype.
        """
        deviations, dtype = self.deviations, self.deviations[0].dtype
        like = {"generator": generator, "device": self.mean.device, "dtype": dtype}
        z1, z2 = torch.randn(len(self.mean), **like), torch.randn(len(deviations), **like)  # type: ignore[call-overload]
        spread = (self.squares - self.mean.square()).clamp_min(LEAST_VARIANCE).sqrt() * z1
        low_rank = torch.zeros_like(spread)
        for deviation, z in zip(deviations, z2.tolist(), strict=True):
            low_rank.add_(deviation, alpha=z)
        drawn = self.mean + (spread + low_rank / math.sqrt(len(deviations) - 1)) / math.sqrt(2)
        vector: Tensor = drawn.to(dtype)
        return vector

    def state(self) -> dict[str, object]:
        """Return the state for `restore`."""
        return {name: getattr(self, name) for name in ("count", "mean", "squares", "deviations")}

    def restore(self, state: Mapping[str, Any], device: torch.device) -> None:
        """Resume from what `state` returned."""
        self.count = state["count"]
        self.mean, self.squares = (state[name].to(device) for name in ("mean", "squares"))
        self.deviations = [deviation.to(device) for deviation in state["deviations"]]


class Swag(Ensembling):
    """Members are draws from the Gaussian fitted to SGD's iterates at a constant rate.

    For each member, batch norm's statistics are recomputed in one pass over the training rows with
    dropout off. Batches have the size used in training and are the same for all members.

    Parameters
    ----------
    method : mapping
        Returned by `jobs.ensembling.methods.resolve`.
    members : Members
        Still empty.
    material : Material
    generator : torch.Generator
        Draws the members, on the model's device.
    order : numpy.random.Generator
        Draws the batches of the passes; in dataset order a batch might hold a single class.
    """

    def __init__(
        self,
        method: Mapping[str, Any],
        members: Members,
        material: Material,
        generator: torch.Generator,
        order: np.random.Generator,
    ) -> None:
        rate = falling_to(material.rate, method["lr"], method["pretrain"])
        super().__init__(method["epochs"], rate, members, generator)
        self._pretrain, self._draws = method["pretrain"], generator
        self._model, self._X = material.model, material.X
        cut = batches(order, len(material.X), material.batch_size, material.smallest_batch)
        self._batches = [rows.to(material.X.device) for rows in cut]
        self.moments = Moments(method["rank"])

    def after_epoch(self, epochs: int) -> None:
        """Add the weights to the moments, once pretraining is over."""
        if epochs > self._pretrain:
            self.moments.add(weights(self._model))

    @contextmanager
    def drawn(self) -> Iterator[None]:
        """Give the model drawn weights, and matching batch norm statistics, within the block."""
        with kept(self._model), torch.no_grad():
            set_weights(self._model, self.moments.draw(self._draws))
            renew_statistics(self._model, self._X, self._batches)
            yield

    def _own_state(self) -> dict[str, object]:
        return self.moments.state()

    def _restore_own(self, state: Mapping[str, Any]) -> None:
        self.moments.restore(state, self._X.device)


def weights(model: nn.Module) -> Tensor:
    """Return a copy of all weights (weight,), independent of convolutions' memory format."""
    return torch.cat([each.detach().reshape(-1) for each in model.parameters()])


@torch.no_grad()
def set_weights(model: nn.Module, vector: Tensor) -> None:
    """Copy weights that `weights` returned into a model, in place."""
    parameters = [*model.parameters()]
    parts = vector.split([each.numel() for each in parameters])
    for each, part in zip(parameters, parts, strict=True):
        each.copy_(part.view(each.shape))


@torch.no_grad()
def renew_statistics(model: nn.Module, X: Tensor, passes: Sequence[Tensor]) -> None:
    """Recompute batch norm's running statistics as means over batches, weighted by their rows.

    Parameters
    ----------
    model : torch.nn.Module
        In evaluation mode, before and afterwards.
    X : tensor (row, ...)
    passes : sequence of int64 tensors
        The rows of each batch.
    """
    norms = [layer for layer in model.modules() if isinstance(layer, _BatchNorm)]
    if not norms:
        return
    momenta = [norm.momentum for norm in norms]
    seen = 0
    for norm in norms:
        norm.train()
    for rows in passes:
        seen += len(rows)
        for norm in norms:
            norm.momentum = len(rows) / seen
        model(X[rows])
    for norm, momentum in zip(norms, momenta, strict=True):
        norm.momentum = momentum
        norm.eval()
