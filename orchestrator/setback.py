"""Runs that a repair set back to missing: what failed of them before no longer counts.

A failure of a run that was finished later says nothing of it. While the run is finished that is
plain; once it is set back only what is written here tells.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from orchestrator.files import read_record, write_json
from orchestrator.paths import SweepPaths
from orchestrator.working.lives import Failure, read_failures

_PATTERN = "set-back-*.json"


@dataclass(frozen=True, slots=True)
class _SetBack:
    """Rows by group number, and the lives, below ``tasks``, whose failures of them are void."""

    rows: dict[int, list[int]]
    lives: list[str]


def set_back(paths: SweepPaths, rows: Mapping[int, Collection[int]]) -> None:
    """Make void what failed of these rows, by group number, until now."""
    lives = {
        life for life, failure in _failures(paths) if failure.row in rows.get(failure.group, ())
    }
    if lives:
        numbers = {str(group): sorted(some) for group, some in rows.items()}
        file = paths.tasks / _PATTERN.replace("*", uuid.uuid4().hex)
        write_json(file, {"rows": numbers, "lives": sorted(lives)})


def failures(paths: SweepPaths) -> Iterator[Failure]:
    """Yield the failures that count, oldest submission first."""
    void = [read_record(file, _SetBack) for file in sorted(paths.tasks.glob(_PATTERN))]
    rows = [{group: set(some) for group, some in one.rows.items()} for one in void]
    lives = [set(one.lives) for one in void]
    for life, failure in _failures(paths):
        if not any(
            life in some and failure.row in which.get(failure.group, ())
            for which, some in zip(rows, lives, strict=True)
        ):
            yield failure


def _failures(paths: SweepPaths) -> Iterator[tuple[str, Failure]]:
    for submission in paths.submissions():
        for file in sorted((submission / "lives").glob("*/failures.jsonl")):
            life = file.parent.relative_to(paths.tasks).as_posix()
            for failure in read_failures(file.parent):
                yield life, failure
