"""What is asked of a fit besides its model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from jobs.training.checkpoint import Checkpoint

Device = Literal["cpu", "gpu"]


@dataclass(frozen=True, slots=True)
class Handling:
    """How a fit is made and what is kept of it; its last scores are the same whatever is asked.

    The attributes are the arguments of `jobs.classifiers.fit` with the same names.
    """

    snapshots: tuple[int, ...] = ()
    device: Device = "cpu"
    curves: bool = False
    checkpoint: Checkpoint | None = None
