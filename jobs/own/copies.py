"""Users' code of any form: find it, and let a process use a copy of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from manyseed.jobs.own import modules
from manyseed.jobs.own.modules import Code
from manyseed.jobs.own.scripts import find_files
from manyseed.jobs.own.table import entries_of


def find(
    form: str, entries: Sequence[str], canonical: Mapping[str, Any], roots: Sequence[Path]
) -> Code:
    """Find the code of a table, or of a canonical description, without importing it.

    Parameters
    ----------
    form : str
        The key that names the code.
    entries : sequence of str
        `jobs.own.table.entries_of`.
    canonical : mapping
        For a command, with its words and files.
    roots : sequence of Path
        Folders to search, in order.

    Raises
    ------
    Refused
        Where it is in none of them.
    """
    if form != "command":
        return modules.find(form, entries, roots)
    return find_files(canonical["command"], canonical.get("files", ()), roots)


def use(folder: Path, canonical: Mapping[str, Any]) -> None:
    """Let this process fit a user's own classifier with a copy of its code.

    Parameters
    ----------
    folder : Path
        The copy.
    canonical : mapping
        The classifier's description.

    Raises
    ------
    ImportError
        Where the copy is missing, or the process has imported other modules of these names.
    """
    if canonical["form"] != "command":
        modules.use(folder, entries_of(canonical))
        return
    from manyseed.jobs.own import command

    if not folder.is_dir():
        raise ImportError(f"{folder}, the copy of {canonical['name']}, is missing")
    command.use(folder, canonical)


def forget(folder: Path) -> None:
    """Undo `use`."""
    from manyseed.jobs.own import command

    modules.forget(folder)
    command.forget(folder)
