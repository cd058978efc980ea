"""The records of datasets: kinds of sources, what the plan knows before data is read, samples."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from manyseed.jobs.checks import Option, Refused
from manyseed.jobs.datasets.repeated import NO_COPIES, Copies
from manyseed.jobs.run import IDENTITY_VERSION, Feature, identity

Kind = Literal["continuous", "categorical", "ignored", "target"]
Looks = Literal[
    "",
    "constant",
    "id",
    "date",
    "numbers",
    "distinct",
    "text",
    "alike",
    "same",
    "merged",
    "zeros",
    "thousands",
    "single",
    "few",
    "far",
    "totals",
]
Tells = Literal["", "target", "group"]


@dataclass(frozen=True, slots=True)
class ColumnInfo:
    """A column of a file, as it is taken.

    Attributes
    ----------
    name : str
    kind : {"continuous", "categorical", "ignored", "target"}
    n_labels : int
        Of a categorical column; else 0.
    looks : Looks
        What a user should check: one value in all rows, or none; a name or number of rows; dates;
        labels that are numbers, almost all of them; that hardly repeat, or are texts; that differ
        only in spelling or case; that are one number, kept apart or read as one; numbers with
        leading zeros; with commas that may separate thousands;
        that float32 does not tell apart, or cannot hold; whole numbers that repeat as labels do;
        one that repeats, far from all others, as what marks missing values does; a last row that
        sums up the others.
    shown : tuple of str
        The labels that are not numbers, or are alike, or such numbers. Of a number far from all
        others: it, in how many rows it is, and the ends of the others. Of a last row that sums up
        the others: its word for that, or else "", and its class if that counts.
    tells : {"", "target", "group"}
        Whether all rows that share a value have one class, beyond chance: with few values, as a
        form of the target has; or with many, as rows of one patient have.
    rows : (int, int, int)
        Of such a column, of names or numbers of rows, and of 20 labels or more that are in 2 to 20
        rows each: different values, and the fewest and most rows that share one; else zeros.
    n_missing : int
        Rows of a feature that have no value, of those whose class counts.
    """

    name: str
    kind: Kind
    n_labels: int = 0
    looks: Looks = ""
    shown: tuple[str, ...] = ()
    tells: Tells = ""
    rows: tuple[int, int, int] = (0, 0, 0)
    n_missing: int = 0


OFFICIAL = "official"  # value of ``test`` where the source's own test part is the test set


@dataclass(frozen=True, slots=True)
class DatasetInfo:
    """A dataset of a sweep: its canonical description and the shapes that follow from it.

    Attributes
    ----------
    canonical : dict
        Source with version, digest or generator parameters; classes, positive class, test share
        and preparation version. It defines the identity, and suffices to load the data.
    n_samples : int
        Samples after preparation, training and test together.
    n_features, n_continuous, n_categorical : int
        The first is the sum of the others.
    class_names : tuple of str
        In the order of the class indices; the positive one of two has index 1.
    class_counts : tuple of int or None
        Samples of each class; None where the catalogue does not know them.
    image : tuple of int or None
        (height, width, channels) where a row is a flattened image.
    n_train, n_test : int
        Samples of every repeat's training part and test set.
    n_dropped : int
        Samples of the source whose class no group names.
    locations : tuple of str
        Where the files that `fetch` reads are; not part of the description.
    columns : tuple of ColumnInfo
        How a file's columns, except the target, are taken; empty for other sources.
    group_sizes : tuple of int
        Where rows belong together: the number of groups, and the rows of the smallest, the median
        and the largest one; else empty.
    n_test_asked : int or None
        The size that ``test`` asks for, where whole groups cannot make it.
    n_test_sets : int or None
        Number of official test sets, one a repeat; None where repeats draw theirs.
    largest_test : int
        Samples in the largest of several official test sets, all cut to `n_test`; else 0.
    missing : tuple of str
        The kinds of columns, continuous or categorical, in which values are missing; empty for
        sources whose values the plan does not know.
    target : ColumnInfo or None
        The column of classes, where a user should check it.
    copies : Copies
        Rows of a file whose features are all those of an earlier row, though values hardly repeat;
        none where rows that belong together are named, and where it is not known.
    features : tuple of Feature
        Of a table, as in `Samples`; empty for other sources.
    leaked : (int, int)
        Images of a folder's test part whose bytes are those of a training image, and how many of
        them are of another class.
    absent : (tuple of str, tuple of str)
        Classes of which the source's own training part, or its test part, has no sample.
    """

    canonical: Mapping[str, Any]
    n_samples: int
    n_features: int
    n_continuous: int
    n_categorical: int
    class_names: tuple[str, ...]
    class_counts: tuple[int, ...] | None
    image: tuple[int, int, int] | None
    n_train: int
    n_test: int
    n_dropped: int = 0
    locations: tuple[str, ...] = ()
    columns: tuple[ColumnInfo, ...] = ()
    group_sizes: tuple[int, ...] = ()
    n_test_asked: int | None = None
    n_test_sets: int | None = None
    largest_test: int = 0
    missing: tuple[str, ...] = ()
    target: ColumnInfo | None = None
    copies: Copies = NO_COPIES
    features: tuple[Feature, ...] = ()
    leaked: tuple[int, int] = (0, 0)
    absent: tuple[tuple[str, ...], tuple[str, ...]] = ((), ())

    @property
    def binary_problems(self) -> int:
        """Number of binary problems: one for two classes, else each class against the rest."""
        return 1 if len(self.class_names) == 2 else len(self.class_names)

    @property
    def id(self) -> str:
        """The dataset's identity, 32 hexadecimal digits: a key of streams."""
        return dataset_id(self.canonical)


