"""Calls from Python: arguments are checked, and errors name these, not the command's options."""

from __future__ import annotations

import importlib
import inspect
import numbers
import os
import re
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache, wraps
from types import MethodType
from typing import Any, TypeVar, cast

from manyseed.orchestrator.errors import ManyseedError, UserError, nearest, toml_value
from manyseed.orchestrator.spoken import in_python

Made = TypeVar("Made", bound=type)
Function = TypeVar("Function", bound=Callable[..., Any])

_PARTS = re.compile(r" \| (?![^\[]*\])")
_TYPES: Mapping[str, tuple[Any, str]] = {
    "None": (type(None), ""),
    "str": (str, "text"),
    "Path": ((str, os.PathLike), "a path"),
    "bool": ((bool, int), "true or false"),
    "int": (numbers.Integral, "a whole number"),
    "float": (numbers.Real, "a number"),
    "Sequence": (Iterable, "a list"),
    "Mapping": (Mapping, "a mapping"),
    "Callable": (Callable, "a function"),
    "tuple": (tuple, "a pair"),
}
"""Checked annotations: what is accepted, and its words. Others are not checked."""

_ELEMENTS: Mapping[str, tuple[Any, str]] = {
    "Sequence[str]": (str, "text"),
    "Sequence[str | Path]": (str | os.PathLike, "a path"),
}
_LISTS = {"between": 'name its levels, such as between=["xgb", "mlp"]'}
"""Remedies where a list of the text alone would be wrong."""

_UNNAMED = (
    "self",
    "cls",
    "options",
    "grid",
    "results",
    "evidence",
    "paths",
)  # parameters that callers do not name

_BY_PLACE = inspect.Parameter.POSITIONAL_OR_KEYWORD
_COUNTS = ("best", "limit", "workers")


def from_python(public: str) -> Callable[[Made], Made]:
    """Decorate a class: its public methods check their arguments and word errors for Python.

    The command calls the same methods, so an error only notes that it passed one
    (`ManyseedError.from_python`), which the command undoes. `public` is how users call the class.
    """

    def decorate(made: Made) -> Made:
        for name, given in list(vars(made).items()):
            if name.startswith("_") and name not in ("__init__", "__call__"):
                continue
            of = public if name.startswith("_") else f"{public}.{name}"
            if isinstance(given, classmethod):
                call = checked(given.__func__, of)
                told = _Told(call, of_class=True) if "further" in vars(call) else classmethod(call)
                setattr(made, name, told)
            elif isinstance(given, property) and given.fget is not None:
                setattr(made, name, property(checked(given.fget, of)))
            elif inspect.isfunction(given):
                call = checked(given, of)
                setattr(made, name, _Told(call) if "further" in vars(call) else call)
        return made

    return decorate


def further(callee: str, *, but: Iterable[str] = ()) -> Callable[[Function], Function]:
    """Say where a function's ``**options`` go, so that these can be checked and told, too.

    `callee` is ``"module:function"`` below `manyseed.orchestrator`, which is imported when it is
    needed; `but` are its parameters that are no options.
    """

    def mark(function: Function) -> Function:
        function.__dict__["further"] = (callee, frozenset(but))
        return function

    return mark


def found(callee: str) -> Any:
    """Return what ``"module:name"`` below `manyseed.orchestrator` names."""
    module, _, name = callee.partition(":")
    return getattr(importlib.import_module(f"manyseed.orchestrator.{module}"), name)


_told_by: Callable[[str], object] | None = None


@contextmanager
def told_by(tell: Callable[[str], object]) -> Iterator[None]:
    """Within this block, pass each warning to `tell`, once, as the command has no callers."""
    global _told_by
    before, _told_by = _told_by, cache(tell)
    try:
        yield
    finally:
        _told_by = before


