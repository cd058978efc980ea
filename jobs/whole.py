"""Write files and folders that appear whole or not at all, to every reader and after a power cut.

They are written in their final folder under a unique temporary name: a dot, the final name, random
digits and `PARTIAL`. Then come fsync, rename and fsync of the folder. Leftovers of a killed writer
can therefore be found, and removing them stops a writer that was only suspended: its rename fails.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

PARTIAL = ".partial"
_TEMPORARY = re.compile(r"\.([^/\s]+?)\.[0-9a-f]{32}" + re.escape(PARTIAL))

UNLIKE = (ValueError, LookupError, TypeError, AttributeError, OverflowError, RecursionError)
"""What reading a file that another hand changed may raise, besides `OSError`."""


class PartialRemoved(FileNotFoundError):
    """The temporary file of `path` was removed while it was being written."""

    def __init__(self, path: Path) -> None:
        super().__init__(f"the temporary file of {path} was removed")
        self.path = path


class Taken(FileExistsError):
    """A folder was to appear where something exists already."""


def partial_of(path: Path) -> Path:
    """Return a temporary name beside a file that no other process, on any machine, uses."""
    return path.with_name(f".{path.name}.{os.urandom(16).hex()}{PARTIAL}")


def named_finally(text: str) -> str:
    """Return a message in which temporary names are those that the files were to have."""
    return _TEMPORARY.sub(r"\1", text)


def sha256(path: Path) -> str:
    """Return the SHA-256 of a file, in hexadecimal."""
    import hashlib  # not needed by a task that compares no data

    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def sync(path: Path) -> None:
    """Flush a file's content, or a folder's entries, to disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def place(path: Path, write: Callable[[BinaryIO], object]) -> None:
    """Write a file so that readers see either the old or the new one; raises as `replacing` does.

    `path`: the file; its folder is created if necessary. `write`: writes the content to an open
    file.
    """
    with replacing([path]) as (partial,), partial.open("xb") as file:
        write(file)


@contextmanager
def replacing(
    paths: Sequence[Path], before_rename: Callable[[], None] | None = None
) -> Iterator[list[Path]]:
    """Let the block write temporary files, then move them into place in the given order.

    The last file is moved only once all others are durable, so that they survive a power cut.

    `paths`: the files; their folders are created if necessary. `before_rename`: called before each
    rename; an exception abandons all files not yet in place.
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
                for folder in dict.fromkeys(other.parent for other in paths[:-1]):
                    sync(folder)
            with _still_there(path):
                rename(partial, path, before_rename)
    except BaseException:
        for partial in partials:
            partial.unlink(missing_ok=True)
        raise
    sync(paths[-1].parent)


def rename(partial: Path, path: Path, before: Callable[[], None] | None) -> None:
    """Move a temporary file into place."""
    if before is not None:
        before()
    partial.rename(path)


@contextmanager
def _still_there(path: Path) -> Iterator[None]:
    """Raise `PartialRemoved` if the block finds the temporary file of `path` gone."""
    try:
        yield
    except FileNotFoundError:
        raise PartialRemoved(path) from None


@contextmanager
def appearing(folder: Path, building: Path | None = None) -> Iterator[Path]:
    """Let the block fill a folder that takes its final name if the block succeeds.

    Otherwise the folder is removed.

    `folder`: the final path; an empty folder there is replaced. `building`: temporary path in the
    same parent folder.
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
    """Remove a file and the leftovers of killed writers beside it."""
    path.unlink(missing_ok=True)
    for partial in path.parent.glob(f".{path.name}.*{PARTIAL}"):
        partial.unlink(missing_ok=True)
