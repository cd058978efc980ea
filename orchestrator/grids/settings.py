"""What ``--set key=value`` changes in the text of a sweep file.

A sweep keeps the text that it was planned from, so it must contain the settings. A line is replaced
or added; if that does not give the right content, the file is written anew, without comments.
"""

from __future__ import annotations

import copy
import json
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from manyseed.analysis.counts import counted
from manyseed.orchestrator.errors import UserError, toml_key, toml_value
from manyseed.orchestrator.grids.objects import lines

OPTION = "--set"

Key = tuple[str | int, ...]

_PART = re.compile(r'(?:^|\.)(?:([A-Za-z0-9_-]+)|"((?:[^"\\]|\\.)*)")|\[([0-9]+)\]')
_NUMBERED = re.compile(r"^grid\.([0-9]+)(?=\.|$)")
_WORD = re.compile(r"[A-Za-z][\w:.+-]*")
_HEADER = re.compile(r"\s*(\[\[?)\s*(.*?)\s*\]\]?\s*(#.*)?")


def with_settings(text: str, settings: Sequence[str]) -> str:
    """Return the text of a sweep file with some values set.

    `settings`: each ``key=value``: a key such as ``classifier.mlp.epochs``, ``grid[1].vary`` or
    ``grid.1.vary``, and a TOML value, or a single word without quotes.
    """
    for setting in settings:
        try:
            table = tomllib.loads(text)
        except (ValueError, RecursionError):
            return text  # reported when the file is parsed
        try:
            key, value = _parsed(setting)
            wanted = _set(copy.deepcopy(table), key, value, setting)
            text = next(
                (edited for edited in _edited(text, key, value) if _is(edited, wanted)),
                "".join(f"{line}\n" for line in lines(wanted)),
            )
        except RecursionError:
            raise UserError("is nested too deeply", key=OPTION, value=setting) from None
    return text


def _parsed(setting: str) -> tuple[Key, Any]:
    name, sign, value = setting.partition("=")
    name = _NUMBERED.sub(r"grid[\1]", name.strip())
    if not sign or not name or "".join(part[0] for part in _PART.finditer(name)) != name:
        raise UserError(
            "a setting must be key=value",
            key=OPTION,
            value=setting,
            remedy="such as --set runs=20, --set classifier.mlp.epochs=5, or "
            "--set 'grid[0].train_fraction=[0.5, 1.0]'",
        )
    key = location(name)
    try:
        return key, tomllib.loads(f"value = {value}")["value"]
    except ValueError:
        if _WORD.fullmatch(value.strip()):
            return key, value.strip()
        raise UserError(
            "the value is not valid TOML",
            key=OPTION,
            value=setting,
            remedy="give plain numbers, lists in brackets, and text in quotes that the shell "
            "keeps: --set 'name=\"my sweep\"'",
        ) from None


def location(key: str) -> Key:
    """Return the parts of a key such as ``grid[0].vary``."""
    return tuple(
        int(part[3]) if part[3] is not None else part[1] or json.loads(f'"{part[2]}"')
        for part in _PART.finditer(key)
    )


def _set(table: dict[str, object], key: Key, value: Any, setting: str) -> dict[str, object]:
    place: Any = table
    for number, part in enumerate(key):
        if isinstance(place, list) and isinstance(part, str) and len(place) == 1:
            place = place[0]
        is_index = isinstance(part, int) and isinstance(place, list) and part < len(place)
        if not is_index and not (isinstance(part, str) and isinstance(place, dict)):
            inner = _text(key[:number])
            several = isinstance(place, list) and place and isinstance(place[0], dict)
            remedy = f"name one: {inner}[0] to {inner}[{len(place) - 1}]" if several else None
            what = (
                f"{inner} has {counted(len(place), 'table')}"
                if several
                else f"{inner} has no such entry"
            )
            raise UserError(what, key=OPTION, value=setting, remedy=remedy)
        if number == len(key) - 1:
            place[part] = value
        else:
            place = place[part] if isinstance(part, int) else place.setdefault(part, {})
    return table


def _text(key: Key) -> str:
    text = "".join(f"[{p}]" if isinstance(p, int) else f".{toml_key(p)}" for p in key)
    return text.removeprefix(".")


def _is(text: str, wanted: Mapping[str, Any]) -> bool:
    try:
        return tomllib.loads(text) == wanted
    except ValueError:
        return False


def _edited(text: str, key: Key, value: Any) -> Iterator[str]:
    """Yield candidate texts, with a line replaced, added or appended; one of them may be right."""
    held = text.splitlines()
    names = [part for part in key if isinstance(part, str)]
    index = next((part for part in key if isinstance(part, int)), 0)
    for depth in range(len(names) - 1, -1, -1):
        inner = ".".join(map(toml_key, names[depth:]))
        line = f"{inner} = {toml_value(value)}"
        for begin, end in _sections(held, names[:depth], index):
            for at in range(begin, end):
                if re.match(rf"\s*{re.escape(inner)}\s*=", held[at]):
                    for last in range(at + 1, end + 1):
                        yield "\n".join([*held[:at], line, *held[last:]]) + "\n"
            if depth == len(names) - 1:
                at = begin
                if not depth:  # below the file's last top-level line
                    written = [at for at in range(begin, end) if held[at].strip()]
                    at = written[-1] + 1 if written else begin
                yield "\n".join([*held[:at], line, *held[at:]]) + "\n"
    if len(names) > 1:
        header = ".".join(map(toml_key, names[:-1]))
        added = f"{toml_key(names[-1])} = {toml_value(value)}"
        yield "\n".join([*held, "", f"[{header}]", added]) + "\n"


def _sections(held: Sequence[str], names: Sequence[str], index: int) -> Iterator[tuple[int, int]]:
    """Yield the range of lines of a table, between its header and the next one."""
    headers = [(at, match) for at, line in enumerate(held) if (match := _HEADER.fullmatch(line))]
    ends = [at for at, _ in headers[1:]] + [len(held)]
    if not names:
        yield 0, headers[0][0] if headers else len(held)
        return
    wanted, seen = ".".join(map(toml_key, names)), -1
    for (at, match), end in zip(headers, ends, strict=True):
        if re.sub(r"\s*\.\s*", ".", match[2]) != wanted:
            continue
        seen += 1
        if match[1] == "[" or seen == index:
            yield at + 1, end
