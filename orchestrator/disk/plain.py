"""Values of JSON → records, without pydantic, whose import takes longer than reading most files.

Only what pydantic would take, too, is taken, and with the same result. Anything else is `Unlike`:
then pydantic decides, and words the error.
"""

from __future__ import annotations

import json
import operator
from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields, is_dataclass
from functools import cache
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

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
        return _record(kind, value)
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


def _record(kind: Any, value: dict[str, Any]) -> Any:
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
