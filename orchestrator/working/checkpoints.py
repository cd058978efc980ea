"""Checkpoints of long fits: a file per run in training, below ``tasks/checkpoints``.

A network that trains for more than `checkpoint_seconds` saves itself there, and whoever trains the
run next goes on from its last saved epoch. A file that another recipe made is passed over and
overwritten. Members of an ensemble that are kept one by one may lie beside it, in files whose names
begin with its own and a dot.
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
    """Return the time between two saves: what a kill costs at most, besides the epoch in training.

    Raises
    ------
    UserError
        Where the environment asks for none that makes sense.
    """
    return seconds_of(_VARIABLE, _SECONDS, (0.0, _MOST_SECONDS), "time between checkpoints")


def checkpoint(
    paths: SweepPaths, group: int, row: int, run: Run, recipe: int, every: float
) -> Checkpoint | None:
    """Return where a run saves itself; None for a classifier that cannot go on later.

    Parameters
    ----------
    paths : SweepPaths
    group, row : int
        Where the store will hold it.
    run : Run
    recipe : int
        Number of the recipe; a checkpoint of another one is passed over.
    every : float
        `checkpoint_seconds`.
    """
    model = run.cell.classifier
    if "epochs" not in model and model.get("form") not in MODELLESS:
        return None
    key = f"{run.cell.id}:{run.repeat}:{run.run}, recipe {recipe}"
    return Checkpoint(paths.checkpoint(group, row), key, every)


def remove_stale(paths: SweepPaths) -> int:
    """Remove the files that no missing run goes on from; return how many there were.

    For when nothing is in training.
    """
    files = list(paths.checkpoints.glob("*")) if paths.checkpoints.exists() else []
    if not files:
        return 0
    from manyseed.orchestrator.survey import (
        survey,  # a training process does without its table library
    )

    missing = survey(paths).with_state("missing").select("group", "row")
    awaited = {paths.checkpoint(group, row).name for group, row in missing.iter_rows()}
    stale = [file for file in files if file.name.partition(".")[0] not in awaited]
    for file in stale:
        if file.is_dir():
            shutil.rmtree(file, ignore_errors=True)
        else:
            file.unlink(missing_ok=True)
    return len(stale)
