"""The result tables on disk: their names, the record of their analysis, reading and writing."""

from __future__ import annotations

import json
import math
import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl
from polars import selectors as cs

from manyseed.analysis.axes import AXES, LATER
from manyseed.analysis.counts import some
from manyseed.analysis.options import CALIBRATION, Options, is_own
from manyseed.analysis.tables.rows import PAIR_KEY
from manyseed.analysis.tables.schema import records, table_names
from manyseed.orchestrator.disk.parquet import (
    checksum,
    damage_named,
    read_metadata,
    read_parquet,
    scan_parquet,
    write_parquet,
)
from manyseed.orchestrator.disk.records import read_record, write_json
from manyseed.orchestrator.errors import DamagedFile, UserError, command, nearest
from manyseed.orchestrator.paths import DRAWN, SweepPaths
from manyseed.orchestrator.submissions.retries import nothing_finished
from manyseed.orchestrator.survey import survey

if TYPE_CHECKING:
    from manyseed.analysis.tables.rows import Tables


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

    `options`: as `to_json` returns them. `packages`: versions by name. `analysed`: time of the
    analysis. `tables`: the checksum in each result table's file; empty from earlier versions.
    `runs`: numbers of runs `analysed`, `finished` and `planned`; empty from earlier versions.
    `outdated`: datasets × classifiers whose ensembles were removed because their predictions have
    changed.
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


_TOLD = {CALIBRATION: "calibration (cll and the like, with them deep ensembles and dee)"}


def not_computed(record: Analysis) -> list[str]:
    """Say which metrics failed, or need what was not kept, one sentence each.

    Those that lack what was not imported have a sentence together.
    """
    where: dict[tuple[str, str], list[str]] = {}
    for item in record.unavailable:
        group = f"{item.dataset} × {item.classifier}"
        where.setdefault((item.metric, item.reason), []).append(group)
    metrics: dict[tuple[str, tuple[str, ...], str], list[str]] = {}
    for (metric, reason), groups in where.items():
        alone = "" if reason.endswith(NOT_IMPORTED) else metric
        metrics.setdefault((reason, tuple(groups), alone), []).append(_TOLD.get(metric, metric))
    sentences = []
    for (reason, lacking, _), names in metrics.items():
        are, each = ("is", "it") if len(names) == 1 else ("are", "each")
        sentences.append(
            f"{', '.join(names)} {are} not computed for {some(lacking, 3)}: {each} {reason}."
        )
    return sentences


def failed(record: Analysis) -> list[str]:
    """Say which of a user's metrics failed, as `not_computed`."""
    return not_computed(replace(record, unavailable=[it for it in record.unavailable if it.failed]))


NOT_IMPORTED = "to be imported"


def of_probabilities(record: Analysis) -> list[str]:
    """Say what has no calibrated metrics, deep ensembles or equivalents, as `not_computed`."""
    items = [item for item in record.unavailable if item.metric in (CALIBRATION, DEE)]
    return not_computed(replace(record, unavailable=items))


def remedy(paths: SweepPaths) -> str:
    """Return what to do about damaged results."""
    return f"compute the results again: {paths.analysing}"


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


PARTS = ("runs", "pairs", "repeats")
TABLES = (*PARTS, "cells", "sources", "ranking")  # tables that `analyze` always writes

ENSEMBLES, DRAWS = DRAWN  # the single ensembles are those that the first summarises
MARGINS, CURVES = "margins", "curves"
POINTS, EFFECTS, VARIANCE = "points", "effects", "variance"  # earlier versions wrote none
UNCERTAINTY, DEE, TACE, REJECTION = "uncertainty", "dee", "tace", "rejection"
RESPONSES, RESPONSE_CURVES, CMI = "responses", "response_curves", "cmi"
RESPONSE_DRAWS, SPECTRA = "response_draws", "spectra"

OF_EFFECT = ("axis", "level", "reference", "metric")  # columns that effects are never averaged over

DRAWN_PAIRS = (*PAIR_KEY, "dataset", "classifier", "ec_local", "ec_global", "churn")
"""Columns of pairs that figures and the page show."""

INPUTS = "inputs"  # the table with a digest of what each repeat's rows were computed from

INPUT_COLUMNS: Mapping[str, pl.DataType] = {
    "cell": pl.UInt32(),
    "repeat_index": pl.UInt16(),
    "digest": pl.String(),
}


class UnknownTable(UserError, KeyError):
    """A name of which there is no table; a KeyError, as of any mapping."""

    from_python = True


def may_be_absent(table: str) -> bool:
    """Return whether it is a table that not every sweep has: its record says how to get it."""
    return table in table_names() and bool(records()[table].how)


