"""What searches for hparams found: one file each below ``plan/tuned``, never changed."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from manyseed.jobs.hparams.kinds import Value
from manyseed.jobs.run import Cell, MachineError
from manyseed.jobs.training.handling import Device
from manyseed.jobs.tuning import Draw, is_tuned, search_id
from manyseed.orchestrator.disk.records import read_record, write_json
from manyseed.orchestrator.errors import DamagedFile, UserError
from manyseed.orchestrator.paths import SweepPaths
from manyseed.orchestrator.provenance import Recipe

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
        The device requested for its fits.
    code : str
        The folder of the copy of users' own code; empty: none is imported from there.
    """

    dataset: str
    classifier: str
    id: str
    cell: Cell
    device: Device
    code: str = ""


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


@dataclass(frozen=True, slots=True)
class TunedHparams:
    """What a search found, as its file holds it.

    Attributes
    ----------
    dataset, classifier : str
        As the sweep file called them.
    search : mapping
        The cells' hparams: what was searched for, and those that were fixed.
    hparams : mapping
        Those of the draw with the highest accuracy.
    draw : int
        Which that was.
    accuracy : float
    recipe : Recipe
        How fits were made.
    draws : tuple of Draw
        All of them.
    """

    dataset: str = ""
    classifier: str = ""
    search: Mapping[str, object] = field(default_factory=dict)
    hparams: Mapping[str, Value] = field(kw_only=True)
    draw: int = field(kw_only=True)
    accuracy: float = field(kw_only=True)
    recipe: Recipe = field(default_factory=Recipe)
    draws: tuple[Draw, ...] = field(kw_only=True)

    @classmethod
    def read(cls, file: Path) -> TunedHparams:
        """Return what a search's file holds.

        Raises
        ------
        FileNotFoundError
        DamagedFile
        """
        found = read_record(file, cls)
        if not 0 <= found.draw < len(found.draws):
            raise DamagedFile(file, f"draw: there is none of the number {found.draw}")
        if found.draws[found.draw].hparams != found.hparams:
            raise DamagedFile(file, "hparams: not those of the draw that was chosen")
        return found

    def write(self, file: Path, before_rename: Callable[[], None]) -> None:
        """Write a search's file."""
        value = asdict(self) | {"recipe": self.recipe.to_json()}
        write_json(file, value, before_rename=before_rename)


def found(paths: SweepPaths, search: str) -> TunedHparams | None:
    """Return what a search's file holds; None where it is still to be done."""
    try:
        return TunedHparams.read(paths.tuned(search))
    except FileNotFoundError:
        return None


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
    return replace(cell, hparams=result.hparams)


def use_code(paths: SweepPaths, code: str, classifier: Mapping[str, Any]) -> None:
    """Let users' own code be imported, in this process, from the copy that was made of it.

    Parameters
    ----------
    paths : SweepPaths
    code : str
        Its digest; nothing is done for the version of a library.
    classifier : mapping
        The canonical description.

    Raises
    ------
    jobs.run.MachineError
        Where the copy is gone, or the process has imported other code of these names.
    """
    if not code.startswith("sha256:"):
        return
    from manyseed.jobs.own import modules, table

    try:
        modules.use(paths.code(code), table.entries_of(classifier))
    except ImportError as error:
        raise MachineError(str(error)) from error


def forget_code(paths: SweepPaths, code: str) -> None:
    """Undo `use_code`, in a process that goes on with something else."""
    if code.startswith("sha256:"):
        from manyseed.jobs.own import modules

        modules.forget(paths.code(code))


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
