"""Encode and scale rows, with statistics of the training rows only."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from manyseed.jobs.run import TrainingSet

_BLOCK = 2**18  # values processed at a time


@dataclass(frozen=True, slots=True)
class Encoder:
    """Encodes raw rows as a model's input, with statistics of the training rows.

    `mean` and `scale`, float64 arrays (n_continuous,): for each continuous column, what is
    subtracted and then multiplied by. `continuous`, bool array (n_features,): which columns are
    continuous; the others are categorical. `labels`, int32 array (n_categorical,): number of labels
    of each categorical column. `seen`, bool array (n_columns,): which one-hot columns occur in the
    training rows. `dtype`: type of encoded values. `shape`: shape of an encoded row.
    """

    mean: NDArray[np.float64]
    scale: NDArray[np.float64]
    continuous: NDArray[np.bool_]
    labels: NDArray[np.int32]
    seen: NDArray[np.bool_]
    dtype: type[Any]
    shape: tuple[int, ...]

    def __call__(self, X: NDArray[np.float64]) -> NDArray[Any]:
        """Encode raw rows (n, n_features) to (n, *shape), continuous columns first."""
        if self.continuous.all():
            return _scaled(X, self.mean, self.scale, self.dtype).reshape(-1, *self.shape)
        n = len(self.mean)
        Z: NDArray[Any] = np.zeros((len(X), *self.shape), self.dtype)
        Z[:, :n] = _scaled(X[:, self.continuous], self.mean, self.scale, self.dtype)
        places = _places(X[:, ~self.continuous], self.labels)
        Z[np.arange(len(X))[:, None], n + places] = self.seen[places]
        return Z


def dense_encoder(data: TrainingSet) -> Encoder:
    """Return the encoder of linear models and dense networks, to float64.

    Continuous columns are standardised with the mean and standard deviation of the training rows; a
    missing value becomes the mean, a column that is constant there becomes 0. A categorical column
    becomes one column per label and one for missing values; the column of a label that training
    rows lack is zero, so that the shape depends on the dataset alone and runs on smaller fractions
    initialise the same weights.
    """
    continuous = data.cardinality == 0
    labels = data.cardinality[~continuous]
    train = data.X if continuous.all() else data.X[:, continuous]
    mean = scale = np.zeros(0)
    if continuous.any():
        mean, scale = _statistics(train, train.shape[1])
    seen = np.zeros(int((labels + 1).sum()), dtype=np.bool_)
    seen[_places(data.X[:, ~continuous], labels)] = True
    shape = (train.shape[1] + len(seen),)
    return Encoder(mean, scale, continuous, labels, seen, np.float64, shape)


def pixel_encoder(data: TrainingSet) -> Encoder:
    """Return the encoder of image networks, to float32.

    Each channel is standardised with the mean and standard deviation of its training pixels.
    """
    if data.image is None:
        raise ValueError("the dataset's rows are not images")
    mean, scale = _statistics(data.X, data.image[2])
    every = np.ones(data.X.shape[1], dtype=np.bool_)
    none = np.zeros(0, dtype=np.int32)
    return Encoder(mean, scale, every, none, none.astype(np.bool_), np.float32, data.image)


_UNIT = 2.0**600
"""What numbers are divided by, exactly, where their squares would overflow."""


def _statistics(
    X: NDArray[np.float64], channels: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return each column's mean and the factor for its deviations, which is 0 if it is constant.

    A missing value counts as the mean. Columns that are `channels` apart share both.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        mean, scale, is_huge = _moments(X, channels)
        if is_huge.any():
            small, by_unit, _ = _moments(X / _UNIT, channels)
            mean = np.where(is_huge, small * _UNIT, mean)
            scale = np.where(is_huge, by_unit / _UNIT, scale)
    return mean, scale


def _moments(
    X: NDArray[np.float64], channels: int
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.bool_]]:
    """Return mean and factor of each column, and where they are wrong, as squares overflowed."""

    def over(columns: NDArray[np.float64], ufunc: np.ufunc) -> NDArray[np.float64]:
        folded = ufunc.reduce(columns.reshape(-1, channels), axis=0)
        return np.tile(folded, X.shape[1] // channels)

    zero = np.zeros(X.shape[1])
    known = over(sum((_n_known(block) for _, block in _blocks(X)), zero), np.add)
    total = over(sum((_sum(block) for _, block in _blocks(X)), zero), np.add)
    mean = total / np.maximum(known, 1)
    squares = over(sum((_sum((block - mean) ** 2) for _, block in _blocks(X)), zero), np.add)
    std = np.sqrt(squares / (X.size // channels))
    # Rounding may make the mean of equal values differ from them, so that their std is not 0.
    low, high = over(np.fmin.reduce(X, axis=0), np.fmin), over(np.fmax.reduce(X, axis=0), np.fmax)
    constant = ~(high > low) | (std == 0)
    is_huge = (high > low) & ~np.isfinite(std + mean) & np.isfinite(low) & np.isfinite(high)
    return mean, np.where(constant, 0.0, 1 / np.where(constant, 1.0, std)), is_huge


def _sum(block: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return each column's sum of known values; data without missing ones is not copied."""
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
    dtype: type[Any],
) -> NDArray[Any]:
    Z: NDArray[Any] = np.empty(X.shape, dtype)
    for start, block in _blocks(X):
        part = block - mean
        part *= scale
        unknown = np.isnan(part)
        if unknown.any():
            part[unknown] = 0.0
        Z[start : start + len(block)] = part
    return Z


def _blocks(X: NDArray[np.float64]) -> Iterator[tuple[int, NDArray[np.float64]]]:
    """Cut rows into blocks, as a large dataset's pixels would be gigabytes in float64."""
    rows = max(1, _BLOCK // max(1, X.shape[1]))
    for start in range(0, len(X), rows):
        yield start, X[start : start + rows]


def _places(X: NDArray[np.float64], labels: NDArray[np.int32]) -> NDArray[np.intp]:
    """Return the one-hot columns (row, column) of codes; missing ones have the last of a column."""
    codes = np.where(np.isnan(X), labels, X).astype(np.intp)
    return codes + (np.cumsum(labels + 1) - (labels + 1))
