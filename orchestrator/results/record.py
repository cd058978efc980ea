"""The record of an analysis, ``analysis.json``: its conventions, its data, its software."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from manyseed.analysis.options import Options, is_own
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
        As `to_json` returns them.
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
        try:
            return from_json(self.options)
        except (LookupError, TypeError, ValueError) as error:
            raise DamagedFile(paths.analysis, f"options: {error}", remedy(paths)) from None


def remedy(paths: SweepPaths) -> str:
    """Return what to do about damaged results."""
    return f"compute the results again: {command('analyze', paths.directory)}"


def to_json(options: Options) -> Mapping[str, object]:
    """Return options as JSON values: no tuples, no NaN."""
    values = {key: None if value != value else value for key, value in asdict(options).items()}
    return values | {name: list(getattr(options, name)) for name in ("metrics", "snapshots")}


def from_json(values: Mapping[str, Any]) -> Options:
    """Return the options that `to_json` made these values from."""
    known = dict(values)
    if "epoch" in known:  # earlier versions counted snapshots from 0
        positions = [known.pop("epoch"), known.pop("reference_epoch", None)]
        if any(position is not None and position > 0 for position in positions):
            raise ValueError("snapshots are numbered as in an earlier version")
        known["snapshots"], known["reference_snapshot"] = positions[:1], positions[1]
    known["empty_union"] = math.nan if known["empty_union"] is None else known["empty_union"]
    return Options(**{**known, **{name: tuple(known[name]) for name in ("metrics", "snapshots")}})


def without_own(options: Options) -> Options:
    """Return the same conventions without users' own functions, so that none of them runs."""
    metrics = tuple(name for name in options.metrics if not is_own(name))
    return replace(options, metrics=metrics, probe=None if is_own(options.probe) else options.probe)


def read_analysis(paths: SweepPaths) -> tuple[Options, Analysis]:
    """Return the options that the result tables were computed with, and the record of them."""
    record = Analysis.read(paths)
    return record.conventions(paths), record
