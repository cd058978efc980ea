"""The ensemble that a training yields, by method; members of one training, and MC dropout.

Snapshot ensembles, cyclic SGLD and fast geometric ensembling take members during training; MC
dropout (Gal and Ghahramani 2016, arXiv 1506.02142) draws them from one trained network.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from manyseed.jobs.ensembling.ensemble import Ensembling
from manyseed.jobs.ensembling.methods import PUBLISHED, Members, member_epochs
from manyseed.jobs.training.layers import Dropout
from manyseed.jobs.training.schedules import Rate

if TYPE_CHECKING:
    from manyseed.jobs.training.schedules import Rate
from manyseed.jobs.ensembling.ensemble import Material, Unchanged
from manyseed.jobs.ensembling.laplace import Laplace
from manyseed.jobs.ensembling.methods import SINGLE
from manyseed.jobs.ensembling.vi import Swag, Variational
from manyseed.jobs.training.layers import torch_generator


class Masked(Ensembling):
    """Members are predictions of a trained network in evaluation mode but with active dropout.

    Each point has its own masks for each member, as in PIT's code; batch norm uses its running
    statistics.

    Parameters
    ----------
    epochs, rate, members
        As in `Ensembling`.
    masks : torch.Generator
        Draws the members' masks, on the model's device.
    """

    def __init__(
        self, epochs: int, rate: Rate, members: Members, model: nn.Module, masks: torch.Generator
    ) -> None:
        super().__init__(epochs, rate, members, masks)
        self._layers = [layer for layer in model.modules() if isinstance(layer, Dropout)]
        self._masks = masks

    @contextmanager
    def drawn(self) -> Iterator[None]:
        """Activate dropout within the block."""
        generators = [layer.generator for layer in self._layers]
        for layer in self._layers:
            layer.train()
            layer.generator = self._masks
        try:
            yield
        finally:
            for layer, generator in zip(self._layers, generators, strict=True):
                layer.eval()
                layer.generator = generator


def cosine_cycles(rate: float, cycle: int) -> Rate:
    """Return the rates of snapshot ensembles and cyclic SGLD (PIT, eq. 16).

    lr₀/2 · (cos(π·((t − 1) mod T) / T) + 1) for step t, from 1, and T steps per cycle.

    Parameters
    ----------
    rate : float
        lr₀, the rate at the start of each cycle.
    cycle : int
        Epochs per cycle.
    """

    def at(epoch: int, step: int, steps: int) -> float:
        position = (epoch % cycle * steps + step) / (cycle * steps)
        return rate / 2 * (math.cos(math.pi * position) + 1)

    return at


def triangular_cycles(before: Rate, pretrain: int, high: float, low: float, cycle: int) -> Rate:
    """Return the rates of fast geometric ensembling (PIT, eq. 17).

    At position u in the cycle: (1 − 2u)·a₁ + 2u·a₂ up to u = ½, then back in the second half.

    Parameters
    ----------
    before : Rate
        Rates of the training before the cycles.
    pretrain : int
        Epochs of that training.
    high, low : float
        a₁ at the ends of a cycle, a₂ in its middle.
    cycle : int
        Epochs per cycle.
    """

    def at(epoch: int, step: int, steps: int) -> float:
        if epoch < pretrain:
            return before(epoch, step, steps)
        u = ((epoch - pretrain) % cycle + step / steps) / cycle
        away = 1 - 2 * u if u <= 0.5 else 2 * u - 1
        return away * high + (1 - away) * low

    return at


def langevin_sd(rate: float, temperature: float | str, rows: int, batches: int) -> float:
    """Return the standard deviation of the noise that a step of SGLD adds: √(2·lr·τ / N).

    With τ = 1 and small rates the weights are draws from the posterior of the model whose mean loss
    is minimised (PIT, eq. 6 to 9). PIT's code has τ = N / n² for n batches per epoch.

    Parameters
    ----------
    rate : float
        lr.
    temperature : float or "published"
        τ.
    rows : int
        N.
    batches : int
        n.
    """
    tau = rows / batches**2 if temperature == PUBLISHED else float(temperature)
    return math.sqrt(2 * rate * tau / rows)


class Trajectory(Ensembling):
    """Takes members during a training.

    Parameters
    ----------
    method : mapping
        Returned by `jobs.ensembling.methods.resolve`.
    epochs : int
        Epochs of the classifier's own training.
    before : Rate
        Rates of pretraining, if the method has any.
    rows : int
        Number of training rows.
    noise : torch.Generator, optional
        Draws Langevin noise, on the model's device.
    keep : iterable of str
        Names in `jobs.ensembling.methods.ARRAYS`.
    """

    def __init__(
        self,
        method: Mapping[str, Any],
        epochs: int,
        before: Rate,
        rows: int,
        noise: torch.Generator | None,
        keep: Iterable[str] = (),
    ) -> None:
        self._method, self._rows, self._noise = method, rows, noise
        self._taken_after = {*member_epochs(method, epochs)}
        if method["name"] == "fge":
            rate = triangular_cycles(
                before, method["pretrain"], method["lr_high"], method["lr_low"], method["cycle"]
            )
        else:
            rate = cosine_cycles(method["lr"], method["cycle"])
        members = Members(method["members"], keep)
        super().__init__(max(self._taken_after), rate, members, noise)

    def after_step(
        self, parameters: Sequence[torch.Tensor], rate: float, epoch: int, steps: int
    ) -> None:
        """Add Langevin noise to the weights in the last epochs of a cycle."""
        if self._noise is None:
            return
        cycle, noisy = self._method["cycle"], self._method["noise_epochs"]
        if epoch % cycle < cycle - noisy:
            return
        sd = langevin_sd(rate, self._method["temperature"], self._rows, steps)
        with torch.no_grad():
            for weights in parameters:
                drawn = torch.randn(weights.shape, generator=self._noise, device=weights.device)
                weights.add_(drawn, alpha=sd)

    def takes(self, epochs: int) -> bool:
        """Return whether the model after so many epochs is a member."""
        return epochs in self._taken_after


def ensemble(method: Mapping[str, Any], material: Material, keep: Iterable[str]) -> Ensembling:
    """Return the ensemble in the making that a method describes.

    Parameters
    ----------
    method : mapping
        Returned by `jobs.ensembling.methods.resolve`.
    keep : iterable of str
        Names in `jobs.ensembling.methods.ARRAYS`; others are ignored.
    """
    name, device, generators = method["name"], material.X.device, material.generators
    rate = material.schedule(material.rate, material.epochs)
    members = Members(method["members"], keep)
    if name in ("snapshot", "csgld", "fge"):
        stream = generators.langevin
        before = material.schedule(material.rate, method.get("pretrain", material.epochs))
        noise = None if stream is None else torch_generator(stream, device)
        return Trajectory(method, material.epochs, before, len(material.X), noise, keep)
    if name == SINGLE:
        return Unchanged(material.epochs, rate, members)
    if generators.posterior is None:
        raise ValueError(f"{name} needs a stream to draw members from")
    draws = torch_generator(generators.posterior, device)
    match name:
        case "dropout":
            return Masked(material.epochs, rate, members, material.model, draws)
        case "vi":
            return Variational(method, members, material, draws)
        case "kfac-laplace":
            return Laplace(method, members, material, draws)
        case "swag":
            return Swag(method, members, material, draws, generators.posterior)
        case _:
            raise ValueError(f"no ensembling method is called {name}")
