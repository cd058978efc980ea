"""CSV files that end within their last line, as a copy leaves them that was broken off."""

from __future__ import annotations

import csv
import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from manyseed.jobs.checks import quoted
from manyseed.jobs.datasets.columns import is_number
from manyseed.orchestrator.errors import Spoilt, UserError, shell_word
from manyseed.orchestrator.importing.frames import read_frame

_FEWEST = 10  # rows that have a form of their own
_MARKS = (b"\xff\xfe", b"\xfe\xff")  # of UTF-16


def require_ended(files: Sequence[Path]) -> None:
    """Refuse CSV files without a last line break whose last field is unlike those above it.

    If no file has one, what wrote them leaves it out, and only a broken line is refused.
    """
    tables = [file for file in files if file.suffix == ".csv" and file.is_file()]
    open_ended = [file for file in tables if not _is_ended(file)]
    are_all = len(open_ended) == len(tables) > 1
    cut = [(file, why) for file in open_ended if (why := _why_cut(file, tables, are_all=are_all))]
    if not cut:
        return
    (file, why), n = cut[0], len(cut) - 1
    more = f"; so are {n:,} more files" if n > 1 else f"; so is {cut[1][0].name}" if n else ""
    raise Spoilt(
        f"is cut off: it has no last line break, and {why}{more}",
        file=file,
        remedy=f"copy it again; if it is whole, end its last line: echo >> {shell_word(str(file))}",
        files=[one for one, _ in cut],
    )


def _is_ended(file: Path) -> bool:
    """Return whether a file ends in a line break, or is read in another way."""
    with file.open("rb") as opened:
        start = opened.read(2)
        if len(start) < len(_MARKS[0]) or start in _MARKS:
            return True
        opened.seek(-1, os.SEEK_END)
        return opened.read(1) in b"\r\n\0"


def _why_cut(file: Path, tables: Sequence[Path], *, are_all: bool) -> str:
    """Return in what the last line of a file is unlike the others; "" if it is like them."""
    try:
        text = file.read_text("utf-8-sig")
    except (UnicodeError, OSError):
        return ""  # its reader tells
    lines = text.splitlines()
    with suppress(csv.Error):
        separator = next((one for one in ",;\t" if one in lines[0]), ",")
        rows = [row for row in csv.reader(lines, delimiter=separator) if row]
        last = rows.pop()
        wide = {len(row) for row in rows}
        if len(rows) > 1 and len(wide) == 1 and len(last) < min(wide):
            return f"its last line has {len(last):,} of {min(wide):,} fields"
        if len(wide) > 1 or are_all:
            return ""
        return _unlike(last, rows[1:], rows[0]) or _shorter(file, tables)
    return ""


def _unlike(last: Sequence[str], rows: Sequence[Sequence[str]], names: Sequence[str]) -> str:
    """Return in what the last field is unlike those above it."""
    value, above = last[-1], [row[-1] for row in rows]
    if len(above) < 2 or value in above:
        return ""
    shown = f"its last field, {quoted(value)}, "
    if all(map(is_number, above)):
        is_short = len(above) >= _FEWEST and len(value) < min(map(len, above))
        if not is_number(value) or is_short:
            return f"{shown}is no value as others of {names[-1]} are"
        return ""
    held = {one for row in rows for one in row} | {*last[:-1]}
    longer = sorted(one for one in held if one.startswith(value) and one != value)
    if longer and value not in held:
        return f"{shown}is the start of {quoted(longer[0])}"
    return ""


def _shorter(file: Path, tables: Sequence[Path]) -> str:
    """Return how many rows a file has if two or more others have equally many, and more."""
    with suppress(UserError):
        own, *others = (read_frame(one, ()) for one in [file, *(of for of in tables if of != file)])
        heights = {one.height for one in others}
        are_alike = all(one.columns == own.columns for one in others)
        if are_alike and len(others) > 1 and len(heights) == 1 and own.height < min(heights):
            return f"it has {own.height:,} rows, but others {min(heights):,}"
    return ""
