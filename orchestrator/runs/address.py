"""Find a run by its address, ``CELL:REPEAT:RUN``."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

import polars as pl

from manyseed.analysis.axes import AXES
from manyseed.jobs.run import Run
from manyseed.orchestrator.errors import UserError
from manyseed.orchestrator.paths import SweepPaths
from manyseed.orchestrator.plans.keptmodels import conditions, with_models
from manyseed.orchestrator.plans.layout import Groups
from manyseed.orchestrator.plans.plan import Plan
from manyseed.orchestrator.store.schema import GroupSpec


@dataclass(frozen=True)
class PlannedRun:
    """A run of a plan.

    Attributes
    ----------
    run : Run
        The run as it is trained.
    cell, cell_id : int, str
        The cell's number in the plan, and its identity.
    axes : mapping
        The cell's levels of `AXES`.
    is_identical : bool
        Whether all runs of a repeat are the same fit.
    snapshots : tuple of int
        Epochs whose predictions are kept.
    spec : GroupSpec
        The group that stores it.
    row : int
        Its row in the group.
    """

    run: Run
    cell: int
    cell_id: str
    axes: Mapping[str, object]
    is_identical: bool
    snapshots: tuple[int, ...]
    spec: GroupSpec
    row: int

    @property
    def fitted(self) -> Run:
        """The run that is fitted for this one: the first of its repeat if all are identical."""
        return Run(self.run.cell, self.run.repeat, 0) if self.is_identical else self.run

    @property
    def keeps_model(self) -> bool:
        """Whether its parameters are kept, provided that its group stores parameters."""
        where = conditions([self.spec])
        cells = pl.DataFrame([{"cell": self.cell, "identical": self.is_identical, **self.axes}])
        row = (self.spec.number, self.cell, self.run.repeat, self.run.run)
        rows = pl.DataFrame([row], schema=["group", "cell", "repeat", "run"], orient="row")
        return bool(with_models(cells, rows, where).item())


def find_run(paths: SweepPaths, address: str) -> PlannedRun:
    """Return the run at an address.

    Parameters
    ----------
    address : str
        ``CELL:REPEAT:RUN``: a cell's number or the first digits of its identity, then the repeat
        and the run, counted from 0.

    Raises
    ------
    UserError
        For any other form, and for a run that the plan does not hold.
    """
    match = re.fullmatch(r"([0-9a-f]+):(\d+):(\d+)", address)
    if match is None:
        raise UserError(
            "not of the form CELL:REPEAT:RUN",
            key="RUN",
            value=address,
            remedy="a cell's number or the first digits of its identity, then the repeat and the "
            "run, counted from 0: 12:0:3",
        )
    plan = Plan.read(paths)
    cell = _cell(plan, match[1], address)
    number, repeat, run = cell["cell"].item(), int(match[2]), int(match[3])
    rows = plan.rows.filter(cell=number, repeat=repeat, run=run)
    if rows.is_empty():
        extent = plan.extents.row(by_predicate=pl.col("cell") == number, named=True)
        raise UserError(
            f"the plan has no such run: cell {number} has repeats 0 to "
            f"{extent['repeats'] - 1} and runs 0 to {extent['runs'] - 1}",
            key="RUN",
            value=address,
        )
    return PlannedRun(
        Run(plan.cell(number), repeat, run),
        number,
        cell["cell_id"].item(),
        cell.select(AXES).row(0, named=True),
        cell["identical"].item(),
        tuple(cell["snapshots"].item()),
        Groups.read(paths).specs[cell["group"].item()],
        rows["row"].item(),
    )


def _cell(plan: Plan, text: str, address: str) -> pl.DataFrame:
    """Return the row of the plan's cells that the text identifies."""
    cells = plan.cells.filter(pl.col("cell_id").str.starts_with(text))
    if text.isdigit() and int(text) < len(plan.all_cells):
        cells = plan.cells.filter(pl.col("cell") == int(text))
    if len(cells) != 1:
        remedy = f"cells have the numbers 0 to {len(plan.all_cells) - 1}"
        if len(cells):
            remedy = f"give more digits: {', '.join(cells['cell_id'].head(5))}"
        what = f"{len(cells)} cells begin with {text}" if len(cells) else f"there is no cell {text}"
        raise UserError(what, key="RUN", value=address, remedy=remedy)
    return cells
