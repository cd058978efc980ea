"""Measure a trained model before it is freed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from manyseed.jobs.run import TrainingSet
from manyseed.jobs.training.handling import Alive
from manyseed.jobs.training.prediction import gaps, labels
from manyseed.jobs.training.state import packed

Measure = Callable[[Alive, TrainingSet], NDArray[Any]]


def measure(
    names: Iterable[str],
    alive: Alive | None,
    data: TrainingSet,
    members: Mapping[str, NDArray[Any]] | None = None,
) -> dict[str, NDArray[Any]] | None:
    """Measure a model after its training; return None if nothing is requested.

    No random number is drawn, and the test set is already predicted, so measuring never changes a
    run's prediction.

    Parameters
    ----------
    names : iterable of str
        Keys of `MEASURES` or `members`.
    alive : Alive or None
        The model.
    data : TrainingSet
        The model's training set.
    members : dict of arrays, optional
        What an ensembling method kept.

    Raises
    ------
    ValueError
        If the classifier hands over no model.
    """
    measured: dict[str, NDArray[Any]] = {}
    for name in names:
        if members is not None and name in members:
            measured[name] = members[name]
            continue
        if alive is None:
            raise ValueError(f"{name} cannot be measured: the fit hands over no model")
        measured[name] = MEASURES[name](alive, data)
    return measured or None


def train_accuracy(alive: Alive, data: TrainingSet) -> NDArray[np.float32]:
    """Return the share of training rows that the model predicts correctly, shape ().

    Labels come from float32 scores, as for the test set. NaN if a score is not finite.
    """
    scores = alive.predict(alive.rows)
    with np.errstate(over="ignore", invalid="ignore"):
        values = np.asarray(gaps(scores) if scores.ndim == 2 else scores, dtype=np.float32)
    if not np.isfinite(values).all():
        return np.asarray(np.nan, dtype=np.float32)
    right = labels(values, 2 if values.ndim == 1 else values.shape[1]) == data.y
    return np.asarray(right.mean(), dtype=np.float32)


def parameters(alive: Alive, _: TrainingSet) -> NDArray[Any]:
    """Return all arrays of the model as one row of numbers (`jobs.training.state.packed`)."""
    if alive.state is None:
        raise ValueError("the model is not made of arrays")
    return packed(alive.state())


MEASURES: Mapping[str, Measure] = {
    "final_train_accuracy": train_accuracy,
    "parameters": parameters,
}
"""By their key in `jobs.run.Prediction.measured`."""
