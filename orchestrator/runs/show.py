"""Everything that defines one run."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace

import numpy as np

from manyseed.jobs.parameters import READ, endings
from manyseed.jobs.trainer import run_hparams, stream_keys
from manyseed.orchestrator.errors import DamagedFile, command
from manyseed.orchestrator.paths import SweepPaths
from manyseed.orchestrator.plans.searches import SCALE_NAME, NotSearched, fitted, searched
from manyseed.orchestrator.provenance import Recipe, read_recipe
from manyseed.orchestrator.runs.address import PlannedRun, find_run
from manyseed.orchestrator.store.arrays import NO_RECIPE, STATUSES
from manyseed.orchestrator.store.groups import find_group
from manyseed.orchestrator.store.reader import read_rows


def show(paths: SweepPaths, address: str) -> dict[str, object]:
    """Return what defines a run, what it is fitted with, and how it was made.

    Raises
    ------
    UserError
        As `orchestrator.runs.address.find_run`.
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
