"""What users wish of tasks that run: files of a submission, as its tasks read them."""

from __future__ import annotations

from pathlib import Path

from orchestrator.errors import DamagedFile
from orchestrator.files import read_json
from orchestrator.store.files import read_plain

STOPPED = ""
"""In the stop file: finish the fits in flight, however long they take, and end."""

PAUSED = "pause\n"
"""The same; `resume` takes it back."""

SKIP_FILE = "skip.json"

NOW = "now\n"
"""End at once; fits in flight are trained again."""


def stop_wish(submission: Path) -> str | None:
    """Return how the tasks of a submission shall stop; None where they shall go on.

    A stop file of unknown content means what an empty one does.
    """
    try:
        text = read_plain(submission / "stop").decode(errors="replace")
    except FileNotFoundError:
        return None
    return text if text in (PAUSED, NOW) else STOPPED


def skipped_cells(submission: Path) -> list[int]:
    """Return the cells of which the tasks of a submission shall train no more.

    Raises
    ------
    DamagedFile
    """
    file = submission / SKIP_FILE
    try:
        cells = read_json(file)
    except FileNotFoundError:
        return []
    if not isinstance(cells, list) or not all(type(cell) is int and cell >= 0 for cell in cells):
        remedy = "remove it, then cancel these cells once more"
        raise DamagedFile(file, "is no list of cells", remedy)
    return cells
