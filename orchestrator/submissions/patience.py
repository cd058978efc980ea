"""How long a scheduler is waited for by what only looks."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress

from manyseed.orchestrator.errors import ManyseedError
from manyseed.orchestrator.paths import SweepPaths
from manyseed.orchestrator.submissions.submission import submissions
from manyseed.orchestrator.survey import survey
from manyseed.orchestrator.tasks.intent import LOCAL
from manyseed.slurm import commands

_BRIEF_SECONDS = 2.0


@contextmanager
def brief_if_trained(paths: SweepPaths) -> Iterator[None]:
    """Give schedulers two seconds to answer in the block, if all runs of a sweep are finished.

    What they say then changes nothing, so a cluster that is gone is not waited for.
    """
    with commands.within(_BRIEF_SECONDS) if is_trained(paths) else nullcontext():
        yield


def is_trained(paths: SweepPaths) -> bool:
    """Return whether all runs are finished, where a scheduler may be asked at all."""
    with suppress(ManyseedError, OSError):  # damage that its readers report
        is_away = any(one.cluster != LOCAL for one in submissions(paths))
        if is_away or paths.analysis_jobs() or paths.search_jobs():
            counts = survey(paths).counts
            return not counts["missing"] and not counts["failed"]
    return False
