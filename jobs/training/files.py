"""Files that are there whole or not at all."""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO


def place(path: Path, write: Callable[[BinaryIO], object]) -> None:
    """Write a file so that readers see the old one or the new one, also after a power cut.

    Parameters
    ----------
    path : Path
        The file; its folder is made if need be.
    write : callable
        Writes the content to an open file.

    Raises
    ------
    OSError
        Where the file system refuses; the old file, if any, is still there.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.{uuid.uuid4().hex}.partial")
    try:
        with partial.open("xb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def remove(path: Path) -> None:
    """Remove a file, and what writers that were killed left beside it."""
    path.unlink(missing_ok=True)
    for partial in path.parent.glob(f".{path.name}.*.partial"):
        partial.unlink(missing_ok=True)
