"""What searches for hparams found: one file each below ``plan/tuned``, never changed."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jobs.run import Cell, MachineError
from jobs.training.handling import Device
from jobs.tuning import Draw, is_tuned, search_id, with_hparams
from orchestrator.errors import DamagedFile, UserError
from orchestrator.files import read_record
from orchestrator.paths import SweepPaths

if TYPE_CHECKING:
    import polars as pl


@dataclass(frozen=True, slots=True)
class Search:
    """The search that tuned cells of a dataset and classifier share.

    Attributes
    ----------
    dataset, classifier : str
        As the sweep file calls them.
    id : str
        Of the search: the name of its file.
    cell : Cell
        One of its cells; the search depends on what all of them share.
    device : {"cpu", "gpu"}
        Where its fits are wished for.
    """

    dataset: str
    classifier: str
    id: str
    cell: Cell
    device: Device


def searches(paths: SweepPaths, cells: pl.DataFrame) -> list[Search]:
    """Return the searches that some of a plan's cells need and that are still to be done."""
    tuned = cells.filter(hparams="tuned")
    needed: dict[str, Search] = {}
    for row in tuned.unique(["dataset", "classifier"], maintain_order=True).iter_rows(named=True):
        cell = Cell.from_canonical(json.loads(row["canonical"]))
        name = search_id(cell)
        search = Search(row["dataset"], row["classifier"], name, cell, row["device"])
        needed.setdefault(name, search)
    return [search for search in needed.values() if found(paths, search.id) is None]


@dataclass(frozen=True)
class Found:
    """What a search found, as its file holds it.

    Attributes
    ----------
    hparams : dict
        Those of the draw with the highest accuracy.
    draw : int
        Which that was.
    accuracy : float
    draws : list of Draw
        All of them.
    dataset, classifier : str
        As the sweep file called them.
    search, recipe : dict
        What was searched for, and how fits were made.
    """

    hparams: dict[str, Any]
    draw: int
    accuracy: float
    draws: list[Draw]
    dataset: str = ""
    classifier: str = ""
    search: dict[str, Any] = field(default_factory=dict)
    recipe: dict[str, Any] = field(default_factory=dict)


def found(paths: SweepPaths, search: str) -> Found | None:
    """Return what a search's file holds; None where it is still to be done."""
    try:
        return read_found(paths.tuned(search))
    except FileNotFoundError:
        return None


def read_found(file: Path) -> Found:
    """Return what a search's file holds.

    Raises
    ------
    FileNotFoundError
    DamagedFile
    """
    result = read_record(file, Found)
    if not 0 <= result.draw < len(result.draws):
        raise DamagedFile(file, f"draw: there is none of the number {result.draw}")
    if result.draws[result.draw].hparams != result.hparams:
        raise DamagedFile(file, "hparams: not those of the draw that was chosen")
    return result


def fitted(paths: SweepPaths, cell: Cell) -> Cell:
    """Return a cell as its runs are trained: a tuned one with the hparams that were found.

    Raises
    ------
    jobs.run.MachineError
        Where they were not searched for.
    """
    if not is_tuned(cell):
        return cell
    result = found(paths, search_id(cell))
    if result is None:
        raise MachineError(
            f"{paths.tuned(search_id(cell))} is not there: search for its hparams with: "
            f"manyseed tune {paths.directory}"
        )
    return with_hparams(cell, result.hparams)


def require_hparams(paths: SweepPaths, cells: pl.DataFrame) -> None:
    """Refuse to train cells with hparams that were not searched for.

    Raises
    ------
    UserError
        With the command that searches.
    """
    todo = searches(paths, cells)
    if todo:
        names = ", ".join(f"{search.classifier} × {search.dataset}" for search in todo[:3])
        more = f" and {len(todo) - 3:,} more" if len(todo) > 3 else ""
        raise UserError(
            f"hparams are still to be searched for: {names}{more}",
            file=paths.sweep_file,
            key="grid.hparams",
            value="tuned",
            remedy=f"search with: manyseed tune {paths.directory}",
        )
