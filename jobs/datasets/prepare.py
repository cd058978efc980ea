"""From a source's samples to the dataset that is split: selected, merged, indexed classes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from jobs.datasets.classes import group
from jobs.datasets.sources import load as load_samples


@dataclass(frozen=True, slots=True)
class Dataset:
    """A prepared dataset, the thing that `test_index` of the store points into.

    Attributes
    ----------
    X : float64 array (n_samples, n_features)
        Raw values; codes in categorical columns.
    y : uint16 array (n_samples,)
        Index into `class_names`.
    cardinality : int32 array (n_features,)
        Number of labels of a categorical feature, 0 for a continuous one.
    image : tuple of int or None
        (height, width, channels) where a row is an image flattened in that order.
    """

    X: NDArray[np.float64]
    y: NDArray[np.uint16]
    cardinality: NDArray[np.int32]
    class_names: tuple[str, ...]
    image: tuple[int, int, int] | None = None

    @property
    def nbytes(self) -> int:
        """Memory of the arrays, in bytes."""
        return self.X.nbytes + self.y.nbytes + self.cardinality.nbytes


def load(canonical: Mapping[str, Any]) -> Dataset:
    """Load and prepare a dataset from its canonical description alone.

    Samples keep the order of the source; those of classes that no group names are left out.

    Raises
    ------
    jobs.run.MachineError
        Where the data is missing or is not the described one.
    """
    samples = load_samples(canonical)
    grouping = group(samples.class_names, canonical.get("classes"), canonical.get("positive"))
    y = np.array(grouping.target)[samples.y]
    kept = y >= 0
    return Dataset(
        X=np.ascontiguousarray(samples.X[kept]),
        y=y[kept].astype(np.uint16),
        cardinality=samples.cardinality,
        class_names=grouping.names,
        image=samples.image,
    )
