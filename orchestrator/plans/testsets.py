"""Make test sets again: they follow from the data and the seed."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from manyseed.jobs.run import MachineError
from manyseed.jobs.trainer import Trainer
from manyseed.orchestrator.errors import StoreError
from manyseed.orchestrator.plans.plan import Plan
from manyseed.orchestrator.store.groups import Group
from manyseed.orchestrator.store.testsets import Integers, read_splits

Sets = tuple[Integers, Integers]


class TestSets:
    """Makes test sets of groups.

    Parameters
    ----------
    groups : sequence of Group
        Groups whose test sets may be read if the data is not on this machine: groups of one
        dataset share theirs.
    """

    __test__ = False  # or pytest takes it for a test

    def __init__(self, plan: Plan, groups: Sequence[Group]) -> None:
        self._plan, self._groups, self._trainer = plan, groups, Trainer()

    def __call__(self, group: Group, start: int, stop: int) -> Sets | None:
        """Return `y_true` and `test_index` (repeat, sample) of a range of repeats, or None."""
        try:
            cell = self._plan.first_cell(group.spec.number)
            sets = [self._trainer.test_set(cell, repeat) for repeat in range(start, stop)]
        except (MachineError, ValueError, LookupError, TypeError):
            return self._of_another_group(group, start, stop)
        return np.stack([one.y_true for one in sets]), np.stack([one.index for one in sets])

    def _of_another_group(self, group: Group, start: int, stop: int) -> Sets | None:
        """Read the test sets of another group of the same dataset."""
        wanted = self._dataset(group)
        for other in self._groups if wanted is not None else ():
            if other.spec.number == group.spec.number or self._dataset(other) != wanted:
                continue
            length = other.spec.split_length
            files = [
                other.file(other.spec.array(name), chunk)
                for name in ("y_true", "test_index")
                for chunk in range(start // length, -(-stop // length))
            ]
            if not all(file.exists() for file in files):
                continue
            try:
                y_true, index = (values[start:stop] for values in read_splits(other))
            except StoreError:
                continue
            if len(index) == stop - start and (index >= 0).all():
                return y_true, index
        return None

    def _dataset(self, group: Group) -> object:
        """Return what determines the test sets of a group; None for imported predictions."""
        cell = self._plan.first_cell(group.spec.number)
        is_imported = cell.classifier.get("source") == "imported"
        return None if is_imported else (cell.dataset, group.spec.samples)
