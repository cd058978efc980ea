"""Several official test sets: the folds in a column, or those of an OpenML task."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from manyseed.jobs.checks import Refused, quoted, same_spelling
from manyseed.jobs.datasets.tabular import encode

FOLDS = "folds"

TRAIN, TEST = 1, 2
"""Roles of a row in a test set and its training part; 0 where it is in neither."""

Roles = NDArray[np.uint8]
"""(set, sample)"""


def of_column(name: str, values: NDArray[Any]) -> Roles:
    """Return the roles of rows: each fold in turn is the test set, in natural order.

    Parameters
    ----------
    name : str
        The column's.
    values : object array or float64 array (sample,)
        The fold of each row.

    Raises
    ------
    Refused
        For missing values, folds that look the same, a single fold, and a fold of a single row.
    """
    names, fold = encode(values)
    if missing := int((fold < 0).sum()):
        raise Refused(FOLDS, name, f"is missing in {missing} rows; leave these out")
    if same := same_spelling(names):
        shown = " and ".join(map(quoted, same[0]))
        raise Refused(FOLDS, name, f"holds folds that look the same, {shown}: write them alike")
    if len(names) < 2:
        raise Refused(FOLDS, name, "holds a single fold; there must be two or more")
    if np.bincount(fold).min() < 2:
        reason = f"has {len(names)} folds, the smallest of a single row; each needs two or more"
        raise Refused(FOLDS, name, reason)
    is_test = fold == np.arange(len(names))[:, np.newaxis]
    return np.where(is_test, TEST, TRAIN).astype(np.uint8)


def counts(roles: Roles, y: NDArray[np.integer[Any]], n_classes: int) -> NDArray[np.int64]:
    """Count the samples of each class (part, set, class), training parts first."""
    return np.array(
        [
            [np.bincount(y[set_roles == role], minlength=n_classes) for set_roles in roles]
            for role in (TRAIN, TEST)
        ]
    )