def further(table: str, plan: SweepPaths | None) -> str:
    """Return how to get a table that may be absent; `plan` is the sweep, if known."""
    how = records()[table].how
    return how if plan is None else how.replace(" DIR", f" {shlex.quote(str(plan.directory))}")


class Results(Mapping[str, pl.DataFrame]):
    """The result tables of a sweep by name, each read from disk on every access.

    `files`: the file of each table. `checksums`: the checksums in the record of the analysis, by
    table. `remedy`: what to do about a damaged table. `plan`: the sweep, if its plan is known.
    """

    def __init__(
        self,
        files: Mapping[str, Path],
        checksums: Mapping[str, str],
        remedy: str,
        plan: SweepPaths | None = None,
    ) -> None:
        self._files, self._checksums, self._remedy = dict(files), dict(checksums), remedy
        self.plan = plan

    def __getitem__(self, table: str) -> pl.DataFrame:
        with self.damage_named(table):
            return self.scan(table).collect()

    def __contains__(self, table: object) -> bool:
        return table in self._files  # Mapping's default would read the table

    def __iter__(self) -> Iterator[str]:
        return iter(self._files)

    def __len__(self) -> int:
        return len(self._files)

    def __repr__(self) -> str:
        of = "" if self.plan is None else f" of {self.plan.directory}"
        return f"<results{of}: {', '.join(self)}>"

    def scan(self, table: str) -> pl.LazyFrame:
        """Return a table lazily: only the needed columns and rows are read."""
        file, remedy = self._file(table), self._remedy
        if table in (ENSEMBLES, DRAWS) and self.plan and not file.exists():
            remedy = f"draw them again: {command('howmany', self.plan.directory)}"
        try:
            frame = scan_parquet(file)
            written = self._checksums.get(table)
            if written is not None and checksum(file) != written:
                raise DamagedFile(file, "is of another analysis than the record beside it")
            if table in (ENSEMBLES, DRAWS) and self._checksums:  # none from earlier versions
                self._require_current(file)
        except FileNotFoundError:
            raise DamagedFile(file, "is absent", remedy) from None
        except DamagedFile as error:
            raise DamagedFile(error.file, error.reason, remedy) from None
        with self.damage_named(table):
            return _with_later_axes(frame)

    def is_as_recorded(self, table: str, since: int) -> bool:
        """Whether a table was not written after `since`, and has the checksum of the record."""
        try:
            file = self._files[table]
            return file.stat().st_mtime_ns <= since and checksum(file) == self._checksums[table]
        except (OSError, DamagedFile, KeyError):
            return False

    def _file(self, table: str) -> Path:
        if table in self._files:
            return self._files[table]
        if may_be_absent(table):
            raise UnknownTable(
                "is absent", key="table", value=table, remedy=further(table, self.plan)
            )
        remedy = nearest(str(table), self)
        raise UnknownTable("unknown table", key="table", value=table, remedy=remedy)

    def _require_whole(self) -> None:
        from manyseed.analysis.metrics.registry import METRICS

        known = self.scan("runs").collect_schema().names()
        wanted = [column.name for metric in METRICS.values() for column in metric.runs]
        if lacking := [name for name in wanted if name not in known]:
            more = f" and {len(lacking) - 1:,} more columns" if len(lacking) > 1 else ""
            raise UserError(
                f"an earlier version computed these results, which lack {lacking[0]}{more}",
                file=self._files["runs"],
                remedy=self._remedy,
            )

    def metadata(self, table: str) -> dict[str, str]:
        """Return the metadata of a table's file: `columns` and `conventions`, as JSON."""
        return read_metadata(self._file(table), self._remedy)

    def _require_current(self, ensembles: Path) -> None:
        """Raise DamagedFile for ensembles of other predictions than those analysed."""
        inputs = ensembles.with_name(f"{INPUTS}{ensembles.suffix}")
        try:
            analysed = read_parquet(inputs, INPUT_COLUMNS)
        except FileNotFoundError:
            raise DamagedFile(inputs, "is absent") from None
        drawn = read_parquet(ensembles, INPUT_COLUMNS, list(INPUT_COLUMNS))
        if not drawn.join(analysed, on=list(INPUT_COLUMNS), how="anti").is_empty():
            raise DamagedFile(ensembles, "is of other predictions than those that were analysed")

    def damage_named(self, table: str) -> AbstractContextManager[None]:
        """Turn polars's errors from decoding a table into `DamagedFile`."""
        return damage_named(self._file(table), self._remedy)

    def of_figures(self, table: str) -> pl.DataFrame | None:
        """Return a further table that figures are drawn from; None if it is absent.

        Margins, the one table with more rows than runs, without what the table of cells says too.
        """
        if table not in self:
            return None
        with self.damage_named(table):
            frame = self.scan(table)
            again = ("cell_id", *AXES) if table == MARGINS else ()
            return frame.drop(again, strict=False).collect()

    def of_analysis(
        self,
        pair_columns: Sequence[str],
        *,
        run_columns: Sequence[str] | None = None,
        whole: bool = False,
    ) -> Tables:
        """Return the tables that `analysis` knows, with only some columns of the many pairs.

        `run_columns`: those wanted of runs; by default all. `whole`: whether to refuse tables of an
        earlier version, which lack columns of this one.
        """
        from manyseed.analysis.tables.rows import Tables

        if whole:
            self._require_whole()

        def only(table: str, names: Sequence[str]) -> pl.DataFrame:
            wanted = cs.by_name(*names, require_all=False)  # earlier versions had fewer
            with self.damage_named(table):
                return self.scan(table).select(wanted).collect()

        runs = self["runs"] if run_columns is None else only("runs", run_columns)
        return Tables(runs, only("pairs", pair_columns), self["repeats"], self["cells"])


