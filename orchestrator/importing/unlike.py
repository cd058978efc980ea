"""Files that should be of one dataset, or of several, and in what they differ."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

import numpy as np

from manyseed.analysis.counts import some
from manyseed.jobs.checks import quoted
from manyseed.orchestrator.errors import Unread, UserError
from manyseed.orchestrator.importing.mapping import common_name, entries_naming_rows
from manyseed.orchestrator.importing.predictions import PredictionFile

_SHOWN = 10  # classes or rows in a message


def _rows_alone(first: PredictionFile, source: PredictionFile) -> str:
    """Return which rows one of two sources lacks."""
    if (source.ids is None) != (first.ids is None):
        return ""
    rows = [str(row) for row in np.setxor1d(source.rows(0), first.rows(0))]
    are = "is" if len(rows) == 1 else "are"
    return f" (row_id {some(rows, _SHOWN)} {are} in one of them alone)" if rows else ""


def _where_unlike(first: PredictionFile, source: PredictionFile) -> str:
    """Return in how many points two sources differ, and how in the first."""
    n = min(len(first.y_true), len(source.y_true))
    if not np.array_equal(first.test_index[:n], source.test_index[:n]) or other_ids(first, source):
        return _rows_alone(first, source)
    repeats, points = np.nonzero(first.y_true[:n] != source.y_true[:n])
    at = repeats[0], points[0]
    one, other = (each.class_names[each.y_true[at]] for each in (source, first))
    return (
        f" in {len(points):,} of {n * first.y_true.shape[1]:,} points: the true class is "
        f"{quoted(one)} in row {source.rows(at[0])[at[1]]}, not {quoted(other)}"
    )


def other_ids(first: PredictionFile, source: PredictionFile) -> bool:
    """Return whether points of one number have other ids, where both sources have ids."""
    if first.ids is None or source.ids is None or first.ids.equals(source.ids):
        return False
    n = min(len(first.y_true), len(source.y_true))
    index = np.unique(first.test_index[:n])
    return not first.ids.gather(index).equals(source.ids.gather(index, null_on_oob=True))


def not_alike(
    first: PredictionFile, source: PredictionFile, key: str, *, is_dataset_given: bool
) -> UserError:
    """Return the error for a source whose `key` is another than that of its dataset's first."""
    is_one_file = source.file == first.file  # which holds several classifiers
    it, other = (source.classifier, first.classifier) if is_one_file else ("its", str(first.file))
    its = f"{it}'s" if is_one_file else it
    n = source.y_true.shape[1], first.y_true.shape[1]
    if key == "class_names":
        shown = [some(each.class_names, _SHOWN) for each in (source, first)]
        what = f"{its} classes are {shown[0]}, not {shown[1]}, as those of {other}"
    elif n[0] != n[1]:
        what = f"{its} test sets have {n[0]:,} points, not {n[1]:,}, as those of {other}"
        what += _rows_alone(first, source) if is_one_file else ""
    elif (
        key == "y_true"
        and not other_ids(first, source)
        and np.array_equal(np.sort(source.y_true), np.sort(first.y_true))
    ):
        names = entries_naming_rows(source.file)
        whose = (
            f"{it} has the true classes of {other}"
            if is_one_file
            else f"has the classes of {other}"
        )
        return UserError(
            f"{whose}, in another order",
            file=source.file,
            key=key,
            remedy="if these are the same points, sort the rows of every file alike"
            f"{f', such as by {names[0]}' if names else ''} (rows of CSV and Parquet "
            "are sorted by --columns row_id=NAME); if not, import them separately",
        )
    else:
        key = "row_id" if other_ids(first, source) else key
        what = f"{its} test sets differ from those of {other}{_where_unlike(first, source)}"
    remedy = "import them separately"
    remedy += ", or leave out --dataset to name each after its file" * is_dataset_given
    if is_one_file:
        remedy = "classifiers of one dataset predict the same rows; import others from own files"
    what += f", but both are {'of dataset' if is_one_file else 'named'} {source.dataset}"
    return UserError(what, file=source.file, key=key, remedy=remedy)


def require_distinct(datasets: Mapping[str, PredictionFile]) -> None:
    """Refuse datasets that differ in name alone: they would have one identity."""
    by_tests: dict[tuple[object, ...], PredictionFile] = {}
    for source in datasets.values():
        # in most imports all differ: compare only those whose first test sets have one digest
        arrays = (source.y_true[0], source.test_index[0])
        digests = [hashlib.sha256(a.astype("<i8").tobytes()).digest() for a in arrays]
        other = by_tests.setdefault((source.class_names, *digests), source)
        if other is source or (unlike := other_tests(other, source)) not in (None, "row_id"):
            continue
        if unlike:
            what = f"has the true classes of {other.file}, and other points"
            remedy = "import them separately"
            raise UserError(what, file=source.file, key=unlike, remedy=remedy)
        raise Unread(
            f"has the same test points as {other.file}",
            file=source.file,
            key=None,
            options={"dataset": common_name([each.file for each in datasets.values()])},
            before="if the files are seeds of one classifier: ",
            after="\n  if they are classifiers, --classifier NAME=FILE each; else import them "
            "separately",
        )


def other_tests(one: PredictionFile, other: PredictionFile) -> str | None:
    """Return in what two sources differ: classes, or test sets of repeats that both have."""
    if one.class_names != other.class_names:
        return "class_names"
    if one.y_true.shape[1] != other.y_true.shape[1]:
        return "y_true"
    n = min(len(one.y_true), len(other.y_true))
    for name in ("y_true", "test_index"):
        if not np.array_equal(getattr(one, name)[:n], getattr(other, name)[:n]):
            return name
    return "row_id" if other_ids(one, other) else None
