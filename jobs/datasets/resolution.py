"""From a user's table of a dataset to its description; only files are read for it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from manyseed.jobs.checks import Refused, integer, number, quoted, spelling
from manyseed.jobs.datasets.columns import alike, merged
from manyseed.jobs.datasets.info import OFFICIAL, DatasetInfo, DataShape, with_preparation
from manyseed.jobs.datasets.parts import FOLDS, GROUP, require_several
from manyseed.jobs.datasets.parts import PARAMETERS as OF_FILES
from manyseed.jobs.datasets.sources import Grouping, describe, group
from manyseed.jobs.datasets.split import n_points, nearest_size, sizes_near

_LISTED = 20  # classes in a remedy
_SPLIT_BY = {"split": "the folders train and test say", FOLDS: "the task's folds say"}
"""What defines the test sets if no key of the table does, for messages."""


def resolve(
    source: str,
    *,
    classes: Mapping[str, Sequence[str | int]] | None = None,
    positive: str | int | None = None,
    test: float | int | str | None = None,
    **parameters: Any,
) -> DatasetInfo:
    """Resolve a dataset.

    Parameters
    ----------
    source : str
        Kind and name, such as ``"sklearn:digits"``, ``"openml:vehicle@2"`` or
        ``"file:table.csv"`` (from the working folder), or the bare name of a suite's dataset, such
        as ``"vehicle"``. Files are read, other sources are in the catalogue.
    classes : mapping of str to list, optional
        The source's classes that each class of the dataset is made of; others are left out.
    positive : str or int, optional
        Of two classes, the one with index 1.
    test : float, int or "official"
        Share (between 0 and 1) or number of points of the test set; shares are rounded half up.
        ``"official"`` is the source's own test part. By default 0.25, or the file's own split if
        `parameters` define one.
    **parameters
        Further keys of the source.

    Raises
    ------
    Refused
        For anything unknown, of the wrong type or out of range.
    """
    shape = describe(source, parameters)
    testing = next((key for key in OF_FILES if key in parameters or key in shape.provenance), None)
    if test is None:
        test = 0.25 if testing is None else OFFICIAL
    elif testing is not None and test != OFFICIAL:
        rule = f"{testing} {'say' if testing == FOLDS else 'says'}"
        rule = rule if testing in parameters else _SPLIT_BY[testing]
        raise Refused("test", test, f"{rule} what the test set is", needs={"test": None})
    if classes is not None and not (shape.labelled and shape.class_counts):
        raise Refused(
            "classes",
            classes,
            f"classes of {source} cannot be selected or merged: the catalogue knows only how many "
            "there are and how large the largest and the smallest; give its table as file:PATH",
        )
    if classes is None:
        _require_spelling(shape.class_names, source, parameters)
    grouping = group(shape.class_names, classes, positive)
    counts = _grouped(grouping, shape.class_counts)
    n_samples = shape.n_samples if counts is None else sum(counts)
    sets = _sets(grouping, shape.set_counts)
    official = _grouped(grouping, shape.test_counts) if sets is None else sets[1].tolist()[:1]
    share, n_test = _test(test, source, n_samples, official)
    sizes, asked = _sizes_of_groups(shape, grouping, parameters), n_test
    if sizes is not None and share != OFFICIAL:
        n_test = _of_whole_groups(test, sizes, n_test)
    n_train, largest, n_sets = n_samples - n_test, 0, None
    if share == OFFICIAL:
        n_sets = 1
        if sets is not None:
            n_sets, largest = sets.shape[1], int(sets[1].max())
            n_train, n_test = map(int, sets.min(axis=1))
            if n_test < 1:
                raise Refused("classes", classes, "leave one of the official test sets empty")
    if n_train < len(grouping.names):
        raise Refused(
            "test",
            test,
            f"leaves {n_train} samples of {source} to train on, fewer than its "
            f"{len(grouping.names)} classes",
        )

    canonical: dict[str, object] = {
        "source": source,
        **shape.provenance,  # may hold the canonical form of the source
        "test": share,
    }
    canonical = with_preparation(canonical)
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
        class_counts=counts,
        image=shape.image,
        n_train=n_train,
        n_test=n_test,
        n_dropped=shape.n_samples - n_samples,
        locations=shape.locations,
        columns=shape.columns,
        group_sizes=() if sizes is None else _described(sizes),
        n_test_asked=asked if sets is None and asked != n_test else None,
        n_test_sets=n_sets,
        largest_test=largest,
        missing=shape.missing,
    )


def _require_spelling(names: Sequence[str], source: str, given: Mapping[str, Any]) -> None:
    """Refuse classes that differ only in blanks or invisibly, unless `classes` lists them."""
    same = [each for each in alike(names) if any(name != spelling(name) for name in each)]
    if same:
        option = "target" if "target" in given else "source"
        shown = " and ".join(map(quoted, same[0]))
        reason = f"has classes that are the same but for blanks or case: {shown}"
        few = len(names) <= _LISTED
        needs = {"classes": merged(names)} if few else {}
        reason += "" if few else "; merge them with classes, which lists all classes"
        raise Refused(option, given.get("target", source), reason, needs=needs)


def _grouped(grouping: Grouping, counts: Sequence[int] | None) -> tuple[int, ...] | None:
    if counts is None:
        return None
    grouped = [0] * len(grouping.names)
    for target, count in zip(grouping.target, counts, strict=True):
        if target >= 0:
            grouped[target] += count
    return tuple(grouped)


def _sets(grouping: Grouping, counts: NDArray[np.int64] | None) -> NDArray[np.int64] | None:
    """Return the sizes of training parts and test sets (part, set), without dropped classes."""
    if counts is None:
        return None
    sizes: NDArray[np.int64] = counts[:, :, np.array(grouping.target) >= 0].sum(axis=2)
    return sizes


def _sizes_of_groups(
    shape: DataShape, grouping: Grouping, parameters: Mapping[str, Any]
) -> NDArray[np.int64] | None:
    """Return the size of each group without dropped classes, where rows belong together."""
    if shape.groups is None:
        return None
    group, y = shape.groups.T
    counts = np.bincount(group[np.array(grouping.target)[y] >= 0])
    sizes: NDArray[np.int64] = counts[counts > 0].astype(np.int64)
    require_several(str(parameters[GROUP]), sizes.size)
    return sizes


def _of_whole_groups(test: float | int | str, sizes: NDArray[np.int64], n_test: int) -> int:
    """Return a size that whole groups make: the nearest to a share's, or exactly a number."""
    below, above = sizes_near(sizes, n_test)
    if below == n_test:
        return n_test
    possible = [str(size) for size in (below, above) if size is not None]
    if not possible:
        reason = f"{sizes.size} groups, the largest of {sizes.max()} rows, make no two parts of "
        needs = {GROUP: None}
        raise Refused("test", test, f"{reason}2 rows or more", needs=needs)
    if isinstance(test, int):
        reason = (
            f"no whole groups have {test} rows together; the nearest are {' and '.join(possible)}"
        )
        raise Refused("test", test, reason)
    size = nearest_size(sizes, n_test)
    assert size is not None
    return size


