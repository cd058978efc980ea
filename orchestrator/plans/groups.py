"""The groups of a sweep's store: one per dataset and classifier, with a layout that is fixed."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import google_crc32c

from manyseed.orchestrator.disk.records import read_record, write_json
from manyseed.orchestrator.errors import DamagedFile, DamagedGroup, LayoutTooNew, StoreError
from manyseed.orchestrator.paths import SweepPaths
from manyseed.orchestrator.plans.plan import METHOD, Plan
from manyseed.orchestrator.store.groups import find_group, published_shards
from manyseed.orchestrator.store.schema import GroupSpec

PAIR = ("dataset", "classifier")
_CHECKSUM = "crc32c"
"""Key beside a group's attributes: the checksum of their JSON. Earlier versions wrote none."""


@dataclass(frozen=True)
class Groups:
    """The layouts of all groups, in the order of their numbers."""

    specs: tuple[GroupSpec, ...] = ()

    @classmethod
    def read(cls, paths: SweepPaths) -> Groups:
        """Read a sweep's groups.

        Raises
        ------
        DamagedFile
            If the file is not a list of groups in the order of their numbers.
        """
        specs = []
        for number, value in enumerate(read_record(paths.groups, list[dict[str, object]])):
            try:
                spec = GroupSpec.from_attributes(value, paths.groups)
            except LayoutTooNew:
                raise
            except (StoreError, TypeError, ValueError) as error:
                raise DamagedFile(paths.groups, f"group {number}: {error}") from None
            if spec.number != number or value.get(_CHECKSUM, _crc(spec)) != _crc(spec):
                raise DamagedFile(paths.groups, f"group {number} is not as it was written")
            specs.append(spec)
        return cls(tuple(specs))

    def require_of(self, plan: Plan, paths: SweepPaths) -> None:
        """Refuse groups that do not match a plan's cells.

        Raises
        ------
        DamagedFile
        """
        named = plan.all_cells.select("group", *PAIR, METHOD, "path").unique()
        for number, *names in named.sort("group").iter_rows():
            spec = self.specs[number] if number < len(self.specs) else None
            if spec is None or names != [*key_of(spec), spec.path]:
                reason = f"group {number} is not the one that {paths.cells.name} describes"
                raise DamagedFile(paths.groups, reason)

    def require_planned(self, plan: Plan, paths: SweepPaths) -> None:
        """Refuse a plan that lacks its newest part: the store has rows or shards beyond the plan.

        Raises
        ------
        DamagedFile
        """
        lengths = plan.lengths
        for spec in self.specs:
            folder, planned = paths.store / spec.path, spec.padded(lengths.get(spec.number, 0))
            try:
                group = find_group(paths.store, spec)
            except DamagedGroup:  # a repair mends it; its shards show how far it goes
                group = None
            rows = 0 if group is None else group.rows
            shards = 1 + max(published_shards(folder), default=-1)
            if rows > planned or shards * spec.shard_length > planned:
                reason = f"is absent, though {folder} has rows of it"
                raise DamagedFile(paths.part(len(plan.parts) + 1), reason)

    def write(self, paths: SweepPaths, before_rename: Callable[[], None] | None = None) -> None:
        """Write a sweep's groups."""
        values = [spec.to_attributes() | {_CHECKSUM: _crc(spec)} for spec in self.specs]
        write_json(paths.groups, values, before_rename=before_rename)

    @cached_property
    def numbers(self) -> dict[tuple[str, str, str], int]:
        """The number of each group, by `key_of` it."""
        return {key_of(spec): spec.number for spec in self.specs}

    def find(self, dataset: str, classifier: str, ensembling: str = "") -> GroupSpec | None:
        """Return the group of a dataset, a classifier and `GroupSpec.ensembling`, or None."""
        number = self.numbers.get((dataset, classifier, ensembling))
        return None if number is None else self.specs[number]


def key_of(spec: GroupSpec) -> tuple[str, str, str]:
    """Return a group's dataset, classifier and `GroupSpec.ensembling`."""
    return spec.dataset, spec.classifier, spec.ensembling


def _crc(spec: GroupSpec) -> int:
    return int(google_crc32c.value(json.dumps(spec.to_attributes(), sort_keys=True).encode()))
