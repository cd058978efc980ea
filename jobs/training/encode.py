"""Encoding and scaling, fitted on the training part alone."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from manyseed.jobs.run import TrainingSet

F = TypeVar("F", np.float32, np.float64)

_BLOCK = 2**18
"""Values that are worked on at once."""


def dense(data: TrainingSet) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Encode the training and the test part for linear models and dense networks.

    Continuous columns are standardised with the training part's mean and standard deviation; a
    missing value becomes the mean, a column that is constant in the training part 0. A categorical
    column becomes one column per label and one for missing; a label that training lacks
    has a column of zeros, so that the shape depends on the dataset alone and runs on smaller
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
    mean, scale = _statistics(data.X, data.image[2])
    return (
        _scaled(data.X, mean, scale, np.float32).reshape(-1, *data.image),
        _scaled(data.X_test, mean, scale, np.float32).reshape(-1, *data.image),
    )


def _standardise(
    train: NDArray[np.float64], test: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    if train.shape[1] == 0:
        return train, test
    mean, scale = _statistics(train, train.shape[1])
    return _scaled(train, mean, scale, np.float64), _scaled(test, mean, scale, np.float64)


def _statistics(
    X: NDArray[np.float64], channels: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return each column's mean and what its deviations are multiplied by, 0 where it is constant.

    A missing value counts as the mean. Columns that are `channels` apart share both.
    """

    def over(columns: NDArray[np.float64], ufunc: np.ufunc) -> NDArray[np.float64]:
        folded = ufunc.reduce(columns.reshape(-1, channels), axis=0)
        return np.tile(folded, X.shape[1] // channels)

    zero = np.zeros(X.shape[1])
    known = over(sum((_n_known(block) for _, block in _blocks(X)), zero), np.add)
    total = over(sum((_sum(block) for _, block in _blocks(X)), zero), np.add)
    mean = total / np.maximum(known, 1)
    squares = over(sum((_sum((block - mean) ** 2) for _, block in _blocks(X)), zero), np.add)
    std = np.sqrt(squares / (X.size // channels))
    # The mean of equal values may differ from them by rounding, so their std may not be 0.
    low = over(np.fmin.reduce(X, axis=0), np.fmin)
    constant = ~(over(np.fmax.reduce(X, axis=0), np.fmax) > low) | (std == 0)
    return mean, np.where(constant, 0.0, 1 / np.where(constant, 1.0, std))


def _sum(block: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return each column's sum of known values; most data has no others, and is not copied."""
    total: NDArray[np.float64] = block.sum(axis=0)
    return np.nansum(block, axis=0) if np.isnan(total).any() else total


def _n_known(block: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the number of each column's known values."""
    known = np.full(block.shape[1], float(len(block)))
    unknown = np.isnan(block)
    return known - unknown.sum(axis=0) if unknown.any() else known


def _scaled(
    X: NDArray[np.float64],
    mean: NDArray[np.float64],
    scale: NDArray[np.float64],
    dtype: type[F],
) -> NDArray[F]:
    Z = np.empty(X.shape, dtype)
    for start, block in _blocks(X):
        part = (block - mean) * scale
        part[np.isnan(part)] = 0.0
        Z[start : start + len(block)] = part
    return Z


def _blocks(X: NDArray[np.float64]) -> Iterator[tuple[int, NDArray[np.float64]]]:
    """Cut rows into blocks: the pixels of a large dataset are billions of bytes as float64."""
    rows = max(1, _BLOCK // max(1, X.shape[1]))
    for start in range(0, len(X), rows):
        yield start, X[start : start + rows]


def _one_hot(X: NDArray[np.float64], labels: NDArray[np.int32]) -> NDArray[np.float64]:
    codes = np.where(np.isnan(X), labels, X).astype(np.intp)
    starts = np.cumsum(labels + 1) - (labels + 1)
    Z = np.zeros((len(X), int((labels + 1).sum())))
    np.put_along_axis(Z, codes + starts, 1.0, axis=1)
    return Z
