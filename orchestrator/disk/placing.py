"""Files of the store: placed whole by `jobs.whole`, looked at before they are read.

What goes wrong is raised as the store's errors: `StoreUnavailable` where the file system refuses,
`LeaseLost` where the next holder of a lease has removed a temporary file.
"""

from __future__ import annotations

import contextlib
import io
import os
import stat
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from manyseed.jobs import whole
from manyseed.orchestrator.errors import DamagedFile, LeaseLost, StoreUnavailable


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


def file_clock(folder: Path) -> float:
    """Return what time it is for a folder's file system, in seconds since the epoch.

    A server stamps files by its own clock, which may differ from this machine's; that is asked
    where the folder may not be written to.
    """
    import tempfile  # a task, which looks at no clock, does without

    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            return os.fstat(file.fileno()).st_mtime
    except OSError:
        return time.time()


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
        with opened(path) as file:
            yield file
    except FileNotFoundError:
        raise
    except OSError as error:
        raise DamagedFile(path, f"cannot be read: {error.strerror or error}") from None


def read_bytes(path: Path) -> bytes:
    """Do as `read_plain`, but where the file system refuses, let its `OSError` through.

    A disk that cannot be read now says nothing about what the file holds.
    """
    with opened(path) as file:
        return file.readall()


@contextlib.contextmanager
def opened(path: Path) -> Iterator[io.FileIO]:
    """Open a plain file to read; a pipe, which might block, is a damaged one."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise DamagedFile(path, "is not a plain file")
        with io.FileIO(descriptor, closefd=False) as file:
            yield file
    finally:
        os.close(descriptor)


def identity(path: Path) -> tuple[int, int, int] | None:
    """Return what changes when a file is replaced; None where it does not exist."""
    try:
        status = path.stat()
    except FileNotFoundError:
        return None
    return status.st_ino, status.st_size, status.st_mtime_ns


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
    partial, taken = whole.partial_of(path), False
    with unavailable("write", path):
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            _write(partial, data)
            whole.sync(partial)
            if before_link is not None:
                before_link()
            try:
                path.hardlink_to(partial)
            except FileExistsError:
                # a network file system may have done what it was asked twice for
                taken = not path.samefile(partial)
        finally:
            partial.unlink(missing_ok=True)
        whole.sync(path.parent)
    if taken:
        raise FileExistsError(path)


def place_soon_replaced(path: Path, data: bytes) -> None:
    """Write a file as `place` does, in a folder that is there, without waiting for the disk."""
    partial = whole.partial_of(path)
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
    """Do as `jobs.whole.replacing`, as one who may hold a lease.

    Raises
    ------
    StoreUnavailable
        Where the file system refuses.
    LeaseLost
        If somebody removed a temporary file.
    """
    with unavailable("write", Path(os.path.commonpath(paths))):
        try:
            with whole.replacing(paths, before_rename) as partials:
                yield partials
        except whole.PartialRemoved as error:
            raise LeaseLost(f"{error.path} belongs to the next holder of its lease") from None


def remove_partial(folder: Path, name: str = "") -> int:
    """Remove temporary files of one file of a folder, or of all; return how many there were."""
    prefix, removed = f".{name}." if name else ".", 0
    with unavailable("clean", folder), contextlib.suppress(FileNotFoundError):
        for entry in os.scandir(folder):
            if entry.name.startswith(prefix) and entry.name.endswith(whole.PARTIAL):
                Path(entry.path).unlink(missing_ok=True)
                removed += 1
    return removed


def _write(path: Path, data: bytes) -> None:
    with path.open("xb", buffering=0) as file:
        view = memoryview(data)
        while view:
            view = view[file.write(view) :]
