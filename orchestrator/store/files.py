"""Files that are there whole or not at all.

A file is placed by writing a temporary file beside it, fsync, rename and fsync of the folder. The
temporary file's name starts with a dot, then the final name; `remove_partial` therefore finds what
a killed writer left, and removing it stops a writer that was merely suspended: its rename fails.
"""

from __future__ import annotations

import contextlib
import io
import os
import stat
import uuid
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from orchestrator.errors import DamagedFile
from orchestrator.store.errors import LeaseLost, StoreUnavailable

PARTIAL = ".partial"


@contextlib.contextmanager
def unavailable(action: str, path: Path) -> Iterator[None]:
    """Turn an `OSError` inside the block into `StoreUnavailable`."""
    try:
        yield
    except OSError as error:
        raise StoreUnavailable(
            f"cannot {action} {path}: {error.strerror or error}; nothing that was finished is "
            "lost: make room or give permission, then resume"
        ) from error


def read_plain(path: Path) -> bytes:
    """Read a whole plain file; raises as `open_plain` does."""
    with open_plain(path) as file:
        return file.readall()


@contextlib.contextmanager
def open_plain(path: Path) -> Iterator[io.FileIO]:
    """Open a plain file for reading: what else may stand at its place neither blocks nor is read.

    Raises
    ------
    FileNotFoundError
        Where nothing is there: what that means, the caller knows.
    DamagedFile
        Where a folder, a pipe or a device is there, or it cannot be read.
    """
    try:
        with _opened(path) as file:
            yield file
    except FileNotFoundError:
        raise
    except OSError as error:
        raise DamagedFile(path, f"cannot be read: {error.strerror or error}") from None


def read_bytes(path: Path) -> bytes:
    """Do as `read_plain`, but where the file system refuses, let its `OSError` through.

    A disk that cannot be read now says nothing about what the file holds.
    """
    with _opened(path) as file:
        return file.readall()


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[io.FileIO]:
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise DamagedFile(path, "is not a plain file")
        with io.FileIO(descriptor, closefd=False) as file:
            yield file
    finally:
        os.close(descriptor)


def identity(path: Path) -> tuple[int, int, int] | None:
    """Return what changes when a file is replaced; None where there is none."""
    try:
        status = path.stat()
    except FileNotFoundError:
        return None
    return status.st_ino, status.st_size, status.st_mtime_ns


def sync_folder(path: Path) -> None:
    """Make the names in a folder durable."""
    _sync(path, os.O_RDONLY | os.O_DIRECTORY)


def place(path: Path, data: bytes, before_rename: Callable[[], None] | None = None) -> None:
    """Write a file so that readers see the old one or the new one, also after a power cut.

    Parameters
    ----------
    path : Path
        The file; its folder is made if need be.
    data : bytes
        Its content.
    before_rename : callable, optional
        Called when the temporary file is complete; what it raises abandons the file.

    Raises
    ------
    StoreUnavailable
        Where the file system refuses; the old file, if any, is still there.
    LeaseLost
        If somebody removed the temporary file.
    """
    with placing(path, before_rename) as partial:
        _write(partial, data)


def place_new(path: Path, data: bytes, before_link: Callable[[], None] | None = None) -> None:
    """Write a file that must be new: it appears whole, and of several writers one succeeds.

    Parameters
    ----------
    path : Path
        The file; its folder is made if need be.
    data : bytes
        Its content.
    before_link : callable, optional
        Called when the file can appear; what it raises abandons it.

    Raises
    ------
    FileExistsError
        Where another was first.
    StoreUnavailable
        Where the file system refuses.
    """
    partial, taken = _partial(path), False
    with unavailable("write", path):
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            _write(partial, data)
            _sync(partial, os.O_RDONLY)
            if before_link is not None:
                before_link()
            try:
                path.hardlink_to(partial)
            except FileExistsError:
                # a network file system may have done what it was asked twice for
                taken = not path.samefile(partial)
        finally:
            partial.unlink(missing_ok=True)
        sync_folder(path.parent)
    if taken:
        raise FileExistsError(path)


def place_soon_replaced(path: Path, data: bytes) -> None:
    """Write a file as `place` does, in a folder that is there, without waiting for the disk."""
    partial = path.with_name(f".{path.name}.{uuid.uuid4().hex}{PARTIAL}")
    with unavailable("write", path):
        try:
            partial.write_bytes(data)
            partial.rename(path)
        except BaseException:
            partial.unlink(missing_ok=True)
            raise


@contextlib.contextmanager
def placing(path: Path, before_rename: Callable[[], None] | None = None) -> Iterator[Path]:
    """Let the block write a temporary file, then put it in place, as `place` does."""
    with replacing([path], before_rename) as (partial,):
        yield partial


@contextlib.contextmanager
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
    StoreUnavailable
        Where the file system refuses.
    LeaseLost
        If somebody removed a temporary file.
    """
    partials = [_partial(path) for path in paths]
    with unavailable("write", Path(os.path.commonpath(paths))):
        try:
            for path in paths:
                path.parent.mkdir(parents=True, exist_ok=True)
            yield partials
            for partial, path in zip(partials, paths, strict=True):
                with _ours(path):
                    _sync(partial, os.O_RDONLY)
            for partial, path in zip(partials, paths, strict=True):
                if path is paths[-1]:
                    for other in paths[:-1]:
                        sync_folder(other.parent)
                with _ours(path):
                    rename(partial, path, before_rename)
        except BaseException:
            for partial in partials:
                partial.unlink(missing_ok=True)
            raise
        sync_folder(paths[-1].parent)


def rename(partial: Path, path: Path, before: Callable[[], None] | None) -> None:
    """Put a temporary file in place."""
    if before is not None:
        before()
    partial.rename(path)


@contextlib.contextmanager
def _ours(path: Path) -> Iterator[None]:
    """Tell whoever finds the temporary file of `path` gone why it is."""
    try:
        yield
    except FileNotFoundError:
        raise LeaseLost(f"{path} belongs to the next holder of its lease") from None


def remove_partial(folder: Path, name: str = "") -> int:
    """Remove temporary files of one file of a folder, or of all; return how many there were."""
    prefix, removed = f".{name}." if name else ".", 0
    with unavailable("clean", folder), contextlib.suppress(FileNotFoundError):
        for entry in os.scandir(folder):
            if entry.name.startswith(prefix) and entry.name.endswith(PARTIAL):
                Path(entry.path).unlink(missing_ok=True)
                removed += 1
    return removed


def _partial(path: Path) -> Path:
    """Return a name beside a file that nobody else uses, on no machine."""
    return path.with_name(f".{path.name}.{uuid.uuid4().hex}{PARTIAL}")


def _write(path: Path, data: bytes) -> None:
    with path.open("xb", buffering=0) as file:
        view = memoryview(data)
        while view:
            view = view[file.write(view) :]


def _sync(path: Path, flags: int) -> None:
    descriptor = os.open(path, flags)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
