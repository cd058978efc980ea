"""Read and check sweep files, with what ``--set key=value`` changes in their text.

A sweep keeps the text that it was planned from, so it must contain the settings. A line is replaced
or added; if that does not give the right content, the file is written anew, without comments.
"""

from __future__ import annotations

import copy
import json
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, get_args

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from manyseed.analysis import refused as analysis
from manyseed.analysis.counts import counted
from manyseed.jobs import checks
from manyseed.jobs.checks import similar
from manyseed.orchestrator.errors import UserError, command, nearest, refused, toml_key, toml_value
from manyseed.orchestrator.grids.objects import lines
from manyseed.orchestrator.grids.sweepfile import LARGEST, SweepFile

OPTION = "--set"

Key = tuple[str | int, ...]

_PART = re.compile(r'(?:^|\.)(?:([A-Za-z0-9_-]+)|"((?:[^"\\]|\\.)*)")|\[(\d+)\]')
_NUMBERED = re.compile(r"^grid\.(\d+)(?=\.|$)")
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
    parts = [*_PART.finditer(name)]
    if not sign or not parts or "".join(part[0] for part in parts) != name:
        raise UserError(
            "a setting must be key=value",
            key=OPTION,
            value=setting,
            remedy="such as --set runs=20, --set classifier.mlp.epochs=5, or "
            "--set 'grid[0].train_fraction=[0.5, 1.0]'",
        )
    key = tuple(
        int(part[3]) if part[3] is not None else part[1] or json.loads(f'"{part[2]}"')
        for part in parts
    )
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


_TABLES_OF_USERS = ("dataset", "classifier", "ensembling")
"""Tables whose keys are names chosen by the user."""

_WORDS = {
    "dict_type": "must be a table",
    "list_type": "must be a list",
    "literal_error": "not a valid value",
    "model_type": "must be a table",
    "string_pattern_mismatch": "a name consists of letters, digits, '.', '_' and '-' and begins "
    "with a letter or digit",
    "string_too_long": "must have at most {max_length} letters",
}
"""Messages for some types of pydantic's errors; other types keep pydantic's own."""


def first_error(details: Sequence[ErrorDetails], model: type[BaseModel]) -> ErrorDetails:
    """Return the error to report: the first, or the misspelt key if that is a missing one."""
    first = details[0]
    if first["type"] == "missing":
        *table, missing = first["loc"]
        options = _model_at(model, table).model_fields
        for other in details:
            *of, key = other["loc"]
            is_unknown = other["type"] == "extra_forbidden" and of == table
            if is_unknown and missing in similar(str(key), options):
                return other
    return first


def user_error(detail: ErrorDetails, model: type[BaseModel], path: Path) -> UserError:
    """Return the user error for an error that pydantic found."""
    location = tuple(part for part in detail["loc"] if part != "[key]")
    key = key_text(location)
    kind, value, context = detail["type"], detail["input"], detail.get("ctx", {})
    if kind == "extra_forbidden":
        options = _model_at(model, location[:-1]).model_fields
        return UserError(
            "unknown key", file=path, key=key, remedy=nearest(str(location[-1]), options)
        )
    if kind == "missing":
        return UserError("this key is missing", file=path, key=key, remedy=_example(str(key)))
    if isinstance(fact := context.get("error"), checks.Refused | analysis.Refused):
        return refused(fact, file=path, key=key, value=value)
    message, remedy = _WORDS.get(kind, detail["msg"]).format(**context), None
    if kind == "literal_error":
        annotation = _model_at(model, location[:-1]).model_fields[str(location[-1])].annotation
        remedy = nearest(str(value), _literals(annotation))
    elif kind == "string_pattern_mismatch" and location[0] == "analysis":
        message = 'a metric of your own is named "module:function"'
    elif kind == "list_type":
        remedy = _as_list(key, value)
    return UserError(message, file=path, key=key, value=value, remedy=remedy)


def key_text(location: Sequence[int | str]) -> str:
    """Return a location as messages show it: ``grid[0].dataset``."""
    text = ""
    for part in location:
        if isinstance(part, int):
            text += f"[{part}]"
        elif re.fullmatch(r"[A-Za-z0-9_-]+", part):
            text += f".{part}"
        else:
            text += f".{toml_value(part)}"
    return text.removeprefix(".")


