"""Cells whose hparams are still to be searched for."""

from __future__ import annotations

from orchestrator.errors import UserError
from orchestrator.paths import SweepPaths
from orchestrator.plan import Plan


def require_hparams(paths: SweepPaths) -> None:
    """Refuse to train a plan that holds tuned cells.

    Raises
    ------
    UserError
        With the number of cells, and how to train the others.
    """
    tuned = Plan.read(paths).cells.filter(hparams="tuned")
    if len(tuned):
        raise UserError(
            f"{len(tuned):,} cells need hparams that a search finds, and searching is not "
            "available yet",
            file=paths.sweep_file,
            key="grid.hparams",
            value="tuned",
            remedy="to train the other cells, take these out: "
            f"manyseed drop {paths.directory} --where \"hparams = 'tuned'\"",
        )
