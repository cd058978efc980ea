"""Runs that a repair set back to missing: what failed of them before no longer counts.

A failure of a run that was finished later says nothing of it. While the run is finished that is
plain; once it is set back only what is written here shows it.
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
    """Rows by group number, and the attempts, below ``tasks``, whose failures of them are void."""

    rows: dict[int, list[int]]
    lives: list[str]


def set_back(paths: SweepPaths, plan: str, rows: Mapping[int, Collection[int]]) -> None:
    """Make void what failed of these rows of a plan, by group number, until now."""
    attempts = {
        attempt
        for attempt, failure in _failures(paths, plan)
        if failure.row in rows.get(failure.group, ())
    }
    if attempts:
        numbers = {group: sorted(some) for group, some in rows.items()}
        write_json(
            paths.set_back(os.urandom(16).hex()), asdict(_SetBack(numbers, sorted(attempts)))
        )


def failures(
    paths: SweepPaths, plan: str, attempts: Iterable[Path] | None = None
) -> Iterator[Failure]:
    """Yield a plan's failures that count, oldest submission first: all, or these attempts'."""
    void = [read_record(file, _SetBack) for file in paths.all_set_back()]
    rows = [{group: set(some) for group, some in one.rows.items()} for one in void]
    void_attempts = [set(one.lives) for one in void]
    for attempt, failure in _failures(paths, plan, attempts):
        if not any(
            attempt in some and failure.row in which.get(failure.group, ())
            for which, some in zip(rows, void_attempts, strict=True)
        ):
            yield failure


def _failures(
    paths: SweepPaths, plan: str, attempts: Iterable[Path] | None = None
) -> Iterator[tuple[str, Failure]]:
    if attempts is None:
        files = (SubmissionPaths(one).of_attempts(FAILURES) for one in paths.submissions())
        attempts = (file.parent for some in files for file in some)
    for attempt in attempts:
        for failure in read_failures(attempt, plan):
            yield attempt.relative_to(paths.tasks).as_posix(), failure
