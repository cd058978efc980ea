"""Commands that train, as messages name them: with ``--cluster`` where they need it."""

from __future__ import annotations

from manyseed.orchestrator.errors import ManyseedError, UserError, command
from manyseed.orchestrator.paths import SweepPaths
from manyseed.orchestrator.submissions.profiles import needed
from manyseed.orchestrator.submissions.submission import last_intent


def on_cluster(paths: SweepPaths | None = None) -> list[str]:
    """Return the words by which a command trains on this machine or its cluster; mostly none.

    Where ``sbatch`` is found and ``auto`` could not choose, these name the user's first profile
    or, without one, this machine. `paths` is None for a sweep that is not planned yet.
    """
    try:
        name = needed(None if paths is None else last_intent(paths))
    except ManyseedError:  # what is damaged is reported by whoever reads it
        return []
    return [] if name is None else ["--cluster", name]


def training(paths: SweepPaths, verb: str, *words: object) -> str:
    """Return the command that trains a sweep: ``submit`` or ``resume``, with further words."""
    return command(verb, paths.directory, *words, *on_cluster(paths))


def nothing_finished(paths: SweepPaths) -> UserError:
    """Return the error for a request that needs a finished run."""
    remedy = training(paths, "submit")
    return UserError("no run is finished yet", file=paths.directory, remedy=remedy)
