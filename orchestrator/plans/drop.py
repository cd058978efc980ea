"""Choose cells of a plan, and remove them for good."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

import numpy as np
import polars as pl

from manyseed.analysis.axes import AXES
from manyseed.orchestrator.conditions import chosen
from manyseed.orchestrator.disk.lease import LeaseWatch
from manyseed.orchestrator.disk.records import locked
from manyseed.orchestrator.errors import UserError
from manyseed.orchestrator.paths import SweepPaths
from manyseed.orchestrator.plans.layout import Groups
from manyseed.orchestrator.plans.plan import PREFIX, Dropped, Plan, identity_of, mark, with_anchors
from manyseed.orchestrator.store.arrays import COPY, DONE
from manyseed.orchestrator.store.groups import Group, find_group
from manyseed.orchestrator.store.index import JournalIndex
from manyseed.orchestrator.store.reader import statuses
from manyseed.orchestrator.store.repair import drop as drop_rows
from manyseed.orchestrator.store.repair import require_rest

COLUMNS = ("cell", "cell_id", *AXES, "identical", "repeats", "runs")
"""The columns that a condition may use, besides the hparams that grids vary."""


@dataclass(frozen=True, slots=True)
class Drop:
    """The cells to remove, the number of their runs, and how many of these are finished."""

    cells: pl.DataFrame
    runs: int
    finished: int


def to_drop(paths: SweepPaths, where: str) -> Drop:
    """Return what `drop` would remove, without writing anything."""
    plan = Plan.read(paths)
    cells = chosen(_described(plan, plan.all_cells), where)
    if plan.cells.join(cells, on="cell", how="anti").is_empty():
        raise UserError(
            "every remaining cell meets this condition",
            key="--where",
            value=where,
            remedy=f"a sweep needs at least one cell: remove {paths.directory} instead",
        )
    finished = sum(map(len, _finished(paths, plan, cells["cell"]).values()))
    return Drop(cells, int((cells["repeats"] * cells["runs"]).sum()), finished)


def choose_cells(plan: Plan, where: str, option: str) -> pl.DataFrame:
    """Return the cells of a plan that meet a condition in SQL."""
    return chosen(_described(plan, plan.cells), where, option)


def _described(plan: Plan, cells: pl.DataFrame) -> pl.DataFrame:
    """Return cells with the columns that a condition may use."""
    cells = with_anchors(cells).join(plan.extents, on="cell", maintain_order="left")
    return cells.select(*COLUMNS, f"^{PREFIX}.*$")


def drop(paths: SweepPaths, where: str) -> Drop:
    """Remove cells from the plan for good and set their rows in the store back to missing.

    Planning the same file again does not bring them back. Repeating an interrupted drop
    completes it.
    """
    with locked(paths.lock, "dropping") as lease:
        dropped = to_drop(paths, where)
        watch = LeaseWatch(paths.leases)
        require_rest(watch)
        plan = Plan.read(paths)
        rows = _finished(paths, plan, dropped.cells["cell"])
        new = set(dropped.cells["cell"].to_list()) - set(plan.dropped.to_list())
        if new:
            now = datetime.now(UTC).isoformat(timespec="seconds")
            Dropped(tuple(sorted(new)), where, now, identity_of(paths)).write(paths, lease.check)
        mark(paths)
        if rows:
            drop_rows(rows, plan.journals(paths), watch)
    return dropped


def _finished(paths: SweepPaths, plan: Plan, cells: pl.Series) -> dict[Group, list[int]]:
    """Return the rows of cells that the store or a journal holds, by group."""
    index = JournalIndex(plan.journals(paths))
    planned = plan.all_rows.filter(pl.col("cell").is_in(cells.implode()))
    finished = {}
    for spec in Groups.read(paths).specs:
        rows = planned.filter(pl.col("group") == spec.number)["row"].to_numpy()
        if not len(rows) or (group := find_group(paths.store, spec)) is None:
            continue
        rows = rows[rows < group.rows]
        held = np.isin(statuses(group)[rows], (DONE, COPY)) | np.isin(rows, index.rows(spec.number))
        if held.any():
            finished[group] = rows[held].tolist()
    return finished
