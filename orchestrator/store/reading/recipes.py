"""Recipes of the finished runs in a store and its journals."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from manyseed.orchestrator.store.journals.index import JournalFolder, JournalIndex
from manyseed.orchestrator.store.layout.arrays import NO_RECIPE
from manyseed.orchestrator.store.layout.groups import Group, list_groups
from manyseed.orchestrator.store.reading.reader import finished_rows, read_array, statuses


def recipes_of(group: Group, journals: JournalIndex) -> dict[int, int]:
    """Return the number of finished runs of a group by recipe.

    Raises
    ------
    DamagedShard
    """
    published = finished_rows(statuses(group))
    rows, journaled = journals.recipes(group.spec.number)
    unpublished = journaled[~np.isin(rows, published)]
    recipes = np.concatenate([read_array(group, "recipe")[published], unpublished])
    numbers, counts = np.unique(recipes[recipes != NO_RECIPE], return_counts=True)
    return dict(zip(numbers.tolist(), counts.tolist(), strict=True))


def highest_recipe(store: Path, folder: JournalFolder) -> int:
    """Return the highest recipe number of any finished run, or 0.

    Reads all groups, and the headers of all journals in `folder`.
    """
    journals = JournalIndex(folder)
    numbers = (number for group in list_groups(store) for number in recipes_of(group, journals))
    return max(numbers, default=0)
