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
    from manyseed.jobs.training.loop import Rate

LEAST_VARIANCE = 1e-30
"""Below it a weight's variance is rounding (PIT's code)."""


def falling_to(first: float, last: float, pretrain: int) -> Rate:
    """Return rates that fall to those at which iterates are averaged.

    `first` for half of `pretrain` epochs, then linearly to `last` by nine tenths of them: as PIT's
    code has it, whose text lets them fall to a hundredth of `first`.
    """

    def at(epoch: int, step: int, steps: int) -> float:
        del step, steps
        fallen = min(1.0, max(0.0, (epoch / pretrain - 0.5) / 0.4))
        return first + (last - first) * fallen

    return at


class Moments:
    """Mean and variance of vectors, and their last deviations from the mean so far.

    Parameters
    ----------
    rank : int
        Deviations that are kept.
    """

    def __init__(self, rank: int) -> None:
        self.rank, self.count = rank, 0
        self.mean = self.squares = torch.zeros(0, dtype=torch.float64)
        self.deviations: list[Tensor] = []

    def add(self, vector: Tensor) -> None:
        """Take a vector (weight,); mean and mean of squares are float64."""
        exact = vector.detach().double()
        if not self.count:
            self.mean, self.squares = torch.zeros_like(exact), torch.zeros_like(exact)
        self.count += 1
        # in this form equal vectors leave the mean as it is, to the last bit
        self.mean += (exact - self.mean) / self.count
        self.squares += (exact.square() - self.squares) / self.count
        self.deviations = [*self.deviations, (exact - self.mean).to(vector.dtype)][-self.rank :]

    def draw(self, generator: torch.Generator) -> Tensor:
        """Return mean + (1/√2)·(σ∘z₁ + Dᵀz₂/√(R − 1)), D the R deviations that there are.

        PIT's code divides by the R that were asked for. The vector is of their dtype.
        """
        found = self.deviations
        like = {"generator": generator, "device": self.mean.device, "dtype": found[0].dtype}
        z1, z2 = torch.randn(len(self.mean), **like), torch.randn(len(found), **like)  # type: ignore[call-overload]
        spread = (self.squares - self.mean.square()).clamp_min(LEAST_VARIANCE).sqrt() * z1
        low_rank = torch.zeros_like(spread)
        for deviation, z in zip(found, z2.tolist(), strict=True):
            low_rank.add_(deviation, alpha=z)
        drawn = self.mean + (spread + low_rank / math.sqrt(len(found) - 1)) / math.sqrt(2)
        vector: Tensor = drawn.to(found[0].dtype)
        return vector

    def state(self) -> dict[str, object]:
        """Return all that goes on from here."""
        return {name: getattr(self, name) for name in ("count", "mean", "squares", "deviations")}

    def restore(self, state: Mapping[str, Any], device: torch.device) -> None:
        """Go on from what `state` returned."""
        self.count = state["count"]
        self.mean, self.squares = (state[name].to(device) for name in ("mean", "squares"))
        self.deviations = [deviation.to(device) for deviation in state["deviations"]]


class Swag(Ensembling):
    """Members are draws from the Gaussian that SGD's iterates make, at a constant rate.

    Batch norm's statistics are made anew for each member by one pass over the training rows, in
    batches of the size that it was trained with, which are the same for all members; dropout is
    not active in it.

    Parameters
    ----------
    method : mapping
        As `jobs.ensembling.methods.resolve` returns it.
    members : Members
    material : Material
    generator : torch.Generator
        Draws the members.
    order : numpy.random.Generator
        Draws the batches of the passes: as rows lie, a batch may be of one class.
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
        self._passes = [
            rows.to(material.X.device)
            for rows in batches(
                order, len(material.X), material.batch_size, material.smallest_batch
            )
        ]
        self.moments = Moments(method["rank"])

    def after_epoch(self, epochs: int) -> None:
        """Take the weights into the moments, after pretraining."""
        if epochs > self._pretrain:
            self.moments.add(weights(self._model))

    @contextmanager
    def drawn(self) -> Iterator[None]:
        """Let the model have drawn weights, and batch norm the statistics that go with them."""
        with kept(self._model), torch.no_grad():
            set_weights(self._model, self.moments.draw(self._draws))
            renew_statistics(self._model, self._X, self._passes)
            yield

    def _own_state(self) -> dict[str, object]:
        return self.moments.state()

    def _restore_own(self, state: Mapping[str, Any]) -> None:
        self.moments.restore(state, self._X.device)


def weights(model: nn.Module) -> Tensor:
    """Return a copy of all weights (weight,), whatever the memory format of convolutions."""
    return torch.cat([each.detach().reshape(-1) for each in model.parameters()])


@torch.no_grad()
def set_weights(model: nn.Module, vector: Tensor) -> None:
    """Give a model the weights that `weights` returned; each stays where it lies."""
    parameters = [*model.parameters()]
    parts = vector.split([each.numel() for each in parameters])
    for each, part in zip(parameters, parts, strict=True):
        each.copy_(part.view(each.shape))


@torch.no_grad()
def renew_statistics(model: nn.Module, X: Tensor, passes: Sequence[Tensor]) -> None:
    """Make batch norm's running statistics anew: means over batches, weighted by their rows.

    Parameters
    ----------
    model : torch.nn.Module
        In evaluation mode, and so it is afterwards.
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
