"""A run by its address, ``CELL:REPEAT:RUN``: what defines it, and what the store holds of it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace

import numpy as np
import polars as pl

from manyseed.analysis.axes import AXES
from manyseed.jobs.parameters import READ, endings
from manyseed.jobs.run import Run
from manyseed.jobs.trainer import run_hparams, stream_keys
from manyseed.orchestrator.errors import DamagedFile, UserError, command
from manyseed.orchestrator.paths import SweepPaths
from manyseed.orchestrator.plans.keptmodels import conditions, with_models
from manyseed.orchestrator.plans.layout import Groups
from manyseed.orchestrator.plans.plan import Plan
from manyseed.orchestrator.plans.searches import SCALE_NAME, NotSearched, fitted, searched
from manyseed.orchestrator.provenance import Recipe, read_recipe
from manyseed.orchestrator.store.arrays import NO_RECIPE, STATUSES
from manyseed.orchestrator.store.groups import find_group
from manyseed.orchestrator.store.reader import read_rows
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


def show(paths: SweepPaths, address: str) -> dict[str, object]:
    """Return what defines a run, what it is fitted with, and how it was made.

    Raises
    ------
    UserError
        As `find_run`.
    DamagedFile
        If the result of a search that it was trained with is gone.
    """
    planned = find_run(paths, address)
    asked, was_made = planned.run.cell, stored(paths, planned)
    cell = asked
    try:
        cell = fitted(paths, asked)
    except NotSearched as error:
        if was_made.status != "missing":
            raise error.though_trained() from None
    open_search = cell.has_search
    known = searched(asked, cell) or {}
    scale = {name: value for name, value in known.items() if name == SCALE_NAME}
    return {
        "cell": planned.cell,
        "cell_id": planned.cell_id,
        "repeat": planned.run.repeat,
        "run": planned.run.run,
        **planned.axes,
        "identical": planned.is_identical,
        "description": planned.run.cell.canonical(),
        "fitted_with": None
        if open_search
        else {**run_hparams(replace(planned.fitted, cell=cell)), **scale},
        "streams": stream_keys(planned.fitted),
        **_saved(paths, planned),
        "stored": {"group": planned.spec.path, "row": planned.row, **was_made.to_json()},
    }


def _saved(paths: SweepPaths, planned: PlannedRun) -> dict[str, object]:
    """Return how to save the run's model and load it again; empty if it cannot be saved."""
    known = endings(planned.run.cell.classifier)
    if not known or planned.run.cell.ensembling is not None:
        return {}
    address = f"{planned.cell}:{planned.run.repeat}:{planned.run.run}"
    file = f"model{known[0]}"
    return {
        "model": {
            "save": command("rerun", paths.directory, address, "--save", file),
            "load": READ[known[0]].replace("FILE", repr(file)),
        }
    }


@dataclass(frozen=True, slots=True)
class StoredRun:
    """What the store holds about a run: its status and, once published, how it was made.

    Attributes
    ----------
    status : str
        done, copy or missing.
    crc32c : int
        The checksum of its row.
    fit_seconds : float, optional
    recipe : Recipe, optional
    recipe_unknown : str
        Why the recipe is unknown, if it is lost.
    """

    status: str = "missing"
    crc32c: int = 0
    fit_seconds: float | None = None
    recipe: Recipe | None = None
    recipe_unknown: str = ""

    def to_json(self) -> dict[str, object]:
        """Return this as JSON values; only the status if the run is missing."""
        if self.status == "missing":
            return {"status": self.status}
        value = asdict(self) | {"recipe": self.recipe and self.recipe.to_json()}
        if not self.recipe_unknown:
            del value["recipe_unknown"]
        return value


def stored(paths: SweepPaths, planned: PlannedRun) -> StoredRun:
    """Return what the store holds about a run."""
    group = find_group(paths.store, planned.spec)
    if group is None or planned.row >= group.rows:
        return StoredRun()
    values = read_rows(group, ("status", "recipe", "fit_seconds", "crc"), [planned.row])
    status = {code: name for name, code in STATUSES.items()}.get(int(values["status"][0]))
    if status not in ("done", "copy"):
        return StoredRun()
    recipe, took = int(values["recipe"][0]), float(values["fit_seconds"][0])
    made = StoredRun(status, int(values["crc"][0]), took if np.isfinite(took) else None)
    if recipe == NO_RECIPE:
        return made
    try:
        return replace(made, recipe=read_recipe(paths.recipes, recipe))
    except DamagedFile as error:
        return replace(made, recipe_unknown=f"{error.file}: {error.reason}")
