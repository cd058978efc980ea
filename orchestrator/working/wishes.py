"""What users wish of tasks that run: the stop file of a submission, as its tasks read it."""

from __future__ import annotations

from pathlib import Path

from orchestrator.store.files import read_plain

STOPPED = ""
"""In the stop file: finish the fits in flight, however long they take, and end."""

PAUSED = "pause\n"
"""The same; `resume` takes it back."""

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
