"""What paths of files say of the predictions in them, and maps: options of imports in a file."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import polars as pl

from manyseed.jobs.checks import parsed, quoted
from manyseed.orchestrator.disk.placing import read_plain
from manyseed.orchestrator.errors import DamagedFile, UserError, nearest, require_one_of
from manyseed.orchestrator.importing.predictions import ATTRIBUTES

Values = tuple[tuple[str, Any], ...]
"""Columns that a file lacks, and their one value: what its path says."""

NAMES = ("dataset", "classifier")
_PARTS = (*NAMES, *ATTRIBUTES)
_FIELD = re.compile(r"\{(\w*)\}|(\*+)")
_NUMBER = r"(?<![0-9])[0-9]+(?![0-9])"
_VALUES: Mapping[str, tuple[str, str]] = {  # the shortest and the longest that are possible
    **dict.fromkeys(("repeat", "run"), (_NUMBER, _NUMBER)),
    **dict.fromkeys(("train_fraction", "fit_seconds"), ("[0-9.][^/]*?", "[0-9.][^/]*")),
}


class Pattern:
    """A pattern of paths such as ``{classifier}/seed-{run}/test.csv``; it matches their last parts.

    ``{NAME}`` stands for a value, and ``*`` for anything, within one part of the path. A path that
    can be read in two ways is refused.
    """

    def __init__(self, text: str) -> None:
        self._text, at, seen = text, 0, set[str]()
        taken = ["", ""]

        def add(short: str, long: str) -> None:
            taken[0] += short
            taken[1] += long

        for field in _FIELD.finditer(text):
            add(*[re.escape(text[at : field.start()])] * 2)
            at = field.end()
            if field[2]:
                add("[^/]*?", "[^/]*")
                continue
            name = field[1]
            require_one_of(name, _PARTS, "unknown part", key="--name")
            if name in seen:
                raise UserError(f"{{{name}}} stands in it twice", key="--name", value=text)
            seen.add(name)
            add(*(f"(?P<{name}>{kind})" for kind in _VALUES.get(name, ("[^/]+?", "[^/]+"))))
        if not seen:
            remedy = f"such as {{classifier}}/seed-{{run}}.csv; parts: {', '.join(_PARTS)}"
            raise UserError("names no part of paths", key="--name", value=text, remedy=remedy)
        self._readings = [
            re.compile(f"(?:.*/)?{one}{re.escape(text[at:])}", re.DOTALL) for one in taken
        ]

    def read(self, file: Path) -> dict[str, Any] | None:
        """Return the values in a path, numbers as such; None if it does not match."""
        short, long = (one.fullmatch(file.absolute().as_posix()) for one in self._readings)
        if short is None or long is None:
            return None
        values: dict[str, Any] = short.groupdict()
        for name, value in values.items():
            if long[name] != value:
                reason = f"{name} may be {quoted(value)} or {quoted(long[name])}"
                remedy = "put it between parts of the path, or write a pattern for each classifier"
                raise UserError(
                    f"can be read in two ways by --name {self._text}: {reason}",
                    file=file,
                    remedy=remedy,
                )
        for name in values.keys() & {*ATTRIBUTES}:
            kind = ATTRIBUTES[name].kind
            try:
                values[name] = parsed(kind, values[name]) if kind in (int, float) else values[name]
            except ValueError:
                raise UserError("is no number", file=file, key=name, value=values[name]) from None
        return values

    def files(self, given: Sequence[Path], suffixes: Sequence[str]) -> Iterator[Path]:
        """Yield files that match: those given, which must, and those at any depth of folders.

        Those of a folder come in the order of its parts' numbers.
        """
        for place in given:
            if not place.is_dir():
                if self.read(place) is None:
                    raise UserError(f"does not match --name {self._text}", file=place)
                yield place
                continue
            every = [
                file
                for file in place.rglob("*")
                if file.suffix in suffixes and not _is_hidden(file, place)
            ]
            for file in every:
                if file.is_symlink() and not file.exists() and self.read(file) is not None:
                    raise UserError("is a link to a file that is not there", file=file)
            held = [file for file in every if file.is_file()]
            found = [file for file in held if self.read(file) is not None]
            if not found:
                example = f", such as {min(held)}" if held else ""
                remedy = f"it holds {len(held):,} files of predictions{example}"
                what = f"no file in it matches --name {self._text}"
                raise UserError(what, file=place, remedy=remedy)
            yield from sorted(found, key=_in_order)


def _is_hidden(file: Path, folder: Path) -> bool:
    return any(part.startswith(".") for part in file.relative_to(folder).parts)


def _in_order(file: Path) -> list[Any]:
    return [int(part) if part.isdecimal() else part for part in re.split(r"([0-9]+)", str(file))]


def with_values(frame: pl.DataFrame, values: Values, file: Path) -> pl.DataFrame:
    """Return a table with what its file's path says, as columns."""
    for name, value in values:
        if name in frame.columns:
            raise UserError("is a column, and a part of the path", file=file, key=name)
        frame = frame.with_columns(pl.lit(value).alias(name))
    return frame


OPTIONS: Mapping[str, type] = {
    **dict.fromkeys(("name", "dataset", "classifier", "truth", "runs", "probability"), str),
    "probabilities": bool,
    **dict.fromkeys(("columns", "key"), dict),
}
"""Keys of a map, which are options of imports, with their types."""


def read_map(file: Path) -> dict[str, Any]:
    """Read a map; its files are relative to it."""
    try:
        table = tomllib.loads(read_plain(file).decode("utf-8-sig"))
    except OSError as error:
        reason = f"cannot be read: {error.strerror or error}"
        raise UserError(reason, file=file, key="--map") from None
    except DamagedFile as error:
        raise UserError(error.reason, file=file, key="--map") from None
    except (ValueError, RecursionError) as error:
        raise UserError(f"is not a TOML file: {error}", file=file) from None
    for key, value in table.items():
        if key not in OPTIONS:
            raise UserError("unknown key", file=file, key=key, remedy=nearest(key, [*OPTIONS]))
        is_names = not isinstance(value, dict) or all(isinstance(v, str) for v in value.values())
        if type(value) is not OPTIONS[key] or value == "" or not is_names:
            kinds = {
                str: "text in quotes, and not empty",
                bool: "true or false",
                dict: "a table of texts",
            }
            raise UserError(f"must be {kinds[OPTIONS[key]]}", file=file, key=key, value=value)
        if key in ("truth", "runs"):
            table[key] = str(file.parent / str(value))
    return table


@contextmanager
def options_of(file: Path | None, options: Mapping[str, Any]) -> Iterator[None]:
    """Name a map and its key, where an option is refused or mentioned that stands in the map."""
    try:
        yield
    except UserError as error:
        if file is None or not options:
            raise
        option = re.compile(rf"--({'|'.join(options)})(?![\w-])")
        message, remedy = (
            option.sub(lambda found: f"{found[1]} of {file}", text or "")
            for text in (error.message, error.remedy)
        )
        place, key = error.file, error.key
        if found := option.fullmatch(key or ""):
            message += "" if place is None else f" ({place})"
            place, key = file, found[1]
        for own, value in options.items():
            if isinstance(value, dict) and key in value.values():
                message += f", as {own} of {file} says"
        raise UserError(
            message, file=place, key=key, value=error.value, remedy=remedy or None
        ) from None
