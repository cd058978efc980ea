"""Small files of a sweep directory: JSON, written whole, and locks."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from orchestrator.errors import DamagedFile, UnavailableError, UserError
from orchestrator.store.files import place, read_plain

T = TypeVar("T")


def write_json(path: Path, value: Any) -> None:
    """Replace `path` by a JSON text, durably."""
    place(path, json.dumps(value, separators=(",", ":")).encode() + b"\n")


def read_json(path: Path) -> Any:
    """Read a JSON file; raises as `read_plain` does, and `DamagedFile` for what is no JSON."""
    try:
        return json.loads(read_plain(path))
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
        Where it is no plain file, no JSON, or lacks or has other values than the record's.
    """
    from pydantic import ValidationError

    try:
        anything: Any = kind  # not all that pydantic knows is hashable to the type checker
        record: T = _adapter(anything).validate_json(read_plain(path))
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(map(str, first["loc"]))
        reason = f"{where}: {first['msg']}" if where else first["msg"]
        raise DamagedFile(path, reason, *([remedy] if remedy else [])) from None
    return record


@cache
def _adapter(kind: Any) -> Any:
    """Return pydantic's validator of a type."""
    from pydantic import TypeAdapter  # a task that reads nothing does without

    return TypeAdapter(kind)


def read_json_lines(path: Path) -> list[Any]:
    """Read a file of one JSON value a line; a last line that is not complete is left out."""
    try:
        lines = path.read_bytes().split(b"\n")[:-1]
    except FileNotFoundError:
        return []
    return [json.loads(line) for line in lines]


@contextmanager
def locked(path: Path, doing: str) -> Iterator[None]:
    """Hold a lock file while planning or submitting.

    The lock of a process that died on this machine is removed; one of another machine is not,
    because whether that process lives cannot be seen from here.

    Raises
    ------
    UserError
        When somebody else holds it.
    """
    owner = {"host": socket.gethostname(), "pid": os.getpid(), "doing": doing}
    for _ in range(2):
        try:
            descriptor = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644)
        except FileExistsError:
            if not _remove_dead(path):
                break
            continue
        except OSError as error:
            raise _unavailable(path, error) from None
        try:
            try:
                with os.fdopen(descriptor, "w") as file:
                    json.dump(owner, file)
            except OSError as error:
                raise _unavailable(path, error) from None
            yield
        finally:
            path.unlink(missing_ok=True)
        return
    holder = path.read_text() if path.exists() else "another process"
    raise UserError(
        f"the sweep is locked by {holder}",
        file=path,
        remedy="wait for it; if that process is gone, remove the file",
    )


def _unavailable(path: Path, error: OSError) -> UnavailableError:
    reason = error.strerror or str(error)
    return UnavailableError(f"cannot write {path}: {reason}; make room or give permission")


def _remove_dead(path: Path) -> bool:
    try:
        holder = read_json(path)
    except (OSError, ValueError):
        return False
    if holder.get("host") != socket.gethostname():
        return False
    try:
        os.kill(int(holder["pid"]), 0)
    except ProcessLookupError:
        path.unlink(missing_ok=True)
        return True
    except PermissionError:
        return False
    return False
