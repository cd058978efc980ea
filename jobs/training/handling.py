"""What a fit is told besides what to train, and what it returns."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from manyseed.jobs.training.checkpoint import Checkpoint
from manyseed.jobs.training.state import State

if TYPE_CHECKING:
    from manyseed.jobs.response.questions import Asked

Device = Literal["cpu", "gpu"]

PREDICTED_AT_ONCE = 1024
"""Test rows that a network predicts at a time."""


@dataclass(frozen=True, slots=True)
class Alive:
    """A trained model that is still in memory.

    Attributes
    ----------
    rows : array or tensor or None
        The encoded training rows, in order, on the model's device. None for a model rebuilt from
        its kept parameters.
    predict : callable
        ``predict(rows)`` returns scores of encoded rows in the form of `Fitted.scores` without the
        epoch dimension. It draws no random number and does not change the model.
    encode : callable, optional
        ``encode(raw)`` encodes raw rows, a float64 array (n, n_features), for `predict`.
    look_up : callable, optional
        ``look_up(index)`` returns encoded rows of the prepared dataset, given an int64 array (n,);
        replaces `encode` if that would take long.
    model : object, optional
        The trained object: a network's module, or the library's model if it is not made of arrays.
    forward : callable, optional
        For networks, ``forward(rows)`` returns logits (row, class) of a few encoded rows, a tensor
        on the model's device, as fast as possible; last bits may differ from `predict`. Call it
        without gradients, and after `predict`, which sets evaluation mode.
    halves : callable, optional
        ``halves()`` cuts a network after its first block (`jobs.training.network.Network.halves`);
        absent if there is no hidden layer.
    n_continuous : int or None
        How many of the first columns of encoded rows are continuous; None means all.
    state : callable, optional
        ``state()`` returns all arrays of the model, from which it can be rebuilt. Absent if the
        model is not made of arrays.
    test : object, optional
        For networks, the encoded test rows.
    """

    rows: Any
    predict: Callable[[Any], NDArray[np.floating[Any]]]
    encode: Callable[[NDArray[Any]], Any] | None = None
    halves: Callable[[], tuple[Any, Any]] | None = None
    n_continuous: int | None = None
    state: Callable[[], State] | None = None
    look_up: Callable[[NDArray[np.int64]], Any] | None = None
    model: Any = None
    test: Any = None
    forward: Callable[[Any], Any] | None = None


AfterTraining = Callable[[Alive], Mapping[str, NDArray[Any]]]
"""Measures a trained model and returns arrays by name."""


@dataclass(frozen=True, slots=True)
class Handling:
    """How to run a fit and what to keep; the last scores are the same whatever is kept.

    Attributes
    ----------
    snapshots : tuple of int
        Epochs, counted from 1, whose predictions are kept besides the last one's; classifiers
        without epochs keep a single prediction.
    device : {"cpu", "gpu"}
        Where to train, for classifiers that can choose.
    curves : bool
        Whether to record the loss and accuracy of every epoch (`jobs.run.Prediction.curves`), which
        needs `TrainingSet.y_test`. Classifiers without epochs have no curves.
    checkpoint : Checkpoint, optional
        Where a network saves itself after epochs and resumes from. Its key identifies the run and
        its recipe; the caller removes it when the prediction is safe.
    measures : tuple of str
        What to measure of the trained model: names in `jobs.training.alive.MEASURES`; with an
        ensembling method also in `jobs.ensembling.members.ARRAYS`.
    response : Asked, optional
        Response curves to measure (`jobs.response.measure`).
    after_training : callable, optional
        Further measurements of the model before it is freed; the trainer makes it from `response`.
    ensembling : mapping, optional
        The method that yields several members, as returned by `jobs.ensembling.methods.resolve`.
        It is part of the run; the trainer sets it from the run's cell.
    timeout : float
        Seconds after which a user's command is stopped; 0 for never.
    """

    snapshots: tuple[int, ...] = ()
    device: Device = "cpu"
    curves: bool = False
    checkpoint: Checkpoint | None = None
    measures: tuple[str, ...] = ()
    response: Asked | None = None
    after_training: AfterTraining | None = None
    ensembling: Mapping[str, Any] | None = None
    timeout: float = 0.0


PLAIN = Handling()


class Fitted(NamedTuple):
    """The result of a fit.

    Attributes
    ----------
    scores : float array (epoch, sample, class)
        Scores of the test set after each kept epoch, or once if there are no epochs. For two
        classes possibly their gap instead, (epoch, sample): the positive class's score minus the
        other's.
    seconds : float
        Wall time of fitting, without prediction; summed over attempts if training was resumed.
    curves : dict of float32 arrays (epoch,), or None
        As `jobs.run.Prediction.curves`.
    alive : Alive, optional
        The model that gave the last scores.
    members : dict of arrays, or None
        What is kept of an ensembling method's members (`jobs.ensembling.members.ARRAYS`).
    """

    scores: NDArray[np.floating[Any]]
    seconds: float
    curves: Mapping[str, NDArray[np.float32]] | None = None
    alive: Alive | None = None
    members: Mapping[str, NDArray[np.float32]] | None = None
