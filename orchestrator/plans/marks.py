"""Marks of a plan's files, which show if its last part or list of dropped cells gets lost."""

from __future__ import annotations

from pathlib import Path

from manyseed.orchestrator.disk.placing import unavailable
from manyseed.orchestrator.errors import DamagedFile
from manyseed.orchestrator.paths import GIVEN, SweepPaths


def lost(file: Path) -> DamagedFile:
    """Return the error about a part or list that is missing though its mark exists."""
    mark, remedy = marker(file), "restore it from a copy of the sweep"
    if file.suffix == ".json":
        remedy += f"; or remove {mark.name} beside it: the cells that it dropped are planned again"
    return DamagedFile(file, f"is absent, though {mark.name} shows that it was made", remedy)


def marker(file: Path) -> Path:
    """Return the empty file that marks a part or a list of dropped cells as made for good."""
    return file.with_name(file.name + GIVEN)


def mark(paths: SweepPaths) -> None:
    """Mark the existing parts and lists of dropped cells, so that a loss is noticed.

    Nothing else shows that the last of them are gone. Sweeps of earlier versions get their marks
    with the next planning or drop.

    Raises
    ------
    StoreUnavailable
        If the file system refuses.
    """
    for file in (*paths.parts(), *paths.all_dropped()):
        if not (empty := marker(file)).exists():
            with unavailable("write", empty):
                empty.touch()
