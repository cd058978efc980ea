"""What ``analysis.json`` records of an analysis: by which conventions, of what, with what."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field

from manyseed.analysis.options import Options
from manyseed.orchestrator.disk.records import read_record, write_json
from manyseed.orchestrator.errors import DamagedFile
from manyseed.orchestrator.paths import SweepPaths


@dataclass(frozen=True)
class Unavailable:
    """A metric that was not computed for a group, and why.

    `failed` says that a user's own function did; else what was kept does not allow it.
    """

    dataset: str
    classifier: str
    metric: str
    reason: str
    failed: bool = False


@dataclass(frozen=True)
class Analysis:
    """One analysis, as its record holds it.

    Attributes
    ----------
    options : mapping
        As `orchestrator.results.conventions.to_json` gives them.
    unavailable : list of Unavailable
    packages : mapping
        Versions by name.
    analysed : str
        When.
    tables : mapping
        Of each result table the checksum that its file carries; none from earlier versions.
    runs : mapping
        How many are `analysed`, `finished` and `planned`; empty from earlier versions.
    outdated : list of str
        Datasets × classifiers whose ensembles were removed: what they were drawn from has changed.
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
        """Read the record of a sweep's last analysis.

        Raises
        ------
        FileNotFoundError
        DamagedFile
        """
        return read_record(paths.analysis, cls, remedy(paths))

    def write(self, paths: SweepPaths) -> None:
        """Write the record."""
        write_json(paths.analysis, asdict(self))

    def conventions(self, paths: SweepPaths) -> Options:
        """Return the options that the tables were computed with.

        Raises
        ------
        DamagedFile
        """
        from manyseed.orchestrator.results.conventions import from_json

        try:
            return from_json(self.options)
        except (LookupError, TypeError, ValueError) as error:
            raise DamagedFile(paths.analysis, f"options: {error}", remedy(paths)) from None


def remedy(paths: SweepPaths) -> str:
    """Return what to do about results that are damaged."""
    return f"compute the results again: manyseed analyze {paths.directory}"
