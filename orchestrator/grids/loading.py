"""Read and check sweep files."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, get_args

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from manyseed.analysis import refused as analysis
from manyseed.jobs import checks
from manyseed.jobs.checks import similar
from manyseed.orchestrator.errors import UserError, command, nearest, refused, toml_value
from manyseed.orchestrator.grids.settings import with_settings
from manyseed.orchestrator.grids.sweepfile import LARGEST, SweepFile

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

    Parameters
    ----------
    settings : sequence of str
        Values that override its own (`settings.with_settings`).
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
