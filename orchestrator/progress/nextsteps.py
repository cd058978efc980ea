"""What a sweep's user does next, from its status."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from manyseed.orchestrator.disk.records import read_json
from manyseed.orchestrator.errors import ManyseedError
from manyseed.orchestrator.paths import SweepPaths

Step = tuple[str, tuple[object, ...]]
"""What it is for, and the arguments of the command."""


def next_steps(
    paths: SweepPaths, runs: Mapping[str, int], tasks: Collection[str]
) -> Iterator[Step]:
    """Yield the commands that go on, given a sweep's runs by state, and the states of its tasks."""
    directory = paths.directory
    if runs["failed"]:
        yield "Tracebacks", ("logs", directory, "--failed")
    if {"waiting", "running"} & set(tasks):
        yield "Watch", ("status", directory, "--watch")
    elif runs["missing"]:
        yield "Go on with", ("resume", directory)
    elif not runs["failed"]:
        yield "Next", ("report" if is_analysed(paths, runs) else "analyze", directory)


def is_analysed(paths: SweepPaths, runs: Mapping[str, int]) -> bool:
    """Whether the result tables are of all runs that are finished."""
    try:
        record = read_json(paths.analysis)
        return bool(record["runs"]["analysed"] == runs["done"] + runs["copy"])
    except (FileNotFoundError, ManyseedError, LookupError, TypeError):
        return False  # an analysis mends it
