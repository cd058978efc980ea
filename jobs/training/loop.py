"""The training loop of networks: one model, index tensors, one thread on a CPU.

With it its steps of optimizers, schedules of learning rates, learning curves, and the test set as
it is presented to each member of a run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from time import monotonic, perf_counter
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from manyseed.jobs.run import gaps, labels, raw
from manyseed.jobs.training.checkpoint import (
    Checkpoint,
    TrainingParts,
    TrainingState,
    restore,
    save,
)
from manyseed.jobs.training.handling import (
    IMAGES_AT_ONCE,
    PREDICTED_AT_ONCE,
    Alive,
    Fitted,
    Precision,
)
from manyseed.jobs.training.layers import stacked, unstack
from manyseed.jobs.training.schedules import Plateau, Rate

if TYPE_CHECKING:
    from manyseed.jobs.ensembling.ensemble import Ensembling
    from manyseed.jobs.images.transforms import Augmented


class Measured:
    """Loss and accuracy of an epoch's batches, taken as they are trained, without another pass."""

    def __init__(self, device: torch.device) -> None:
        self._rows = 0
        # On the device, so that no step waits for a number; in double precision.
        self._loss = torch.zeros((), dtype=torch.float64, device=device)
        self._correct = torch.zeros((), dtype=torch.int64, device=device)

    def add(self, loss: Tensor, logits: Tensor, y: Tensor) -> None:
        """Add a batch with its mean loss."""
        self._rows += len(y)
        self._loss += loss.double() * len(y)
        self._correct += (predicted(logits) == y).sum()

    def means(self) -> tuple[float, float]:
        """Return mean loss and accuracy."""
        return self._loss.item() / self._rows, self._correct.item() / self._rows


def record(
    curves: dict[str, list[float]], trained: Measured, logits: Tensor, y_test: Tensor
) -> None:
    """Append an epoch to the curves.

    `curves`: by name, one number per epoch. `trained`: the epoch's batches. `logits`, tensor
    (sample, class): logits of the test set after the epoch. `y_test`, tensor (sample,): class
    indices of the test set.
    """
    loss, accuracy = trained.means()
    row = {
        "train_loss": loss,
        "train_accuracy": accuracy,
        "test_loss": cross_entropy(logits.double(), y_test).item(),
        "test_accuracy": (predicted(logits) == y_test).double().mean().item(),
    }
    for name, value in row.items():
        curves.setdefault(name, []).append(value)


def predicted(logits: Tensor) -> Tensor:
    """Return the classes (row,) that logits (row, class) predict."""
    classes: Tensor = labels(gaps(logits), logits.shape[1]).long()
    return classes


_FUSED: dict[type, Callable[..., object]] = {
    torch.optim.Adam: torch._fused_adam_,
    torch.optim.AdamW: torch._fused_adamw_,
}
_OTHER_FORMULAS = ("amsgrad", "maximize", "capturable", "differentiable")


def stepping(optimizer: torch.optim.Optimizer) -> Callable[[], object]:
    """Return the optimizer's `step`, or for fused Adam a quicker one with the same results.

    Valid as long as no state is loaded and no group changes, apart from learning rates.
    """
    fused, groups = _FUSED.get(type(optimizer)), optimizer.param_groups
    if fused is None or len(groups) != 1 or not _is_plain(groups[0]):
        return optimizer.step
    group, weights = groups[0], groups[0]["params"]
    lists = _moments(optimizer, weights)

    @torch.no_grad()
    def step() -> None:
        gradients = [weight.grad for weight in weights]
        if not lists or any(gradient is None for gradient in gradients):
            optimizer.step()  # it also makes the state of weights that have none
            lists.update(_moments(optimizer, weights))
            return
        torch._foreach_add_(lists["step"], 1)
        fused(
            *(weights, gradients, lists["exp_avg"], lists["exp_avg_sq"], [], lists["step"]),
            lr=group["lr"],
            beta1=group["betas"][0],
            beta2=group["betas"][1],
            weight_decay=group["weight_decay"],
            eps=group["eps"],
            amsgrad=False,
            maximize=False,
        )

    return step


def _moments(
    optimizer: torch.optim.Optimizer, weights: list[torch.Tensor]
) -> dict[str, list[torch.Tensor]]:
    """Return the state of all weights by name; {} if some have none."""
    states = [optimizer.state.get(weight) for weight in weights]
    if not all(states):
        return {}
    return {
        name: [state[name] for state in states if state is not None]
        for name in ("exp_avg", "exp_avg_sq", "step")
    }


def _is_plain(group: dict[str, Any]) -> bool:
    """Return whether a group's weights are of one kind and updated by the usual formula."""
    kinds = {(weight.device, weight.dtype) for weight in group["params"]}
    usual = not any(group.get(name) for name in _OTHER_FORMULAS)
    return bool(group.get("fused")) and usual and len(kinds) == 1


