"""What paths of files mean: patterns such as ``{classifier}/seed-{run}.csv``."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from manyseed.jobs.checks import parsed, quoted
from manyseed.orchestrator.calls import warn
from manyseed.orchestrator.errors import UserError, require_one_of
from manyseed.orchestrator.importing.frames import TABLES
from manyseed.orchestrator.importing.mapping import NAMES
from manyseed.orchestrator.importing.predictions import ATTRIBUTES, TRUTHS

_PARTS = (*NAMES, *ATTRIBUTES)
_FIELD = re.compile(r"\{(\w*)\}|(\*+)")
_NUMBER = r"(?<![0-9])[0-9]+(?![0-9])"
_VALUES: Mapping[str, tuple[str, str]] = {  # the shortest and the longest that are possible
    **dict.fromkeys(("repeat", "run"), (_NUMBER, _NUMBER)),
    **dict.fromkeys(("train_fraction", "fit_seconds"), ("[0-9.][^/]*?", "[0-9.][^/]*")),
}


class Pattern:
    """A pattern of paths such as ``{classifier}/seed-{run}/test.csv``; it matches their last parts.

    ``{NAME}`` stands for a value, and ``*`` for anything, within one part of the path; with ``*``
    alone, files are runs in the order of their paths. A path that can be read in two ways is
    refused.
    """

    def __init__(self, text: str) -> None:
        self._text, at, seen = text, 0, set[str]()
        text = text if "{repeat}" in text else text.replace("{fold}", "{repeat}")
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
        if not seen and "*" not in text:
            remedy = f"such as {{classifier}}/seed-{{run}}.csv; parts: {', '.join(_PARTS)}"
            raise UserError("names no part of paths", key="--name", value=text, remedy=remedy)
        self.parts = seen
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

    def files(
        self, given: Sequence[Path], suffixes: Sequence[str], but: Collection[Path] = ()
    ) -> Iterator[Path]:
        """Yield files that match: those given, which must, and those at any depth of folders.

        Those of a folder come in the order of its parts' numbers. Files beside them that do not
        match are told, except `but` and true classes.
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
                if file.suffix in suffixes
                and not any(part.startswith(".") for part in file.relative_to(place).parts)
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
            depths = {(len(one.parts), one.suffix) for one in found}
            known = {one.resolve() for one in (*found, *but)}
            left = [
                one
                for one in held
                if (len(one.parts), one.suffix) in depths
                and one.resolve() not in known
                and one.stem not in TRUTHS
            ]
            if left:
                of, were = ("files", "were") if len(left) > 1 else ("file", "was")
                what = f"{len(left):,} {of} beside those that match --name {self._text}"
                warn(f"{place}: {what} {were} not read, such as {min(left).relative_to(place)}.")
            yield from sorted(found, key=_in_order)


def without_excluded(lists: Sequence[Sequence[Any]], excluded: Sequence[str]) -> list[list[Any]]:
    """Return lists of files without those whose paths end in a pattern; each must be one's."""
    paths = [one for files in lists for one in files if isinstance(one, Path)]
    for form in excluded:
        if not any(one.match(form) for one in paths):
            raise no_such(form)
    gone = {one for one in paths if any(map(one.match, excluded))}
    return [
        [one for one in files if not (isinstance(one, Path) and one in gone)] for files in lists
    ]


def no_such(form: str) -> UserError:
    """Return the error for a pattern of what is left out that is nothing's."""
    remedy = "files by the ends of their paths, vit/seed-6.npy; runs of a table, vit/6"
    return UserError("no file matches it, nor a run", key="--exclude", value=form, remedy=remedy)


def of_runs(files: Sequence[Any], excluded: Sequence[str]) -> list[str]:
    """Return the patterns that are no file's, if all are tables, whose runs they may be."""
    paths = [one for one in files if isinstance(one, Path)]
    if len(paths) < len(files) or not all(one.suffix in TABLES for one in paths):
        return []
    return [form for form in excluded if not any(one.match(form) for one in paths)]


def _in_order(file: Path) -> list[Any]:
    return [int(part) if part.isdecimal() else part for part in re.split(r"([0-9]+)", str(file))]
