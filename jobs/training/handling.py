"""What is asked of a fit besides its model, and what it yields."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from manyseed.jobs.training.checkpoint import Checkpoint

Device = Literal["cpu", "gpu"]


@dataclass(frozen=True, slots=True)
class Handling:
    """How a fit is made and what is kept of it; its last scores are the same whatever is asked.

    Attributes
    ----------
    snapshots : tuple of int
        Epochs, counted from 1, whose predictions are kept beside those of the last; classifiers
        that are not trained in epochs keep one prediction.
    device : {"cpu", "gpu"}
        Where to train, for classifiers that can choose.
    curves : bool
        Whether to record loss and accuracy of every epoch (`jobs.run.Prediction.curves`); needs
        `TrainingSet.y_test`. Classifiers without epochs have none.
    checkpoint : Checkpoint, optional
        Where a network saves itself after epochs and goes on from. Its key names the run and its
        recipe; the caller removes it when the prediction is safe.
    """

    snapshots: tuple[int, ...] = ()
    device: Device = "cpu"
    curves: bool = False
    checkpoint: Checkpoint | None = None


PLAIN = Handling()


class Fitted(NamedTuple):
    """What a fit yields.

    Attributes
    ----------
    scores : float array (epoch, sample, class)
        Of the test set, after the kept epochs or, without epochs, once. Two classes may have their
        gap instead, (epoch, sample): the positive class's score minus the other's.
    seconds : float
        Wall time of fitting, without prediction; of a continued training in all its attempts.
    curves : dict of float32 arrays (epoch,), or None
        As `jobs.run.Prediction.curves`.
    """

    scores: NDArray[np.floating[Any]]
    seconds: float
    curves: Mapping[str, NDArray[np.float32]] | None = None
