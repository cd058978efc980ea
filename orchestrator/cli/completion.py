"""Shell completion for queries: tables, columns, values, functions, formats."""

from __future__ import annotations

import re
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

import typer

_EQUAL = re.compile(r"(?P<before>.*?\b(?P<name>\w+)\s*(?:==|=|!=|<>)\s*)'(?P<begun>[^']*)")
_IN = re.compile(
    r"(?P<before>.*?\b(?P<name>\w+)\s+(?:NOT\s+)?IN\s*\((?:\s*'[^']*'\s*,)*\s*)'(?P<begun>[^']*)",
    re.IGNORECASE,
)
_WORD = re.compile(r"(?P<before>.*?)(?P<begun>\w*)", re.DOTALL)
_MOST_VALUES = 100


def tables(incomplete: str) -> list[str]:
    """Complete the name of a table."""
    from manyseed.orchestrator.computing.tables import ALL_TABLES

    return _beginning(ALL_TABLES, incomplete)


def kinds(ctx: typer.Context, incomplete: str) -> list[str]:
    """Complete the kind of a figure."""
    from manyseed.orchestrator.sweep import Sweep

    with suppress(Exception):
        return _beginning(Sweep(ctx.params["directory"]).plot.kinds["kind"], incomplete)
    return []


def columns(ctx: typer.Context, incomplete: str) -> list[str]:
    """Complete the last of several column names separated by commas."""
    before, comma, begun = incomplete.rpartition(",")
    return [f"{before}{comma}{name}" for name in _beginning(_columns(ctx), begun)]


def sort(ctx: typer.Context, incomplete: str) -> list[str]:
    """Complete a column to sort by."""
    minus = "-" if incomplete.startswith("-") else ""
    names = _beginning(_columns(ctx), incomplete.removeprefix("-"))
    return [f"{minus}{name}" for name in names]


def functions(incomplete: str) -> list[str]:
    """Complete the last of several functions separated by commas."""
    from manyseed.orchestrator.asking.grouping import FUNCTIONS

    before, comma, begun = incomplete.rpartition(",")
    names = _beginning((*FUNCTIONS, "q05", "q95"), begun)
    return [f"{before}{comma}{name}" for name in names]


def formats(incomplete: str) -> list[str]:
    """Complete the name of a format."""
    from manyseed.orchestrator.cli.formats import FORMATS

    return _beginning(FORMATS, incomplete)


def condition(ctx: typer.Context, incomplete: str) -> list[str]:
    """Complete the last word of a condition: a column, or after ``= '`` one of its values."""
    if match := _EQUAL.fullmatch(incomplete) or _IN.fullmatch(incomplete):
        values = _beginning(_values(ctx, match["name"]), match["begun"])
        return [f"{match['before']}'{value}'" for value in values]
    if incomplete.count("'") % 2:
        return []
    match = _WORD.fullmatch(incomplete)
    assert match is not None
    return [f"{match['before']}{name}" for name in _beginning(_columns(ctx), match["begun"])]


def _beginning(names: Iterable[str], begun: str) -> list[str]:
    return [name for name in names if name.startswith(begun)]


def _file(ctx: typer.Context) -> Path:
    """Return the file of the queried table, without checking its checksum."""
    from manyseed.orchestrator.paths import SweepPaths

    if "directories" not in ctx.params:  # a command that chooses runs
        return SweepPaths(Path(ctx.params["directory"])).table("runs")
    (directory, *_) = ctx.params["directories"]
    return SweepPaths(Path(directory)).table(ctx.params.get("table") or "cells")


def _columns(ctx: typer.Context) -> list[str]:
    import polars as pl

    from manyseed.orchestrator.asking.query import ADDRESSES

    with suppress(Exception):  # completion must not print errors
        names = list(pl.read_parquet_schema(_file(ctx)))
        return [*(name for name, run in ADDRESSES.items() if run in names), *names]
    return []


def _values(ctx: typer.Context, name: str) -> list[str]:
    import polars as pl

    with suppress(Exception):
        frame = pl.scan_parquet(_file(ctx), glob=False).select(pl.col(name).drop_nulls().unique())
        if frame.collect_schema()[name] == pl.String:
            values: list[str] = frame.collect()[name].sort().head(_MOST_VALUES).to_list()
            return [value.replace("'", "''") for value in values]
    return []
