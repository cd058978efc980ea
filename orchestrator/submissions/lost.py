"""Missing files of submissions."""

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
    """Return the files that a sweep's submissions lost: they were written, but are missing."""
    plan = identity_of(paths)
    return [file for folder in paths.submissions() for file in _lost(SubmissionPaths(folder), plan)]


def _lost(files: SubmissionPaths, plan: str) -> Iterator[Path]:
    tasks = set(files.tasks())
    if files.intent.exists():
        intent = Intent.read(files.folder, plan)
        yield from (file for file in map(files.task, range(intent.tasks)) if file not in tasks)
    elif tasks:
        yield files.intent
    if files.submitted.exists() and not files.jobs.exists():
        yield files.jobs
    yield from files.lost_reports()


def lost_failures(listed: Sequence[Submission]) -> list[str]:
    """Return a message for each file that holds fewer failures than its attempt reported."""
    messages = []
    for attempt in (attempt for submission in listed for attempt in submission.attempts()):
        if not attempt.n_failed:
            continue
        n = attempt.n_failed - len(read_failures(attempt.folder, attempt.plan))
        if n > 0:
            messages.append(
                f"{attempt.folder / FAILURES} lacks {n:,} of the {attempt.n_failed:,} failures "
                "that its attempt reported: these runs count as missing until trained again"
            )
    return messages[:_SHOWN]
