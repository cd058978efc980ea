"""Scales of Laplace's posterior that searches found: one file per search in ``plan/tuned``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

from manyseed.jobs.run import Cell
from manyseed.jobs.scales import SCALES, Trial, scale_search_id
from manyseed.orchestrator.disk.records import read_record, write_json
from manyseed.orchestrator.errors import DamagedFile
from manyseed.orchestrator.paths import SweepPaths
from manyseed.orchestrator.provenance import Recipe


@dataclass(frozen=True, slots=True)
class FoundScale:
    """The result of a search for a scale, as stored in its file.

    Attributes
    ----------
    dataset, classifier, ensembling : str
        Their names in the sweep file.
    cell : mapping
        The description of the cell that the scale is for.
    scale : float
    log_likelihood : float
        Of the validation rows at this scale, averaged over networks.
    recipe : Recipe
        How fits were made.
    trials : tuple of Trial
        The results of each network for all scales.
    """

    dataset: str = ""
    classifier: str = ""
    ensembling: str = ""
    cell: Mapping[str, object] = field(default_factory=dict)
    scale: float = field(kw_only=True)
    log_likelihood: float = field(kw_only=True)
    recipe: Recipe = field(default_factory=Recipe)
    trials: tuple[Trial, ...] = field(kw_only=True)

    @classmethod
    def read(cls, file: Path) -> FoundScale:
        """Read a search's file.

        Raises
        ------
        FileNotFoundError
        DamagedFile
        """
        result = read_record(file, cls)
        if result.scale not in SCALES:
            raise DamagedFile(file, f"scale: {result.scale} is not one of those that are tried")
        return result

    def write(self, file: Path, before_rename: Callable[[], None]) -> None:
        """Write the search's file."""
        value = asdict(self) | {"recipe": self.recipe.to_json()}
        write_json(file, value, before_rename=before_rename)


def found_scale(paths: SweepPaths, cell: Cell) -> FoundScale | None:
    """Return the result of the search for a cell's scale; None if it was not done yet.

    Raises
    ------
    DamagedFile
        Also if the file belongs to another search.
    """
    search = scale_search_id(cell)
    file = paths.scale(search)
    try:
        result = FoundScale.read(file)
    except FileNotFoundError:
        return None
    try:
        if scale_search_id(Cell.from_canonical(dict(result.cell))) == search:
            return result
    except (LookupError, TypeError, ValueError):
        pass
    raise DamagedFile(
        file, "belongs to another search", "restore it, or remove it and search again"
    )
