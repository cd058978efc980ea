"""Encoding and scaling, fitted on the training part alone."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from jobs.run import TrainingSet


def dense(data: TrainingSet) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Encode the training and the test part for linear models and dense networks.

    Continuous columns are standardised with the training part's mean and standard deviation; a
    missing value becomes the mean, a column that is constant in the training part 0. A categorical
    column becomes one column a label and one for missing; a label that is absent from the training
    part has a column of zeros, so that the shape depends on the dataset alone and runs on smaller
    fractions initialise the same weights.

    Returns
    -------
    tuple of float64 arrays
        (n_train, n_columns) and (n_test, n_columns): the continuous columns first.
    """
    continuous = data.cardinality == 0
    train, test = _standardise(data.X[:, continuous], data.X_test[:, continuous])
    if continuous.all():
        return train, test
    labels = data.cardinality[~continuous]
    one_hot = _one_hot(data.X[:, ~continuous], labels)
    one_hot_test = _one_hot(data.X_test[:, ~continuous], labels) * one_hot.any(axis=0)
    return np.hstack([train, one_hot]), np.hstack([test, one_hot_test])


def pixels(data: TrainingSet) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Scale images by the mean and standard deviation of each channel's training pixels.

    Returns
    -------
    tuple of float32 arrays
        (n_train, height, width, channels) and (n_test, height, width, channels).
    """
    if data.image is None:
        raise ValueError("the dataset's rows are not images")
    channels = data.image[2]
    train, test = _standardise(data.X.reshape(-1, channels), data.X_test.reshape(-1, channels))
    return (
        train.reshape(-1, *data.image).astype(np.float32),
        test.reshape(-1, *data.image).astype(np.float32),
    )


def _standardise(
    train: NDArray[np.float64], test: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    missing = np.isnan(train)
    mean = np.where(missing, 0.0, train).sum(axis=0) / np.maximum((~missing).sum(axis=0), 1)
    std = np.where(missing, mean, train).std(axis=0)
    # The mean of equal values may differ from them by rounding, so their std may not be 0.
    constant = ~(np.fmax.reduce(train, axis=0) > np.fmin.reduce(train, axis=0)) | (std == 0)
    scale = np.where(constant, 0.0, 1 / np.where(constant, 1.0, std))
    return _scaled(train, mean, scale), _scaled(test, mean, scale)


def _scaled(
    X: NDArray[np.float64], mean: NDArray[np.float64], scale: NDArray[np.float64]
) -> NDArray[np.float64]:
    Z: NDArray[np.float64] = (X - mean) * scale
    Z[np.isnan(Z)] = 0.0
    return Z


def _one_hot(X: NDArray[np.float64], labels: NDArray[np.int32]) -> NDArray[np.float64]:
    codes = np.where(np.isnan(X), labels, X).astype(np.intp)
    starts = np.cumsum(labels + 1) - (labels + 1)
    Z = np.zeros((len(X), int((labels + 1).sum())))
    np.put_along_axis(Z, codes + starts, 1.0, axis=1)
    return Z
