"""Result tables as records: ``tables.toml`` says what each shows, means, and how to get it."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

Meaning = tuple[str, str]
"""A unit, or an empty string, and a sentence."""


@dataclass(frozen=True, slots=True)
class TableRecord:
    """One result table, or (everywhere, added, grouped) columns that several have.

    Attributes
    ----------
    columns : mapping of name to `Meaning`
        Those that are no metric's (`schema.describe`).
    shown : sequence of str
        Columns that a query shows by default, beside those that describe a cell.
    where_kept : sequence of str
        Further ones that it shows if they have values: the sweep file must ask for them.
    beside : sequence of str
        Columns in which rows of a cell differ, beside seeds.
    how : str
        How to get the table, with DIR for the sweep; empty if `analyze` always writes it.
    not_averaged : sequence of str
        Why its rows cannot be grouped, and what to do instead; empty if they can.
    """

    columns: Mapping[str, Meaning] = field(default_factory=dict)
    shown: tuple[str, ...] = ()
    where_kept: tuple[str, ...] = ()
    beside: tuple[str, ...] = ()
    how: str = ""
    not_averaged: tuple[str, ...] = ()


@cache
def records() -> Mapping[str, TableRecord]:
    """Return all records by name."""
    read = tomllib.loads(Path(__file__).with_name("tables.toml").read_text("utf-8"))
    return {name: _record(**table) for name, table in read.items()}


def _record(columns: Mapping[str, Sequence[str]] = {}, **facts: Any) -> TableRecord:
    meanings = {name: (unit, meaning) for name, (unit, meaning) in columns.items()}
    values: dict[str, Any] = {
        name: fact if name == "how" else tuple(fact) for name, fact in facts.items()
    }
    return TableRecord(meanings, **values)
