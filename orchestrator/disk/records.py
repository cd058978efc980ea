"""Small files of a sweep directory: JSON, written whole, and locks."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import google_crc32c

from manyseed.orchestrator.disk.placing import place, place_soon_replaced, read_plain, unavailable
from manyseed.orchestrator.errors import DamagedFile, UnavailableError, UserError
from manyseed.slurm.processes import Process

if TYPE_CHECKING:
    from pydantic import TypeAdapter

    from manyseed.orchestrator.disk.lease import Lease

T = TypeVar("T")

_CHECKSUM = b'{"crc32c":'
_CHECKSUM_BYTES = len(_CHECKSUM) + 11


def write_json(
    path: Path,
    value: Any,
    *,
    durable: bool = True,
    before_rename: Callable[[], None] | None = None,
) -> None:
    """Replace `path` by a JSON text, durably; an object begins with its checksum.

    Parameters
    ----------
    path : Path
    value : JSON value
    durable : bool
        False for what is soon replaced again: readers see one or the other, but a power cut may
        leave an empty file.
    before_rename : callable, optional
        As of `disk.placing.place`.
    """
    text = json_text(value)
    if durable:
        place(path, text, before_rename)
    else:
        place_soon_replaced(path, text)


def json_text(value: Any) -> bytes:
    """Return the text of a JSON file; of an object with its checksum."""
    text = json.dumps(value, separators=(",", ":")).encode() + b"\n"
    return _checksum(text[1:]) + text[1:] if isinstance(value, dict) and value else text


def read_json(path: Path) -> Any:
    """Read a JSON file; raises as `read_plain` does, and `DamagedFile` for other text than JSON.

    An object is compared with its checksum, which is not returned, where it begins with one.
    """
    try:
        return json.loads(_read(path))
    except (ValueError, RecursionError) as error:  # UnicodeDecodeError is a ValueError
        raise DamagedFile(path, f"is no JSON: {error}") from None


def read_record(path: Path, kind: type[T], remedy: str | None = None) -> T:
    """Read a JSON file as a record.

    Parameters
    ----------
    path : Path
    kind : type
        A dataclass, or another type that pydantic knows: keys that it lacks are passed over, and
        those that the file lacks take their defaults, so files of other versions are read.
    remedy : str, optional
        What to do where the file is damaged, if not to restore it.

    Raises
    ------
    FileNotFoundError
    DamagedFile
        For a special file, other text than JSON, and missing or invalid values.
    """
    try:
        return _record(_read(path), kind, path)
    except DamagedFile as error:
        raise DamagedFile(path, error.reason, remedy) from None


def read_records(path: Path, kind: type[T], remedy: str | None = None) -> list[T]:
    """Read a file of one record per line, as `read_record` does; none where there is no such file.

    A last line that is not complete is left out: it is being written, or its writer was killed.
    """
    found: list[T] = []
    try:
        *lines, last = read_plain(path).split(b"\n")
        for line in lines:
            found.append(_record(line, kind, path, f"line {len(found) + 1}: "))
        if not b'{"'.startswith(last[:2]):
            raise DamagedFile(path, f"line {len(found) + 1}: is no record and begins none")
    except FileNotFoundError:
        return []
    except DamagedFile as error:
        raise DamagedFile(path, error.reason, remedy) from None
    return found


def require_same_plan(path: Path, written: str, plan: str, remedy: str | None = None) -> None:
    """Refuse a file that was written for another plan: those of a like sweep look like its own.

    Parameters
    ----------
    path : Path
        The file, for messages.
    written, plan : str
        Identities of the plan that it was written for, and of the sweep's; those that earlier
        versions left out are empty, and fit any.
    remedy : str, optional
        What to do, if not to restore it.

    Raises
    ------
    DamagedFile
    """
    if written and plan and written != plan:
        reason = "was written for another plan than plan/0001.parquet"
        raise DamagedFile(path, f"{reason}: one of the two is another sweep's", remedy)


def write_records(path: Path, values: Iterable[Any]) -> None:
    """Write a file of one JSON value per line, which is the old one or the new one; others append.

    Raises
    ------
    StoreUnavailable
        Where the file system refuses; the old file, if any, is still there.
    """
    place(path, "".join(f"{json.dumps(value)}\n" for value in values).encode())


def _record(text: bytes, kind: type[T], path: Path, line: str = "") -> T:
    """Return the record that a text is; `DamagedFile` says what is wrong first, and where."""
    from pydantic import ValidationError  # a task that reads nothing does without

    try:
        record: T = _validator(kind).validate_json(text)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(map(str, first["loc"]))
        raise DamagedFile(path, line + (f"{where}: " if where else "") + first["msg"]) from None
    return record


def _read(path: Path) -> bytes:
    """Return a file's text without its checksum."""
    text = read_plain(path)
    if not text.startswith(_CHECKSUM):
        return text
    rest = text[_CHECKSUM_BYTES:]
    if text[:_CHECKSUM_BYTES] != _checksum(rest):
        raise DamagedFile(path, "is not as it was written: its checksum differs")
    return b"{" + rest


