"""Tombstones: rows whose journal records no longer count.

`verify --repair` and `drop` reset published rows to missing. Before they do, they write a tombstone
with the rows and the names of all current journals: records of those rows in those journals are
void from then on. Journals of new attempts have new names, so their records count.
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
    """Rows by group number, and the names of the journals in which they are void."""

    rows: Mapping[int, frozenset[Annotated[int, Interval(ge=0, lt=2**32)]]]
    journals: frozenset[str]


def write_tombstone(
    folder: Path, rows: Mapping[int, Iterable[int]], journals: Iterable[str]
) -> Path:
    """Void the records of rows, given by group number, in some journals of a folder."""
    document = {
        "rows": {str(group): sorted(set(numbers)) for group, numbers in rows.items()},
        "journals": sorted(journals),
    }
    path = folder / f"{uuid.uuid4().hex}{TOMBSTONE}"
    write_json(path, document)
    return path


def read_tombstone(path: Path) -> Tombstone:
    """Read a tombstone.

    Raises
    ------
    orchestrator.errors.DamagedFile
        The void rows are then unknown, so none of the journals may be used.
    """
    with unavailable("read", path):
        return read_record(path, Tombstone)
