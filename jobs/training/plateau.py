"""A learning rate that falls once the training loss no longer does."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from torch import Tensor

FACTOR = 0.1
PATIENCE = 10
THRESHOLD = 1e-4


class Plateau:
    """Multiplies the rate by `FACTOR` after `PATIENCE` epochs in a row without improvement.

    An epoch's loss, the mean over its batches as they are trained, is an improvement if it is below
    (1 - `THRESHOLD`) times the least so far; each reduction restarts the count. Schiff et al.
    (2021, arXiv 2106.04765) reduce rates on plateaus but give no numbers: these are our choice.
    """

    def __init__(self, rate: float) -> None:
        self.rate = rate
        self._least, self._idle = math.inf, 0
        self._total: Tensor | float = 0.0
        self._rows = 0

    def __call__(self, epoch: int, step: int, steps: int) -> float:
        """Return the rate, the same for all steps of an epoch."""
        return self.rate

    def add(self, loss: Tensor, rows: int) -> None:
        """Add a batch's mean loss on its device, so that training does not wait for the number."""
        self._total = self._total + loss.double() * rows
        self._rows += rows

    def after_epoch(self) -> None:
        """Finish the epoch's loss, and lower the rate if it has not improved for long enough."""
        loss = float(self._total) / self._rows
        self._total, self._rows = 0.0, 0
        if loss < self._least * (1 - THRESHOLD):
            self._least, self._idle = loss, 0
        else:
            self._idle += 1
        if self._idle == PATIENCE:
            self.rate, self._idle = self.rate * FACTOR, 0

    def state(self) -> dict[str, float]:
        """Return the state between two epochs, for `restore`."""
        return {"rate": self.rate, "least": self._least, "idle": self._idle}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Resume from what `state` returned."""
        self.rate, self._least, self._idle = state["rate"], state["least"], state["idle"]
