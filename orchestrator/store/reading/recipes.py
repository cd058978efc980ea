"""By which recipes the finished runs of a store were made, as they and journals record."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from manyseed.orchestrator.store.journals.index import JournalFolder, JournalIndex
from manyseed.orchestrator.store.layout.arrays import NO_RECIPE
from manyseed.orchestrator.store.layout.groups import Group, list_groups
from manyseed.orchestrator.store.reading.reader import finished_rows, read_array, statuses


def recipes_of(group: Group, journals: JournalIndex) -> dict[int, int]:
    """Return the recipes of a group's finished runs, and how many were made by each.

    Raises
    ------
    DamagedShard
    """
    published = finished_rows(statuses(group))
    rows, recipes = journals.recipes(group.spec.number)
    held = recipes[~np.isin(rows, published)]
    every = np.concatenate([read_array(group, "recipe")[published], held])
    numbers, counts = np.unique(every[every != NO_RECIPE], return_counts=True)
    return dict(zip(numbers.tolist(), counts.tolist(), strict=True))


def highest_recipe(store: Path, folder: JournalFolder) -> int:
    """Return the highest number of a recipe that finished runs have; 0 where none has any.

    All groups are read, and the headers of all journals of `folder`.
    """
    journals = JournalIndex(folder)
    found = (number for group in list_groups(store) for number in recipes_of(group, journals))
    return max(found, default=0)