def _example(key: str) -> str:
    if key == "grid":
        return "add a table [[grid]] with the lists dataset and classifier"
    return f"add {key.rpartition('.')[2]} = …"


def _as_list(key: str, value: Any) -> str:
    if isinstance(value, dict):
        return f"write [[{key}]], with two brackets" if key == "grid" else "write a list"
    if key.endswith("]") and ".zip[" in key:
        return f"zip is a list of lists: zip = [[{toml_value(value)}, …]]"
    return f"write a list: {toml_value([value])}"


def _model_at(model: type[BaseModel], location: Sequence[int | str]) -> type[BaseModel]:
    """Return the model of the table at a location of the file."""
    for number, part in enumerate(location):
        if isinstance(part, int) or (number == 1 and location[0] in _TABLES_OF_USERS):
            continue
        (model,) = _models(model.model_fields[part].annotation)
    return model


def _literals(annotation: Any) -> list[str]:
    """Return the values of ``Literal[…] | None``."""
    inner = get_args(annotation)
    return [x for each in inner for x in ([each] if isinstance(each, str) else _literals(each))]


def _models(annotation: Any) -> list[type[BaseModel]]:
    """Return the model in ``list[M]``, ``dict[str, M]`` or ``M | None``."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [model for inner in get_args(annotation) for model in _models(inner)]


_DEEPEST = 50


def _whole_numbers(
    value: Any, location: tuple[int | str, ...] = ()
) -> Iterator[tuple[tuple[int | str, ...], int]]:
    """Yield every integer of a file with its location."""
    if isinstance(value, dict | list):
        entries = value.items() if isinstance(value, dict) else enumerate(value)
        for key, inner in entries:
            yield from _whole_numbers(inner, (*location, key))
    elif isinstance(value, int):
        yield location, value


def _is_deep(value: Any, most: int) -> bool:
    """Return whether tables and lists are nested more than `most` times."""
    inner = value.values() if isinstance(value, dict) else value
    return isinstance(value, dict | list) and (
        not most or any(_is_deep(v, most - 1) for v in inner)
    )


def _given_twice(text: str, message: str) -> str | None:
    """Return the line of a key or table that is given twice; None for other mistakes."""
    found = re.match(r"Cannot (?:overwrite|declare|mutate).*\(at line (\d+),", message)
    if found is None:
        return None
    number = int(found[1])
    line = text.split("\n")[number - 1].strip()
    return f"line {number} gives again what is given before it: {line}"


def read_sweep_file(path: Path, settings: Sequence[str] = ()) -> SweepFile:
    """Read and check a sweep file.

    `settings`: values that override its own (`settings.with_settings`).
    """
    return load_sweep_file(path, settings)[0]


def load_sweep_file(path: Path, settings: Sequence[str] = ()) -> tuple[SweepFile, bytes]:
    """Return a checked sweep file, and its content on disk with settings applied."""
    try:
        content = path.read_bytes()
    except OSError as error:
        remedy = None
        if path.is_dir():
            remedy = f"give the file; to continue a planned sweep: {command('resume', path)}"
        raise UserError(
            f"cannot read the sweep file: {error.strerror}", file=path, remedy=remedy
        ) from None
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise UserError("the sweep file is not UTF-8 text", file=path) from None
    if settings:
        text = with_settings(text, settings)
        content = text.encode()
    return parse_sweep_file(text, path), content


def parse_sweep_file(text: str, path: Path) -> SweepFile:
    """Parse and check the text of a sweep file; `path` is only for messages."""
    try:
        table = tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # also for integers with thousands of digits
        remedy = _given_twice(text, str(error))
        raise UserError(f"not valid TOML: {error}", file=path, remedy=remedy) from None
    if _is_deep(table, _DEEPEST):  # dotted keys can be, without brackets
        raise UserError("is nested too deeply", file=path)
    for location, number in _whole_numbers(table):
        if not -LARGEST <= number <= LARGEST:
            raise UserError(
                "a whole number must lie between -2^63 and 2^63",
                file=path,
                key=key_text(location),
                value=number,
            )
    try:
        return SweepFile.model_validate(table)
    except ValidationError as error:
        raise user_error(first_error(error.errors(), SweepFile), SweepFile, path) from None
