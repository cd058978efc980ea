"""Runs that a repair set back to missing: their earlier failures no longer count.

A failure is void if its run finished later. As long as the run is finished, that is evident; once
the run is set back, only the records written here show it.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from manyseed.orchestrator.disk.records import read_record, write_json
from manyseed.orchestrator.paths import SweepPaths
from manyseed.orchestrator.tasks.attempts import Failure, read_failures
from manyseed.orchestrator.tasks.submissionpaths import FAILURES, SubmissionPaths


@dataclass(frozen=True, slots=True)
class _SetBack:
    """Rows by group number, and the attempts (below ``tasks``) whose failures in them are void."""

    rows: dict[int, list[int]]
    lives: list[str]


def set_back(paths: SweepPaths, plan: str, rows: Mapping[int, Collection[int]]) -> None:
    """Void all failures so far in these rows of a plan, given by group number."""
    attempts = {
        attempt
        for attempt, failure in _failures(paths, plan)
        if failure.row in rows.get(failure.group, ())
    }
    if attempts:
        record = _SetBack({group: sorted(n) for group, n in rows.items()}, sorted(attempts))
        write_json(paths.set_back(os.urandom(16).hex()), asdict(record))


def failures(
    paths: SweepPaths, plan: str, attempts: Iterable[Path] | None = None
) -> Iterator[Failure]:
    """Yield the failures of a plan that count, of all or some attempts, oldest submission first."""
    records = [read_record(file, _SetBack) for file in paths.all_set_back()]
    void = [
        (set(record.lives), {group: set(rows) for group, rows in record.rows.items()})
        for record in records
    ]
    for attempt, failure in _failures(paths, plan, attempts):
        if not any(
            attempt in void_attempts and failure.row in void_rows.get(failure.group, ())
            for void_attempts, void_rows in void
        ):
            yield failure


def _failures(
    paths: SweepPaths, plan: str, attempts: Iterable[Path] | None = None
) -> Iterator[tuple[str, Failure]]:
    if attempts is None:
        attempts = (
            file.parent
            for submission in paths.submissions()
            for file in SubmissionPaths(submission).of_attempts(FAILURES)
        )
    for attempt in attempts:
        for failure in read_failures(attempt, plan):
            yield attempt.relative_to(paths.tasks).as_posix(), failure
