"""Searches for tuned hparams and for scales: one file per search in ``plan/tuned``, never changed.

What differs between them is a record, `SearchKind`.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Self

from manyseed.analysis.counts import some
from manyseed.jobs import scales, tuning
from manyseed.jobs.hparams.kinds import Value
from manyseed.jobs.run import Cell, MachineError
from manyseed.jobs.scales import Trial
from manyseed.jobs.training.handling import Device
from manyseed.jobs.tuning import Draw
from manyseed.orchestrator.disk.records import read_record, write_json
from manyseed.orchestrator.errors import DamagedFile, UserError, command
from manyseed.orchestrator.paths import SweepPaths
from manyseed.orchestrator.provenance import Recipe

if TYPE_CHECKING:
    import polars as pl

SCALE_NAME = "ensembling.scale"  # the name of a scale beside hparams


@dataclass(frozen=True, slots=True)
class SearchResult(ABC):
    """The result of a search, as stored in its file: what both kinds have in common."""

    dataset: str = ""
    classifier: str = ""

    @classmethod
    def read(cls, file: Path) -> Self:
        """Read a search's file, or raise FileNotFoundError or DamagedFile."""
        result = read_record(file, cls)
        if fault := result.fault():
            raise DamagedFile(file, fault)
        return result

    def write(self, file: Path, before_rename: Callable[[], None]) -> None:
        """Write the search's file."""
        value = {key: one for key, one in asdict(self).items() if one or key != "data"}
        recipe: Recipe = self.recipe  # type: ignore[attr-defined]
        write_json(file, value | {"recipe": recipe.to_json()}, before_rename=before_rename)

    @abstractmethod
    def fault(self) -> str:
        """Return how the result contradicts itself; an empty text if it does not."""

    @abstractmethod
    def is_of(self, cell: Cell) -> bool:
        """Return whether this is the result of the cell's search."""

    @abstractmethod
    def applied(self, cell: Cell) -> Cell:
        """Return the cell with what was found."""


@dataclass(frozen=True, slots=True)
class TunedHparams(SearchResult):
    """The hparams that a search found.

    `dataset` and `classifier`: their names in the sweep file. `search`: the cells' hparams: the
    distributions to search, and fixed values. `hparams`: the hparams of the draw with the highest
    accuracy. `draw`: the number of that draw. `recipe`: how fits were made. `draws`: all draws.
    `data`: with what the training data were made, if as for runs (`jobs.tuning.data_of`).
    """

    search: Mapping[str, object] = field(default_factory=dict)
    hparams: Mapping[str, Value] = field(kw_only=True)
    draw: int = field(kw_only=True)
    accuracy: float = field(kw_only=True)
    recipe: Recipe = field(default_factory=Recipe)
    draws: tuple[Draw, ...] = field(kw_only=True)
    data: Mapping[str, object] = field(default_factory=dict, kw_only=True)

    def fault(self) -> str:
        """Return how number and hparams of the draw contradict the draws."""
        if not 0 <= self.draw < len(self.draws):
            return f"draw: there is no draw with the number {self.draw}"
        if self.draws[self.draw].hparams != self.hparams:
            return "hparams: not those of the chosen draw"
        return ""

    def is_of(self, cell: Cell) -> bool:
        """Return whether the cell's search draws these hparams: they follow from the cell."""
        if not tuning.is_current(cell):
            return True
        of_data = self.data == tuning.data_of(cell)  # whatever the data, the draws are the same
        return of_data and self.hparams == tuning.drawn(cell, self.draw)

    def applied(self, cell: Cell) -> Cell:
        """Return the cell with these hparams."""
        return replace(cell, hparams=self.hparams)

    @classmethod
    def of(cls, search: Search, draws: Sequence[Draw], recipe: Recipe) -> TunedHparams:
        """Return the best of a search's draws."""
        best = draws[number := tuning.best(draws)]
        assert best.accuracy is not None
        return cls(
            search.dataset,
            search.classifier,
            search.cell.hparams,
            hparams=best.hparams,
            draw=number,
            accuracy=best.accuracy,
            recipe=recipe,
            draws=tuple(draws),
            data=tuning.data_of(search.cell),
        )


