"""Sources of data: the description of one before loading, and its samples after."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from manyseed.jobs.checks import Refused
from manyseed.jobs.datasets.columns import ColumnInfo


@dataclass(frozen=True, slots=True)
class DataShape:
    """A source's shapes and classes, as the plan needs them.

    Attributes
    ----------
    provenance : dict
        Version, digest or generator parameters: enough, with the source's name, to load the data,
        and part of the dataset's canonical description. A source that can be written in several
        ways gives its canonical form under ``source``.
    class_names : tuple of str
        In the source's order.
    class_counts : tuple of int or None
        Samples of each class; None where the catalogue does not know them.
    image : tuple of int or None
        (height, width, channels) where a row is an image flattened in that order.
    labelled : bool
        Whether `class_names` are the data's own labels.
    test_counts : tuple of int or None
        Samples of each class in the official test part, if there is one.
    locations : tuple of str
        Where `DatasetSource.fetch` finds the data, if the provenance does not say it.
    columns : tuple of ColumnInfo
        How a file's columns, except the target, are taken; empty for other sources.
    groups : int64 array (sample, 2) or None
        Where rows belong together, the group and the class of each.
    set_counts : int64 array (2, set, class) or None
        With several official test sets, the samples of each class in training parts and test sets.
    missing : tuple of str
        The kinds of columns, continuous or categorical, in which values are missing, where known.
    """

    provenance: Mapping[str, Any]
    n_samples: int
    n_features: int
    n_categorical: int
    class_names: tuple[str, ...]
    class_counts: tuple[int, ...] | None
    image: tuple[int, int, int] | None = None
    labelled: bool = True
    test_counts: tuple[int, ...] | None = None
    locations: tuple[str, ...] = ()
    columns: tuple[ColumnInfo, ...] = ()
    groups: NDArray[np.int64] | None = None
    set_counts: NDArray[np.int64] | None = None
    missing: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Samples:
    """A source's data, before preparation.

    Attributes
    ----------
    X : float64 array (sample, feature)
        A categorical column holds codes from 0, NaN where missing. uint8 where rows are images.
    y : integer array (sample,)
        Index into `class_names`.
    cardinality : int32 array (feature,)
        Number of labels of a categorical feature, 0 for a continuous one.
    n_official_train : int or None
        With an official split, the number of samples before its test part.
    groups : int64 array (sample,) or None
        Where rows belong together, the group of each, from 0.
    roles : uint8 array (set, sample) or None
        With several official test sets, the role of each sample in them (`folds`).
    """

    X: NDArray[Any]
    y: NDArray[np.integer[Any]]
    cardinality: NDArray[np.int32]
    class_names: tuple[str, ...]
    image: tuple[int, int, int] | None = None
    n_official_train: int | None = None
    groups: NDArray[np.int64] | None = None
    roles: NDArray[np.uint8] | None = None

    @property
    def missing(self) -> tuple[str, ...]:
        """The kinds of columns, continuous or categorical, in which values are missing."""
        if self.image is not None:
            return ()
        is_missing = np.array([bool(np.isnan(column).any()) for column in self.X.T], dtype=bool)
        kinds = np.where(self.cardinality > 0, "categorical", "continuous")
        return tuple(sorted({*kinds[is_missing].tolist()}))


@dataclass(frozen=True, slots=True)
class DatasetSource:
    """One kind of source, the part of a dataset's source before the colon.

    Attributes
    ----------
    names : tuple of str
        What may follow the colon; empty for files.
    parameters : tuple of str
        The keys that a dataset's table may have besides the common ones.
    describe : callable (name, parameters) -> DataShape
        Raises jobs.checks.Refused for wrong names and parameters.
    load : callable (name, provenance) -> Samples, optional
        For data that needs no fetching. Raises jobs.run.MachineError if it is not the described
        data.
    fetch : callable (provenance, locations, home) -> Samples, optional
        For data of which workers read a prepared copy: brings it to this machine. Raises
        jobs.run.MachineError if it cannot, or if it is not the described data.
    unwritten : tuple of str
        Further parameters, which no table has.
    """

    names: tuple[str, ...]
    describe: Callable[[str, Mapping[str, Any]], DataShape]
    parameters: tuple[str, ...] = ()
    load: Callable[[str, Mapping[str, Any]], Samples] | None = None
    fetch: Callable[[Mapping[str, Any], Sequence[str], Path], Samples] | None = None
    unwritten: tuple[str, ...] = ()


def listed(kind: str, name: str, names: Iterable[str]) -> str:
    """Return a name after checking that it is one of `names`.

    Raises
    ------
    jobs.checks.Refused
    """
    allowed = [f"{kind}:{option}" for option in names]
    if f"{kind}:{name}" not in allowed:
        raise Refused("source", f"{kind}:{name}", "unknown source", allowed)
    return name


def test_counts(
    y: NDArray[np.integer[Any]], n_train: int | None, n_classes: int
) -> tuple[int, ...] | None:
    """Count the samples of each class behind the first `n_train`, None without a test part."""
    if n_train is None:
        return None
    return tuple(np.bincount(y[n_train:], minlength=n_classes).tolist())


PREPARATION_VERSION = 1
"""Version of the step from a source's samples to a dataset's; part of the identity."""


def with_preparation(description: Mapping[str, Any]) -> dict[str, Any]:
    """Return a description with the version of the step from samples to a dataset's."""
    return {**description, "preparation": PREPARATION_VERSION}
