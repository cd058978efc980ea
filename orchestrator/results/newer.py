"""Whether runs have finished since the last analysis, which no table shows."""

from __future__ import annotations

from manyseed.orchestrator.calls import warn
from manyseed.orchestrator.disk.records import read_json
from manyseed.orchestrator.errors import ManyseedError, command
from manyseed.orchestrator.paths import SweepPaths
from manyseed.orchestrator.survey import survey


def newer(paths: SweepPaths) -> str:
    """Say how many finished runs the results are of; empty if of all, or if it is not known."""
    try:
        analysed = read_json(paths.analysis)["runs"]["analysed"]
        counts = survey(paths).counts
    except (ManyseedError, OSError, LookupError, TypeError):
        return ""  # whoever needs what is damaged reports it
    finished = counts["done"] + counts["copy"]
    if not isinstance(analysed, int) or analysed >= finished:
        return ""
    return (
        f"These results are of {analysed:,} of {finished:,} finished runs; "
        f"`{command('analyze', paths.directory)}` for the rest."
    )


def tell_newer(paths: SweepPaths) -> None:
    """Warn if runs have finished since the last analysis."""
    if text := newer(paths):
        warn(text)
