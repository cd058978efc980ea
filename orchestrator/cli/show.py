"""``manyseed show``."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from manyseed.orchestrator.cli.common import Directory, Json
from manyseed.orchestrator.cli.output import console, print_json

Address = Annotated[
    str,
    typer.Argument(
        metavar="RUN",
        help="Cell, repeat and run, counted from 0: 12:0:3. The cell is given by its number or the "
        "first digits of its identity.",
        show_default=False,
    ),
]


def show(directory: Directory, run: Address, as_json: Json = False) -> None:
    """Show everything that defines one run, and how it was made.

    Examples:

        manyseed show sweep 12:0:3
    """
    from manyseed.orchestrator.sweep import Sweep

    value = Sweep(directory).show(run)
    if as_json:
        print_json(value)
    else:
        print_values(value)


def print_values(value: Mapping[str, object]) -> None:
    """Print a dict of values and dicts, one line per value."""
    for name, part in value.items():
        if isinstance(part, dict) and part:
            console.print(f"{name}:")
            for key, inner in part.items():
                _line(f"  {key:<20} ", inner)
        else:
            _line(f"{name:<22} ", part)


def _line(key: str, value: Any) -> None:
    """Print a key and its value: strings unwrapped, JSON wrapped beside the key on a terminal."""
    if isinstance(value, str) or not console.is_terminal:
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        console.print(f"{key}{text}", soft_wrap=True)
        return
    table = Table.grid()
    table.add_column(width=len(key))
    table.add_column(overflow="fold")
    table.add_row(Text(key), Text(json.dumps(value, ensure_ascii=False)))
    console.print(table)