def warn(text: str) -> None:
    """Warn with the place in the user's program that called manyseed."""
    if _told_by is not None:
        _told_by(text)
        return
    frame, level = inspect.currentframe(), 1
    while frame is not None and f"{frame.f_globals.get('__name__')}.".startswith("manyseed."):
        frame, level = frame.f_back, level + 1
    warnings.warn(in_python(text), UserWarning, stacklevel=level)


def checked(function: Function, name: str) -> Function:
    """Return a public function as `from_python` makes methods; `name` is that of messages."""

    @wraps(function)
    def call(*given: Any, **options: Any) -> Any:
        try:
            _check(name, function, _signature(function), given, options)
            return function(*given, **options)
        except ManyseedError as error:
            error.from_python = True
            raise

    return cast(Function, call)


@cache
def _signature(function: Any) -> inspect.Signature:
    """Return a function's signature, with the parameters that its ``**options`` may name."""
    own = inspect.signature(function)
    if "further" not in vars(function):
        return own
    callee, but = vars(function)["further"]
    more = inspect.signature(found(callee)).parameters.values()
    named = [one for one in own.parameters.values() if one.kind is not one.VAR_KEYWORD]
    known = {*but, *(one.name for one in named)}
    by_name = [one.replace(kind=one.KEYWORD_ONLY) for one in more if one.name not in known]
    return own.replace(parameters=[*named, *by_name])


class _Told:
    """A method that takes another function's options: these are told when it is looked up."""

    def __init__(self, call: Callable[..., Any], *, of_class: bool = False) -> None:
        self.call, self.of_class = call, of_class

    def __get__(self, instance: object, owner: type) -> Any:
        told, bound = with_further(self.call), owner if self.of_class else instance
        return told if bound is None else MethodType(told, bound)


@cache
def with_further(call: Function) -> Function:
    """Tell the options of `further` in a function's signature and docstring."""
    function: Any = inspect.unwrap(call)
    signature, own = _signature(function), inspect.getdoc(function) or ""
    theirs = in_python(inspect.getdoc(found(vars(function)["further"][0])) or "")
    if found_there := _ENTRY.findall(theirs):
        told = {name: entry for entry, name in [*found_there, *_ENTRY.findall(own)]}
        head, _, others = own.partition(_PARAMETERS)
        entries = [told[name] for name in signature.parameters if name in told]
        more = _ENTRY.sub("", others).strip("\n")
        call.__doc__ = head + _PARAMETERS + "\n".join(entries) + (more and f"\n\n{more}")
        vars(call)["__signature__"] = signature
    return call


_PARAMETERS = "\n\nParameters\n----------\n"
_ENTRY = re.compile(r"^(\**(\w+) : .*(?:\n {4}.+)*)", re.MULTILINE)
"""A parameter in a docstring."""


def _check(
    name: str,
    function: Any,
    signature: inspect.Signature,
    given: tuple[Any, ...],
    options: Mapping[str, Any],
) -> None:
    """Refuse unknown keywords, values of a wrong type, and too few or too many arguments."""
    positional = zip(signature.parameters.values(), given, strict=False)
    for parameter, value in positional:
        if parameter.kind is not parameter.VAR_POSITIONAL:
            _require(parameter, value)
    every = signature.parameters
    known = {name: one for name, one in every.items() if one.kind is not one.VAR_POSITIONAL}
    is_open = any(one.kind is one.VAR_KEYWORD for one in known.values())
    for key, value in options.items():
        if key in known:
            _require(known[key], value)
        elif not is_open:
            names = [n for n in known if n not in _UNNAMED]
            remedy = nearest(key, names) if names else "it takes none"
            if key in _FILES and not {*_FILES} & {*names}:
                remedy = f"it returns what to save, such as .savefig(FILE) of a figure; {remedy}"
            raise UserError(f"{_called(name)} has no such argument", key=key, remedy=remedy)
    try:
        signature.bind(*given, **options)
    except TypeError:
        raise _unbound(name, function, signature, given, options) from None


