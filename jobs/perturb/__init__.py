"""Perturbations of training predictors: one axis for continuous, one for categorical features.

A further scheme is one more dataclass in its axis's table. Generators are passed as values.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from manyseed.jobs.perturb.categorical import CATEGORICAL
from manyseed.jobs.perturb.continuous import CONTINUOUS
from manyseed.jobs.perturb.neighbours import Neighbours, find_neighbours
from manyseed.jobs.perturb.scheme import Scheme, parse

Axis = Literal["continuous", "categorical"]

__all__ = [
    "Axis",
    "Neighbours",
    "canonical",
    "find_neighbours",
    "names",
    "perturb_categorical",
    "perturb_continuous",
    "uses_neighbours",
]


def names(axis: Axis) -> tuple[str, ...]:
    """Return the schemes of an axis, without their numbers."""
    return ("none", *(CONTINUOUS if axis == "continuous" else CATEGORICAL))


def canonical(axis: Axis, scheme: str) -> str:
    """Return the normal form of a scheme: ``relative:.10`` is ``relative:0.1``.

    Raises
    ------
    jobs.checks.Refused
        For an unknown scheme, and for a number that is out of range.
    """
    table: Mapping[str, type[Scheme]] = CONTINUOUS if axis == "continuous" else CATEGORICAL
    read = parse(axis, scheme, table)
    return "none" if read is None else read.text


def uses_neighbours(scheme: str) -> bool:
    """Return whether a continuous scheme needs the distances to the nearest neighbours."""
    read = parse("continuous", scheme, CONTINUOUS)
    return read is not None and read.uses_neighbours


def perturb_continuous(
    X: NDArray[np.float64],
    cardinality: NDArray[np.int32],
    scheme: str,
    generator: np.random.Generator,
    near: Neighbours | None = None,
) -> NDArray[np.float64]:
    """Perturb the continuous columns of training predictors.

    Parameters
    ----------
    X : float64 array (n, n_features)
        Raw values; left as it is.
    cardinality : int32 array (n_features,)
        0 marks a continuous column.
    scheme : str
        Normal form.
    generator : numpy.random.Generator
        Stream ``perturb_continuous``.
    near : Neighbours, optional
        Of the rows of `X` and its continuous columns, where `uses_neighbours`.

    Returns
    -------
    float64 array (n, n_features)
    """
    read = parse("continuous", scheme, CONTINUOUS)
    columns = cardinality == 0
    if read is None or not columns.any():
        return X
    moved = X.copy()
    moved[:, columns] = read(X[:, columns], generator, near)
    return moved


def perturb_categorical(
    X: NDArray[np.float64],
    cardinality: NDArray[np.int32],
    scheme: str,
    generator: np.random.Generator,
) -> NDArray[np.float64]:
    """Perturb the categorical columns of training predictors.

    Parameters
    ----------
    X : float64 array (n, n_features)
        Codes in categorical columns; left as it is.
    cardinality : int32 array (n_features,)
        Number of labels, above 0 for a categorical column.
    scheme : str
        Normal form.
    generator : numpy.random.Generator
        Stream ``perturb_categorical``.

    Returns
    -------
    float64 array (n, n_features)
    """
    read = parse("categorical", scheme, CATEGORICAL)
    columns = cardinality > 0
    if read is None or not columns.any():
        return X
    moved = X.copy()
    moved[:, columns] = read(X[:, columns], cardinality[columns], generator)
    return moved
