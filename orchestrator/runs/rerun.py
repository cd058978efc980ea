"""Train one run again and compare it with what is stored."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from manyseed.jobs.run import MachineError
from manyseed.jobs.trainer import Trainer
from manyseed.jobs.training.handling import Handling
from manyseed.orchestrator.errors import UnavailableError, UserError
from manyseed.orchestrator.machine import remedy
from manyseed.orchestrator.paths import SweepPaths
from manyseed.orchestrator.plans.tuned import fitted, forget_code, use_code
from manyseed.orchestrator.provenance import Recipe
from manyseed.orchestrator.runs.address import find_run
from manyseed.orchestrator.runs.show import stored
from manyseed.orchestrator.store.journals.rowbytes import encode_row
from manyseed.orchestrator.store.layout.groups import open_group
from manyseed.orchestrator.store.reading.reader import read_rows


def rerun(paths: SweepPaths, address: str) -> dict[str, Any]:
    """Train a run again on this machine's CPU, and compare.

    Returns
    -------
    dict
        same_recipe, recipe_changes (name: [then, now]), equal (bit for bit), labels (points and
        epochs compared), labels_differ, largest_difference (of scores or margins; None where
        labels alone are kept).

    Raises
    ------
    UserError
        For a run that is not published.
    UnavailableError
        Where its data, its tuned hparams or packages are missing.
    """
    found = find_run(paths, address)
    published = stored(paths, found)
    if published.status not in ("done", "copy"):
        raise UserError(
            "this run is not published yet",
            key="RUN",
            value=address,
            remedy=f"train it with: manyseed resume {paths.directory}; or, where it is finished, "
            f"publish it with: manyseed compact {paths.directory}",
        )
    if published.recipe is not None and published.recipe.form == "imported":
        raise UserError("these predictions were made elsewhere", key="RUN", value=address)
    trainer, run = Trainer(), found.fitted
    own = [*((published.recipe and published.recipe.own) or {}).values()]
    try:
        run = replace(run, cell=fitted(paths, run.cell))
        for code in own:
            use_code(paths, code, run.cell.classifier)
        handling = Handling(
            found.snapshots,
            curves=found.spec.curves,
            measures=found.spec.measures,
            response=found.spec.asked,
        )
        prediction = trainer.train(run, handling)
        y_true = trainer.test_set(run.cell, run.repeat).y_true
    except MachineError as error:
        raise UnavailableError(f"{error}{remedy(error, paths)}") from None
    finally:
        for code in own:
            forget_code(paths, code)
    again = encode_row(found.spec, prediction, y_true)
    names = ["label", *([found.spec.score_name] if found.spec.score_name else [])]
    before = read_rows(open_group(paths.store, found.spec.path), names, [found.row])
    label = np.frombuffer(again.label, before["label"].dtype)
    largest = None
    if found.spec.score_name is not None:
        scores = before[found.spec.score_name].ravel().astype(np.float64)
        now = np.frombuffer(again.score, before[found.spec.score_name].dtype).astype(np.float64)
        largest = float(np.abs(scores - now).max())
    changes = (published.recipe or Recipe()).changes(Recipe.here())
    return {
        "same_recipe": not changes,
        "recipe_changes": {name: list(pair) for name, pair in changes.items()},
        "equal": again.crc == published.crc32c,
        "labels": len(label),
        "labels_differ": int((label != before["label"].ravel()).sum()),
        "largest_difference": largest,
    }
