"""Perturbations of training predictors: one axis for continuous, one for categorical features.

A new scheme is one more dataclass in its axis's table. Generators are passed as arguments.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from manyseed.jobs.perturb.scheme import (
    CATEGORICAL,
    CONTINUOUS,
    Neighbours,
    Scheme,
    find_neighbours,
    parse,
)

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
    """Return the names of an axis's schemes, without their numbers."""
    return ("none", *(CONTINUOUS if axis == "continuous" else CATEGORICAL))


def canonical(axis: Axis, scheme: str) -> str:
    """Return the normal form of a scheme: ``relative:.10`` is ``relative:0.1``.

    Raises
    ------
    jobs.checks.Refused
        For an unknown scheme, and for a number that is missing or out of range.
    """
    table: Mapping[str, type[Scheme]] = CONTINUOUS if axis == "continuous" else CATEGORICAL
    noise = parse(axis, scheme, table)
    return "none" if noise is None else noise.text


def uses_neighbours(scheme: str) -> bool:
    """Return whether a continuous scheme needs the distances to the nearest neighbours."""
    noise = parse("continuous", scheme, CONTINUOUS)
    return noise is not None and noise.uses_neighbours


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
        Raw values; not modified.
    cardinality : int32 array (n_features,)
        0 marks a continuous column.
    scheme : str
        In normal form.
    generator : numpy.random.Generator
        Stream ``perturb_continuous``.
    near : Neighbours, optional
        Those of the rows and continuous columns of `X`, if the scheme `uses_neighbours`.

    Returns
    -------
    float64 array (n, n_features)
    """
    noise = parse("continuous", scheme, CONTINUOUS)
    columns = cardinality == 0
    if noise is None or not columns.any():
        return X
    moved = X.copy()
    moved[:, columns] = noise(X[:, columns], generator, near)
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
        Codes in categorical columns; not modified.
    cardinality : int32 array (n_features,)
        Number of labels, above 0 for a categorical column.
    scheme : str
        In normal form.
    generator : numpy.random.Generator
        Stream ``perturb_categorical``.

    Returns
    -------
    float64 array (n, n_features)
    """
    noise = parse("categorical", scheme, CATEGORICAL)
    columns = cardinality > 0
    if noise is None or not columns.any():
        return X
    moved = X.copy()
    moved[:, columns] = noise(X[:, columns], cardinality[columns], generator)
    return moved
