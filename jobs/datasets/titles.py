"""Lines above the names of a table's columns, as spreadsheets have them: titles, dates, blanks."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence

from manyseed.jobs.checks import quoted
from manyseed.jobs.datasets.columns import is_number

_MOST = 10  # lines above the names
_SEEN = 40  # lines in which names, and rows below them, are looked for
_LONGEST = 60  # letters of a title
_FEWEST = 3  # columns; with fewer, what looks like a title may be a name


def above_names(text: str, separators: Sequence[str]) -> tuple[str, int, int] | None:
    """Say what stands above a table's names, and return their line and how many there are.

    `text`: the table's first lines at least. None if there is no title. What stands above has at
    most half as many filled cells as the names, which are no numbers, and all different; each row
    below has as many cells as there are names.
    """
    found = (_names_in(text, each) for each in separators)
    n_columns, line, first = max(filter(None, found), default=(0, 0, 0))
    if not n_columns:
        return None
    title = text.splitlines()[first - 1].strip(f'{"".join(separators)}" ')
    shown = title if len(title) <= _LONGEST else f"{title[:_LONGEST]}…"
    said = f"line {first} looks like a title, {quoted(shown)}, above the names of columns"
    return said, line, n_columns


def _names_in(text: str, separator: str) -> tuple[int, int, int] | None:
    """Return how many names of columns there are, their line, and that of a title above them."""
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=separator)
    rows: list[tuple[int, list[str]]] = []
    starts = 1
    try:
        for row in reader:
            if any(cells := [cell.strip() for cell in row]) and not row[0].startswith("sep="):
                rows.append((starts, cells))
            starts = reader.line_num + 1
            if starts > _SEEN:
                break
    except csv.Error:
        return None
    for at, (line, names) in enumerate(rows[: _MOST + 1]):
        n = len([*filter(None, names)])
        above = [len([*filter(None, row)]) for _, row in rows[:at]]
        if n < _FEWEST or 2 * max([1, *above]) > n:
            continue
        below = [row for _, row in rows[at + 1 :] if len([*filter(None, row)]) > 1]
        is_named = at > 0 and len({*names}) == len(names) and not any(map(is_number, names))
        are_rows = all(
            len(row) == len(names)
            and not any(name == cell != "" for name, cell in zip(names, row, strict=True))
            for row in below
        )
        return (n, line, rows[0][0]) if is_named and are_rows and len(below) > 1 else None
    return None
