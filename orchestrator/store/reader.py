"""Reading while others write: with patience, status before predictions.

A reader that saw a row's status as done sees its predictions: their files were replaced before.
Reads that fall between two replacements raise, never mislead, and are tried again.

`lazy` opens whole groups; what a task needs is here and imports neither xarray nor dask.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from orchestrator.store import encoding
from orchestrator.store.arrays import MISSING, PADDING
from orchestrator.store.encoding import Array
from orchestrator.store.groups import Group


def statuses(group: Group) -> NDArray[np.uint8]:
    """Return the published status of every row (run,), 255 for padding also where unpublished."""
    status = read_array(group, "status")
    padding = read_array(group, "cell") < 0
    return np.where(
        padding, np.uint8(PADDING), np.where(status == PADDING, MISSING, status)
    ).astype(np.uint8)


def read_array(group: Group, name: str) -> Array:
    """Return a whole array; for those of a number a run."""
    array = group.spec.array(name)
    stop = group.spec.shape(array, group.rows, group.repeats)[0]
    folder = group.folder / name
    return encoding.patiently(lambda: encoding.read(folder, 0, stop), folder)


def read_rows(
    group: Group, names: Iterable[str], rows: Sequence[int] | NDArray[np.integer[Any]]
) -> dict[str, Array]:
    """Return some rows of some arrays; only inner chunks that hold them are read.

    Parameters
    ----------
    group : Group
        The group.
    names : iterable of str
        Arrays with the dimension run.
    rows : sequence of int
        Rows, in any order.
    """
    found = {}
    for name in sorted(names, key=lambda name: name != "status"):
        folder = group.folder / name
        read = functools.partial(encoding.read_rows, folder, rows)
        found[name] = encoding.patiently(read, folder)
    return found
