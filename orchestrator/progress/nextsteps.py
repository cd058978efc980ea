"""What a sweep's user does next, from its status."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from manyseed.orchestrator.disk.records import read_json
from manyseed.orchestrator.errors import ManyseedError
from manyseed.orchestrator.paths import SweepPaths

Step = tuple[str, tuple[object, ...]]
"""What it is for, and the arguments of the command."""


def next_steps(paths: SweepPaths, state: dict[str, Any]) -> Iterator[Step]:
    """Yield the commands that go on from a sweep's status.

    Parameters
    ----------
    paths : SweepPaths
    state : dict
        As `orchestrator.progress.status.status` returns it.
    """
    directory, runs = paths.directory, state["runs"]
    if runs["failed"]:
        yield "Tracebacks", ("logs", directory, "--failed")
    if {"waiting", "running"} & set(state["tasks"]):
        yield "Watch", ("status", directory, "--watch")
    elif runs["missing"]:
        yield "Go on with", ("resume", directory)
    elif not runs["failed"]:
        yield "Next", ("report" if is_analysed(paths, runs) else "analyze", directory)


def is_analysed(paths: SweepPaths, runs: dict[str, int]) -> bool:
    """Whether the result tables are of all runs that are finished."""
    try:
        record = read_json(paths.analysis)
        return bool(record["runs"]["analysed"] == runs["done"] + runs["copy"])
    except (FileNotFoundError, ManyseedError, LookupError, TypeError):
        return False  # an analysis mends it
