"""Learning curves: loss and accuracy of each epoch."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from manyseed.jobs.training.prediction import gaps, labels


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

    Parameters
    ----------
    curves : dict of lists
        By name, one number per epoch.
    trained : Measured
        The epoch's batches.
    logits : tensor (sample, class)
        Logits of the test set after the epoch.
    y_test : tensor (sample,)
        Class indices of the test set.
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
