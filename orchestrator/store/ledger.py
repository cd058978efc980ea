"""The ledger of a folder of journals: how many fits were trained more than once.

Journals show it, because a worker was taken for dead or killed unsynced. Before journals are
removed, the count is added to the ledger, a file next to them, which also names them, so that an
interrupted removal counts nothing twice.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import numpy as np
from annotated_types import Interval

from manyseed.orchestrator.disk.records import read_record, write_json
from manyseed.orchestrator.errors import DamagedFile
from manyseed.orchestrator.paths import LEDGER, LEDGER_MARK
from manyseed.orchestrator.store.arrays import DONE
from manyseed.orchestrator.store.groups import Group
from manyseed.orchestrator.store.index import JournalIndex
from manyseed.orchestrator.store.reader import read_array

_UNCOUNTED = "fits that were trained more than once before are then no longer counted"
REMEDY = f"remove it: {_UNCOUNTED}"
_LOST = f"restore it, or remove {LEDGER_MARK} beside it: {_UNCOUNTED}"


@dataclass(frozen=True, slots=True)
class Ledger:
    """The count for journals that have been or are being removed."""

    count: Annotated[int, Interval(ge=0, le=2**40)] = 0  # number of superfluous fits in them
    journals: frozenset[str] = frozenset()  # names of counted journals that may still exist

    @classmethod
    def read(cls, folder: Path) -> Ledger:
        """Read the ledger of a folder of journals; empty if it does not exist."""
        try:
            return read_record(folder / LEDGER, cls, REMEDY)
        except FileNotFoundError:
            return cls()

    def write(self, folder: Path) -> None:
        """Replace the ledger; a mark next to it reveals its loss."""
        write_json(folder / LEDGER, {"count": self.count, "journals": sorted(self.journals)})
        if self.count:
            (folder / LEDGER_MARK).touch()


def count_retrained(groups: Iterable[Group], journals: JournalIndex) -> int:
    """Return the number of superfluous fits so far, those of runs that have another fit."""
    ledger = _ledger(journals)
    return ledger.count + _superfluous(groups, journals, ledger.journals)


def settle(groups: Iterable[Group], journals: JournalIndex, removed: Collection[str]) -> None:
    """Add the superfluous fits in journals about to be removed to the ledger."""
    ledger, groups = _ledger(journals), list(groups)
    before = _superfluous(groups, journals, ledger.journals)
    after = _superfluous(groups, journals, ledger.journals | set(removed))
    if ledger.count or before > after:
        Ledger(ledger.count + before - after, frozenset(removed)).write(journals.folder)


def ledger_damage(folder: Path) -> str:
    """Return a message about a damaged or lost ledger of a folder of journals, or ""."""
    if (folder / LEDGER_MARK).exists() and not (folder / LEDGER).exists():
        return str(DamagedFile(folder / LEDGER, "is lost", _LOST))
    try:
        Ledger.read(folder)
    except DamagedFile as error:
        return str(error)
    return ""


def _ledger(journals: JournalIndex) -> Ledger:
    """Return the ledger, or an empty one if it is damaged, as no result depends on it."""
    try:
        return Ledger.read(journals.folder)
    except DamagedFile:
        return Ledger()


def _superfluous(groups: Iterable[Group], journals: JournalIndex, besides: Collection[str]) -> int:
    """Count fits in journals whose run has another fit, in a journal or published earlier.

    A published row is the fit of a journal if both took equally long, as hardly any two fits do.
    """
    total = 0
    held = journals.groups()
    for group in groups:
        if group.spec.number not in held:
            continue
        rows, seconds = journals.fits(group.spec.number, besides)
        keep = rows < group.rows
        rows, seconds = rows[keep], seconds[keep]
        if len(rows) == 0:
            continue
        published = read_array(group, "status")[rows] == DONE
        stored = read_array(group, "fit_seconds")[rows]
        same = (stored == seconds) | np.isnan(stored)  # NaN if a repair lost the time
        elsewhere = np.setdiff1d(rows[published], rows[same])
        total += len(rows) - len(np.unique(rows)) + len(elsewhere)
    return total