@dataclass(frozen=True, slots=True)
class FoundScale(SearchResult):
    """The scale of Laplace's posterior that a search found.

    `dataset`, `classifier` and `ensembling`: their names in the sweep file. `cell`: the description
    of the cell that the scale is for. `log_likelihood`: of the validation rows at this scale,
    averaged over networks. `recipe`: how fits were made. `trials`: the results of each network for
    all scales.
    """

    ensembling: str = ""
    cell: Mapping[str, object] = field(default_factory=dict)
    scale: float = field(kw_only=True)
    log_likelihood: float = field(kw_only=True)
    recipe: Recipe = field(default_factory=Recipe)
    trials: tuple[Trial, ...] = field(kw_only=True)

    def fault(self) -> str:
        """Return whether the scale is one of those that are tried."""
        known = self.scale in scales.SCALES
        return "" if known else f"scale: {self.scale} is not one of those that are tried"

    def is_of(self, cell: Cell) -> bool:
        """Return whether the stored description has the cell's search."""
        try:
            own = scales.search_id(Cell.from_canonical(dict(self.cell)))
        except (LookupError, TypeError, ValueError):
            return False
        return own == scales.search_id(cell)

    def applied(self, cell: Cell) -> Cell:
        """Return the cell with this scale."""
        return scales.with_scale(cell, self.scale)

    @classmethod
    def of(cls, search: Search, trials: Sequence[Trial], recipe: Recipe) -> FoundScale:
        """Return the scale that is best over a search's networks."""
        scale, log_likelihood = scales.best(trials)
        return cls(
            search.dataset,
            search.classifier,
            search.ensembling,
            search.cell.canonical(),
            scale=scale,
            log_likelihood=log_likelihood,
            recipe=recipe,
            trials=tuple(trials),
        )


@dataclass(frozen=True, slots=True)
class SearchKind:
    """A kind of search.

    `what`: what it finds for a cell, for messages. `entry`: the key of a fit in the file of an
    incomplete search. `mark`: occurs in the canonical text of a cell that needs it. `apart`: occurs
    in that of a cell whose search is not that of all others of its dataset and classifier.
    `is_needed`, `id`, `n_fits` and `seconds`: of a cell: whether it needs a search, the search's
    identity, how many fits it takes, and after how many seconds of them no further one begins.
    `evaluate`: makes a fit in another process (`jobs.tuning.evaluate_in_process`). `result`:
    what is stored. `file`: takes a sweep's paths and the identity, returns the result's file.
    `values`: the values of a trained cell that the search found, by name.
    """

    what: str
    entry: Literal["draw", "trial"]
    mark: str
    apart: str
    is_needed: Callable[[Cell], bool]
    id: Callable[[Cell], str]
    n_fits: Callable[[Cell], int]
    seconds: Callable[[Cell], float]
    evaluate: Callable[..., Draw | Trial]
    result: type[TunedHparams | FoundScale]
    file: Callable[[SweepPaths, str], Path]
    values: Callable[[Cell], Mapping[str, Value]]


HPARAMS = SearchKind(
    what="its hparams",
    entry="draw",
    mark='"tuned":{',
    apart='"data":"runs"',
    is_needed=tuning.is_tuned,
    id=tuning.search_id,
    n_fits=tuning.n_draws,
    seconds=tuning.seconds_for,
    evaluate=tuning.evaluate_in_process,
    result=TunedHparams,
    file=SweepPaths.tuned,
    values=lambda cell: cell.hparams,
)
SCALE = SearchKind(
    what="its scale",
    entry="trial",
    mark='"scale":"tuned"',
    apart="",
    is_needed=scales.is_searched,
    id=scales.search_id,
    n_fits=lambda _: scales.NETWORKS,
    seconds=lambda _: math.inf,
    evaluate=scales.evaluate_in_process,
    result=FoundScale,
    file=SweepPaths.scale,
    values=lambda cell: {SCALE_NAME: (cell.ensembling or {})["scale"]},
)
KINDS = (HPARAMS, SCALE)
"""In the order in which a cell needs them: a scale is searched for with the hparams found."""


@dataclass(frozen=True, slots=True)
class Search:
    """A search that cells of a plan need.

    `dataset` and `classifier`: their names in the sweep file. `id`: identifies the search and names
    its file. `cell`: one of its cells; the search depends on what all of them share. `device`: the
    device requested for its fits. `code`: the folder of the copy of users' own code; empty if there
    is none. `timeout`: seconds after which a fit of a command is ended; 0 for no limit.
    `ensembling`: the method's name in the sweep file, in a search for the scale of a cell's
    posterior. `fitted`: the cell with the hparams that an earlier search found.
    """

    dataset: str
    classifier: str
    id: str
    cell: Cell
    device: Device
    kind: SearchKind
    code: str = ""
    timeout: float = 0.0
    ensembling: str = ""
    fitted: Cell | None = None

    @property
    def n_fits(self) -> int:
        """How many fits it takes, at most if its time is limited."""
        return self.kind.n_fits(self.cell)

    @property
    def seconds(self) -> float:
        """After how many seconds of fits no further one begins."""
        return self.kind.seconds(self.cell)


