"""The training loop of networks: one model, index tensors, one thread on a CPU."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from time import monotonic, perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from manyseed.jobs.run import raw
from manyseed.jobs.training.checkpoint import (
    Checkpoint,
    TrainingParts,
    TrainingState,
    restore,
    save,
)
from manyseed.jobs.training.curves import Measured, record
from manyseed.jobs.training.handling import Alive, Fitted
from manyseed.jobs.training.schedules import Plateau, Rate
from manyseed.jobs.training.steps import stepping
from manyseed.jobs.training.testrows import TestRows

if TYPE_CHECKING:
    from manyseed.jobs.ensembling.ensemble import Ensembling
    from manyseed.jobs.images.augment import Augmented


@dataclass(frozen=True, slots=True)
class TrainingPlan:
    """How long and in what steps a network is trained.

    Attributes
    ----------
    epochs, batch_size : int
        Passes over the training rows, and rows per step.
    rate : callable
        The learning rate of each step (`Rate`).
    snapshots : tuple of int
        Epochs, counted from 1, after which the test set is predicted, besides the last.
    smallest_batch : int
        A last batch with fewer rows joins the one before (batch norm cannot train on one row).
    """

    epochs: int
    batch_size: int
    rate: Rate
    snapshots: tuple[int, ...] = ()
    smallest_batch: int = 1


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

    Parameters
    ----------
    model : torch.nn.Module
        Maps rows to logits; initialised, on the device of the tensors.
    optimizer : torch.optim.Optimizer
        Updates the model's parameters, at the plan's learning rates.
    X : float32 tensor (row, ...)
        Encoded training rows.
    y : int64 tensor (row,)
        Class indices.
    test_rows : TestRows
    plan : TrainingPlan
    order : numpy.random.Generator
        The run's stream ``batch``.
    masks : torch.Generator, optional
        The generator of the model's dropout, to be saved in checkpoints.
    augmented : Augmented, optional
        Presents transformed training rows in place of `X`.
    y_test : int64 tensor (row,), optional
        Class indices of the test set; requests learning curves.
    checkpoint : Checkpoint, optional
        Where to resume from and to save.
    trajectory : Ensembling, optional
        Takes members during training or draws them afterwards; scores are then those of the whole
        ensemble, and seconds include the members' predictions.
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
    curves = {name: np.asarray(values, np.float32) for name, values in progress.curves.items()}
    last_model = alive(model, X)
    if trajectory is not None:
        members = trajectory.arrays()
        return Fitted(trajectory.scores(), progress.seconds, curves or None, last_model, members)
    return Fitted(np.stack(progress.logits), progress.seconds, curves or None, last_model)


def alive(model: nn.Module, X: Tensor | None) -> Alive:
    """Wrap a trained model; a model on the CPU limits torch in this process to one thread.

    Parameters
    ----------
    model : torch.nn.Module
        On its device.
    X : float32 tensor (row, ...) or None
        Its encoded training rows.
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
        logits, labels = parts.model(presented(index)), y[index]
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

    Parameters
    ----------
    order : numpy.random.Generator
        The stream ``batch``.
    n, batch_size, smallest : int
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
