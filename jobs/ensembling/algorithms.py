"""The ensemble that a training yields, by method.

Snapshot ensembles, cyclic SGLD and fast geometric ensembling take members during training; MC
dropout (Gal and Ghahramani 2016, arXiv 1506.02142) draws them from one trained network. SWAG
(Maddox et al. 2019, arXiv 1902.02476) is a Gaussian around the mean of SGD's iterates; mean-field
variational inference starts from a trained network (PIT, section 4).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.modules.batchnorm import _BatchNorm

from manyseed.jobs.ensembling.ensemble import (
    Ensembling,
    Material,
    Unchanged,
    Weighted,
    kept,
    weighted,
)
from manyseed.jobs.ensembling.laplace import Laplace
from manyseed.jobs.ensembling.methods import PUBLISHED, SINGLE, Members, Options, member_epochs
from manyseed.jobs.training.layers import Dropout, torch_generator
from manyseed.jobs.training.loop import batches
from manyseed.jobs.training.schedules import Rate, schedule

LOG_SD_RATE = 1e-3  # Adam's rate for ln σ

_LEAST_VARIANCE = 1e-30  # keeps the square root differentiable where all inputs are 0


def divergence(log_sd: Tensor, prior_variance: float) -> Tensor:
    """Return ½ Σ(σ²/σ_p² − 1 − ln(σ²/σ_p²)), which is KL(q‖p) without the term Σμ²/(2σ_p²).

    `log_sd`: ln σ of each weight. `prior_variance`: σ_p².
    """
    ratio = (2 * log_sd).exp() / prior_variance
    return (ratio - 1 - ratio.log()).sum() / 2


class Noisy:
    """Computes a layer with weights from N(μ, σ²), where μ is the layer's own weights.

    In training mode a linear layer draws its output for each row (local reparametrisation), and a
    convolution draws its weights once per batch. In evaluation mode the weights use `noise`, one
    draw for all rows; without it they are the means.

    `log_sd`: ln σ, in the shape of the weights.
    """

    def __init__(self, layer: Weighted, log_sd: Tensor, generator: torch.Generator) -> None:
        self.layer, self.log_sd, self._generator = layer, log_sd, generator
        self.noise: Tensor | None = None

    def __call__(self, x: Tensor) -> Tensor:
        """Return the layer's output."""
        layer, sd = self.layer, self.log_sd.exp()
        if not layer.training:
            noise = self.noise
            return self._with(layer.weight if noise is None else layer.weight + sd * noise, x)
        if isinstance(layer, torch.nn.Linear):
            mean = functional.linear(x, layer.weight, layer.bias)
            variance = functional.linear(x.square(), sd.square()).clamp_min(_LEAST_VARIANCE)
            return mean + variance.sqrt() * self._drawn(mean)
        return self._with(layer.weight + sd * self._drawn(sd), x)

    def draw(self) -> None:
        """Draw the noise of a member."""
        self.noise = self._drawn(self.log_sd)

    def _drawn(self, like: Tensor) -> Tensor:
        return torch.randn(
            like.shape, generator=self._generator, device=like.device, dtype=like.dtype
        )

    def _with(self, weight: Tensor, x: Tensor) -> Tensor:
        if isinstance(self.layer, torch.nn.Linear):
            return functional.linear(x, weight, self.layer.bias)
        out: Tensor = self.layer._conv_forward(x, weight, self.layer.bias)
        return out