def _described(sizes: NDArray[np.int64]) -> tuple[int, ...]:
    ascending = np.sort(sizes).tolist()
    return len(ascending), ascending[0], ascending[(len(ascending) - 1) // 2], ascending[-1]


def _test(
    test: float | int | str, source: str, n_samples: int, official: Sequence[int] | None
) -> tuple[float | int | str, int]:
    """Return the test set for the description, and its size.

    With a share or a number of points, both parts have at least two samples.
    """
    if test == OFFICIAL:
        if official is None:
            raise Refused(
                "test",
                test,
                f"needs a source with a split of its own, {source} has none; give a share such as "
                "0.25 or a number of points",
            )
        return OFFICIAL, sum(official)
    form = f"a share above 0 and below 1, or a whole number of points from 2 to {n_samples - 2}"
    if official is not None:
        form += f', or "{OFFICIAL}"'
    try:
        if isinstance(test, int):
            points = integer("test", test, least=2, most=n_samples - 2)
            return points, points
        share = number("test", test, above=0, below=1)
    except Refused:
        raise Refused("test", test, allowed=form) from None
    n_test = n_points(share, n_samples)
    if not 2 <= n_test <= n_samples - 2:
        raise Refused(
            "test",
            test,
            f"makes {n_test} of {n_samples} samples the test set; training part and test set need "
            "at least 2 each",
        )
    return share, n_test
