"""What to do about faults of the machine that `jobs` meets."""

from __future__ import annotations

from manyseed.jobs.run import NotFetched
from manyseed.orchestrator.paths import SweepPaths


def remedy(error: BaseException, paths: SweepPaths) -> str:
    """Return what ends a message about a fault: a line with the command, or nothing."""
    if isinstance(error, NotFetched):
        return f"\n  fetch the data with: manyseed datasets fetch {paths.sweep_file}"
    return ""
