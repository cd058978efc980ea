"""What the command prints: tables and numbers for people, one JSON object for programs."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table

if TYPE_CHECKING:
    import polars as pl

console = Console(highlight=False, emoji=False)  # CELL:REPEAT:RUN is no emoji
errors = Console(stderr=True, highlight=False, emoji=False)


def print_json(value: dict[str, Any]) -> None:
    """Print one JSON object."""
    json.dump(value, sys.stdout, ensure_ascii=False, indent=2, allow_nan=False, default=str)
    sys.stdout.write("\n")


def print_table(
    title: str | None,
    columns: Sequence[str],
    rows: Iterable[Sequence[object]],
    *,
    total: Sequence[object] | None = None,
) -> None:
    """Print a table; numbers stand to the right, and a total below a line."""
    table = Table(
        title=title, title_justify="left", title_style="bold", box=None, padding=(0, 1, 0, 0)
    )
    listed = [list(row) for row in rows]
    for number, name in enumerate(columns):
        numeric = bool(listed) and all(_is_number(row[number]) for row in listed)
        heads = name.replace("_", "_\n") if len(name) > 9 else name  # breaks where words end
        table.add_column(
            heads,
            justify="right" if numeric else "left",
            min_width=max(map(len, heads.split("\n"))),
            header_style="dim",
            overflow="fold",
            no_wrap=numeric,  # a name may be cut in two, a number not
        )
    for row in listed:
        table.add_row(*map(_shown, row))
    if total is not None:
        table.add_section()
        table.add_row(*map(_shown, total), style="bold")
    console.print(table)


def print_frame(frame: pl.DataFrame, limit: int, more: str = "; see --limit and --output") -> None:
    """Print the first rows of a frame; `more` is said of those that are left out."""
    print_table(None, frame.columns, frame.head(limit).iter_rows())
    if len(frame) > limit:
        console.print(f"… {len(frame) - limit:,} more rows{more}", style="dim")


def size(n_bytes: float) -> str:
    """Show a number of bytes."""
    for unit in ("B", "kB", "MB", "GB"):
        if n_bytes < 1000:
            return f"{n_bytes:.3g} {unit}"
        n_bytes /= 1000
    return f"{n_bytes:.3g} TB"


def duration(seconds: float) -> str:
    """Show a time."""
    if seconds < 60:
        return f"{seconds:.2g} s" if seconds < 10 else f"{seconds:.0f} s"
    minutes, seconds = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {seconds:02d} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min"


def _is_number(value: object) -> bool:
    """Whether a value is a number, or the text of one: ``<0.01``, ``12 kB``."""
    return isinstance(value, int | float | None) or str(value)[:1] in "–<0123456789"


def _shown(value: object) -> str:
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return "–" if value != value else f"{value:.4f}" if abs(value) < 1000 else f"{value:.4g}"
    return str(value)