def _checksum(rest: bytes) -> bytes:
    """Return how the text of an object begins: what follows is all but its first brace."""
    return b'%s"%08x",' % (_CHECKSUM, google_crc32c.value(rest))


def _validator(kind: Any) -> TypeAdapter[Any]:
    return _cached_validator(kind)


@cache
def _cached_validator(kind: Any) -> TypeAdapter[Any]:
    """Return pydantic's validator of a type."""
    from pydantic import TypeAdapter

    return TypeAdapter(kind)


@contextmanager
def locked(path: Path, doing: str) -> Iterator[Lease]:
    """Hold the lock `path` while planning or submitting.

    It is a lease whose file goes with it. That of a process that is alive on this machine is never
    taken over, though it be suspended; that of a dead one is at once, and that of a process which
    cannot be seen from here when it stood still for the lease time. The block calls `Lease.check`
    right before it commits what it did, so that nothing comes of it after a takeover.

    Raises
    ------
    UserError
        When somebody else holds it, also with an earlier version.
    UnavailableError
        Where the folder cannot be written, and where it was taken over meanwhile.
    """
    from manyseed.orchestrator.disk.lease import Lease, LeaseWatch
    from manyseed.orchestrator.errors import LeaseLost

    _remove_earlier(path)
    watch = LeaseWatch(path.parent)
    lease = Lease(watch, path.name, doing=doing, vanishes=True)
    if not lease.try_take():
        if not lease.is_held_here():
            watch.wait_until_dead([path.name])
        if lease.is_held_here() or not lease.try_take():
            raise UserError(
                f"the sweep is locked by {lease.holder()}", file=path, remedy="wait for it"
            )
    with lease.kept():
        try:
            yield lease
        except LeaseLost as error:
            raise UnavailableError(
                f"{error}\n  this command stood still while {doing}, so that others could go on "
                "instead: do it again"
            ) from error


@dataclass(frozen=True)
class _EarlierLock:
    """What versions before wrote into the file of a lock, which was there while it was held."""

    host: str
    pid: int


def _remove_earlier(path: Path) -> None:
    """Remove the lock of a process of an earlier version that ended on this machine.

    Raises
    ------
    UserError
        Where it may be: there, or here.
    """
    try:
        earlier = read_record(path, _EarlierLock)
    except FileNotFoundError:
        return
    except DamagedFile:  # it was killed before it wrote it
        earlier = None
    if earlier is not None:
        process = Process.of(earlier.pid)
        if earlier.host != process.host or process.state() != "dead":
            raise UserError(
                f"the sweep is locked by process {earlier.pid} on {earlier.host}, of an earlier "
                "version",
                file=path,
                remedy="wait for it; if that process is gone, remove the file",
            )
    with unavailable("remove the lock", path):
        path.unlink(missing_ok=True)