class NotSearched(MachineError):
    """A search was not done yet; `file` will hold its result."""

    def __init__(self, file: Path, what: str, directory: Path) -> None:
        super().__init__(
            f"{file} is missing: search for {what} with: {command('plan', directory, '--tune')}"
        )
        self.file, self.directory = file, directory

    def though_trained(self) -> DamagedFile:
        """Return the error if runs were trained with the result of the search: it is lost."""
        remedy = f"search for it again with: {command('plan', self.directory, '--tune')}"
        return DamagedFile(self.file, "is not there, though the run was trained", remedy)


def searches(paths: SweepPaths, cells: pl.DataFrame) -> list[Search]:
    """Return the searches that these cells of a plan need and that were not done yet, by kind."""
    import polars as pl  # a task's own process never imports it

    needed: dict[tuple[str, str], Search] = {}
    for kind in KINDS:
        asked = cells.filter(pl.col("canonical").str.contains(kind.mark, literal=True))
        apart = pl.col("canonical").str.contains(kind.apart, literal=True)
        key = pl.struct("dataset", "classifier", pl.when(apart).then("canonical"))
        for row in asked.filter(key.is_first_distinct()).iter_rows(named=True):
            cell = Cell.from_text(row["canonical"])
            if kind.is_needed(cell):
                name = row["ensembling"] if kind is SCALE else ""
                names = row["dataset"], row["classifier"], kind.id(cell)
                search = Search(*names, cell, row["device"], kind, ensembling=name)
                needed.setdefault((kind.what, search.id), search)
    return [one for one in needed.values() if found(paths, one.cell, one.kind) is None]


def found(paths: SweepPaths, cell: Cell, kind: SearchKind) -> TunedHparams | FoundScale | None:
    """Return the result of a cell's search, None if it was not done yet.

    Raises DamagedFile also if the file belongs to another search.
    """
    file = kind.file(paths, kind.id(cell))
    try:
        result = kind.result.read(file)
    except FileNotFoundError:
        return None
    if not result.is_of(cell):
        remedy = "restore it, or remove it and search again"
        raise DamagedFile(file, "belongs to another search", remedy)
    return result


def fitted(paths: SweepPaths, cell: Cell, kinds: Sequence[SearchKind] = KINDS) -> Cell:
    """Return a cell as its runs are trained: with the hparams and the scale that searches found.

    Raises NotSearched if a search was not done yet.
    """
    ready = cell
    for kind in kinds:
        if kind.is_needed(cell):
            if (result := found(paths, cell, kind)) is None:
                raise NotSearched(kind.file(paths, kind.id(cell)), kind.what, paths.directory)
            ready = result.applied(ready)
    return ready


def is_searched(paths: SweepPaths, cell: Cell) -> bool:
    """Return whether all searches that a cell needs are done."""
    return all(found(paths, cell, kind) for kind in KINDS if kind.is_needed(cell))


def searched(asked: Cell, ready: Cell) -> dict[str, Value] | None:
    """Return the values that searches found for a cell, by name; None if there was no search."""
    kinds = [kind for kind in KINDS if kind.is_needed(asked)]
    return {name: one for kind in kinds for name, one in kind.values(ready).items()} or None


def to_tune(paths: SweepPaths) -> tuple[object, ...]:
    """Return the words of the command that searches; a login node refuses it and names a job."""
    return ("plan", paths.directory, "--tune")


def require_searched(paths: SweepPaths, cells: pl.DataFrame) -> None:
    """Refuse to train cells whose search was not done yet, with the command that searches."""
    if not (todo := searches(paths, cells)):
        return
    name, search = todo[0].ensembling, command(*to_tune(paths))
    asked = [f"{one.classifier} × {one.dataset}" for one in todo if one.kind is todo[0].kind]
    raise UserError(
        f"{f'the scale of {name} is' if name else 'hparams are'} still to be searched for: "
        f"{some(asked, 3)}",
        file=paths.sweep_file,
        key=f"ensembling.{name}.scale" if name else "grid.hparams",
        value="tuned",
        remedy=f"run {search}, or set scale" if name else f"search with: {search}",
    )
