"""Users' code, whatever its form: found, and its copy taken into use by a process."""

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
        Its form, which is the key that names it.
    entries : sequence of str
        `jobs.own.table.entries_of`.
    canonical : mapping
        Of a command with its words and files.
    roots : sequence of Path
        Folders that are looked into, in this order.

    Raises
    ------
    Refused
        Where it is nowhere.
    """
    if form != "command":
        return modules.find(form, entries, roots)
    return find_files(canonical["command"], canonical.get("files", ()), roots)


def use(folder: Path, canonical: Mapping[str, Any]) -> None:
    """Let a user's own classifier be fitted, in this process, with a copy of its code.

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
