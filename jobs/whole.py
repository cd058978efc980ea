"""Files and folders that are there whole or not at all, whoever looks, and after a power cut.

They are written beside their place under a name of their own: a dot, the final name, and at the end
`PARTIAL`. fsync, rename and fsync of the folder follow. What a killed writer left is therefore
found, and removing it stops a writer that was merely suspended: its rename fails.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

PARTIAL = ".partial"


class PartialRemoved(FileNotFoundError):
    """Somebody removed the temporary file of `path` while it was written."""

    def __init__(self, path: Path) -> None:
        super().__init__(f"the temporary file of {path} was removed")
        self.path = path


class Taken(FileExistsError):
    """Something is there already, where a folder was to appear."""


def partial_of(path: Path) -> Path:
    """Return a name beside a file that nobody else uses, on no machine."""
    return path.with_name(f".{path.name}.{os.urandom(16).hex()}{PARTIAL}")


def sha256(path: Path) -> str:
    """Return the checksum of a file, in hexadecimal."""
    import hashlib  # a task that compares no data does without

    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def sync(path: Path) -> None:
    """Make durable what a file holds, or the names in a folder."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def place(path: Path, write: Callable[[BinaryIO], object]) -> None:
    """Write a file so that readers see the old one or the new one; raises as `replacing`.

    Parameters
    ----------
    path : Path
        The file; its folder is made if need be.
    write : callable
        Writes the content to an open file.
    """
    with replacing([path]) as (partial,), partial.open("xb") as file:
        write(file)


@contextmanager
def replacing(
    paths: Sequence[Path], before_rename: Callable[[], None] | None = None
) -> Iterator[list[Path]]:
    """Let the block write temporary files, then put them in place, in this order.

    The last file is put in place when all others are there to stay, also after a power cut.

    Parameters
    ----------
    paths : sequence of Path
        The files; their folders are made if need be.
    before_rename : callable, optional
        Called before each; what it raises abandons the files that are not yet in place.

    Raises
    ------
    OSError
        Where the file system refuses.
    PartialRemoved
        If somebody removed a temporary file.
    """
    partials = [partial_of(path) for path in paths]
    try:
        for path in paths:
            path.parent.mkdir(parents=True, exist_ok=True)
        yield partials
        for partial, path in zip(partials, paths, strict=True):
            with _still_there(path):
                sync(partial)
        for partial, path in zip(partials, paths, strict=True):
            if path is paths[-1]:
                for other in paths[:-1]:
                    sync(other.parent)
            with _still_there(path):
                rename(partial, path, before_rename)
    except BaseException:
        for partial in partials:
            partial.unlink(missing_ok=True)
        raise
    sync(paths[-1].parent)


def rename(partial: Path, path: Path, before: Callable[[], None] | None) -> None:
    """Put a temporary file in place."""
    if before is not None:
        before()
    partial.rename(path)


@contextmanager
def _still_there(path: Path) -> Iterator[None]:
    """Say to whoever finds the temporary file of `path` gone what happened."""
    try:
        yield
    except FileNotFoundError:
        raise PartialRemoved(path) from None


@contextmanager
def appearing(folder: Path, building: Path | None = None) -> Iterator[Path]:
    """Let the block fill a folder that takes its name when the block ends well.

    Else nothing is left of it.

    Parameters
    ----------
    folder : Path
        The folder; an empty one gives way, no other does.
    building : Path, optional
        What it is called until then, beside its place.

    Raises
    ------
    Taken
        Where something is there already.
    OSError
        Where the file system refuses.
    """
    building = building or partial_of(folder)
    try:
        building.mkdir(parents=True)
        yield building
        try:
            building.rename(folder)
        except OSError as error:
            is_occupied = isinstance(error, FileExistsError | NotADirectoryError)
            if is_occupied or (folder.is_dir() and any(folder.iterdir())):
                raise Taken(f"{folder} exists already") from None
            raise
    except BaseException:
        shutil.rmtree(building, ignore_errors=True)
        raise
    sync(folder.parent)


def remove(path: Path) -> None:
    """Remove a file, and what writers that were killed left beside it."""
    path.unlink(missing_ok=True)
    for partial in path.parent.glob(f".{path.name}.*{PARTIAL}"):
        partial.unlink(missing_ok=True)
