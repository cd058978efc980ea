"""The training loop of the networks: one model, index tensors, one thread on a CPU."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from time import perf_counter
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from jobs.run import MachineError
from jobs.streams import raw

_PREDICTED_AT_ONCE = 1024


@dataclass(frozen=True, slots=True)
class Plan:
    """How long and in what steps a network is trained.

    Attributes
    ----------
    epochs, batch_size : int
        Passes over the training rows, and rows a step.
    learning_rate : callable
        Learning rate of an epoch, counted from 0.
    snapshots : tuple of int
        Epochs, counted from 1, after which the test set is predicted; the last one always is.
    smallest_batch : int
        A last batch with fewer rows joins the one before (batch norm cannot train on one row).
    """

    epochs: int
    batch_size: int
    learning_rate: Callable[[int], float]
    snapshots: tuple[int, ...] = ()
    smallest_batch: int = 1


def torch_device(device: Literal["cpu", "gpu"]) -> torch.device:
    """Return torch's device for a resource class.

    Raises
    ------
    MachineError
        Where a GPU is asked for and torch sees none.
    """
    if device == "cpu":
        return torch.device("cpu")
    if not torch.cuda.is_available():
        raise MachineError("torch finds no CUDA device; train with device = 'cpu'")
    return torch.device("cuda")


def owned(array: NDArray[Any], device: torch.device, dtype: torch.dtype) -> Tensor:
    """Copy an array into memory that torch owns."""
    return torch.tensor(array, dtype=dtype, device=device)


def train(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    X: Tensor,
    y: Tensor,
    X_test: Tensor,
    plan: Plan,
    order: np.random.Generator,
) -> tuple[NDArray[np.float32], float]:
    """Minimise the cross-entropy and predict the test set after the kept epochs.

    Parameters
    ----------
    model : torch.nn.Module
        Maps rows to logits; already initialised, on the device of the tensors.
    optimizer : torch.optim.Optimizer
        Over the model's parameters; its learning rate is set by the plan.
    X, X_test : float32 tensors (row, ...)
        Encoded rows.
    y : int64 tensor (row,)
        Class indices.
    plan : Plan
        Epochs, batches, learning rates, snapshots.
    order : numpy.random.Generator
        The run's stream ``batch``.

    Returns
    -------
    tuple
        Logits (epoch, sample, class), float32, and the seconds spent on predicting.
    """
    if X.device.type == "cpu":
        # Rounding depends on the number of threads, and processes outdo threads on small models.
        torch.set_num_threads(1)
    kept, predicting = [], 0.0
    for epoch in range(plan.epochs):
        for group in optimizer.param_groups:
            group["lr"] = plan.learning_rate(epoch)
        model.train()
        for rows in batches(order, len(X), plan.batch_size, plan.smallest_batch):
            index = rows.to(X.device)
            optimizer.zero_grad(set_to_none=True)
            cross_entropy(model(X[index]), y[index]).backward()
            optimizer.step()
        if epoch + 1 in plan.snapshots or epoch + 1 == plan.epochs:
            started = perf_counter()
            kept.append(_predict(model, X_test))
            predicting += perf_counter() - started
    return np.stack(kept), predicting


def batches(
    order: np.random.Generator, n: int, batch_size: int, smallest: int = 1
) -> Iterable[Tensor]:
    """Cut a random order of `n` rows into batches of indices; the last may be incomplete.

    A last batch of fewer than `smallest` rows is joined to the one before it.
    """
    shuffled = torch.from_numpy(np.argsort(raw(order, n), kind="stable"))
    parts = list(shuffled.split(batch_size))
    if len(parts) > 1 and len(parts[-1]) < smallest:
        parts[-2:] = [torch.cat(parts[-2:])]
    return parts


@torch.no_grad()
def _predict(model: nn.Module, X: Tensor) -> NDArray[np.float32]:
    model.eval()
    logits = [model(part) for part in X.split(_PREDICTED_AT_ONCE)]
    return torch.cat(logits).cpu().numpy()
