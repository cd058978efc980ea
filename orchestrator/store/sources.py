"""Where the values of rows are that are about to be published: in journals, or in other rows."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from orchestrator.store import encoding
from orchestrator.store.arrays import COPY, DONE, NO_RECIPE
from orchestrator.store.encoding import Array
from orchestrator.store.errors import StoreError
from orchestrator.store.groups import Group
from orchestrator.store.index import JournalIndex, Place
from orchestrator.store.records import Header, Record

Origin = Place | int
"""A journal's record, or a published row of the group."""


@dataclass(frozen=True, slots=True)
class Source:
    """Where a row's values are.

    Attributes
    ----------
    status : int
        `DONE` or `COPY`.
    origin : Place or int
        What it is, or equals.
    recipe : int
        Of a copy that has its own; else the origin's counts.
    """

    status: int
    origin: Origin
    recipe: int = NO_RECIPE


@dataclass(frozen=True, slots=True)
class Values:
    """What is at an origin: its predictions, flat, and the numbers beside them."""

    parts: list[Array]
    crc: int
    clipped: int
    recipe: int
    fit_seconds: float


class DamagedRecord(Exception):
    """A record that was to be published is damaged; the index no longer counts it."""


class Sources:
    """What journals and published rows hold of a group."""

    def __init__(self, group: Group, journals: JournalIndex) -> None:
        self._group, self._journals = group, journals
        self._sizes = group.spec.part_bytes
        self._arrays = [array for array in group.spec.arrays if array.role == "prediction"]
        self._dtypes = [np.dtype(array.dtype).newbyteorder("<") for array in self._arrays]

    def find(
        self, wanted: Iterable[int], span: tuple[int, int], unusable: set[int]
    ) -> tuple[dict[int, Source], list[int]]:
        """Return where the values of rows are, and the copies that have to wait.

        Payloads are looked at when they are read.

        Parameters
        ----------
        wanted : iterable of int
            The rows.
        span : tuple of int
            The first of the rows at most, and one after the last at least.
        unusable : set of int
            Published rows that nothing can be copied from.
        """
        sources: dict[int, Source] = {}
        copies: dict[int, Header] = {}
        found = self._journals.records(self._group.spec.number, *span)
        for row in wanted:
            best = self._best(found.get(row, []))
            if isinstance(best, Header):
                copies[row] = best
            elif best is not None:
                sources[row] = Source(DONE, best)
        waiting = []
        originals = self._originals({header.source for header in copies.values()}, unusable)
        for row, header in copies.items():
            original = originals[header.source]
            if original is None:
                waiting.append(row)
            else:
                sources[row] = Source(COPY, original, header.recipe)
        return sources, waiting

    def _originals(self, rows: set[int], unusable: set[int]) -> dict[int, Origin | None]:
        """Return where the rows that copies equal are."""
        if not rows:
            return {}
        originals: dict[int, Origin | None] = {}
        found = self._journals.records(self._group.spec.number, min(rows), max(rows) + 1)
        for row in rows:
            best = self._best(found.get(row, []))
            if isinstance(best, Place):
                originals[row] = best
            elif row in unusable:
                originals[row] = None
            else:
                finished = self._published("status", row) in (DONE, COPY)
                originals[row] = row if finished else None
        return originals

    def _best(self, places: list[Place]) -> Place | Header | None:
        """Return the first good record of a row: where it is, or of a copy what it says."""
        for place in places:
            if not place.is_copy:
                return place
            for _, record in self._journals.read_all([place]):
                if record is not None:
                    return record.header
        return None

    def read(self, origins: Iterable[Origin]) -> Iterator[tuple[Origin, Values]]:
        """Yield what is at each origin, in the order of the journals.

        Raises
        ------
        DamagedRecord
            If a record turned out to be damaged; all others were looked at.
        StoreError
            If a record is not of the group's shape.
        """
        places = [origin for origin in origins if isinstance(origin, Place)]
        broken = False
        for place, record in self._journals.read_all(places, sum(self._sizes)):
            if record is None:
                broken = True
            elif record.values.sizes != self._sizes:
                raise StoreError(
                    f"{place.journal} holds a row of {record.values.sizes} bytes for "
                    f"{self._group.spec.path}, which has {self._sizes}: was it written for "
                    "another sweep?"
                )
            else:
                yield place, self._recorded(record)
        if broken:
            raise DamagedRecord
        for row in origins:
            if isinstance(row, int):
                yield row, self._copied(row)

    def _recorded(self, record: Record) -> Values:
        header = record.header
        parts = [
            np.frombuffer(part, dtype=dtype)
            for part, dtype in zip(record.values.parts, self._dtypes, strict=True)
        ]
        return Values(parts, header.crc, header.clipped, header.recipe, header.fit_seconds)

    def _copied(self, row: int) -> Values:
        parts = [self._published(array.name, row).reshape(-1) for array in self._arrays]
        clipped = int(self._published("clipped", row)) if self._group.spec.has_clipped else 0
        crc, recipe = int(self._published("crc", row)), int(self._published("recipe", row))
        return Values(parts, crc, clipped, recipe, math.nan)

    def _published(self, name: str, row: int) -> Any:
        folder = self._group.folder / name
        read = functools.partial(encoding.read, folder, row, row + 1)
        return encoding.patiently(read, folder)[0]
