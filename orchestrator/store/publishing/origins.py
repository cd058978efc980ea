"""Where the values of rows are that are about to be published: in journals, or in other rows."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from manyseed.orchestrator.errors import StoreError
from manyseed.orchestrator.store.journals.index import JournalIndex
from manyseed.orchestrator.store.journals.payloads import Place
from manyseed.orchestrator.store.journals.records import Header
from manyseed.orchestrator.store.layout.arrays import COPY, DONE, NO_RECIPE
from manyseed.orchestrator.store.layout.groups import Group
from manyseed.orchestrator.store.reading.reader import read_rows
from manyseed.orchestrator.store.zarrfiles.encoding import Array

Origin = Place | int
"""A journal's record, or a published row of the group."""


@dataclass(frozen=True, slots=True)
class RowSource:
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


_NUMBERS = {"crc": "uint32", "clipped": "uint32", "recipe": "uint16", "fit_seconds": "float32"}
_SIZES = ("label", "score", "confidence", "source")  # the last: of all that follows


class DamagedRecord(Exception):
    """A record that was to be published is damaged; the index no longer counts it."""


class RowSources:
    """What journals and published rows hold of a group."""

    def __init__(self, group: Group, journals: JournalIndex) -> None:
        self._group, self._journals = group, journals
        self._sizes = group.spec.part_bytes
        self._arrays = [array for array in group.spec.arrays if array.role == "prediction"]

    def find(
        self, wanted: Iterable[int], span: tuple[int, int], unusable: set[int]
    ) -> tuple[dict[int, RowSource], list[int]]:
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
        sources: dict[int, RowSource] = {}
        copies: dict[int, Header] = {}
        found = self._journals.records(self._group.spec.number, *span)
        for row in wanted:
            best = self._best(found.get(row, []))
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
            if (header := self._journals.header(place)) is not None:
                return header
        return None

    def fill(
        self, origins: Sequence[Origin], at: Sequence[int], parts: Sequence[Array]
    ) -> dict[str, Array]:
        """Read predictions into rows of arrays; return the numbers beside them.

        Parameters
        ----------
        origins : sequence of Place or int
            What is read.
        at : sequence of int
            Which row of `parts` takes which.
        parts : sequence of 2-D arrays
            One for each array of predictions, little-endian.

        Returns
        -------
        dict of arrays (len(origins),)
            ``crc``, ``clipped``, ``recipe`` and ``fit_seconds``, which is NaN for published rows.

        Raises
        ------
        DamagedRecord
            If a record turned out to be damaged; all others were looked at.
        StoreError
            If a record is not of the group's shape.
        """
        numbers: dict[str, Array] = {
            name: np.zeros(len(origins), dtype=dtype) for name, dtype in _NUMBERS.items()
        }
        places = [origin for origin in origins if isinstance(origin, Place)]
        here = [n for n, origin in enumerate(origins) if isinstance(origin, Place)]
        fields, good = self._journals.fill(places, [at[n] for n in here], parts)
        sizes = np.stack([fields[name] for name in _SIZES], axis=1)
        if (other := good & (sizes != self._sizes).any(axis=1)).any():
            n = int(other.argmax())
            raise StoreError(
                f"{places[n].journal} holds a row of {tuple(sizes[n].tolist())} bytes for "
                f"{self._group.spec.path}, which has {self._sizes}: was it written for another "
                "sweep?"
            )
        if not good.all():
            raise DamagedRecord
        for name, values in numbers.items():
            values[here] = fields[name]
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
