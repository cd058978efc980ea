"""The record of an analysis, ``analysis.json``: its conventions, its data, its software."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field

from manyseed.analysis.options import Options
from manyseed.orchestrator.disk.records import read_record, write_json
from manyseed.orchestrator.errors import DamagedFile, command
from manyseed.orchestrator.paths import SweepPaths


@dataclass(frozen=True)
class Unavailable:
    """A metric that was not computed for a group, and why.

    `failed`: a user's own function failed; otherwise it needs something that was not kept.
    """

    dataset: str
    classifier: str
    metric: str
    reason: str
    failed: bool = False


@dataclass(frozen=True)
class Analysis:
    """The record of one analysis.

    Attributes
    ----------
    options : mapping
        As `orchestrator.results.conventions.to_json` returns them.
    unavailable : list of Unavailable
    packages : mapping
        Versions by name.
    analysed : str
        Time of the analysis.
    tables : mapping
        The checksum in each result table's file; empty from earlier versions.
    runs : mapping
        Numbers of runs `analysed`, `finished` and `planned`; empty from earlier versions.
    outdated : list of str
        Datasets × classifiers whose ensembles were removed because their predictions have changed.
    """

    options: Mapping[str, object]
    unavailable: list[Unavailable] = field(default_factory=list)
    packages: Mapping[str, str] = field(default_factory=dict)
    analysed: str = ""
    tables: Mapping[str, str] = field(default_factory=dict)
    runs: Mapping[str, int] = field(default_factory=dict)
    outdated: list[str] = field(default_factory=list)

    @classmethod
    def read(cls, paths: SweepPaths) -> Analysis:
        """Read the record of a sweep's last analysis; raise FileNotFoundError or DamagedFile."""
        return read_record(paths.analysis, cls, remedy(paths))

    def write(self, paths: SweepPaths) -> None:
        """Write the record."""
        write_json(paths.analysis, asdict(self))

    def conventions(self, paths: SweepPaths) -> Options:
        """Return the options that the tables were computed with; may raise DamagedFile."""
        from manyseed.orchestrator.results.conventions import from_json

        try:
            return from_json(self.options)
        except (LookupError, TypeError, ValueError) as error:
            raise DamagedFile(paths.analysis, f"options: {error}", remedy(paths)) from None


def remedy(paths: SweepPaths) -> str:
    """Return what to do about damaged results."""
    return f"compute the results again: {command('analyze', paths.directory)}"
