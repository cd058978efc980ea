"""What it takes to ask a trained model."""

from __future__ import annotations

from manyseed.jobs.classifiers.record import ClassifierInfo
from manyseed.jobs.classifiers.registry import TRANSFORM_SECONDS
from manyseed.jobs.datasets.info import DatasetInfo
from manyseed.jobs.response.asked import DBI_BATCH, DBI_BATCHES, PAIRED, Asked

_OF_TRAINING = 1 / 3
"""A row's prediction, of what its training takes in an epoch."""

_ROW_SECONDS = 1e-5
"""A row's prediction by a classifier without epochs, by problem of two classes."""


def response_seconds(
    dataset: DatasetInfo, info: ClassifierInfo, asked: Asked, rows: float
) -> float:
    """Return what measuring a model that was trained on so many rows takes on one core.

    Predictions of magnitudes × rows × draws, half of them where these are pairs, the transforms of
    images, one of all training and test rows, and of the rows of the Davies–Bouldin index.

    Parameters
    ----------
    dataset : DatasetInfo
    info : ClassifierInfo
    asked : Asked
    rows : float
    """
    each = _ROW_SECONDS * dataset.binary_problems
    if info.epochs is not None:
        each = info.record.core_seconds(dataset, info, rows) / (info.epochs * rows) * _OF_TRAINING
    sampled = asked.rows * rows if isinstance(asked.rows, float) else min(asked.rows, rows)
    seconds = (rows + dataset.n_test) * each
    if asked.dbi:
        seconds += min(rows, DBI_BATCHES * DBI_BATCH) * each
    for transform, _ in asked.responses:
        predicted = len(asked.grid(transform)) * sampled * asked.draws
        if transform in PAIRED:
            seconds += predicted / 2 * each
        else:
            of_row = dataset.n_features * TRANSFORM_SECONDS[transform.partition(":")[0]]
            shifted = sampled + dataset.n_test
            seconds += (predicted + shifted) * (each + of_row)
    return seconds