class TestRows:
    """Rows that models predict.

    `X`, float32 tensor (row, ...): encoded rows. `augmented`: transforms the same rows at random,
    anew for each member; a single network is member 0. Member j uses the random words after those
    of the first j members, so what it sees depends neither on earlier predictions nor on
    interruptions.
    """

    __test__ = False  # keeps pytest from collecting it

    def __init__(self, X: Tensor, augmented: Augmented | None = None) -> None:
        self._X, self._augmented = X, augmented

    def parts(self, member: int = 0) -> Iterator[Tensor]:
        """Yield the rows that a member sees, in order, as many at a time as are fast."""
        is_large = self._X.ndim > 2 and self._X.device.type == "cpu"
        at_once = IMAGES_AT_ONCE if is_large else PREDICTED_AT_ONCE
        if self._augmented is None:
            yield from self._X.split(at_once)
            return
        n = len(self._X)
        self._augmented.skip_to(member * n)
        for index in torch.arange(n, device=self._X.device).split(at_once):
            yield self._augmented(index)

    @torch.no_grad()
    def logits(self, model: nn.Module, member: int = 0) -> Tensor:
        """Return the logits (row, class) of a model in its current mode."""
        logits = [model(part) for part in self.parts(member)]
        return logits[0] if len(logits) == 1 else torch.cat(logits)


@dataclass(frozen=True, slots=True)
class TrainingPlan:
    """How long and in what steps a network is trained.

    `epochs` and `batch_size`: passes over the training rows, and rows per step. `rate`: the
    learning rate of each step (`Rate`). `snapshots`: epochs, counted from 1, after which the test
    set is predicted, besides the last. `smallest_batch`: a last batch with fewer rows joins the one
    before (batch norm cannot train on one row). `precision`: of the matrix products of steps;
    weights, their updates, the loss and predictions are in float32.
    """

    epochs: int
    batch_size: int
    rate: Rate
    snapshots: tuple[int, ...] = ()
    smallest_batch: int = 1
    precision: Precision = "float32"

    def logits(self, model: nn.Module, X: Tensor) -> Tensor:
        """Return what a step makes of its rows."""
        is_bf16 = self.precision == "bf16"
        with torch.autocast(X.device.type, torch.bfloat16) if is_bf16 else nullcontext():
            logits: Tensor = model(X)
        return logits.float() if is_bf16 else logits


def owned(array: NDArray[Any], device: torch.device, dtype: torch.dtype) -> Tensor:
    """Copy an array into memory owned by torch."""
    return torch.tensor(array, dtype=dtype, device=device)


def train(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    X: Tensor,
    y: Tensor,
    test_rows: TestRows,
    plan: TrainingPlan,
    order: np.random.Generator,
    *,
    masks: torch.Generator | None = None,
    augmented: Augmented | None = None,
    y_test: Tensor | None = None,
    checkpoint: Checkpoint | None = None,
    trajectory: Ensembling | None = None,
) -> Fitted:
    """Minimise the cross-entropy and predict the test set after the kept epochs.

    `model`: maps rows to logits; initialised, on the device of the tensors. `optimizer`: updates
    the model's parameters, at the plan's learning rates. `X`, float32 tensor (row, ...): encoded
    training rows. `y`, int64 tensor (row,): class indices. `order`: the run's stream ``batch``.
    `masks`: the generator of the model's dropout, to be saved in checkpoints. `augmented`: presents
    transformed training rows in place of `X`. `y_test`, int64 tensor (row,): class indices of the
    test set; requests learning curves. `checkpoint`: where to resume from and to save.
    `trajectory`: takes members during training or draws them afterwards; scores are then those of
    the whole ensemble, and seconds include the members' predictions.
    """
    if X.device.type == "cpu":
        # Rounding depends on the number of threads; for small models processes beat threads anyway.
        torch.set_num_threads(1)
    terms: list[str | int | bool] = [
        str(torch.__version__),
        X.device.type,
        y_test is not None,
        *plan.snapshots,
    ]
    draws = None if augmented is None else augmented.draws
    plateau = plan.rate if isinstance(plan.rate, Plateau) else None
    parts = TrainingParts(model, optimizer, order, masks, terms, draws, trajectory, plateau)
    presented = X.__getitem__ if augmented is None else augmented
    progress = TrainingState() if checkpoint is None else restore(checkpoint, parts)
    saved = monotonic()
    while progress.epoch < plan.epochs:
        started = perf_counter()
        measured = None if y_test is None else Measured(X.device)
        if trajectory is not None:
            trajectory.before_epoch(progress.epoch)
        _train_epoch(parts, presented, y, plan, progress.epoch, measured)
        if plateau is not None:
            plateau.after_epoch()
        progress.epoch += 1
        if trajectory is not None:
            trajectory.after_epoch(progress.epoch)
            if trajectory.takes(progress.epoch):
                trajectory.take(_predict(model, test_rows, trajectory.taken).cpu().numpy())
        progress.seconds += perf_counter() - started
        last = progress.epoch == plan.epochs
        kept = trajectory is None and (last or progress.epoch in plan.snapshots)
        if kept or y_test is not None:
            logits = _predict(model, test_rows)
            if kept:
                progress.logits.append(logits.cpu().numpy())
            if measured is not None and y_test is not None:
                record(progress.curves, measured, logits, y_test)
        if checkpoint is not None and not last and monotonic() - saved >= checkpoint.every:
            save(checkpoint, parts, progress)
            saved = monotonic()
    while trajectory is not None and not trajectory.is_complete:
        if checkpoint is not None and monotonic() - saved >= checkpoint.every:
            save(checkpoint, parts, progress)
            saved = monotonic()
        started = perf_counter()
        model.eval()
        with trajectory.drawn():
            trajectory.take(test_rows.logits(model, trajectory.taken).cpu().numpy())
        progress.seconds += perf_counter() - started
    return _fitted(progress, alive(model, X), trajectory)