def dataset_id(canonical: Mapping[str, Any]) -> str:
    """Return the identity of a dataset's canonical description."""
    return identity({"v": IDENTITY_VERSION, **canonical})


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
    n_test : int or None
        The size of that part, where the sizes of its classes may not be known.
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
    target : ColumnInfo or None
        The column of classes, where a user should check it.
    copies : Copies
        As in `DatasetInfo`.
    features : tuple of Feature
        As in `DatasetInfo`.
    leaked : (int, int)
        As in `DatasetInfo`.
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
    n_test: int | None = None
    locations: tuple[str, ...] = ()
    columns: tuple[ColumnInfo, ...] = ()
    groups: NDArray[np.int64] | None = None
    set_counts: NDArray[np.int64] | None = None
    missing: tuple[str, ...] = ()
    target: ColumnInfo | None = None
    copies: Copies = NO_COPIES
    features: tuple[Feature, ...] = ()
    leaked: tuple[int, int] = (0, 0)


@dataclass(frozen=True, slots=True)
class PointNames:
    """What samples are called: by their files, by ids, or by their rows in the source.

    `of` may be empty where rows are in another order than in the source, but it is not known which.
    """

    kind: Literal["file", "row_id", "row"]
    of: Sequence[str]


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
        With several official test sets, the role of each sample in them (`split.Roles`).
    names : PointNames or None
        What each sample is called, unless it is the row of the source at its place; not known of a
        prepared copy that is read.
    features : tuple of Feature
        Each feature's name, and its labels in the order of their codes; empty where they have none.
    """

    X: NDArray[Any]
    y: NDArray[np.integer[Any]]
    cardinality: NDArray[np.int32]
    class_names: tuple[str, ...]
    image: tuple[int, int, int] | None = None
    n_official_train: int | None = None
    groups: NDArray[np.int64] | None = None
    roles: NDArray[np.uint8] | None = None
    names: PointNames | None = None
    features: tuple[Feature, ...] = ()


@dataclass(frozen=True, slots=True)
class DatasetSource:
    """One kind of source, the part of a dataset's source before the colon.

    Attributes
    ----------
    names : tuple of str
        What may follow the colon; empty for files.
    parameters : mapping of str to Option
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
    parameters: Mapping[str, Option] = field(default_factory=dict)
    load: Callable[[str, Mapping[str, Any]], Samples] | None = None
    fetch: Callable[[Mapping[str, Any], Sequence[str], Path], Samples] | None = None
    unwritten: tuple[str, ...] = ()


def listed(kind: str, name: str, names: Iterable[str]) -> str:
    """Return a name after checking that it is one of `names`."""
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
