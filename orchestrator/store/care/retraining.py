"""Fits that were trained more than once: by workers that were taken for dead, or killed unsynced.

Journals show it while they are there. What they showed is added to the ledger, a file beside them,
before they are removed; it names them, so that an interrupted removal counts nothing twice.
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
from manyseed.orchestrator.store.journals.index import JournalIndex
from manyseed.orchestrator.store.layout.arrays import DONE
from manyseed.orchestrator.store.layout.groups import Group
from manyseed.orchestrator.store.reading.reader import read_array

_UNCOUNTED = "fits that were trained more than once before are then no longer counted"
REMEDY = f"remove it: {_UNCOUNTED}"
_LOST = f"restore it, or remove {LEDGER_MARK} beside it: {_UNCOUNTED}"


@dataclass(frozen=True, slots=True)
class Ledger:
    """What is known of journals that were, or are being, removed.

    Attributes
    ----------
    count : int
        Fits that they held in vain.
    journals : frozenset of str
        Those of them that may still be there; they are counted already.
    """

    count: Annotated[int, Interval(ge=0, le=2**40)] = 0
    journals: frozenset[str] = frozenset()

    @classmethod
    def read(cls, folder: Path) -> Ledger:
        """Read the ledger of a folder of journals; empty where it does not exist.

        Raises
        ------
        DamagedFile
        """
        try:
            return read_record(folder / LEDGER, cls, REMEDY)
        except FileNotFoundError:
            return cls()

    def write(self, folder: Path) -> None:
        """Replace the ledger; a mark beside it shows its loss."""
        write_json(folder / LEDGER, {"count": self.count, "journals": sorted(self.journals)})
        if self.count:
            (folder / LEDGER_MARK).touch()


def count_retrained(groups: Iterable[Group], journals: JournalIndex) -> int:
    """Return how many fits, ever, were trained although another one of the same run was kept."""
    ledger = _known(journals)
    return ledger.count + _in_vain(groups, journals, ledger.journals)


def settle(groups: Iterable[Group], journals: JournalIndex, removed: Collection[str]) -> None:
    """Add to the ledger what journals show that are about to be removed."""
    ledger, groups = _known(journals), list(groups)
    before = _in_vain(groups, journals, ledger.journals)
    after = _in_vain(groups, journals, ledger.journals | set(removed))
    if ledger.count or before > after:
        Ledger(ledger.count + before - after, frozenset(removed)).write(journals.folder)


def damage(folder: Path) -> str:
    """Return what is wrong with the ledger of a folder of journals; empty where all is well."""
    if (folder / LEDGER_MARK).exists() and not (folder / LEDGER).exists():
        return str(DamagedFile(folder / LEDGER, "is lost", _LOST))
    try:
        Ledger.read(folder)
    except DamagedFile as error:
        return str(error)
    return ""


def _known(journals: JournalIndex) -> Ledger:
    """Return the ledger; of a damaged one nothing: it is a count, on which no result depends."""
    try:
        return Ledger.read(journals.folder)
    except DamagedFile:
        return Ledger()


def _in_vain(groups: Iterable[Group], journals: JournalIndex, besides: Collection[str]) -> int:
    """Count fits in journals whose run has another fit, in a journal or published before them.

    A published row is a journal's fit if that took equally long: hardly any two fits do.
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
        same = (stored == seconds) | np.isnan(stored)  # where a repair no longer knew it
        once = np.unique(rows)
        elsewhere = np.setdiff1d(rows[published], rows[same])
        total += len(rows) - len(once) + len(elsewhere)
    return total
