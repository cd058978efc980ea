"""Checkpoints of long fits: a file per run in training, below ``tasks/checkpoints``.

A network that trains for more than `checkpoint_seconds` saves itself there, and the next attempt at
the run continues from the last saved epoch. A file from another recipe is ignored and overwritten.
Ensemble members that are kept individually may lie beside it, in files whose names begin with its
name and a dot.
"""

from __future__ import annotations

import shutil

from manyseed.jobs.classifiers.record import MODELLESS
from manyseed.jobs.run import Run
from manyseed.jobs.training.checkpoint import Checkpoint
from manyseed.orchestrator.disk.lease import seconds_of
from manyseed.orchestrator.paths import SweepPaths

_VARIABLE = "MANYSEED_CHECKPOINT_SECONDS"
_SECONDS, _MOST_SECONDS = 60.0, 86_400.0


def checkpoint_seconds() -> float:
    """Return the seconds between two saves: a kill loses this much plus one epoch at most."""
    return seconds_of(_VARIABLE, _SECONDS, (0.0, _MOST_SECONDS), "time between checkpoints")


def checkpoint(
    paths: SweepPaths, group: int, row: int, run: Run, recipe: int, every: float
) -> Checkpoint | None:
    """Return the checkpoint of a run; None for a classifier that cannot resume training.

    `group` and `row`: its place in the store. `recipe`: number of the recipe; a checkpoint of
    another one is ignored. `every`: `checkpoint_seconds`.
    """
    model = run.cell.classifier
    if "epochs" not in model and model.get("form") not in MODELLESS:
        return None
    key = f"{run.cell.id}:{run.repeat}:{run.run}, recipe {recipe}"
    return Checkpoint(paths.checkpoint(group, row), key, every)


def remove_stale(paths: SweepPaths) -> int:
    """Remove the files that no missing run can continue from; return their number.

    Call this only while nothing trains.
    """
    files = list(paths.checkpoints.glob("*")) if paths.checkpoints.exists() else []
    if not files:
        return 0
    # training processes import this module but not a table library
    from manyseed.orchestrator.survey import survey

    missing = survey(paths).with_state("missing").select("group", "row")
    needed = {paths.checkpoint(group, row).name for group, row in missing.iter_rows()}
    stale = [file for file in files if file.name.partition(".")[0] not in needed]
    for file in stale:
        if file.is_dir():
            shutil.rmtree(file, ignore_errors=True)
        else:
            file.unlink(missing_ok=True)
    return len(stale)