def _fitted(progress: TrainingState, last: Alive, trajectory: Ensembling | None = None) -> Fitted:
    curves = {name: np.asarray(values, np.float32) for name, values in progress.curves.items()}
    if trajectory is not None:
        members = trajectory.arrays()
        return Fitted(trajectory.scores(), progress.seconds, curves or None, last, members)
    return Fitted(np.stack(progress.logits), progress.seconds, curves or None, last)


class StackedRun(NamedTuple):
    """A run of a stack; as the arguments of `train`."""

    model: nn.Module
    optimizer: torch.optim.Optimizer
    X: Tensor
    y: Tensor
    test_rows: TestRows
    plan: TrainingPlan
    order: np.random.Generator
    y_test: Tensor | None = None
    augmented: Augmented | None = None


def train_stack(members: Sequence[StackedRun]) -> list[Fitted]:
    """Train several runs at once, step by step, each as `train` would but for rounding.

    None has an influence on another, whatever becomes of it. Seconds are shares of the whole.

    `members`: networks that `jobs.training.layers.stacked` takes. Alike are the numbers of rows,
    epochs, batches and snapshots, and the kind of optimizer; members whose optimizers have the same
    settings have the same learning rates.
    """
    first, models = members[0], [member.model for member in members]
    if first.X.device.type == "cpu":
        torch.set_num_threads(1)
    model, progress = stacked(models).train(), [TrainingState() for _ in members]
    update = _stepping_together(model, members)
    sources = [*{id(member.X): member.X for member in members}.values()]
    places = {id(X): place for place, X in enumerate(sources)}
    n, device = len(first.X), first.X.device
    start = torch.tensor([[n * places[id(member.X)]] for member in members], device=device)
    X = sources[0] if len(sources) == 1 else torch.cat(sources)
    y = torch.stack([member.y for member in members])
    plateaus = [rate for member in members if isinstance(rate := member.plan.rate, Plateau)]
    transforms = [each.augmented for each in members if each.augmented is not None]
    memory = X.new_empty(0)  # of a batch: large memory that is given back costs more than filling
    for epoch in range(first.plan.epochs):
        started = perf_counter()
        measured = [Measured(device) for member in members if member.y_test is not None]
        sizes = n, first.plan.batch_size, first.plan.smallest_batch
        orders = zip(*(batches(member.order, *sizes) for member in members), strict=True)
        for step, rows in enumerate(orders):
            index = torch.stack(rows).to(device)
            if not transforms:
                memory.resize_(index.numel(), *X.shape[1:])
                torch.index_select(X, 0, (start + index).view(-1), out=memory)
                presented = memory.view(*index.shape, *X.shape[1:])
            else:
                own = zip(transforms, index, strict=True)
                presented = torch.stack([each(places) for each, places in own])
            is_flat = presented.ndim == 3
            logits = first.plan.logits(model, presented.transpose(1, 2) if is_flat else presented)
            labels = y.gather(1, index)
            losses = cross_entropy(logits, labels, reduction="none").mean(1)
            losses.sum().backward()  # each depends on the weights of its own network alone
            update(epoch, step, n_batches(*sizes))
            losses, logits = losses.detach(), logits.detach().transpose(1, 2)
            for plateau, loss in zip(plateaus, losses if plateaus else (), strict=True):
                plateau.add(loss, index.shape[1])
            parts = (losses, logits, labels) if measured else ((), (), ())
            for curve, *values in zip(measured, *parts, strict=True):
                curve.add(*values)
        for plateau in plateaus:
            plateau.after_epoch()
        seconds = (perf_counter() - started) / len(members)
        kept = epoch + 1 in (*first.plan.snapshots, first.plan.epochs)
        if kept or measured:
            unstack(model, models)
        for each, member in zip(progress, members, strict=True):
            each.seconds += seconds
            if not kept and member.y_test is None:
                continue
            scores = _predict(member.model, member.test_rows)
            if kept:
                each.logits.append(scores.cpu().numpy())
            if member.y_test is not None:
                record(each.curves, measured.pop(0), scores, member.y_test)
    return [_fitted(each, alive(m.model, m.X)) for each, m in zip(progress, members, strict=True)]


