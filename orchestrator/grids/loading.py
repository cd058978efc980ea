"""Read and check sweep files."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from manyseed.orchestrator.errors import UserError, command
from manyseed.orchestrator.grids.schema_errors import first_error, key_text, user_error
from manyseed.orchestrator.grids.settings import with_settings
from manyseed.orchestrator.grids.sweepfile import LARGEST, SweepFile

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
    path : Path
    settings : sequence of str
        Values that override its own (`settings.with_settings`).

    Raises
    ------
    UserError
        With the file, the first invalid key, its value and a remedy.
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
