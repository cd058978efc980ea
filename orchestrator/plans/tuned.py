"""What searches for hparams found: one file each below ``plan/tuned``, never changed."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from jobs.run import Cell, MachineError
from jobs.training.handling import Device
from jobs.tuning import is_tuned, search_id, with_hparams
from orchestrator.errors import UserError
from orchestrator.files import read_json
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


def found(paths: SweepPaths, search: str) -> dict[str, Any] | None:
    """Return what a search's file holds; None where it is still to be done."""
    file = paths.tuned(search)
    return read_json(file) if file.exists() else None


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
    return with_hparams(cell, result["hparams"])


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
