"""A dataset's table of the sweep file becomes a description, without reading any data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from jobs.checks import integer, number
from jobs.datasets.classes import group
from jobs.datasets.info import DatasetInfo
from jobs.datasets.sources import describe
from jobs.datasets.split import n_points

PREPARATION_VERSION = 1
"""Version of what happens between a source's samples and a dataset's; part of the identity."""


def resolve(
    source: str,
    *,
    classes: Mapping[str, Sequence[str | int]] | None = None,
    positive: str | int | None = None,
    test: float | int | str = 0.25,
    **parameters: Any,
) -> DatasetInfo:
    """Resolve a dataset.

    Parameters
    ----------
    source : str
        Kind and name, such as ``"sklearn:digits"`` or ``"synthetic:gaussian"``.
    classes : mapping of str to list, optional
        Classes of the dataset with the source's classes that each is made of; classes that none
        names are left out.
    positive : str or int, optional
        Of two classes the one with index 1.
    test : float or int
        Share (between 0 and 1) or number of points of the test set; shares are rounded half up.
    **parameters
        What the source takes besides.

    Raises
    ------
    ValueError
        For anything unknown, of the wrong type or out of range, with the value and the options.
    """
    shape = describe(source, parameters)
    grouping = group(shape.class_names, classes, positive)
    counts = [0] * len(grouping.names)
    for target, count in zip(grouping.target, shape.class_counts, strict=True):
        if target >= 0:
            counts[target] += count
    n_samples = sum(counts)
    share = _test(test, n_samples, source)
    n_test = n_points(share, n_samples)

    canonical: dict[str, Any] = {
        "source": source,
        **shape.origin,
        "test": share,
        "preparation": PREPARATION_VERSION,
    }
    if grouping.groups is not None:
        canonical["classes"] = grouping.groups
    if grouping.positive is not None:
        canonical["positive"] = grouping.positive
    return DatasetInfo(
        canonical=canonical,
        n_samples=n_samples,
        n_features=shape.n_features,
        n_continuous=shape.n_features - shape.n_categorical,
        n_categorical=shape.n_categorical,
        class_names=grouping.names,
        class_counts=tuple(counts),
        image=shape.image,
        n_train=n_samples - n_test,
        n_test=n_test,
        n_dropped=sum(shape.class_counts) - n_samples,
    )


def _test(test: float | int | str, n_samples: int, source: str) -> float | int:
    """Check a test share or number of points: both parts keep at least two samples."""
    if test == "official":
        raise ValueError(
            f"test = 'official' needs a source with a split of its own, {source} has none; give a "
            "share such as 0.25 or a number of points"
        )
    if isinstance(test, int):
        return integer("test as a number of points", test, least=2, most=n_samples - 2)
    share = number("test as a share", test, above=0, below=1)
    if not 2 <= n_points(share, n_samples) <= n_samples - 2:
        raise ValueError(
            f"test = {test} makes {n_points(share, n_samples)} of {n_samples} samples the test "
            "set; training part and test set need at least 2 each"
        )
    return share
