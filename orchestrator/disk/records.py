"""Small files of a sweep directory: JSON written whole and read as records, and locks.

Values are read without pydantic where they plainly are of their type, as its import takes longer
than reading most files; anything else is `Unlike`: then pydantic decides, and words the error.
"""

from __future__ import annotations

import json
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import MISSING, dataclass, fields, is_dataclass
from functools import cache
from pathlib import Path
from types import NoneType, UnionType
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Literal,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

import google_crc32c

from manyseed.orchestrator.disk.placing import place, place_soon_replaced, read_plain, unavailable
from manyseed.orchestrator.errors import DamagedFile, UnavailableError
from manyseed.slurm.processes import Process

if TYPE_CHECKING:
    from pydantic import TypeAdapter

    from manyseed.orchestrator.disk.lease import Lease

_BOUNDS: Mapping[str, Callable[[Any, Any], bool]] = {
    "ge": operator.ge,
    "gt": operator.gt,
    "le": operator.le,
    "lt": operator.lt,
}


class Unlike(Exception):
    """The value is not plainly of this type."""


def read(text: bytes, kind: Any) -> Any:
    """Parse JSON as a value of a type, such as a dataclass; raises `Unlike`."""
    if b"\\ud" in text.lower():  # may be half of a pair, which only Python's parser takes
        raise Unlike
    try:
        return _of(kind, json.loads(text.decode()))
    except (ValueError, TypeError, LookupError, NameError, OverflowError, RecursionError):
        raise Unlike from None


def _of(kind: Any, value: Any) -> Any:
    origin = get_origin(kind)
    if kind is Any or kind is object:
        return value
    if origin is Annotated:
        return _bounded(value, *get_args(kind))
    if origin in (Union, UnionType):
        return _any_of(get_args(kind), value)
    if origin is Literal:
        if any(type(one) is type(value) and one == value for one in get_args(kind)):
            return value
    elif origin in (list, frozenset, tuple) and isinstance(value, list):
        return _several(origin, get_args(kind), value)
    elif origin in (dict, Mapping) and isinstance(value, dict):
        key, inner = get_args(kind)
        if key is str:
            return {name: _of(inner, one) for name, one in value.items()}
    elif kind is float and type(value) in (int, float):
        return float(value)
    elif kind in (str, int, bool, None, NoneType):
        if type(value) is (NoneType if kind is None else kind):
            return value
    elif is_dataclass(kind) and isinstance(value, dict):
        return _record_of(kind, value)
    raise Unlike


def _bounded(value: Any, kind: Any, *limits: Any) -> Any:
    taken = _of(kind, value)
    for limit in limits:
        known = {name: getattr(limit, name) for name in _BOUNDS if hasattr(limit, name)}
        if not known or type(limit).__module__ != "annotated_types":
            raise Unlike
        for name, bound in known.items():
            if bound is not None and not _BOUNDS[name](taken, bound):
                raise Unlike
    return taken


def _any_of(kinds: tuple[Any, ...], value: Any) -> Any:
    """Take a value that is one of these types or None; between others, pydantic chooses."""
    some = [kind for kind in kinds if kind is not NoneType]
    if value is None and len(some) < len(kinds):
        return None
    if len(some) != 1:
        raise Unlike
    return _of(some[0], value)


def _several(origin: Any, kinds: tuple[Any, ...], values: list[Any]) -> Any:
    if origin is tuple and kinds[-1] is not Ellipsis:
        return tuple(_of(kind, value) for kind, value in zip(kinds, values, strict=True))
    return origin(_of(kinds[0], value) for value in values)


def _record_of(kind: Any, value: dict[str, Any]) -> Any:
    hints = _hints(kind)
    given = {}
    for field in fields(kind):
        if not field.init or field.metadata:
            raise Unlike
        if field.name in value:
            given[field.name] = _of(hints[field.name], value[field.name])
        elif field.default is MISSING and field.default_factory is MISSING:
            raise Unlike
    return kind(**given)


@cache
def _hints(kind: Any) -> dict[str, Any]:
    if any(hasattr(base, "__pydantic_config__") for base in kind.__mro__):
        raise Unlike
    return get_type_hints(kind, include_extras=True)


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
    """Write a JSON file, replacing `path` atomically; an object begins with its checksum.

    `durable`: false for a file that is soon replaced again: readers see the old or the new one, but
    a power cut may leave an empty file. `before_rename`: see `disk.placing.place`; ignored if not
    `durable`.
    """
    text = json_text(value)
    if durable:
        place(path, text, before_rename)
    else:
        place_soon_replaced(path, text)


def json_text(value: Any) -> bytes:
    """Return the text of a JSON file; an object's begins with its checksum."""
    text = json.dumps(value, separators=(",", ":")).encode() + b"\n"
    return _checksum(text[1:]) + text[1:] if isinstance(value, dict) and value else text


