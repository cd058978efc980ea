"""Train one run again and compare it with what is stored."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from jobs.run import MachineError
from jobs.trainer import Trainer
from orchestrator.errors import UnavailableError, UserError
from orchestrator.origin import recipe
from orchestrator.paths import SweepPaths
from orchestrator.plans.tuned import fitted
from orchestrator.runs.address import find_run
from orchestrator.runs.show import stored
from orchestrator.store.groups import open_group
from orchestrator.store.reader import read_rows
from orchestrator.store.rows import encode_row


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
    if published["status"] not in ("done", "copy"):
        raise UserError(
            "this run is not published yet",
            key="RUN",
            value=address,
            remedy=f"train it with: manyseed resume {paths.directory}; or, where it is finished, "
            f"publish it with: manyseed compact {paths.directory}",
        )
    if (published["recipe"] or {}).get("form") == "imported":
        raise UserError("these predictions were made elsewhere", key="RUN", value=address)
    trainer, run = Trainer(), found.fitted
    try:
        run = replace(run, cell=fitted(paths, run.cell))
        snapshots = tuple(found.cell["snapshots"])
        prediction = trainer.train(run, snapshots, curves=found.spec.curves)
        y_true = trainer.test_set(run.cell, run.repeat).y_true
    except MachineError as error:
        raise UnavailableError(str(error)) from None
    again = encode_row(found.spec, prediction, y_true)
    names = ["label", *([found.spec.score_name] if found.spec.score_name else [])]
    before = read_rows(open_group(paths.store, found.spec.path), names, [found.row])
    label = np.frombuffer(again.label, before["label"].dtype)
    largest = None
    if found.spec.score_name is not None:
        scores = before[found.spec.score_name].ravel().astype(np.float64)
        now = np.frombuffer(again.score, before[found.spec.score_name].dtype).astype(np.float64)
        largest = float(np.abs(scores - now).max())
    then, here = published["recipe"] or {}, recipe()
    changes = {name: [then.get(name), here[name]] for name in here if here[name] != then.get(name)}
    return {
        "same_recipe": not changes,
        "recipe_changes": changes,
        "equal": again.crc == published["crc32c"],
        "labels": len(label),
        "labels_differ": int((label != before["label"].ravel()).sum()),
        "largest_difference": largest,
    }
