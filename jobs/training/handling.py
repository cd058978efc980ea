"""What is asked of a fit besides its model, and what it yields."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from manyseed.jobs.training.checkpoint import Checkpoint
from manyseed.jobs.training.state import State

if TYPE_CHECKING:
    from manyseed.jobs.response.asked import Asked

Device = Literal["cpu", "gpu"]

PREDICTED_AT_ONCE = 1024
"""Rows of the test set that a network predicts at once."""


@dataclass(frozen=True, slots=True)
class Alive:
    """A trained model that is still in memory.

    Attributes
    ----------
    rows : array or tensor or None
        The training rows, in order, as the model takes them; on its device. None of a model that
        was made of its kept parameters.
    predict : callable
        ``predict(rows)`` returns their scores in the form of `Fitted.scores`, without the
        dimension epoch. It draws no random number and changes nothing in the model.
    encode : callable, optional
        ``encode(raw)`` makes of raw rows, a float64 array (n, n_features), what `predict` takes.
    look_up : callable, optional
        ``look_up(index)`` makes the same of rows of the prepared dataset, int64 array (n,), in the
        place of `encode` where it would take long.
    model : object, optional
        What was trained: a network's module, or the library's own where it is none of arrays.
    forward : callable, optional
        Of a network: ``forward(rows)`` returns logits (row, class) of few rows, a tensor on its
        device; the quickest way, whose last bits may differ from those of `predict`. It is called
        without gradients, and after `predict`, which sets evaluation.
    halves : callable, optional
        ``halves()`` cuts a network behind its first block (`jobs.training.network.Network.halves`);
        absent where nothing is hidden.
    n_continuous : int or None
        How many columns of encoded rows, the first ones, are continuous; None for all.
    state : callable, optional
        ``state()`` returns all arrays of the model: with them it can be made again. Absent where
        it is none of arrays.
    test : object, optional
        Of networks: the test rows as `predict` takes them.
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
"""Measures a trained model: a dict of arrays."""


@dataclass(frozen=True, slots=True)
class Handling:
    """How a fit is made and what is kept of it; its last scores are the same whatever is kept.

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
    measures : tuple of str
        What is measured of the trained model: names of `jobs.training.alive.MEASURES`; with an
        ensembling method also of `jobs.ensembling.members.ARRAYS`.
    response : Asked, optional
        Which response curves are measured (`jobs.response.measure`).
    after_training : callable, optional
        What else is measured of it, before it is freed: the trainer makes it of `response`.
    ensembling : mapping, optional
        The method that makes several members of the training, as `jobs.ensembling.methods.resolve`
        returns it: a part of what the run is, which the trainer sets from its cell.
    timeout : float
        Seconds after which a user's command is ended; 0 for never.
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
    alive : Alive, optional
        The model of the last scores.
    members : dict of arrays, or None
        What is kept of an ensembling method's members (`jobs.ensembling.members.ARRAYS`).
    """

    scores: NDArray[np.floating[Any]]
    seconds: float
    curves: Mapping[str, NDArray[np.float32]] | None = None
    alive: Alive | None = None
    members: Mapping[str, NDArray[np.float32]] | None = None
