"""Where to find the values of rows to publish: in journals or in other rows."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from manyseed.orchestrator.errors import StoreError
from manyseed.orchestrator.store.journals.index import JournalIndex
from manyseed.orchestrator.store.journals.payloads import Place
from manyseed.orchestrator.store.journals.records import LENGTHS, Header
from manyseed.orchestrator.store.layout.arrays import COPY, DONE, NO_RECIPE
from manyseed.orchestrator.store.layout.groups import Group
from manyseed.orchestrator.store.reading.reader import read_rows
from manyseed.orchestrator.store.zarrfiles.encoding import Array

Origin = Place | int
"""A journal record, or a published row of the group."""


@dataclass(frozen=True, slots=True)
class RowSource:
    """Where a row's values are.

    Attributes
    ----------
    status : int
        `DONE` or `COPY`.
    origin : Place or int
        The record of the row, or the origin of the row that it copies.
    recipe : int
        A copy's own recipe; `NO_RECIPE` if the origin's applies.
    """

    status: int
    origin: Origin
    recipe: int = NO_RECIPE


_NUMBERS = {"crc": "uint32", "clipped": "uint32", "recipe": "uint16", "fit_seconds": "float32"}


class DamagedRecord(Exception):
    """A record to be published is damaged; the index no longer lists it."""


class RowSources:
    """Finds and reads a group's rows in journals and published shards."""

    def __init__(self, group: Group, journals: JournalIndex) -> None:
        self._group, self._journals = group, journals
        self._sizes = group.spec.part_bytes
        self._arrays = [array for array in group.spec.arrays if array.role == "prediction"]

    def find(
        self, wanted: Iterable[int], span: tuple[int, int], unusable: set[int]
    ) -> tuple[dict[int, RowSource], list[int]]:
        """Return the sources of rows, and the copies that have to wait for their originals.

        Payloads are not checked before they are read.

        Parameters
        ----------
        wanted : iterable of int
            The rows.
        span : tuple of int
            A range of rows, start and stop, that contains them.
        unusable : set of int
            Published rows that must not be copied from.
        """
        sources: dict[int, RowSource] = {}
        copies: dict[int, Header] = {}
        records = self._journals.records(self._group.spec.number, *span)
        for row in wanted:
            best = self._best(records.get(row, []))
            if isinstance(best, Header):
                copies[row] = best
            elif best is not None:
                sources[row] = RowSource(DONE, best)
        waiting = []
        originals = self._originals({header.source for header in copies.values()}, unusable)
        for row, header in copies.items():
            original = originals[header.source]
            if original is None:
                waiting.append(row)
            else:
                sources[row] = RowSource(COPY, original, header.recipe)
        return sources, waiting

    def _originals(self, rows: set[int], unusable: set[int]) -> dict[int, Origin | None]:
        """Return the origins of rows that others copy; None for those not finished."""
        if not rows:
            return {}
        originals: dict[int, Origin | None] = {}
        records = self._journals.records(self._group.spec.number, min(rows), max(rows) + 1)
        for row in rows:
            best = self._best(records.get(row, []))
            if isinstance(best, Place):
                originals[row] = best
            elif row in unusable:
                originals[row] = None
            else:
                finished = self._published("status", row) in (DONE, COPY)
                originals[row] = row if finished else None
        return originals

    def _best(self, places: list[Place]) -> Place | Header | None:
        """Return the first good record of a row: its place, or its header if it is a copy."""
        for place in places:
            if not place.is_copy:
                return place
            if (header := self._journals.header(place)) is not None:
                return header
        return None

    def fill(
        self, origins: Sequence[Origin], at: Sequence[int], parts: Sequence[Array]
    ) -> dict[str, Array]:
        """Read predictions into rows of arrays; return the numbers stored with them.

        Parameters
        ----------
        origins : sequence of Place or int
            What to read.
        at : sequence of int
            The row of `parts` that each origin fills.
        parts : sequence of 2-D arrays
            One per prediction array, little-endian.

        Returns
        -------
        dict of arrays (len(origins),)
            ``crc``, ``clipped``, ``recipe`` and ``fit_seconds``, which is NaN for published rows.

        Raises
        ------
        DamagedRecord
            If a record is damaged; all others have been checked.
        StoreError
            If a record does not have the group's shape.
        """
        numbers: dict[str, Array] = {
            name: np.zeros(len(origins), dtype=dtype) for name, dtype in _NUMBERS.items()
        }
        places = [origin for origin in origins if isinstance(origin, Place)]
        journaled = [n for n, origin in enumerate(origins) if isinstance(origin, Place)]
        fields, good = self._journals.fill(places, [at[n] for n in journaled], parts)
        sizes = np.stack([fields[name] for name in LENGTHS], axis=1)
        if (misshapen := good & (sizes != self._sizes).any(axis=1)).any():
            n = int(misshapen.argmax())
            raise StoreError(
                f"{places[n].journal} holds a row of {tuple(sizes[n].tolist())} bytes for "
                f"{self._group.spec.path}, which has {self._sizes}: was it written for another "
                "sweep?"
            )
        if not good.all():
            raise DamagedRecord
        for name, values in numbers.items():
            values[journaled] = fields[name]
        for n, origin in enumerate(origins):
            if not isinstance(origin, Place):
                self._copy(origin, n, at[n], parts, numbers)
        return numbers

    def _copy(
        self, row: int, n: int, at: int, parts: Sequence[Array], numbers: dict[str, Array]
    ) -> None:
        """Read a published row."""
        for array, values in zip(self._arrays, parts, strict=True):
            values[at] = self._published(array.name, row).reshape(-1)
        for name in numbers:
            if name == "fit_seconds":
                numbers[name][n] = math.nan
            elif name != "clipped" or self._group.spec.has_clipped:
                numbers[name][n] = self._published(name, row)

    def _published(self, name: str, row: int) -> Any:
        return read_rows(self._group, (name,), [row])[name][0]
