"""Results of searches: one file per search in ``plan/tuned``, never changed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from manyseed.analysis.counts import some
from manyseed.jobs.hparams.kinds import Value
from manyseed.jobs.run import Cell, MachineError
from manyseed.jobs.scales import is_searched, scale_search_id, with_scale
from manyseed.jobs.training.handling import Device
from manyseed.jobs.tuning import Draw, drawn, is_current, is_tuned, search_id
from manyseed.orchestrator.disk.records import read_record, write_json
from manyseed.orchestrator.errors import DamagedFile, UserError, command
from manyseed.orchestrator.paths import SweepPaths
from manyseed.orchestrator.plans.scales import found_scale
from manyseed.orchestrator.provenance import Recipe

if TYPE_CHECKING:
    import polars as pl


SCALE = "ensembling.scale"
"""The name of a scale beside hparams."""


@dataclass(frozen=True, slots=True)
class Search:
    """A search for the hparams of the tuned cells of a dataset and classifier, or for a scale.

    Attributes
    ----------
    dataset, classifier : str
        Their names in the sweep file.
    id : str
        Identifies the search and names its file.
    cell : Cell
        One of its cells; the search depends on what all of them share.
    device : {"cpu", "gpu"}
        The device requested for its fits.
    code : str
        The folder of the copy of users' own code; empty if there is none.
    timeout : float
        Seconds after which a fit of a command is ended; 0 for no limit.
    ensembling : str
        The method's name in the sweep file, in a search for the scale of a cell's posterior.
    fitted : Cell, optional
        The cell with the hparams that an earlier search found.
    """

    dataset: str
    classifier: str
    id: str
    cell: Cell
    device: Device
    code: str = ""
    timeout: float = 0.0
    ensembling: str = ""
    fitted: Cell | None = None


class NotSearched(MachineError):
    """A search was not done yet; `file` will hold its result."""

    def __init__(self, file: Path, what: str, directory: Path) -> None:
        super().__init__(f"{file} is missing: search for {what} with: {command('tune', directory)}")
        self.file, self.directory = file, directory

    def though_trained(self) -> DamagedFile:
        """Return the error if runs were trained with the result of the search: it is lost."""
        remedy = f"search for it again with: {command('tune', self.directory)}"
        return DamagedFile(self.file, "is not there, though the run was trained", remedy)


def searches(paths: SweepPaths, cells: pl.DataFrame) -> list[Search]:
    """Return the searches that these cells of a plan need and that were not done yet."""
    tuned = cells.filter(hparams="tuned").unique(["dataset", "classifier"], maintain_order=True)
    needed: dict[str, Search] = {}
    for row in tuned.iter_rows(named=True):
        cell = Cell.from_text(row["canonical"])
        name = search_id(cell)
        search = Search(row["dataset"], row["classifier"], name, cell, row["device"])
        needed.setdefault(name, search)
    return [search for search in needed.values() if found_hparams(paths, search.cell) is None]


def scale_searches(paths: SweepPaths, cells: pl.DataFrame) -> list[Search]:
    """Return the searches for scales that these cells of a plan need and that were not done yet."""
    import polars as pl  # a task's own process never imports it

    needed: dict[str, Search] = {}
    asked = cells.filter(pl.col("canonical").str.contains('"scale":"tuned"', literal=True))
    for row in asked.iter_rows(named=True):
        cell = Cell.from_text(row["canonical"])
        if is_searched(cell):
            name, names = scale_search_id(cell), (row["dataset"], row["classifier"])
            search = Search(*names, name, cell, row["device"], ensembling=row["ensembling"])
            needed.setdefault(name, search)
    return [search for search in needed.values() if found_scale(paths, search.cell) is None]


@dataclass(frozen=True, slots=True)
class TunedHparams:
    """The result of a search for hparams, as stored in its file.

    Attributes
    ----------
    dataset, classifier : str
        Their names in the sweep file.
    search : mapping
        The cells' hparams: the distributions to search, and fixed values.
    hparams : mapping
        The hparams of the draw with the highest accuracy.
    draw : int
        The number of that draw.
    accuracy : float
    recipe : Recipe
        How fits were made.
    draws : tuple of Draw
        All draws.
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
        """Read a search's file.

        Raises
        ------
        FileNotFoundError
        DamagedFile
        """
        result = read_record(file, cls)
        if not 0 <= result.draw < len(result.draws):
            raise DamagedFile(file, f"draw: there is no draw with the number {result.draw}")
        if result.draws[result.draw].hparams != result.hparams:
            raise DamagedFile(file, "hparams: not those of the chosen draw")
        return result

    def write(self, file: Path, before_rename: Callable[[], None]) -> None:
        """Write the search's file."""
        value = asdict(self) | {"recipe": self.recipe.to_json()}
        write_json(file, value, before_rename=before_rename)


