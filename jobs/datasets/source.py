"""What a source of data is: a description before, and the samples after loading."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Shape:
    """What a source says of itself without reading data.

    Attributes
    ----------
    image : tuple of int or None
        (height, width, channels) where a row is an image flattened in that order.
    origin : dict
        Version, digest or generator parameters: with the source's name enough to load the data,
        and part of the dataset's canonical description.
    class_names, class_counts : tuple
        In the source's order.
    """

    origin: Mapping[str, Any]
    n_features: int
    n_categorical: int
    class_names: tuple[str, ...]
    class_counts: tuple[int, ...]
    image: tuple[int, int, int] | None = None


@dataclass(frozen=True, slots=True)
class Samples:
    """What a source holds, before preparation.

    Attributes
    ----------
    X : float64 array (sample, feature)
        A categorical column holds codes from 0.
    y : int64 array (sample,)
        Index into `class_names`.
    cardinality : int32 array (feature,)
        Number of labels of a categorical feature, 0 for a continuous one.
    """

    X: NDArray[np.float64]
    y: NDArray[np.int64]
    cardinality: NDArray[np.int32]
    class_names: tuple[str, ...]
    image: tuple[int, int, int] | None = None


@dataclass(frozen=True, slots=True)
class Source:
    """One kind of source, the part of a dataset's source before the colon.

    Attributes
    ----------
    names : tuple of str
        What may stand after the colon.
    parameters : mapping of str to tuple of str
        The keys that a dataset's table may give besides the common ones, by name.
    describe : callable (name, parameters) -> Shape
        Reads no data. Raises ValueError for wrong parameters.
    load : callable (name, origin) -> Samples
        Raises jobs.run.MachineError where the data is missing or not the described one.
    """

    names: tuple[str, ...]
    parameters: Mapping[str, tuple[str, ...]]
    describe: Callable[[str, Mapping[str, Any]], Shape]
    load: Callable[[str, Mapping[str, Any]], Samples]
