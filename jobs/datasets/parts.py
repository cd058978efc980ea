"""What columns of a file say of test sets: its own split, folds, and rows that belong together."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from manyseed.jobs.checks import Option, Refused, integer, number, quoted, same_spelling
from manyseed.jobs.datasets.columns import encode
from manyseed.jobs.datasets.info import PointNames, Samples
from manyseed.jobs.datasets.split import TEST, TRAIN, Index, Roles, n_points

SPLIT, ORDER, LAST, TEST_FILE, FOLDS = "split", "order", "last", "test_file", "folds"
GROUP, ROW_ID = "group", "row_id"
PARAMETERS = (SPLIT, ORDER, LAST, TEST_FILE, FOLDS)
COLUMNS = (SPLIT, ORDER, FOLDS)  # those that name a column, which is then not a feature
IN_PARTS, BY_ARRAYS = "parts", "arrays"  # of a description: an NPZ has arrays for each part

ANY_TEXT = r"^[\s\S]+$"


def _column(about: str) -> Option:
    return Option(about, called="the name of a column", pattern=ANY_TEXT)


OPTIONS: Mapping[str, Option] = {
    SPLIT: _column("Column that says train or test for each row."),
    ORDER: _column("Column in whose order the last rows are the test set."),
    LAST: Option("Share or number of the last rows, which are the test set.", float, above=0),
    TEST_FILE: Option("File of the test set.", called="the path of a file", pattern=ANY_TEXT),
    FOLDS: _column("Column of folds, each of which is the test set of a repeat."),
    GROUP: _column("Column of groups of rows, none of which is torn apart."),
    ROW_ID: _column("Column by whose values answers, tables and the page name rows."),
}

PARTS = ("train", "test")


def read(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return a table's keys for a file's own split and for groups, checked."""
    asked: dict[str, object] = {
        key: option.check(key, given[key])
        for key, option in OPTIONS.items()
        if key in given and key != LAST
    }
    if FOLDS in given:
        if others := [key for key in PARAMETERS if key in given and key != FOLDS]:
            reason = f"{FOLDS} are the test sets already"
            raise Refused(others[0], given[others[0]], reason, needs={others[0]: None})
        return asked
    if TEST_FILE in given and (others := [key for key in (SPLIT, ORDER, LAST) if key in given]):
        reason = f"{TEST_FILE} is the test set already"
        raise Refused(others[0], given[others[0]], reason, needs={others[0]: None})
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

    `samples`: in the file's order. `asked`: as returned by `read`. `columns`: values of the columns
    that it names, arrays (sample,).
    """
    if FOLDS in asked:
        return replace(samples, roles=roles_of(asked[FOLDS], columns[asked[FOLDS]]))
    if not {SPLIT, LAST} & {*asked}:
        return samples
    n, names = len(samples.y), samples.names
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
    if SPLIT in asked or ORDER in asked:
        names = names_at(rows) if names is None else replace(names, of=[names.of[i] for i in rows])
    samples = replace(samples, names=names)
    if np.array_equal(rows, np.arange(n)):  # a memory-mapped array stays so
        return replace(samples, n_official_train=int(n_train))
    groups = None if samples.groups is None else samples.groups[rows]
    return replace(
        samples, X=samples.X[rows], y=samples.y[rows], groups=groups, n_official_train=int(n_train)
    )


def names_of(
    n: int, asked: Mapping[str, Any], columns: Mapping[str, Any], n_first: int | None
) -> PointNames | None:
    """Return what rows are called in the file's order: by a column, or where there are two files.

    A row without an id is called by its place. `n_first`: rows of the first of two files. `asked`
    and `columns`: as in `parted`.
    """
    if ROW_ID in asked:
        ids = enumerate(columns[asked[ROW_ID]].tolist())
        called = (f"row {i}" if one is None or one != one else str(one) for i, one in ids)
        return PointNames("row_id", [*called])
    if n_first is None:
        return None
    return PointNames("row", [f"{i}" if i < n_first else f"{i - n_first} (test)" for i in range(n)])


def names_at(rows: Iterable[int]) -> PointNames:
    """Return what samples are called that are these rows of their source."""
    return PointNames("row", [f"{row:d}" for row in rows])


def renumbers(canonical: Mapping[str, Any]) -> bool:
    """Return whether samples are called otherwise than by their places, or may be in another order.

    `canonical`: the description of a source.
    """
    return bool({SPLIT, ORDER, ROW_ID, IN_PARTS, "test_digest"} & {*canonical})


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


def roles_of(name: str, values: NDArray[Any]) -> Roles:
    """Return the roles of rows: each fold in turn is the test set, in natural order.

    `name`: the column's. `values`, object array or float64 array (sample,): the fold of each row.
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


def fold_counts(roles: Roles, y: NDArray[np.integer[Any]], n_classes: int) -> NDArray[np.int64]:
    """Count the samples of each class (part, set, class), training parts first."""
    return np.array(
        [
            [np.bincount(y[set_roles == role], minlength=n_classes) for set_roles in roles]
            for role in (TRAIN, TEST)
        ]
    )


def group_codes(name: str, values: NDArray[np.object_] | NDArray[np.float64]) -> NDArray[np.int64]:
    """Return the group of each sample, numbered from 0 in the natural order of their names.

    `name`: the column's. `values`, object array or float64 array (sample,): text or numbers; None
    or NaN where missing.
    """
    names, group = encode(values)
    if missing := int((group < 0).sum()):
        reason = f"is missing in {missing} rows; leave these out, or give each a group of its own"
        raise Refused(GROUP, name, reason)
    if same := same_spelling(names):
        shown = " and ".join(map(quoted, same[0]))
        reason = f"holds groups that look the same, {shown}: write them alike"
        raise Refused(GROUP, name, reason)
    require_several(name, len(names))
    return group


def require_several(name: str, n_groups: int) -> None:
    """Refuse a column with a single group."""
    if n_groups < 2:
        reason = "has the same value in all rows: a single group cannot be both in training part "
        raise Refused(GROUP, name, f"{reason}and test set")


def require_whole(name: str, groups: NDArray[np.int64], n_train: int) -> None:
    """Refuse a split (training part first) that tears groups apart."""
    torn = np.intersect1d(groups[:n_train], groups[n_train:]).size
    if torn:
        groups_have = "1 group has" if torn == 1 else f"{torn} groups have"
        reason = f"is torn apart by the file's own split: {groups_have} rows in both parts"
        raise Refused(GROUP, name, reason)
