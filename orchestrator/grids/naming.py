"""What a sweep is called, without the libraries that check its file."""

from __future__ import annotations

import tomllib
from contextlib import suppress
from pathlib import Path


def name_in(path: Path) -> str:
    """Return the name in a sweep file, which need not be right otherwise."""
    with suppress(OSError, ValueError, LookupError, RecursionError):
        name = tomllib.loads(path.read_bytes().decode("utf-8-sig"))["name"]
        if isinstance(name, str):
            return name
    from manyseed.orchestrator.grids.loading import read_sweep_file  # takes long

    return read_sweep_file(path).name  # says what is wrong
