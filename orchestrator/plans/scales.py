"""Scales of Laplace's posterior that searches found: one file each below ``plan/tuned``."""

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
    """What a search for a scale found, as its file holds it.

    Attributes
    ----------
    dataset, classifier, ensembling : str
        As the sweep file called them.
    cell : mapping
        The description of the cell that it is for.
    scale : float
    log_likelihood : float
        The mean over networks at this scale, of the validation rows.
    recipe : Recipe
        How fits were made.
    trials : tuple of Trial
        What each network said of all scales.
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
        """Return what a search's file holds.

        Raises
        ------
        FileNotFoundError
        DamagedFile
        """
        found = read_record(file, cls)
        if found.scale not in SCALES:
            raise DamagedFile(file, f"scale: {found.scale} is none of those that are tried")
        return found

    def write(self, file: Path, before_rename: Callable[[], None]) -> None:
        """Write a search's file."""
        value = asdict(self) | {"recipe": self.recipe.to_json()}
        write_json(file, value, before_rename=before_rename)


def found_scale(paths: SweepPaths, cell: Cell) -> FoundScale | None:
    """Return what the search for a cell's scale found; None where it is still to be done.

    Raises
    ------
    DamagedFile
        Also where the file is of another search.
    """
    search = scale_search_id(cell)
    file = paths.scale(search)
    try:
        result = FoundScale.read(file)
    except FileNotFoundError:
        return None
    try:
        is_own = scale_search_id(Cell.from_canonical(dict(result.cell))) == search
    except (LookupError, TypeError, ValueError):
        is_own = False
    if not is_own:
        raise DamagedFile(file, "is of another search", "restore it, or remove it and search again")
    return result
