"""Hparam grids: the combinations of some hparams' values, and how they are written.

A configuration is written ``depth=2,lr=0.001,width=8``: sorted by name, without blanks, numbers as
Python's repr, truth values as in TOML.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping

from manyseed.jobs.checks import Option, Refused, UnknownOption, integer, number
from manyseed.jobs.hparams.kinds import Categorical, Continuous, Free, Hparam, Ordinal, Value

MAX_CONFIGURATIONS = 32_767
"""Limit of a grid, and of a sweep: the store numbers configurations with 16 bits."""

OPTION = Option(
    'Values of hparams, every combination a cell: hparams = ["grid"].',
    dict,
    called="a table with a list of values for each hparam",
)
RANGES = ("linspace", "logspace")
_RANGE = "a table of linspace or logspace: first, last and count"


def configurations(space: tuple[Hparam, ...], lists: object) -> tuple[dict[str, Value], ...]:
    """Return every combination of a grid's values, in the order of its lists.

    `space`: the classifier's hparams. `lists`: as the user wrote them: a mapping of hparam to list
    of values, or range.
    """
    if not (given := OPTION.check("grid", lists)):
        raise Refused("grid", lists, allowed=OPTION.allowed)
    known = {hparam.name: hparam for hparam in space}
    values = {}
    for name, listed in given.items():
        if name not in known:
            raise UnknownOption(f"grid.{name}", listed, allowed=known)
        values[name] = _checked(known[name], listed)
    total = math.prod(map(len, values.values()))
    if total > MAX_CONFIGURATIONS:
        shown = " × ".join(f"{len(checked)} {name}" for name, checked in values.items())
        raise Refused(
            "grid",
            lists,
            f"{shown} make {total:,} configurations; a sweep holds up to {MAX_CONFIGURATIONS:,}",
        )
    combined = itertools.product(*values.values())
    return tuple(dict(zip(values, each, strict=True)) for each in combined)


def _checked(hparam: Hparam, values: object) -> list[Value]:
    option = f"grid.{hparam.name}"
    if isinstance(values, Mapping):
        values = ranged(hparam, values)
    if not isinstance(values, list | tuple) or not values:
        raise Refused(option, values, allowed="a list of values")
    distinct: list[Value] = []
    for value in values:
        checked = _value(hparam, value, option)
        if isinstance(hparam, Free) and not _is_read_back(checked):
            reason = "cannot be told from another value, or from two, once it is written out"
            raise Refused(option, value, reason)
        if any(checked == other and type(checked) is type(other) for other in distinct):
            raise Refused(option, value, "is listed twice")
        distinct.append(checked)
    return distinct


def ranged(hparam: Hparam, value: Mapping[str, object]) -> list[Value]:
    """Return the values that a range stands for.

    Values between its ends are rounded to twelve digits, the same on every machine; for an hparam
    of whole numbers all are rounded to whole numbers, without repetitions.

    `value`: ``{linspace: [first, last, count]}`` for equal steps, or ``logspace`` for equal ratios.
    """
    option = f"grid.{hparam.name}"
    kind, given = next(iter(value.items())) if len(value) == 1 else ("", None)
    if kind not in RANGES or not isinstance(given, list | tuple) or len(given) != 3:
        raise Refused(option, dict(value), allowed=f"a list, or {_RANGE}")
    if isinstance(hparam, Categorical):
        raise Refused(option, dict(value), f"{hparam.name} is not a number: give a list")
    above = 0.0 if kind == "logspace" else -math.inf
    first, last = (number(option, end, above=above) for end in given[:2])
    count = integer(option, given[2], least=2, most=MAX_CONFIGURATIONS)
    shares = [place / (count - 1) for place in range(1, count - 1)]
    if kind == "linspace":
        between = [first + (last - first) * share for share in shares]
    else:
        between = [first * (last / first) ** share for share in shares]
    values = [first, *(float(f"{each:.12g}") for each in between), last]
    is_whole = isinstance(hparam, Ordinal)
    if is_whole or (isinstance(hparam, Free) and type(hparam.default) is int):
        return [*dict.fromkeys(round(each) for each in values)]
    return [*values]


def _value(hparam: Hparam, value: object, option: str) -> Value:
    try:
        return hparam.check(value)
    except Refused as error:
        raise Refused(option, error.value, error.reason, error.allowed) from None


def written(values: Mapping[str, Value]) -> str:
    """Write a configuration."""
    return ",".join(f"{name}={text_of(values[name])}" for name in sorted(values))


def text_of(value: Value) -> str:
    """Write a value: numbers as in Python, truth values as true and false."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _is_read_back(value: Value) -> bool:
    text = text_of(value)
    again = _plain(text)
    return again == value and type(again) is type(value) and not {*",= "} & {*text}


def is_written(text: str) -> bool:
    """Whether a value of the axis ``hparams`` is a configuration: no other has an equals sign."""
    return "=" in text


def names(text: str) -> list[str]:
    """Return the hparams in a written configuration."""
    return [part.partition("=")[0].strip() for part in text.split(",")]


def read(space: tuple[Hparam, ...], text: str) -> dict[str, Value]:
    """Return the values of a written configuration."""
    known = {hparam.name: hparam for hparam in space}
    values: dict[str, Value] = {}
    for part in text.split(","):
        name, _, value = (piece.strip() for piece in part.partition("="))
        if name not in known:
            raise Refused("hparams", name, "unknown hparam", known)
        if name in values:
            raise Refused("hparams", text, f"names {name} twice")
        values[name] = _value(known[name], _typed(known[name], value), "hparams")
    return values


def _typed(hparam: Hparam, text: str) -> object:
    """Return the value that a text stands for, or the text if the hparam has no such value."""
    if isinstance(hparam, Free):
        return _plain(text)
    if isinstance(hparam, Categorical):
        return next((level for level in hparam.levels if text_of(level) == text), text)
    try:
        return float(text) if isinstance(hparam, Continuous) else int(text)
    except ValueError:
        return text


def _plain(text: str) -> Value:
    """Return the number or truth value that a text is, as `written` writes it, or the text."""
    if text in ("true", "false"):
        return text == "true"
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text