def _with_later_axes(frame: pl.LazyFrame) -> pl.LazyFrame:
    """Return a table with the axes that were introduced after it was written, in their places."""
    names = frame.collect_schema().names()
    missing = [axis for axis in LATER if axis not in names]
    if not missing or AXES[-1 - len(LATER)] not in names:  # the table has no axes
        return frame
    present = [axis for axis in AXES if axis in names]
    at = names.index(present[-1]) + 1
    added = frame.with_columns(pl.lit(LATER[axis]).alias(axis) for axis in missing)
    return added.select(*names[:at], *missing, *names[at:])


def read_results(paths: SweepPaths) -> Results:
    """Return the result tables: `TABLES`, and the others that exist."""
    files = {name: paths.table(name) for name in TABLES}
    try:
        record = Analysis.read(paths)
    except FileNotFoundError:
        record = None
    lost = [file for file in files.values() if not file.exists()]
    if record is None or lost:
        if record is None and not survey(paths).finished_cells.height:
            raise nothing_finished(paths)
        is_one = record is not None and len(lost) < len(files)
        raise UserError(
            "is lost" if is_one else "there are no results yet",
            file=lost[0] if is_one else paths.results,
            remedy=f"compute them with: {paths.analysing}",
        )
    drawn = (ENSEMBLES, DRAWS)
    names = [name for name in table_names() if name not in (*TABLES, *drawn)]
    # a recorded table whose file is missing is reported as damage on access
    known = {*record.tables} or {name for name in names if paths.table(name).exists()}
    known |= {n for n in drawn if paths.ensembles_mark.exists() or paths.table(n).exists()}
    files |= {name: paths.table(name) for name in (*drawn, *names) if name in known}
    return Results(files, record.tables, remedy(paths), paths)


def damage(paths: SweepPaths) -> str:
    """Return what is wrong with a result table, and what heals it; empty if nothing is seen.

    Tables that were written after the analysis are read; of others, which are many bytes, only the
    checksum in the footer is compared with the record.
    """
    try:
        results, analysed = read_results(paths), paths.analysis.stat().st_mtime_ns
        for table in results:
            if not results.is_as_recorded(table, analysed):
                results.scan(table)
        with suppress(FileNotFoundError):  # everything is computed again
            read_parquet(paths.table(INPUTS), INPUT_COLUMNS, remedy=remedy(paths))
    except DamagedFile as error:
        return f"The results are damaged: {error}"
    except UserError as error:  # tables are absent
        return str(error)
    return ""


def write_result(
    paths: SweepPaths,
    table: str,
    frame: pl.LazyFrame,
    options: Options,
    conditions: Mapping[str, object] | None = None,
) -> None:
    """Write a result table, with units, meanings and conventions in the schema's metadata.

    The metadata are JSON under two keys: ``columns`` (unit and meaning by name) and ``conventions``
    (the options of the analysis). Rows are written as they are computed, to save memory.

    `options`: options of the analysis. `conditions`: further conventions, stored beside the
    options.
    """
    # heavy, and readers of tables need none of them
    from manyseed.analysis.metrics.registry import schema
    from manyseed.analysis.tables.schema import describe
    from manyseed.orchestrator.plans.plan import PREFIX, meaning

    names = frame.collect_schema().names()
    anchors = {name: meaning(name) for name in names if name.startswith(PREFIX)}
    described = describe(table, names, schema(options.metrics), anchors)
    columns = {
        name: {"unit": unit, "meaning": meaning} for name, (unit, meaning) in described.items()
    }
    metadata = {
        "columns": _json(columns),
        "conventions": _json({**to_json(options), **(conditions or {})}),
    }
    # stronger compression takes twice the time and saves a twelfth
    write_parquet(paths.table(table), frame, metadata, compression_level=1)


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
