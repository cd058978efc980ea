"""A copy of users' code, taken into use by a process that fits with it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from manyseed.jobs.own import modules
from manyseed.jobs.own.table import entries_of


def use(folder: Path, canonical: Mapping[str, Any]) -> None:
    """Let a classifier of a user's be fitted, in this process, with a copy of its code.

    Parameters
    ----------
    folder : Path
        The copy.
    canonical : mapping
        The classifier's description.

    Raises
    ------
    ImportError
        Where the copy is not there, or the process has imported other modules of these names.
    """
    if canonical["form"] != "command":
        modules.use(folder, entries_of(canonical))
        return
    from manyseed.jobs.own import command

    if not folder.is_dir():
        raise ImportError(f"{folder}, the copy of {canonical['name']}, is not there")
    command.use(folder, canonical)


def forget(folder: Path) -> None:
    """Undo `use`."""
    from manyseed.jobs.own import command

    modules.forget(folder)
    command.forget(folder)