def read_json(path: Path) -> Any:
    """Read a JSON file; raises like `read_plain`, and `DamagedFile` if the text is not JSON.

    If an object begins with a checksum, it is verified and not returned.
    """
    try:
        return json.loads(_read(path))
    except (ValueError, RecursionError) as error:  # UnicodeDecodeError is a ValueError
        raise DamagedFile(path, f"is not valid JSON: {error}") from None


def read_record(path: Path, kind: type[T], remedy: str | None = None) -> T:
    """Read a JSON file as a record.

    `kind`: a dataclass, or another type that pydantic knows. Unknown keys in the file are ignored
    and absent ones take their defaults, so that files of other versions can be read. `remedy`: what
    to do about a damaged file, other than restore it.
    """
    try:
        return _record(_read(path), kind, path)
    except DamagedFile as error:
        raise DamagedFile(path, error.reason, remedy) from None


def read_records(path: Path, kind: type[T], remedy: str | None = None) -> list[T]:
    """Read a file with one record per line, like `read_record`; an absent file has none.

    An incomplete last line is skipped: it is being written, or its writer was killed.
    """
    records: list[T] = []
    try:
        *lines, last = read_plain(path).split(b"\n")
        for line in lines:
            records.append(_record(line, kind, path, f"line {len(records) + 1}: "))
        if not b'{"'.startswith(last[:2]):
            raise DamagedFile(path, f"line {len(records) + 1}: is not a record, nor begins one")
    except FileNotFoundError:
        return []
    except DamagedFile as error:
        raise DamagedFile(path, error.reason, remedy) from None
    return records


def require_same_plan(path: Path, written: str, plan: str, remedy: str | None = None) -> None:
    """Refuse a file written for another plan: files of similar sweeps look alike.

    `written` and `plan` are the identities of the plan that it was written for and of the sweep's.
    Earlier versions wrote none; an empty one matches any.
    """
    if written and plan and written != plan:
        reason = "was written for another plan than plan/0001.parquet"
        raise DamagedFile(path, f"{reason}: one of the two is another sweep's", remedy)


def write_records(path: Path, values: Iterable[Any]) -> None:
    """Write a file of one JSON value per line, to which others append; raises like `place`."""
    place(path, "".join(f"{json.dumps(value)}\n" for value in values).encode())


def _record(text: bytes, kind: type[T], path: Path, line: str = "") -> T:
    """Parse a record; `DamagedFile` names the first error and its place."""
    with suppress(Unlike):
        taken: T = read(text, kind)
        return taken
    from pydantic import ValidationError  # only for what is not plainly such a record

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
    """Return the beginning of an object's text; `rest` is its text without the first brace."""
    return b'%s"%08x",' % (_CHECKSUM, google_crc32c.value(rest))


def _validator(kind: Any) -> TypeAdapter[Any]:  # mypy: a type variable is not hashable
    return _cached_validator(kind)


@cache
def _cached_validator(kind: Any) -> TypeAdapter[Any]:
    from pydantic import TypeAdapter

    return TypeAdapter(kind)


@contextmanager
def locked(path: Path, doing: str) -> Iterator[Lease]:
    """Hold the lock `path` while planning or submitting.

    It is a lease whose file is removed on release. The lock of a process that is alive on this
    machine is never taken over, even if it is suspended; that of a dead one at once; that of a
    process that cannot be seen from here once it is idle for the lease time. The block must call
    `Lease.check` right before it commits, so that nothing is committed after a takeover.
    """
    from manyseed.orchestrator.disk.lease import Lease, LeaseWatch
    from manyseed.orchestrator.errors import LeaseLost, command

    _remove_earlier(path)
    watch = LeaseWatch(path.parent)
    lease = Lease(watch, path.name, doing=doing, vanishes=True)
    if not lease.try_take():
        if not lease.is_held_here():
            watch.wait_until_dead([path.name])
        if lease.is_held_here() or not lease.try_take():
            raise UnavailableError(
                f"{path}: the sweep is locked by {lease.holder()}\n"
                f"  wait for it, then: {command('status', path.parent)}"
            )
    with lease.kept():
        try:
            yield lease
        except LeaseLost as error:
            raise UnavailableError(
                f"{error}\n  this command was suspended while {doing}, so another took over: "
                "do it again"
            ) from error


@dataclass(frozen=True)
class _EarlierLock:
    """The content of a lock file of an earlier version, which existed while the lock was held."""

    host: str
    pid: int


def _remove_earlier(path: Path) -> None:
    """Remove the lock of an earlier version if its process ended on this machine."""
    try:
        earlier = read_record(path, _EarlierLock)
    except FileNotFoundError:
        return
    except DamagedFile:  # its process was killed before it wrote the file
        earlier = None
    if earlier is not None:
        process = Process.of(earlier.pid)
        if earlier.host != process.host or process.state() != "dead":
            raise UnavailableError(
                f"{path}: the sweep is locked by process {earlier.pid} on {earlier.host}, of an "
                "earlier version\n  wait for it; if that process is gone, remove the file"
            )
    with unavailable("remove the lock", path):
        path.unlink(missing_ok=True)
