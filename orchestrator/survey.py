"""The state of every run, from the store, the journals and the failures alone."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray

from manyseed.orchestrator.disk.parquet import damage_named
from manyseed.orchestrator.disk.records import read_json
from manyseed.orchestrator.errors import DamagedFile
from manyseed.orchestrator.paths import SweepPaths
from manyseed.orchestrator.plans.layout import Groups
from manyseed.orchestrator.plans.plan import Plan
from manyseed.orchestrator.store.arrays import COPY, DONE, MISSING
from manyseed.orchestrator.store.groups import Group, find_group
from manyseed.orchestrator.store.index import JournalIndex
from manyseed.orchestrator.store.ledger import count_retrained
from manyseed.orchestrator.store.reader import require_statuses, statuses
from manyseed.orchestrator.tasks.attempts import Failure, valid_failures

FAILED = 3
"""A state that the store does not know: the latest attempt raised, and the run is not finished."""

STATES = {"done": DONE, "copy": COPY, "failed": FAILED, "missing": MISSING}


@dataclass(frozen=True)
class Survey:
    """The state of every planned run.

    `states`: the state of each row (row,), by group. `failures`: the latest failure of each (group,
    row) that is failed. `duplicates`: number of fits that were trained more than once. `foreign`:
    journals of other sweeps, which do not count. `unpublished`: number of finished runs that only
    journals hold.
    """

    plan: Plan
    states: Mapping[int, NDArray[np.uint8]]
    failures: Mapping[tuple[int, int], Failure]
    duplicates: int
    foreign: tuple[Path, ...] = ()
    unpublished: int = 0

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

    @property
    def finished_cells(self) -> pl.DataFrame:
        """The cells of the plan that have finished runs."""
        return self.plan.cells.join(self.with_state("done", "copy"), on="cell", how="semi")

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
        """Numbers of runs: all, as `runs`, and by state."""
        totals = self.by_group.select("runs", *STATES).sum().row(0, named=True)
        return {name: int(value or 0) for name, value in totals.items()}


def survey(paths: SweepPaths) -> Survey:
    """Derive the state of every run from a sweep's plan, store, journals and failures.

    A sweep that was never submitted has no store yet: all its runs are missing.
    """
    plan, groups = Plan.read(paths), Groups.read(paths)
    groups.require_of(plan, paths)
    groups.require_planned(plan, paths)
    index = JournalIndex(plan.journals(paths))
    lengths = dict(plan.groups.select("group", "length").iter_rows())
    states: dict[int, NDArray[np.uint8]] = {}
    opened: list[Group] = []
    unpublished = 0
    for spec in groups.specs:
        state = np.zeros(lengths.get(spec.number, 0), dtype=np.uint8)
        if (group := find_group(paths.store, spec)) is not None:
            opened.append(group)
            require_statuses(group, index.rows(spec.number))
            stored = statuses(group)[: len(state)]
            state[: len(stored)] = stored
        published = np.count_nonzero(state)
        _finish_from_journals(state, spec.number, index, plan)
        unpublished += int(np.count_nonzero(state) - published)
        states[spec.number] = state
    failed = {
        (failure.group, failure.row): failure
        for failure in valid_failures(paths, plan.identity)
        if failure.row < len(states.get(failure.group, ()))
        and states[failure.group][failure.row] == MISSING
    }
    for number, row in failed:
        states[number][row] = FAILED
    foreign = tuple(paths.journals / name for name in index.foreign)
    return Survey(plan, states, failed, count_retrained(opened, index), foreign, unpublished)


def _finish_from_journals(
    state: NDArray[np.uint8], group: int, index: JournalIndex, plan: Plan
) -> None:
    """Mark runs in journals as finished: trained ones, and copies of finished ones.

    A copy stays missing until its source is finished.
    """
    held, trained = index.rows(group), index.fits(group)[0]
    if not len(held):
        return
    held, trained = held[held < len(state)], trained[trained < len(state)]
    state[trained[state[trained] == MISSING]] = DONE
    waiting = held[state[held] == MISSING]
    if len(waiting):
        source = _sources(plan, group, len(state))[waiting]
        known = source >= 0
        known[known] = np.isin(state[source[known]], (DONE, COPY))
        state[waiting[known]] = COPY


def _sources(plan: Plan, group: int, length: int) -> NDArray[np.int64]:
    """Return, for each row of a group, the row of its repeat's first run, or -1; shape (row,)."""
    rows = plan.all_rows.filter(pl.col("group") == group).select("cell", "repeat", "run", "row")
    first = rows.filter(pl.col("run") == 0).select("cell", "repeat", source="row")
    both = rows.join(first, on=("cell", "repeat"), how="inner")
    sources = np.full(length, -1, dtype=np.int64)
    sources[both["row"].to_numpy()] = both["source"].to_numpy()
    return sources


def covered(paths: SweepPaths, state: Survey) -> tuple[int, int]:
    """Return how many finished runs the result tables are of, and how many dropped ones.

    Unless all planned runs were finished and analysed, runs are compared one by one: others may
    have finished in place of dropped or lost ones. Of a repeat that could not be analysed, which
    has no rows of runs, all count. May raise FileNotFoundError or DamagedFile; checksums are left
    to those that show the tables.
    """
    n = state.counts["runs"]
    if state.counts["done"] + state.counts["copy"] == n and not len(state.plan.dropped):
        with suppress(DamagedFile, LookupError, TypeError):
            if read_json(paths.analysis)["runs"]["analysed"] == n:
                return n, 0
    cell, repeat = pl.col("cell").cast(pl.UInt32), pl.col("repeat_index").cast(pl.UInt16)
    run = pl.col("run_index").cast(pl.UInt16)
    known = _distinct(paths, "runs", cell=cell, repeat=repeat, run=run)
    finished = state.with_state("done", "copy")
    left = finished.join(known, on=["cell", "repeat", "run"], how="anti")
    if len(left):
        failed = pl.col("problem").is_not_null()
        whole = _distinct(paths, "repeats", failed, cell=cell, repeat=repeat)
        left = left.join(whole, on=["cell", "repeat"], how="anti")
    dropped = known.filter(pl.col("cell").is_in(state.plan.dropped.implode()))
    return len(finished) - len(left), len(dropped)


def _distinct(paths: SweepPaths, table: str, *where: pl.Expr, **columns: pl.Expr) -> pl.DataFrame:
    with damage_named(file := paths.table(table)):
        frame = pl.scan_parquet(file.absolute(), glob=False, hive_partitioning=False)
        return frame.filter(*where).select(**columns).unique().collect()