def found_hparams(paths: SweepPaths, cell: Cell) -> TunedHparams | None:
    """Return the result of the search for a cell's hparams; None if it was not done yet.

    Raises
    ------
    DamagedFile
        Also if the file belongs to another search: draws follow from the cell.
    """
    file = paths.tuned(search_id(cell))
    try:
        result = TunedHparams.read(file)
    except FileNotFoundError:
        return None
    if is_current(cell) and result.hparams != drawn(cell, result.draw):
        raise DamagedFile(
            file, "belongs to another search", "restore it, or remove it and search again"
        )
    return result


def fitted(paths: SweepPaths, cell: Cell) -> Cell:
    """Return a cell as its runs are trained: with the hparams and the scale that searches found.

    Raises
    ------
    NotSearched
        If a search was not done yet.
    """
    ready = with_hparams(paths, cell)
    if not is_searched(cell):
        return ready
    result = found_scale(paths, cell)
    if result is None:
        raise NotSearched(paths.scale(scale_search_id(cell)), "its scale", paths.directory)
    return with_scale(ready, result.scale)


def with_hparams(paths: SweepPaths, cell: Cell) -> Cell:
    """Return a tuned cell with the hparams that its search found; any other cell unchanged.

    Raises
    ------
    NotSearched
        If the search was not done yet.
    """
    if not is_tuned(cell):
        return cell
    result = found_hparams(paths, cell)
    if result is None:
        raise NotSearched(paths.tuned(search_id(cell)), "its hparams", paths.directory)
    return replace(cell, hparams=result.hparams)


def searched(asked: Cell, ready: Cell) -> dict[str, Value] | None:
    """Return the values that searches found for a cell, by name; None if there was no search."""
    values: dict[str, Value] = dict(ready.hparams) if is_tuned(asked) else {}
    if is_searched(asked) and ready.ensembling is not None:
        values[SCALE] = ready.ensembling["scale"]
    return values or None


def use_code(paths: SweepPaths, code: str, classifier: Mapping[str, Any]) -> None:
    """Make this process import users' own code from its copy.

    Parameters
    ----------
    code : str
        The code's digest, or the version of a library, for which nothing is done.
    classifier : mapping
        The canonical description.

    Raises
    ------
    jobs.run.MachineError
        If the copy is gone, or the process has imported other code under these names.
    """
    if not code.startswith("sha256:"):
        return
    from manyseed.jobs.own import copies

    try:
        copies.use(paths.code(code), classifier)
    except ImportError as error:
        raise MachineError(str(error)) from error


def forget_code(paths: SweepPaths, code: str) -> None:
    """Undo `use_code` in a process that goes on to other work."""
    if code.startswith("sha256:"):
        from manyseed.jobs.own import copies

        copies.forget(paths.code(code))


def to_tune(paths: SweepPaths) -> tuple[object, ...]:
    """Return the words of the command that searches; a login node refuses it and names a job."""
    return ("plan", paths.directory, "--tune")


def require_searched(paths: SweepPaths, cells: pl.DataFrame) -> None:
    """Refuse to train cells whose search for hparams or a scale was not done yet.

    Raises
    ------
    UserError
        With the command that searches.
    """
    if todo := searches(paths, cells):
        raise UserError(
            f"hparams are still to be searched for: {_listed(todo)}",
            file=paths.sweep_file,
            key="grid.hparams",
            value="tuned",
            remedy=f"search with: {command(*to_tune(paths))}",
        )
    if todo := scale_searches(paths, cells):
        name = todo[0].ensembling
        raise UserError(
            f"the scale of {name} is still to be searched for: {_listed(todo)}",
            file=paths.sweep_file,
            key=f"ensembling.{name}.scale",
            value="tuned",
            remedy=f"run {command(*to_tune(paths))}, or set scale",
        )


def _listed(todo: list[Search]) -> str:
    return some([f"{search.classifier} × {search.dataset}" for search in todo], 3)
