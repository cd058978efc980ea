"""Everything that defines one run."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from jobs.datasets import dataset_id
from jobs.run import MachineError, Run
from jobs.trainer import run_hparams
from jobs.tuning import is_tuned, search_id
from orchestrator.errors import DamagedFile
from orchestrator.grids.sweepfile import AXES
from orchestrator.origin import read_recipes
from orchestrator.paths import SweepPaths
from orchestrator.plans.tuned import fitted
from orchestrator.runs.address import PlannedRun, find_run
from orchestrator.store.arrays import NO_RECIPE, STATUSES
from orchestrator.store.groups import find_group
from orchestrator.store.reader import read_rows


def show(paths: SweepPaths, address: str) -> dict[str, Any]:
    """Return what defines a run, what it is fitted with, and how it was made.

    Raises
    ------
    UserError
        As `orchestrator.runs.address.find_run`.
    DamagedFile
        Where what the search for its hparams found, or how the run was made, is gone.
    """
    found = find_run(paths, address)
    cell, was_made = found.run.cell, stored(paths, found)
    try:
        cell = fitted(paths, cell)
    except MachineError:
        if was_made["status"] != "missing":
            remedy = f"search for its hparams again with: manyseed tune {paths.directory}"
            file = paths.tuned(search_id(cell))
            raise DamagedFile(file, "is not there, though the run was trained", remedy) from None
    return {
        "cell": found.cell["cell"],
        "cell_id": found.cell["cell_id"],
        "repeat": found.run.repeat,
        "run": found.run.run,
        **{axis: found.cell[axis] for axis in AXES},
        "identical": found.cell["identical"],
        "description": found.run.cell.canonical(),
        "fitted_with": None if is_tuned(cell) else run_hparams(replace(found.fitted, cell=cell)),
        "streams": streams(found.fitted),
        "stored": {"group": found.spec.path, "row": found.row, **was_made},
    }


def streams(run: Run) -> dict[str, list[str | int]]:
    """Return the keys of every stream that a run draws from, as ``docs/identity.md`` has them."""
    cell, dataset = run.cell, dataset_id(run.cell.dataset)
    classifier = f"{cell.classifier['name']}@{cell.classifier['version']}"
    keys: dict[str, list[str | int]] = {
        "split": [dataset, run.repeat],
        "subsample": [dataset, run.repeat, run.run],
    }
    if "train" in cell.vary:
        keys["resample"] = [dataset, run.repeat, run.run]
    for axis in ("perturb_continuous", "perturb_categorical", "perturb_hparams"):
        if (scheme := getattr(cell, axis)) != "none":
            of = classifier if axis == "perturb_hparams" else dataset
            keys[axis] = [of, scheme, run.repeat, run.run]
    for name, source in (("init", "init"), ("batch", "batch"), ("dropout", "batch")):
        varies = [run.run] if source in cell.vary else []
        keys[name] = [dataset, classifier, run.repeat, *varies]
    return keys


def stored(paths: SweepPaths, found: PlannedRun) -> dict[str, Any]:
    """Return what the store says of a run: status and, once it is published, how it was made."""
    group = find_group(paths.store, found.spec)
    if group is None or found.row >= group.rows:
        return {"status": "missing"}
    values = read_rows(group, ("status", "recipe", "fit_seconds", "crc"), [found.row])
    status = next(
        (name for name, code in STATUSES.items() if code == values["status"][0]), "missing"
    )
    if status not in ("done", "copy"):
        return {"status": "missing"}
    recipe, took = int(values["recipe"][0]), float(values["fit_seconds"][0])
    return {
        "status": status,
        "crc32c": int(values["crc"][0]),
        "fit_seconds": took if np.isfinite(took) else None,
        "recipe": None if recipe == NO_RECIPE else _recipe(paths, recipe),
    }


def _recipe(paths: SweepPaths, number: int) -> dict[str, Any]:
    recipe = read_recipes(paths.recipes).get(number)
    if recipe is None:
        file = paths.recipes / f"{number:04d}.json"
        raise DamagedFile(file, "is not there, though the run was made by it")
    return recipe
