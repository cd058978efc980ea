"""From a source to the dataset that is split: fetch data, then select, merge and index classes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from manyseed.jobs.datasets import cache
from manyseed.jobs.datasets.classes import group
from manyseed.jobs.datasets.info import DatasetInfo
from manyseed.jobs.datasets.sources import of
from manyseed.jobs.run import MachineError


@dataclass(frozen=True, slots=True)
class Dataset:
    """A prepared dataset: what `test_index` in the store points into.

    Attributes
    ----------
    X : array (n_samples, n_features)
        Raw values; codes in categorical columns, NaN where missing. float64, or uint8 for images
        of bytes. Read-only and memory-mapped if it is a prepared copy: fits use `rows`.
    y : uint16 array (n_samples,)
        Index into `class_names`.
    cardinality : int32 array (n_features,)
        Number of labels of a categorical feature, 0 for a continuous one.
    image : tuple of int or None
        (height, width, channels) where a row is an image flattened in that order.
    official_test : int64 array or None
        Indices of the source's own test part, ascending, if it has one.
    groups : int64 array (n_samples,) or None
        The group of each row, where rows belong together.
    roles : uint8 array (set, n_samples) or None
        With several official test sets, the role of each row in them (`folds`).
    """

    X: NDArray[Any]
    y: NDArray[np.uint16]
    cardinality: NDArray[np.int32]
    class_names: tuple[str, ...]
    image: tuple[int, int, int] | None = None
    official_test: NDArray[np.int64] | None = None
    groups: NDArray[np.int64] | None = None
    roles: NDArray[np.uint8] | None = None

    def rows(self, index: NDArray[np.integer[Any]]) -> NDArray[np.float64]:
        """Return a float64 copy of some rows (index, feature)."""
        rows: NDArray[np.float64] = self.X[index].astype(np.float64, copy=False)
        return rows

    @property
    def nbytes(self) -> int:
        """Memory of the arrays, in bytes."""
        arrays = (self.X, self.y, self.cardinality, self.groups, self.roles)
        return sum(array.nbytes for array in arrays if array is not None)


def needs_fetching(canonical: Mapping[str, Any]) -> bool:
    """Return whether workers read a prepared copy of this dataset, rather than load its source."""
    return of(canonical)[0].fetch is not None


def is_fetched(canonical: Mapping[str, Any], home: Path | None = None) -> bool:
    """Return whether workers will find a dataset on this machine.

    Quick: checks only that the files exist and have their length; `fetch` and loading check what
    they hold.
    """
    return not needs_fetching(canonical) or cache.is_complete(canonical, home or cache.data_home())


def fetch(info: DatasetInfo, home: Path | None = None) -> bool:
    """Make the prepared copy of a dataset, unless a sound one is there.

    Safe in several processes at once.

    Parameters
    ----------
    home : Path, optional
        Folder of data; `cache.data_home` by default. OpenML's downloads are kept in its ``openml``,
        as scikit-learn keeps them; torchvision's files are read from its ``torchvision``.

    Returns
    -------
    bool
        Whether a copy was made.

    Raises
    ------
    jobs.run.MachineError
        Where data cannot be reached or written, or is not what the catalogue or the plan says.
    """
    source, _ = of(info.canonical)
    if source.fetch is None:
        return False
    home = home or cache.data_home()
    try:
        cache.read(info.canonical, home)
    except MachineError:
        cache.write(source.fetch(info.canonical, info.locations, home), info.canonical, home)
        return True
    return False


def load(canonical: Mapping[str, Any]) -> Dataset:
    """Load and prepare a dataset from its canonical description alone.

    Samples keep the source's order; those of classes that no group names are left out.

    Raises
    ------
    jobs.run.MachineError
        Where the data is missing or not the described data; `NotFetched` for a prepared copy.
    """
    source, name = of(canonical)
    if source.load is None:
        samples = cache.read(canonical, cache.data_home())
    else:
        samples = source.load(name, canonical)
    grouping = group(samples.class_names, canonical.get("classes"), canonical.get("positive"))
    y = np.array(grouping.target)[samples.y]
    kept = y >= 0
    official = None
    if samples.n_official_train is not None:
        official = np.flatnonzero(np.flatnonzero(kept) >= samples.n_official_train)
    return Dataset(
        X=samples.X if kept.all() else samples.X[kept],
        y=y[kept].astype(np.uint16),
        cardinality=samples.cardinality,
        class_names=grouping.names,
        image=samples.image,
        official_test=official,
        groups=None if samples.groups is None else samples.groups[kept],
        roles=None if samples.roles is None else samples.roles[:, kept],
    )
