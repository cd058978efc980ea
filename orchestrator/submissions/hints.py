"""Commands that train, as messages name them: with ``--cluster`` where they need it."""

from __future__ import annotations

from collections import Counter

from manyseed.orchestrator.errors import ManyseedError, RunsError, UserError, command
from manyseed.orchestrator.paths import SweepPaths
from manyseed.orchestrator.submissions.profiles import needed
from manyseed.orchestrator.submissions.submission import last_intent
from manyseed.orchestrator.tasks.alike import kind
from manyseed.orchestrator.tasks.attempts import COPY_OF_FAILED


def on_cluster(paths: SweepPaths | None = None) -> list[str]:
    """Return the words by which a command trains on this machine or its cluster; mostly none.

    Where ``sbatch`` is found and ``auto`` could not choose, these name the user's first profile,
    if there is one. `paths` is None for a sweep that is not planned yet.
    """
    try:
        name = needed(None if paths is None else last_intent(paths))
    except ManyseedError:  # what is damaged is reported by whoever reads it
        return []
    return [] if name is None else ["--cluster", name]


def training(paths: SweepPaths, verb: str, *words: object) -> str:
    """Return the command that trains a sweep: ``submit`` or ``resume``, with further words."""
    return command(verb, paths.directory, *words, *on_cluster(paths))


def nothing_finished(paths: SweepPaths) -> UserError | RunsError:
    """Return the error for a request that needs a finished run; it says why runs failed, if any."""
    from manyseed.orchestrator.survey import survey  # imports polars

    state = survey(paths)
    if failed := state.counts["failed"]:
        every = [*state.failures.values()]
        # a copy of a failed run failed for the same reason
        causes = [failure for failure in every if not failure.error.endswith(COPY_OF_FAILED)]
        kinds = Counter(kind(failure) for failure in causes or every)
        its, count = kinds.most_common(1)[0]
        error = next(failure.error for failure in causes or every if kind(failure) == its)
        total = state.counts["runs"]
        what = f"all {total:,} runs failed" if failed == total else f"{failed:,} of {total:,} runs"
        what = what if failed == total else f"no run is finished, and {what} failed"
        most = f", {count:,} of them" if len(kinds) > 1 else ""
        return RunsError(
            f"{paths.directory}: {what}{most}: {error.splitlines()[0]}\n"
            f"  see the tracebacks: {command('logs', paths.directory, '--failed')}\n"
            f"  then train them again: {training(paths, 'resume', '--failed')}"
        )
    remedy = training(paths, "submit")
    return UserError("no run is finished yet", file=paths.directory, remedy=remedy)
