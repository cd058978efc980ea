"""Users' requests to running tasks: files in the submission's folder that its tasks read."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from manyseed.orchestrator.disk.placing import read_plain
from manyseed.orchestrator.disk.records import read_json, write_json
from manyseed.orchestrator.errors import DamagedFile
from manyseed.orchestrator.tasks.submissionpaths import SubmissionPaths

STOPPED = ""
"""Content of the stop file: finish the fits in flight, however long they take, then end."""

PAUSED = "pause\n"
"""Like `STOPPED`, until `resume` revokes it."""

NOW = "now\n"
"""End at once; fits in flight are trained again."""


def stop_request(submission: Path) -> str | None:
    """Return how the tasks of a submission must stop; None if they continue.

    A stop file with unknown content means `STOPPED`.
    """
    try:
        text = read_plain(SubmissionPaths(submission).stop).decode(errors="replace")
    except FileNotFoundError:
        return None
    return text if text in (PAUSED, NOW) else STOPPED


def skipped_cells(submission: Path) -> list[int]:
    """Return the cells that the tasks of a submission must no longer train.

    Earlier versions wrote only the list, without a checksum.

    Raises
    ------
    DamagedFile
    """
    file = SubmissionPaths(submission).skip
    remedy = "remove it, then cancel these cells once more"
    try:
        value = read_json(file)
    except FileNotFoundError:
        return []
    except DamagedFile as error:
        raise DamagedFile(file, error.reason, remedy) from None
    cells = value.get("cells") if isinstance(value, dict) else value
    if not isinstance(cells, list) or not all(type(cell) is int and cell >= 0 for cell in cells):
        raise DamagedFile(file, "is not a list of cells", remedy)
    return cells


def skip_cells(submission: Path, cells: Collection[int]) -> set[int]:
    """Request that a submission's tasks stop training these cells; return all skipped cells."""
    skipped = {*skipped_cells(submission), *cells}
    write_json(SubmissionPaths(submission).skip, {"cells": sorted(skipped)})
    return skipped