def _stepping_together(
    model: nn.Module, members: Sequence[StackedRun]
) -> Callable[[int, int, int], None]:
    """Return a function that updates a stack after a step: ``update(epoch, step, steps)``.

    Members with the same settings are updated by one call, in views if there are several groups.
    """
    first, groups = members[0], dict[object, list[int]]()
    for number, member in enumerate(members):
        settings: object = tuple(sorted(member.optimizer.defaults.items()))
        own_rate = isinstance(member.plan.rate, Plateau)
        groups.setdefault(number if own_rate else settings, []).append(number)
    weights = [*model.parameters()]
    views: dict[int, list[Tensor]] = {}
    if len(groups) > 1:
        for number in range(len(members)):
            views[number] = [each.detach()[number].requires_grad_() for each in weights]
    given = [
        {
            **members[numbers[0]].optimizer.defaults,
            "params": [each for n in numbers for each in views[n]] if views else weights,
        }
        for numbers in groups.values()
    ]
    kind: Callable[..., torch.optim.Optimizer] = type(first.optimizer)
    optimizer = kind(given)
    rates = [members[numbers[0]].plan.rate for numbers in groups.values()]
    step_all = stepping(optimizer)

    def update(epoch: int, step: int, steps: int) -> None:
        for group, rate in zip(optimizer.param_groups, rates, strict=True):
            group["lr"] = rate(epoch, step, steps)
        for number, own in views.items():
            for each, view in zip(weights, own, strict=True):
                assert each.grad is not None
                view.grad = each.grad[number]
        step_all()
        for each in weights:
            each.grad = None

    return update


def alive(model: nn.Module, X: Tensor | None) -> Alive:
    """Wrap a trained model; a model on the CPU limits torch in this process to one thread.

    `model`: on its device. `X`, float32 tensor (row, ...) or None: its encoded training rows.
    """
    if all(weights.device.type == "cpu" for weights in model.parameters()):
        torch.set_num_threads(1)
    return Alive(X, lambda rows: _predict(model, TestRows(rows)).cpu().numpy())


def _train_epoch(
    parts: TrainingParts,
    presented: Callable[[Tensor], Tensor],
    y: Tensor,
    plan: TrainingPlan,
    epoch: int,
    measured: Measured | None,
) -> None:
    parts.model.train()
    steps = n_batches(len(y), plan.batch_size, plan.smallest_batch)
    parameters = [*parts.model.parameters()]
    shuffled = batches(parts.order, len(y), plan.batch_size, plan.smallest_batch)
    update = stepping(parts.optimizer)
    updated = [each for group in parts.optimizer.param_groups for each in group["params"]]
    for step, rows in enumerate(shuffled):
        rate = plan.rate(epoch, step, steps)
        for group in parts.optimizer.param_groups:
            group["lr"] = rate
        index = rows.to(y.device)
        for weights in updated:
            weights.grad = None
        logits, labels = plan.logits(parts.model, presented(index)), y[index]
        loss = cross_entropy(logits, labels)
        loss.backward()
        update()
        if parts.trajectory is not None:
            parts.trajectory.after_step(parameters, rate, epoch, steps)
        if parts.plateau is not None:
            parts.plateau.add(loss.detach(), len(labels))
        if measured is not None:
            measured.add(loss.detach(), logits.detach(), labels)


def batches(
    order: np.random.Generator, n: int, batch_size: int, smallest: int = 1
) -> Iterable[Tensor]:
    """Cut a random order of `n` rows into batches of indices; the last may be incomplete.

    A last batch of fewer than `smallest` rows joins the one before it.

    `order`: the stream ``batch``.
    """
    shuffled = torch.from_numpy(np.argsort(raw(order, n), kind="stable"))
    parts = list(shuffled.split(batch_size))
    if len(parts) > 1 and len(parts[-1]) < smallest:
        parts[-2:] = [torch.cat(parts[-2:])]
    return parts


def n_batches(n: int, batch_size: int, smallest: int = 1) -> int:
    """Return the number of batches into which `batches` cuts `n` rows."""
    whole, rest = divmod(n, batch_size)
    return whole + (rest > 0 and (whole == 0 or rest >= smallest))


def _predict(model: nn.Module, rows: TestRows, member: int = 0) -> Tensor:
    if model.training:
        model.eval()
    return rows.logits(model, member)
