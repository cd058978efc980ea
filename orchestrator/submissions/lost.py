"""Files of submissions that must be there, and are not."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from manyseed.orchestrator.paths import SweepPaths
from manyseed.orchestrator.plans.plan import identity_of
from manyseed.orchestrator.submissions.submission import Submission
from manyseed.orchestrator.tasks.attempts import read_failures
from manyseed.orchestrator.tasks.intent import Intent
from manyseed.orchestrator.tasks.submissionpaths import FAILURES, SubmissionPaths

_SHOWN = 5


def lost_files(paths: SweepPaths) -> list[Path]:
    """Return the files that a sweep's submissions must have, and lack: each appeared whole."""
    plan = identity_of(paths)
    return [file for folder in paths.submissions() for file in _lost(SubmissionPaths(folder), plan)]


def _lost(files: SubmissionPaths, plan: str) -> Iterator[Path]:
    tasks = set(files.tasks())
    if files.intent.exists():
        intent = Intent.read(files.folder, plan)
        yield from (one for one in map(files.task, range(intent.tasks)) if one not in tasks)
    elif tasks:
        yield files.intent
    if files.submitted.exists() and not files.jobs.exists():
        yield files.jobs
    yield from files.lost_reports()


def lost_failures(listed: Sequence[Submission]) -> list[str]:
    """Return what to say of files that hold fewer failures than their attempts reported."""
    found = []
    for attempt in (attempt for submission in listed for attempt in submission.attempts()):
        if not attempt.n_failed:
            continue
        n = attempt.n_failed - len(read_failures(attempt.folder, attempt.plan))
        if n > 0:
            found.append(
                f"{attempt.folder / FAILURES} lacks {n:,} of the {attempt.n_failed:,} failures "
                "that its attempt reported: these runs count as missing until trained again"
            )
    return found[:_SHOWN]
