"""Marks of what a plan consists of: the loss of its last part, or of a list, is noticed."""

from __future__ import annotations

from pathlib import Path

from manyseed.orchestrator.disk.placing import unavailable
from manyseed.orchestrator.errors import DamagedFile
from manyseed.orchestrator.paths import GIVEN, SweepPaths


def lost(file: Path) -> DamagedFile:
    """Return the error of a part or list that its mark shows to have been there."""
    mark, remedy = marker(file), "restore it from a copy of the sweep"
    if file.suffix == ".json":
        remedy += f"; or remove {mark.name} beside it: the cells that it took out are planned again"
    return DamagedFile(file, f"is absent, though {mark.name} shows that it was made", remedy)


def marker(file: Path) -> Path:
    """Return the empty file that marks a part or a list of dropped cells as made, for good."""
    return file.with_name(file.name + GIVEN)


def mark(paths: SweepPaths) -> None:
    """Mark the parts and the lists of dropped cells that are there, so that a loss is noticed.

    Nothing else shows that the last of them are gone. Sweeps of earlier versions have no marks
    until they are planned or dropped from.

    Raises
    ------
    StoreUnavailable
        Where the file system refuses.
    """
    for file in (*paths.parts(), *paths.all_dropped()):
        if not (made := marker(file)).exists():
            with unavailable("write", made):
                made.touch()
