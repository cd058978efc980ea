"""Rows whose journal records no longer count.

`verify --repair` and `drop` set published rows back to missing. Before they do, a tombstone names
the rows and every journal that exists: records of those rows in those journals are void from then
on. A new life's journal has a new name, so what it trains counts.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from orchestrator.store.files import place, unavailable
from orchestrator.store.journal import SUFFIX as JOURNAL_SUFFIX

SUFFIX = ".tombstone"


@dataclass(frozen=True, slots=True)
class Tombstone:
    """Rows, by group number, and the names of the journals in which they are void."""

    rows: Mapping[int, frozenset[int]]
    journals: frozenset[str]


def write_tombstone(folder: Path, rows: Mapping[int, Iterable[int]]) -> Path:
    """Make void what the journals of a folder hold of these rows, by group number."""
    with unavailable("list", folder):
        journals = sorted(file.name for file in folder.glob(f"*{JOURNAL_SUFFIX}"))
    document = {
        "rows": {str(group): sorted(set(numbers)) for group, numbers in rows.items()},
        "journals": journals,
    }
    path = folder / f"{uuid.uuid4().hex}{SUFFIX}"
    place(path, json.dumps(document).encode())
    return path


def read_tombstone(path: Path) -> Tombstone:
    """Read what `write_tombstone` wrote."""
    with unavailable("read", path):
        document = json.loads(path.read_bytes())
    rows = {int(group): frozenset(numbers) for group, numbers in document["rows"].items()}
    return Tombstone(rows, frozenset(document["journals"]))
