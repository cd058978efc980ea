"""Files and folders placed whole by `jobs.whole`, and checked to be plain before they are read.

Errors: `StoreUnavailable` if the file system refuses, `LeaseLost` if the next holder of a lease has
removed a temporary file.
"""

from __future__ import annotations

import contextlib
import errno
import io
import os
import shutil
import stat
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from manyseed.jobs import whole
from manyseed.orchestrator.errors import (
    DamagedFile,
    LeaseLost,
    StoreUnavailable,
    UserError,
    way_out,
)
from manyseed.orchestrator.paths import MAKER, UNFINISHED, SweepPaths
from manyseed.slurm.processes import fingerprint, state


@contextlib.contextmanager
def unavailable(action: str, path: Path) -> Iterator[None]:
    """Turn an `OSError` inside the block into `StoreUnavailable`."""
    try:
        yield
    except OSError as error:
        raise StoreUnavailable(
            f"cannot {action} {path}: {error.strerror or error}; nothing that was finished is "
            f"lost: {way_out(error, path)}"
        ) from error


def make_below(folder: Path) -> None:
    """Make a folder below ``tasks``, and that, but not a sweep's directory that is gone."""
    folder.parent.mkdir(exist_ok=True)
    folder.mkdir(exist_ok=True)


@contextlib.contextmanager
def if_writable() -> Iterator[None]:
    """Let the block write what can be computed again; a read-only folder stays as it is."""
    try:
        yield
    except (OSError, StoreUnavailable) as error:
        cause = error.__cause__ if isinstance(error, StoreUnavailable) else error
        if getattr(cause, "errno", None) not in (errno.EACCES, errno.EPERM, errno.EROFS):
            raise


def file_clock(folder: Path) -> float:
    """Return the time of a folder's file system, in seconds since the epoch.

    A server stamps files by its own clock, which may differ from this machine's; this machine's
    is used if the folder is not writable.
    """
    import tempfile  # here, as tasks never need it

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
    """Open a plain file for reading; a pipe or device in its place neither blocks nor is read."""
    try:
        with opened(path) as file:
            yield file
    except FileNotFoundError:
        raise
    except OSError as error:
        raise DamagedFile(path, f"cannot be read: {error.strerror or error}") from None


def read_bytes(path: Path) -> bytes:
    """Do the same as `read_plain`, but let an `OSError` of the file system through.

    A disk that cannot be read now does not mean that the file is damaged.
    """
    with opened(path) as file:
        return file.readall()


def read_end(path: Path, length: int) -> str:
    """Return the last `length` bytes of a plain file as text, with what is not UTF-8 replaced."""
    with opened(path) as file:
        file.seek(max(0, os.fstat(file.fileno()).st_size - length))
        return file.readall().decode(errors="replace")


@contextlib.contextmanager
def opened(path: Path) -> Iterator[io.FileIO]:
    """Open a plain file for reading; anything else, such as a pipe that might block, is damaged."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise DamagedFile(path, "is not a plain file")
        with io.FileIO(descriptor, closefd=False) as file:
            yield file
    finally:
        os.close(descriptor)


def identity(path: Path) -> tuple[int, int, int] | None:
    """Return inode, size and mtime (ns), which change when a file is replaced; None if absent."""
    try:
        status = path.stat()
    except FileNotFoundError:
        return None
    return status.st_ino, status.st_size, status.st_mtime_ns


def place(path: Path, data: bytes, before_rename: Callable[[], None] | None = None) -> None:
    """Write a file so that readers see the old one or the new one, even after a power cut.

    Its folder is created if necessary. `before_rename` is called when the temporary file is
    complete; an exception from it abandons the file.
    """
    with placing(path, before_rename) as partial:
        _write(partial, data)


def place_new(path: Path, data: bytes, before_link: Callable[[], None] | None = None) -> None:
    """Write a file that must be new: it appears complete, and only one of several writers succeeds.

    Its folder is created if necessary. `before_link` is called just before the file appears; an
    exception from it abandons the file.
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
                # a network file system may have sent the request twice: the link may be ours
                taken = not path.samefile(partial)
        finally:
            partial.unlink(missing_ok=True)
        whole.sync(path.parent)
    if taken:
        raise FileExistsError(path)


def place_soon_replaced(path: Path, data: bytes) -> None:
    """Write a file like `place`, in an existing folder, without waiting for the disk."""
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
    """Let the block write a temporary file, then put it in place like `place`."""
    with replacing([path], before_rename) as (partial,):
        yield partial


@contextlib.contextmanager
def replacing(
    paths: Sequence[Path], before_rename: Callable[[], None] | None = None
) -> Iterator[list[Path]]:
    """Do the same as `jobs.whole.replacing`, with the store's errors."""
    with unavailable("write", Path(os.path.commonpath(paths))):
        try:
            with whole.replacing(paths, before_rename) as partials:
                yield partials
        except whole.PartialRemoved as error:
            raise LeaseLost(f"{error.path} belongs to the next holder of its lease") from None


def remove_partial(folder: Path, name: str = "") -> int:
    """Remove the temporary files of one file in a folder, or of all; return how many."""
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


_OLD_SECONDS = 3600.0


@contextmanager
def appearing(directory: Path) -> Iterator[SweepPaths]:
    """Yield the paths of a directory that gets its name when the block succeeds.

    It is built beside `directory` under a unique name, so two processes do not collide; the second
    finds the name taken and leaves nothing. The next call removes what a killed process left.
    """
    if directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
        raise _exists(directory)
    parent = directory.absolute().parent
    _remove_leftovers(parent)
    made = [folder for folder in (parent, *parent.parents) if not folder.exists()]
    building = parent / f"{UNFINISHED}{uuid.uuid4().hex}"
    try:
        with whole.appearing(directory.absolute(), building):
            # a dangling link appears together with its content, which a file does not
            (building / MAKER).symlink_to(fingerprint(os.getpid()))
            yield SweepPaths(building)
    except BaseException as error:
        for folder in made:
            with suppress(OSError):
                folder.rmdir()
        if isinstance(error, whole.Taken):
            raise _exists(directory) from None
        raise
    with suppress(OSError):
        (directory / MAKER).unlink()  # last: until then, complete or not, it names its maker


def _remove_leftovers(parent: Path) -> None:
    """Remove incomplete directories whose processes are certainly dead."""
    for leftover in parent.glob(f"{UNFINISHED}*/"):
        maker = leftover / MAKER
        with suppress(OSError):
            if maker.is_symlink():
                if state(str(maker.readlink())) == "dead":
                    shutil.rmtree(leftover)
            elif time.time() - leftover.stat().st_mtime > _OLD_SECONDS:
                leftover.rmdir()  # killed before it named its maker: removed only if empty


def _exists(directory: Path) -> UserError:
    return UserError("exists already", file=directory, remedy="name another with --out DIR")
