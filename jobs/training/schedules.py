"""Learning rates by name, as functions of epoch and step."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from torch import Tensor

Rate = Callable[[int, int, int], float]
"""``rate(epoch, step, steps)``: the learning rate of a step; epoch and step count from 0, and each
epoch has `steps` steps."""

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


def schedule(name: str, rate: float, epochs: int) -> Rate:
    """Return the learning rate of each step; all these schedules change only between epochs.

    `name`: ``cosine`` falls to 0 as half a cosine. ``piecewise-linear`` is constant for half of the
    epochs, falls linearly to a hundredth by nine tenths of them, and is constant again (PIT, eq.
    10). ``step`` falls to a tenth every 30 epochs (PIT, appendix D, for ImageNet). ``plateau``
    follows the training loss, which must be passed to it (`Plateau`). `rate`: the initial rate.
    """
    if name == "plateau":
        return Plateau(rate)

    def piecewise_linear(epoch: int) -> float:
        done = epoch / epochs
        return rate * min(1.0, max(0.01, 1 - 0.99 * (done - 0.5) / 0.4))

    schedules: dict[str, Callable[[int], float]] = {
        "constant": lambda _: rate,
        "cosine": lambda epoch: rate * (1 + math.cos(math.pi * epoch / epochs)) / 2,
        "piecewise-linear": piecewise_linear,
        "step": lambda epoch: rate * 0.1 ** (epoch // 30),
    }
    epoch_rate = schedules[name]
    return lambda epoch, step, steps: epoch_rate(epoch)
