"""A table that follows another, as a test set of its own: both need the same columns."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from manyseed.jobs.checks import Refused
from manyseed.jobs.datasets import parts
from manyseed.jobs.datasets.columns import DataColumn

Columns = dict[str, DataColumn | None]
"""By name, in the file's order; None for those that are not features."""


def n_rows(columns: Columns) -> int:
    """Return the number of rows of a table."""
    return next((column.values.size for column in columns.values() if column is not None), 0)


def joined(first: Columns, then: Columns, path: Path) -> Columns:
    """Concatenate the columns of two tables, the second at `path`."""
    kinds = {False: "numbers", True: "labels"}
    if not n_rows(then):
        raise Refused(parts.TEST_FILE, str(path), "has no rows")
    for name, column in {**then, **first}.items():
        if column is not None and (name not in then or name not in first):
            where = "the test file" if name not in then else "the source"
            reason = f"column {name!r} is not in {where}; both files need the same columns"
            raise Refused(parts.TEST_FILE, str(path), reason)
        one, other = first.get(name), then.get(name)
        if one and other and one.is_categorical != other.is_categorical:
            reason = (
                f"column {name!r} holds {kinds[other.is_categorical]}, in the source "
                f"{kinds[one.is_categorical]}; list it in categorical or continuous"
            )
            raise Refused(parts.TEST_FILE, str(path), reason)
    return {
        name: None
        if one is None or (other := then.get(name)) is None
        else replace(one, values=np.concatenate([one.values, other.values]))
        for name, one in first.items()
    }