_FILES = ("out", "output", "path", "file", "filename", "save", "savefig")


def _called(name: str) -> str:
    """Return a function's name as a call of it; such as answers('points') are calls already."""
    return name if name.endswith(")") else f"{name}()"


def _unbound(
    name: str,
    function: Any,
    signature: inspect.Signature,
    given: tuple[Any, ...],
    options: Mapping[str, Any],
) -> UserError:
    """Return the error for too few or too many arguments, or one that is given twice."""
    by_place = [one for one in signature.parameters.values() if one.kind is _BY_PLACE]
    is_method = bool(by_place) and by_place[0].name in _UNNAMED
    if len(given) > len(by_place):
        most = len(by_place) - is_method
        takes = f"{most or 'no'} argument{'s' * (most > 1)}"
        names = [n for n in [*signature.parameters][len(by_place) :] if n not in _UNNAMED]
        remedy = f"give the others by name: {', '.join(names)}" if names else None
        reason = f"{_called(name)} takes {takes} without a name, not {len(given) - is_method}"
        return UserError(reason, remedy=remedy)
    for one in by_place[: len(given)]:
        if one.name in options:
            return UserError(f"{_called(name)} is given it twice", key=one.name)
    rest = [*signature.parameters.values()][is_method:]
    is_open = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    needed = [one.name for one in rest if one.default is one.empty and one.kind not in is_open]
    had = {*options, *(one.name for one in by_place[: len(given)])}
    *most_of, last = [one for one in needed if one not in had]
    words = f"{', '.join(most_of)} and {last}" if most_of else last
    return UserError(
        f"{_called(name)} needs {words}", remedy=f"call it as {name}({', '.join(needed)})"
    )


def _require(parameter: inspect.Parameter, value: Any) -> None:
    """Refuse a value that an annotation does not allow, if this module knows all of its types."""
    annotation = parameter.annotation
    if not isinstance(annotation, str) or value is parameter.default:
        return
    if isinstance(value, str) and not value.strip() and parameter.default != "":
        raise UserError("is empty", key=parameter.name, remedy="give it a value, or leave it out")
    heads = [part.partition("[")[0] for part in _PARTS.split(annotation)]
    if not all(head in _TYPES for head in heads):
        return
    is_text = isinstance(value, str | bytes)
    for part, head in zip(_PARTS.split(annotation), heads, strict=True):
        # NumPy's bool is no int; its type is known by name, as NumPy may not be imported yet
        is_flag = head == "bool" and type(value).__name__ in ("bool", "bool_")
        if is_flag or (isinstance(value, _TYPES[head][0]) and not (head == "Sequence" and is_text)):
            if part in _ELEMENTS:
                _require_elements(parameter.name, value, *_ELEMENTS[part])
            if parameter.name in _COUNTS and _least(value) < 1:
                raise UserError("must be at least 1", key=parameter.name, value=value)
            return
    words = dict.fromkeys(filter(None, (_TYPES[head][1] for head in heads)))
    if {"str", "Path"} <= {*heads}:
        del words["text"]
    is_plain = isinstance(value, str | int | float)
    shown = toml_value(value) if is_plain else type(value).__name__
    remedy = None
    if "Sequence" in heads and is_text:
        remedy = _LISTS.get(parameter.name, f"write [{toml_value(value)}]")
    raise UserError(f"must be {' or '.join(words)}, not {shown}", key=parameter.name, remedy=remedy)


def _least(value: Any) -> Any:
    return value if not isinstance(value, tuple) else min(value, default=0)


def _require_elements(name: str, values: Any, kind: Any, words: str) -> None:
    kinds = (kind, numbers.Integral) if name in _LISTS else kind  # also numbers of cells
    for number, value in enumerate(values if isinstance(values, list | tuple) else ()):
        if not isinstance(value, kinds):
            reason = f"must be {words}, not {type(value).__name__}"
            raise UserError(reason, key=f"{name}[{number}]")
