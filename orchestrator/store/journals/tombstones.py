"""Rows whose journal records no longer count.

`verify --repair` and `drop` set published rows back to missing. Before they do, a tombstone names
the rows and the journals that there were when they were judged: records of those rows in those
journals are void from then on. A new attempt's journal has a new name, so what it trains counts.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from annotated_types import Interval

from manyseed.orchestrator.disk.placing import unavailable
from manyseed.orchestrator.disk.records import read_record, write_json
from manyseed.orchestrator.paths import TOMBSTONE


@dataclass(frozen=True, slots=True)
class Tombstone:
    """Rows, by group number, and the names of the journals in which they are void."""

    rows: Mapping[int, frozenset[Annotated[int, Interval(ge=0, lt=2**32)]]]
    journals: frozenset[str]


def write_tombstone(
    folder: Path, rows: Mapping[int, Iterable[int]], journals: Iterable[str]
) -> Path:
    """Make void what some journals of a folder hold of these rows, by group number."""
    document = {
        "rows": {str(group): sorted(set(numbers)) for group, numbers in rows.items()},
        "journals": sorted(journals),
    }
    path = folder / f"{uuid.uuid4().hex}{TOMBSTONE}"
    write_json(path, document)
    return path


def read_tombstone(path: Path) -> Tombstone:
    """Read what `write_tombstone` wrote.

    Raises
    ------
    orchestrator.errors.DamagedFile
        Which rows are void is then not known, so nothing of the journals may be used.
    """
    with unavailable("read", path):
        return read_record(path, Tombstone)
