"""Hparam grids: the combinations of values of some hparams, and how each of them is written.

A configuration is written ``depth=2,lr=0.001,width=8``: sorted by name, without blanks, values as
Python's repr gives numbers, truth values as in TOML.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping

from manyseed.jobs.checks import Refused, UnknownOption, integer, number
from manyseed.jobs.hparams.kinds import Categorical, Continuous, Free, Hparam, Ordinal, Value

MAX_CONFIGURATIONS = 32_767
"""Of a grid, and of a sweep: the store numbers them by 16 bits."""


RANGES = ("linspace", "logspace")
_RANGE = "a table of linspace or logspace: first, last and count"


def configurations(space: tuple[Hparam, ...], lists: object) -> tuple[dict[str, Value], ...]:
    """Return every combination of a grid's values, in the order of its lists.

    Parameters
    ----------
    space : tuple of Hparam
        The classifier's hparams.
    lists : object
        As the user gave it: a mapping of hparam to list of values.

    Raises
    ------
    Refused
        For what is no table of lists, an unknown hparam, a value of the wrong type or out of range,
        one that stands twice, or more combinations than `MAX_CONFIGURATIONS`.
    """
    if not isinstance(lists, Mapping) or not lists:
        raise Refused("grid", lists, allowed="a table of lists of values, one an hparam")
    known = {hparam.name: hparam for hparam in space}
    values = {}
    for name, found in lists.items():
        if name not in known:
            raise UnknownOption(f"grid.{name}", found, allowed=known)
        values[name] = _checked(known[name], found)
    total = math.prod(map(len, values.values()))
    if total > MAX_CONFIGURATIONS:
        shown = " × ".join(f"{len(found)} {name}" for name, found in values.items())
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
    found: list[Value] = []
    for value in values:
        checked = _value(hparam, value, option)
        if isinstance(hparam, Free) and not _is_read_back(checked):
            reason = "cannot be told from another value, or from two, once it is written out"
            raise Refused(option, value, reason)
        if any(checked == other and type(checked) is type(other) for other in found):
            raise Refused(option, value, "stands twice in the list")
        found.append(checked)
    return found


def ranged(hparam: Hparam, value: Mapping[str, object]) -> list[Value]:
    """Return the values that a range stands for.

    Those between its ends are rounded to twelve digits, which are the same on every machine; of an
    hparam of whole numbers to these, each once.

    Parameters
    ----------
    hparam : Hparam
    value : mapping
        ``{linspace: [first, last, count]}`` for equal steps, or ``logspace`` for equal ratios.

    Raises
    ------
    Refused
    """
    option = f"grid.{hparam.name}"
    kind, given = next(iter(value.items())) if len(value) == 1 else ("", None)
    if kind not in RANGES or not isinstance(given, list | tuple) or len(given) != 3:
        raise Refused(option, dict(value), allowed=f"a list, or {_RANGE}")
    if isinstance(hparam, Categorical):
        raise Refused(option, dict(value), f"{hparam.name} is no number: give a list")
    above = 0.0 if kind == "logspace" else -math.inf
    first, last = (number(option, end, above=above) for end in given[:2])
    count = integer(option, given[2], least=2, most=MAX_CONFIGURATIONS)
    shares = [place / (count - 1) for place in range(1, count - 1)]
    if kind == "linspace":
        between = [first + (last - first) * share for share in shares]
    else:
        between = [first * (last / first) ** share for share in shares]
    found = [first, *(float(f"{each:.12g}") for each in between), last]
    is_whole = isinstance(hparam, Ordinal)
    if is_whole or (isinstance(hparam, Free) and type(hparam.default) is int):
        return [*dict.fromkeys(round(each) for each in found)]
    return [*found]


def _value(hparam: Hparam, value: object, option: str) -> Value:
    try:
        return hparam.check(value)
    except Refused as error:
        raise Refused(option, error.value, error.reason, error.allowed) from None


def written(values: Mapping[str, Value]) -> str:
    """Return how a configuration is written."""
    return ",".join(f"{name}={text_of(values[name])}" for name in sorted(values))


def text_of(value: Value) -> str:
    """Return how a value is written: numbers as Python has them, true and false."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _is_read_back(value: Value) -> bool:
    text = text_of(value)
    again = _plain(text)
    return again == value and type(again) is type(value) and not {*",= "} & {*text}


def is_written(text: str) -> bool:
    """Whether a value of the axis ``hparams`` is a configuration: no other has an equals sign."""
    return "=" in text


def names(text: str) -> list[str]:
    """Return the hparams that a written configuration gives values to."""
    return [part.partition("=")[0].strip() for part in text.split(",")]


def read(space: tuple[Hparam, ...], text: str) -> dict[str, Value]:
    """Return the values of a written configuration.

    Raises
    ------
    Refused
        For an unknown hparam, one that is named twice, or a value that it cannot have.
    """
    known = {hparam.name: hparam for hparam in space}
    found: dict[str, Value] = {}
    for part in text.split(","):
        name, _, value = (piece.strip() for piece in part.partition("="))
        if name not in known:
            raise Refused("hparams", name, "unknown hparam", known)
        if name in found:
            raise Refused("hparams", text, f"names {name} twice")
        found[name] = _value(known[name], _typed(known[name], value), "hparams")
    return found


def _typed(hparam: Hparam, text: str) -> object:
    """Return what a text stands for; as it is where the hparam has no such value."""
    if isinstance(hparam, Free):
        return _plain(text)
    if isinstance(hparam, Categorical):
        return next((level for level in hparam.levels if text_of(level) == text), text)
    try:
        return float(text) if isinstance(hparam, Continuous) else int(text)
    except ValueError:
        return text


def _plain(text: str) -> Value:
    """Return a number or truth value where a text is one, as `written` writes it."""
    if text in ("true", "false"):
        return text == "true"
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text