def then(own: Rate, epochs: int, rate: float, more: int) -> Rate:
    """Return the rates of ordinary training followed by those of variational training.

    The latter are piecewise linear (PIT, eq. 10) over the first half of their epochs, then a
    thousandth of `rate` (PIT's code).

    `own`: rates of ordinary training. `epochs`: epochs of ordinary training. `rate`: initial rate
    of the means in variational training. `more`: epochs of variational training.
    """
    first = schedule("piecewise-linear", rate, max(1, more // 2))

    def at(epoch: int, step: int, steps: int) -> float:
        if epoch < epochs:
            return own(epoch, step, steps)
        further = epoch - epochs
        return first(further, step, steps) if further < more // 2 else 0.001 * rate

    return at


class Variational(Ensembling):
    """Trains a network as usual, then N(μ, σ²) for each weight; members are draws of all weights.

    The loss is the mean cross-entropy + (β/N)·`divergence` + (λ/2)‖μ‖² with σ_p² = 1/(Nλ). The
    classifier's SGD trains the means and all other parameters, its weight decay being the last
    term; Adam trains ln σ. Biases, batch norm and weights within attention have no posterior.

    `method`, `members` and `material`: as in `Swag`. `generator`: draws noise during training, and
    the members, on the model's device.
    """

    def __init__(
        self, method: Options, members: Members, material: Material, generator: torch.Generator
    ) -> None:
        own = material.schedule(material.rate, material.epochs)
        rate = then(own, material.epochs, method["lr"], method["epochs"])
        super().__init__(material.epochs + method["epochs"], rate, members, generator)
        self._begin, self._optimizer = material.epochs, material.optimizer
        rows = len(material.X)
        self._weight = method["beta"] / rows
        self._prior_variance = 1 / (rows * material.weight_decay)
        self.noisy = []
        for layer in weighted(material.model):
            log_sd = torch.full_like(layer.weight, method["log_sd"]).requires_grad_()
            self.noisy.append(Noisy(layer, log_sd, generator))
        self._adam = torch.optim.Adam([layer.log_sd for layer in self.noisy], LOG_SD_RATE)

    def before_epoch(self, epoch: int) -> None:
        """Make weights random once ordinary training is over."""
        if epoch == self._begin:
            self._optimizer.state.clear()  # its momentum stems from far larger rates
        if epoch >= self._begin:
            self._replace()

    def after_step(self, parameters: Sequence[Tensor], rate: float, epoch: int, steps: int) -> None:
        """Move ln σ by the gradients of the step's loss and of `divergence`."""
        del parameters, rate, steps
        if epoch < self._begin:
            return
        for layer in self.noisy:
            ratio = (2 * layer.log_sd.detach()).exp() / self._prior_variance
            assert layer.log_sd.grad is not None
            layer.log_sd.grad.add_(ratio - 1, alpha=self._weight)
        self._adam.step()
        self._adam.zero_grad(set_to_none=True)

    @contextmanager
    def drawn(self) -> Iterator[None]:
        """Give the model one draw of all weights within the block."""
        self._replace()
        for layer in self.noisy:
            layer.draw()
        try:
            yield
        finally:
            for layer in self.noisy:
                layer.noise = None

    def _replace(self) -> None:
        for noisy in self.noisy:
            noisy.layer.forward = noisy  # type: ignore[assignment,method-assign]

    def _own_state(self) -> dict[str, object]:
        log_sd = [layer.log_sd.detach() for layer in self.noisy]
        return {"log_sd": log_sd, "adam": self._adam.state_dict()}

    def _restore_own(self, state: Mapping[str, Any]) -> None:
        with torch.no_grad():
            for layer, log_sd in zip(self.noisy, state["log_sd"], strict=True):
                layer.log_sd.copy_(log_sd)
        self._adam.load_state_dict(state["adam"])


LEAST_VARIANCE = 1e-30  # a smaller variance of a weight is mere rounding (PIT's code)


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

    `rank`: number of deviations to keep.
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

    `method`: returned by `jobs.ensembling.methods.resolve`. `members`: still empty. `generator`:
    draws the members, on the model's device. `order`: draws the batches of the passes; in dataset
    order a batch might hold a single class.
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

    `model`: in evaluation mode, before and afterwards. `X`, tensor (row, ...). `passes`: the rows
    of each batch.
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


class Masked(Ensembling):
    """Members are predictions of a trained network in evaluation mode but with active dropout.

    Each point has its own masks for each member, as in PIT's code; batch norm uses its running
    statistics.

    `epochs`, `rate` and `members`: as in `Ensembling`. `masks`: draws the members' masks, on the
    model's device.
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

    `rate`: lr₀, the rate at the start of each cycle. `cycle`: epochs per cycle.
    """

    def at(epoch: int, step: int, steps: int) -> float:
        position = (epoch % cycle * steps + step) / (cycle * steps)
        return rate / 2 * (math.cos(math.pi * position) + 1)

    return at


def triangular_cycles(before: Rate, pretrain: int, high: float, low: float, cycle: int) -> Rate:
    """Return the rates of fast geometric ensembling (PIT, eq. 17).

    At position u in the cycle: (1 − 2u)·a₁ + 2u·a₂ up to u = ½, then back in the second half.

    `before`: rates of the training before the cycles. `pretrain`: epochs of that training. `high`
    and `low`: a₁ at the ends of a cycle, a₂ in its middle. `cycle`: epochs per cycle.
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

    `rate`: lr. `temperature`: τ. `rows`: N. `batches`: n.
    """
    tau = rows / batches**2 if temperature == PUBLISHED else float(temperature)
    return math.sqrt(2 * rate * tau / rows)


class Trajectory(Ensembling):
    """Takes members during a training.

    `method`: returned by `jobs.ensembling.methods.resolve`. `epochs`: epochs of the classifier's
    own training. `before`: rates of pretraining, if the method has any. `rows`: number of training
    rows. `noise`: draws Langevin noise, on the model's device. `keep`: names in
    `jobs.ensembling.methods.ARRAYS`.
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

    `method`: returned by `jobs.ensembling.methods.resolve`. `keep`: names in
    `jobs.ensembling.methods.ARRAYS`; others are ignored.
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
