"""A file's own split: a column that says ``train`` or ``test``, its last rows, or a second file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from manyseed.jobs.checks import Refused, integer, number
from manyseed.jobs.datasets.folds import FOLDS, of_column
from manyseed.jobs.datasets.source import Samples
from manyseed.jobs.datasets.split import Index, n_points

SPLIT, ORDER, LAST, TEST_FILE = "split", "order", "last", "test_file"
PARAMETERS = (SPLIT, ORDER, LAST, TEST_FILE, FOLDS)
COLUMNS = (SPLIT, ORDER, FOLDS)
"""Those that name a column, which is then not a feature."""

PARTS = ("train", "test")


def read(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return a table's keys for a file's own split, checked and typed.

    Raises
    ------
    Refused
    """
    asked: dict[str, object] = {}
    for key in COLUMNS:
        if key in given:
            if not isinstance(given[key], str) or not given[key]:
                raise Refused(key, given[key], allowed="the name of a column")
            asked[key] = given[key]
    if FOLDS in given:
        if others := [key for key in PARAMETERS if key in given and key != FOLDS]:
            reason = f"{FOLDS} are the test sets already"
            raise Refused(others[0], given[others[0]], reason, needs={others[0]: None})
        return asked
    if TEST_FILE in given:
        if not isinstance(given[TEST_FILE], str) or not given[TEST_FILE]:
            raise Refused(TEST_FILE, given[TEST_FILE], allowed="the path of a file")
        if others := [key for key in (SPLIT, ORDER, LAST) if key in given]:
            reason = f"{TEST_FILE} is the test set already"
            raise Refused(others[0], given[others[0]], reason, needs={others[0]: None})
        asked[TEST_FILE] = given[TEST_FILE]
    if LAST in given:
        last = given[LAST]
        if SPLIT in given:
            raise Refused(LAST, last, f"{SPLIT} names the test set already", needs={LAST: None})
        if isinstance(last, int) and not isinstance(last, bool):
            asked[LAST] = integer(LAST, last, least=2)
        else:
            asked[LAST] = number(LAST, last, above=0, below=1, what="a share")
    elif ORDER in given:
        reason = f"matters only with {LAST}, the share of the rows that are the test set"
        raise Refused(ORDER, given[ORDER], reason, needs={LAST: 0.2})
    return asked


def parted(samples: Samples, asked: Mapping[str, Any], columns: Mapping[str, Any]) -> Samples:
    """Return samples with the test part after the training part, each in its order.

    Parameters
    ----------
    samples : Samples
        In the file's order.
    asked : mapping
        As returned by `read`.
    columns : mapping
        Values of the columns that it names, arrays (sample,).

    Raises
    ------
    Refused
        For values that name neither part or cannot be ordered, and for an empty part.
    """
    if FOLDS in asked:
        return replace(samples, roles=of_column(asked[FOLDS], columns[asked[FOLDS]]))
    if not {SPLIT, LAST} & {*asked}:
        return samples
    n = len(samples.y)
    if SPLIT in asked:
        train = _is_train(asked[SPLIT], columns[asked[SPLIT]])
        rows, n_train = np.concatenate([np.flatnonzero(train), np.flatnonzero(~train)]), train.sum()
    else:
        rows = np.arange(n)
        if ORDER in asked:
            rows = _ascending(asked[ORDER], columns[asked[ORDER]])
        n_train = n - n_points(asked[LAST], n)
        if not 2 <= n_train <= n - 2:
            reason = f"makes {n - n_train} of {n} samples the test set; both parts need 2 or more"
            raise Refused(LAST, asked[LAST], reason)
    if np.array_equal(rows, np.arange(n)):  # a memory-mapped array stays so
        return replace(samples, n_official_train=int(n_train))
    groups = None if samples.groups is None else samples.groups[rows]
    return replace(
        samples, X=samples.X[rows], y=samples.y[rows], groups=groups, n_official_train=int(n_train)
    )


def _is_train(name: str, values: Any) -> Any:
    texts = [None if value is None else str(value).strip().lower() for value in values.tolist()]
    if wrong := [text for text in texts if text not in PARTS]:
        shown = "a missing value" if wrong[0] is None else repr(wrong[0])
        raise Refused(SPLIT, name, f"holds {shown}: each row is {' or '.join(PARTS)}")
    for part in PARTS:
        if part not in texts:
            raise Refused(SPLIT, name, f"has no row that is {part}")
    return np.array([text == PARTS[0] for text in texts])


def _ascending(name: str, values: Any) -> Index:
    """Return the rows in ascending order of values, equal ones in the file's order."""
    is_missing = [value is None or value != value for value in values.tolist()]
    if any(is_missing):
        raise Refused(ORDER, name, f"is missing in {sum(is_missing)} rows; leave these out")
    comparable = values.astype(str) if values.dtype == np.object_ else values
    rows: Index = np.argsort(comparable, kind="stable")
    return rows
