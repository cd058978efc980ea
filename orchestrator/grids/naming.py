"""The name of a sweep, for commands that need nothing else of its file."""

from __future__ import annotations

from pathlib import Path


def sweep_name(path: Path) -> str:
    """Return the name in a sweep file.

    Raises
    ------
    UserError
        If the file cannot be read or has no name, as from `loading.read_sweep_file`.
    """
    import tomllib

    try:
        name = tomllib.loads(path.read_bytes().decode("utf-8-sig"))["name"]
    except (OSError, ValueError, LookupError, RecursionError):
        name = None
    if isinstance(name, str):
        return name
    from manyseed.orchestrator.grids.loading import read_sweep_file

    return read_sweep_file(path).name
