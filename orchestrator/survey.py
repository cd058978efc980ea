"""What has become of every run: from the store, the journals and the failures, nothing else."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import polars as pl
from numpy.typing import NDArray

from orchestrator.errors import DamagedFile
from orchestrator.paths import SweepPaths
from orchestrator.plans.groups import Groups
from orchestrator.plans.plan import Plan
from orchestrator.store.arrays import COPY, DONE, MISSING
from orchestrator.store.groups import Group, find_group
from orchestrator.store.index import JournalIndex
from orchestrator.store.reader import statuses
from orchestrator.store.retraining import count_retrained
from orchestrator.working.lives import Failure, read_failures

FAILED = 3
"""A state that the store does not know: the latest attempt raised, and nothing was finished."""

STATES = {"done": DONE, "copy": COPY, "failed": FAILED, "missing": MISSING}


@dataclass(frozen=True)
class Survey:
    """The state of every planned run.

    Attributes
    ----------
    plan : Plan
    states : dict of uint8 array
        For each group the state of each row.
    failures : dict
        The latest failure of each (group, row) that is failed.
    duplicates : int
        Fits that were trained more than once.
    """

    plan: Plan
    states: Mapping[int, NDArray[np.uint8]]
    failures: Mapping[tuple[int, int], Failure]
    duplicates: int

    @cached_property
    def runs(self) -> pl.DataFrame:
        """Every planned run: columns group, cell, repeat, run, row, state (a code of `STATES`)."""
        parts = [self.plan.rows.clear().with_columns(state=pl.lit(None, dtype=pl.UInt8))]
        for (group,), rows in self.plan.rows.partition_by(
            "group", as_dict=True, maintain_order=True
        ).items():
            state = self.states[int(str(group))][rows["row"].to_numpy()]
            parts.append(rows.with_columns(state=pl.Series(state, dtype=pl.UInt8)))
        return pl.concat(parts)

    def with_state(self, *names: str) -> pl.DataFrame:
        """Return the runs in any of these states."""
        return self.runs.filter(pl.col("state").is_in([STATES[name] for name in names]))

    @cached_property
    def by_group(self) -> pl.DataFrame:
        """Counts: columns group, dataset, classifier, runs, done, copy, failed, missing."""
        counts = self.runs.group_by("group").agg(
            runs=pl.len(),
            **{name: (pl.col("state") == code).sum() for name, code in STATES.items()},
        )
        names = self.plan.groups.select("group", "dataset", "classifier")
        return names.join(counts, on="group", how="left").sort("group")

    @cached_property
    def counts(self) -> dict[str, int]:
        """Runs by state, and all."""
        totals = self.by_group.select("runs", *STATES).sum().row(0, named=True)
        return {name: int(value or 0) for name, value in totals.items()}


def survey(paths: SweepPaths) -> Survey:
    """Look at a sweep's plan, store, journals and failures.

    A sweep that nobody submitted has no store yet: all its runs are missing.
    """
    plan, groups = Plan.read(paths), Groups.read(paths)
    groups.require_of(plan, paths)
    index = JournalIndex(paths.journals)
    lengths = dict(plan.groups.select("group", "length").iter_rows())
    states: dict[int, NDArray[np.uint8]] = {}
    opened: list[Group] = []
    for spec in groups.specs:
        state = np.zeros(lengths.get(spec.number, 0), dtype=np.uint8)
        if (group := find_group(paths.store, spec)) is not None:
            opened.append(group)
            if group.rows > spec.padded(len(state)):
                reason = f"is absent, though {group.folder} has rows of it"
                raise DamagedFile(paths.part(len(plan.parts) + 1), reason)
            stored = statuses(group)[: len(state)]
            state[: len(stored)] = stored
        journaled = index.rows(spec.number)
        journaled = journaled[journaled < len(state)]
        fresh = journaled[state[journaled] == MISSING]
        state[fresh] = DONE
        states[spec.number] = state
    failures = _failures(paths, states)
    for number, row in failures:
        states[number][row] = FAILED
    return Survey(plan, states, failures, count_retrained(opened, index))


def _failures(
    paths: SweepPaths, states: Mapping[int, NDArray[np.uint8]]
) -> dict[tuple[int, int], Failure]:
    found = {}
    for submission in paths.submissions():
        for file in sorted((submission / "lives").glob("*/failures.jsonl")):
            for failure in read_failures(file.parent):
                group, row = failure.group, failure.row
                if row < len(states.get(group, ())) and states[group][row] == MISSING:
                    found[group, row] = failure
    return found
