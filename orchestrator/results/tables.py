"""The result tables on disk, and what every one of them says of a cell."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl
from polars import selectors as cs

from manyseed.analysis.axes import AXES, LATER
from manyseed.analysis.tables.keys import PAIR_KEY
from manyseed.orchestrator.disk.parquet import (
    checksum,
    damage_named,
    read_metadata,
    read_parquet,
    scan_parquet,
)
from manyseed.orchestrator.errors import DamagedFile, UserError
from manyseed.orchestrator.paths import SweepPaths
from manyseed.orchestrator.results.record import Analysis, remedy

if TYPE_CHECKING:
    from manyseed.analysis.tables.schema import Tables

PARTS = ("runs", "pairs", "repeats")
TABLES = (*PARTS, "cells", "sources", "ranking")
"""What `analyze` writes."""

ENSEMBLES = "ensembles"
"""What `howmany` adds."""

DRAWS = "ensemble_draws"
"""Each of the ensembles that ENSEMBLES summarises, which `howmany` adds too."""

MARGINS = "margins"
"""What `analyze` writes where α̂ was asked for, and margins were kept."""

CURVES = "curves"
"""What `analyze` writes where learning curves were kept."""

UNCERTAINTY, DEE, TACE = "uncertainty", "dee", "tace"
"""What `analyze` writes where calibrated metrics were asked for, and runs differ."""

RESPONSES, RESPONSE_CURVES, CMI = "responses", "response_curves", "cmi"
"""What `analyze` writes where response curves were measured."""

WITHOUT_REPEATS = (ENSEMBLES, DRAWS, CURVES, RESPONSE_CURVES)
"""Tables whose rows have no copies of runs to be left out of what compares runs."""

WITHOUT_COPIES = (*WITHOUT_REPEATS, UNCERTAINTY, DEE, TACE)
"""Tables whose rows neither are nor compare runs, so that none is of copies."""

EFFECTS, VARIANCE = "effects", "variance"
"""What `analyze` writes too; earlier versions did not."""

OF_EFFECT = ("axis", "level", "reference", "metric")
"""What effects are never averaged over."""

DRAWN_PAIRS = (*PAIR_KEY, "dataset", "classifier", "ec_local", "ec_global", "churn")
"""Columns of pairs that figures and the page are made of."""

INPUTS = "inputs"
"""What the tables were computed from: a digest for each repeat."""

INPUT_COLUMNS: Mapping[str, pl.DataType] = {
    "cell": pl.UInt32(),
    "repeat_index": pl.UInt16(),
    "digest": pl.String(),
}


class Results(Mapping[str, pl.DataFrame]):
    """The result tables of a sweep by name, each read from disk whenever it is asked for.

    Parameters
    ----------
    files : mapping
        Of each table.
    checksums : mapping
        Those of tables that the record of the analysis names.
    remedy : str
        What to do about a damaged one.
    plan : SweepPaths or None
        Of the sweep, which says what is planned.

    Raises
    ------
    DamagedFile
        When a table is asked for that is damaged, or of another analysis.
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
        return table in self._files  # a mapping's own reads it

    def __iter__(self) -> Iterator[str]:
        return iter(self._files)

    def __len__(self) -> int:
        return len(self._files)

    def scan(self, table: str) -> pl.LazyFrame:
        """Return a table lazily: only the columns and rows that are needed are read."""
        file, remedy = self._files[table], self._remedy
        if table in (ENSEMBLES, DRAWS) and self.plan and not file.exists():
            remedy = f"draw them again: manyseed howmany {self.plan.directory}"
        try:
            frame = scan_parquet(file)
            written = self._checksums.get(table)
            if written is not None and checksum(file) != written:
                raise DamagedFile(file, "is of another analysis than the record beside it")
            if table in (ENSEMBLES, DRAWS) and self._checksums:  # earlier versions tied nothing
                self._require_current(file)
        except FileNotFoundError:
            raise DamagedFile(file, "is absent", remedy) from None
        except DamagedFile as error:
            raise DamagedFile(error.file, error.reason, remedy) from None
        with self.damage_named(table):
            return _with_later_axes(frame)

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
        """Return what a table's file says of it: `columns` and `conventions`, as JSON."""
        return read_metadata(self._files[table], self._remedy)

    def _require_current(self, ensembles: Path) -> None:
        """Refuse ensembles of other predictions than those that were analysed."""
        inputs = ensembles.with_name(f"{INPUTS}{ensembles.suffix}")
        try:
            analysed = read_parquet(inputs, INPUT_COLUMNS)
        except FileNotFoundError:
            raise DamagedFile(inputs, "is absent") from None
        drawn = read_parquet(ensembles, INPUT_COLUMNS, list(INPUT_COLUMNS))
        if not drawn.join(analysed, on=list(INPUT_COLUMNS), how="anti").is_empty():
            raise DamagedFile(ensembles, "is of other predictions than those that were analysed")

    def damage_named(self, table: str) -> AbstractContextManager[None]:
        """Turn what polars says where a table cannot be decoded into `DamagedFile`."""
        return damage_named(self._files[table], self._remedy)

    def of_analysis(self, pair_columns: Sequence[str], *, whole: bool = False) -> Tables:
        """Return the tables that `analysis` knows; of the pairs, which are many, some columns.

        Parameters
        ----------
        pair_columns : sequence of str
        whole : bool
            Refuse tables of an earlier version, which lack columns that this one draws.

        Raises
        ------
        UserError
            For tables that are not whole.
        DamagedFile
        """
        from manyseed.analysis.tables.schema import Tables

        if whole:
            self._require_whole()

        with self.damage_named("pairs"):
            wanted = cs.by_name(*pair_columns, require_all=False)  # earlier versions had fewer
            pairs = self.scan("pairs").select(wanted).collect()
        return Tables(self["runs"], pairs, self["repeats"], self["cells"])


def _with_later_axes(frame: pl.LazyFrame) -> pl.LazyFrame:
    """Return a table with the axes that came after it was written, at their places."""
    names = frame.collect_schema().names()
    missing = [axis for axis in LATER if axis not in names]
    if not missing or AXES[-1 - len(LATER)] not in names:  # the table has no axes
        return frame
    present = [axis for axis in AXES if axis in names]
    at = names.index(present[-1]) + 1
    added = frame.with_columns(pl.lit(LATER[axis]).alias(axis) for axis in missing)
    return added.select(*names[:at], *missing, *names[at:])


def read_results(paths: SweepPaths) -> Results:
    """Return the result tables: `TABLES`, and others that there are.

    Raises
    ------
    UserError
        Where there are none yet.
    """
    files = {name: paths.table(name) for name in TABLES}
    try:
        record = Analysis.read(paths)
    except FileNotFoundError:
        record = None
    if record is None or not all(file.exists() for file in files.values()):
        raise UserError(
            "there are no results yet",
            file=paths.results,
            remedy=f"compute them with: manyseed analyze {paths.directory}",
        )
    drawn = (ENSEMBLES, DRAWS)
    deep = (UNCERTAINTY, DEE, TACE)
    names = (MARGINS, CURVES, *deep, RESPONSES, RESPONSE_CURVES, CMI)
    # one that was written and is absent is damage where it is asked for
    there = {*record.tables} or {name for name in names if paths.table(name).exists()}
    there |= {n for n in drawn if paths.ensembles_mark.exists() or paths.table(n).exists()}
    further = (EFFECTS, VARIANCE, *drawn, *names)
    files |= {name: paths.table(name) for name in further if name in there}
    return Results(files, record.tables, remedy(paths), paths)
