"""Estimate the cost of measuring a trained model's response curves."""

from __future__ import annotations

from manyseed.jobs.classifiers.record import ClassifierInfo
from manyseed.jobs.classifiers.registry import TRANSFORM_SECONDS
from manyseed.jobs.datasets.info import DatasetInfo
from manyseed.jobs.response.asked import DBI_BATCH, DBI_BATCHES, PAIRED, Asked

_OF_TRAINING = 1 / 3
"""Cost of predicting a row, relative to training on it for one epoch."""

_ROW_SECONDS = 1e-5
"""Seconds per row and binary problem of predictions by a classifier without epochs."""


def response_seconds(
    dataset: DatasetInfo, info: ClassifierInfo, asked: Asked, rows: float
) -> float:
    """Estimate the seconds of measuring a model trained on so many rows, on one core.

    Counts predictions of magnitudes × rows × draws (half as many for pairs), the transforms of
    images, one prediction of all training and test rows, and the rows of the Davies–Bouldin index.

    Parameters
    ----------
    dataset : DatasetInfo
    info : ClassifierInfo
    asked : Asked
    rows : float
        Training rows of the model.
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
            transforming = dataset.n_features * TRANSFORM_SECONDS[transform.partition(":")[0]]
            shifted = sampled + dataset.n_test
            seconds += (predicted + shifted) * (each + transforming)
    return seconds
