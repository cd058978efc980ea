"""What the plan knows of a dataset before any data is read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from manyseed.jobs.datasets.columns import ColumnInfo
from manyseed.jobs.run import IDENTITY_VERSION, identity

OFFICIAL = "official"
"""Value of ``test`` where the source's own test part is the test set."""


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
