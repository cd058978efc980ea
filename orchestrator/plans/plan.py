"""The plan on disk: cells, append-only parts with one row per run, and cells that were dropped."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated

import polars as pl
from annotated_types import Interval

from manyseed.analysis.axes import LATER
from manyseed.jobs.ensembling.methods import NONE
from manyseed.jobs.run import Cell
from manyseed.orchestrator.disk.parquet import read_metadata, read_parquet, write_parquet
from manyseed.orchestrator.disk.placing import place_new
from manyseed.orchestrator.disk.records import json_text, read_record, require_same_plan
from manyseed.orchestrator.errors import DamagedFile, UnavailableError, UserError
from manyseed.orchestrator.paths import SweepPaths
from manyseed.orchestrator.plans.marks import lost, mark
from manyseed.orchestrator.store.journals.index import JournalFolder
from manyseed.orchestrator.store.layout.arrays import SEEN

ROWS: Mapping[str, pl.DataType] = {
    "cell": pl.UInt32(),
    "repeat": pl.UInt16(),
    "run": pl.UInt16(),
    "row": pl.UInt32(),
}
"""The columns of a part: which cell, which test set, which run of the repeat, which row of its
group in the store."""

CELLS: Mapping[str, pl.DataType] = {
    "cell": pl.UInt32(),
    "cell_id": pl.String(),
    "group": pl.UInt32(),
    "path": pl.String(),
    "dataset": pl.String(),
    "classifier": pl.String(),
    "train_fraction": pl.Float64(),
    "perturb_continuous": pl.String(),
    "perturb_categorical": pl.String(),
    "perturb_hparams": pl.String(),
    "hparams": pl.String(),
    "vary": pl.String(),
    **dict.fromkeys(LATER, pl.String()),
    "identical": pl.Boolean(),
    "snapshots": pl.List(pl.Int32),
    "device": pl.String(),
    "core_seconds": pl.Float64(),
    "canonical": pl.String(),
    "part": pl.UInt32(),
}
"""``cells.parquet``: `cell` numbers the cells of this sweep, `group` and `path` say where their
predictions are, `device` is the resource class requested, `core_seconds` what a fit is
expected to take on one core, `canonical` the description that `cell_id` is the identity of, `part`
the plan part that brought the cell."""

METHOD = (
    pl.when(pl.all_horizontal(pl.col(axis) == value for axis, value in LATER.items()))
    .then(pl.lit(""))
    .when(pl.col("test_augment") == NONE)
    .then(pl.col("ensembling"))
    .otherwise(pl.concat_str("ensembling", pl.lit(SEEN)))
    .alias("method")
)
"""`GroupSpec.ensembling` of a cell's group: those with an axis that came later have their own."""

WITH_METHOD = (
    pl.when(pl.col("ensembling") == NONE)
    .then(pl.col("classifier"))
    .otherwise(pl.concat_str("classifier", pl.lit("~"), "ensembling"))
)
"""A cell's classifier, and the ensembling method where there is one: what is priced apart."""

_CELLS_DIGEST = "cells"
"""In a part's footer: the SHA-256 of the cells that were planned when it was written, as
hexadecimal digits. Parts of earlier versions have none."""

_IDENTITY = "plan"
"""In the first part's footer: the plan's identity."""

_UNKNOWN_SECONDS = 1.0
"""What a fit is expected to take where a plan does not say it."""


@dataclass(frozen=True, slots=True)
class Dropped:
    """The cells that one `drop` took out: by which condition, when, and of which plan."""

    cells: tuple[Annotated[int, Interval(ge=0, lt=2**32)], ...]
    where: str = ""
    dropped: str = ""
    plan: str = ""

    def write(self, paths: SweepPaths, before_link: Callable[[], None] | None = None) -> None:
        """Write it as the newest of a sweep."""
        numbers = (int(file.stem.rpartition("-")[2]) for file in paths.all_dropped())
        file = paths.dropped(max(numbers, default=0) + 1)
        said = {name: value for name, value in asdict(self).items() if value or name != "plan"}
        place_new(file, json_text(said), before_link)


IS_IMPORTED = pl.col("canonical").str.contains('"source":"imported"', literal=True)
"""Of cells: whether their predictions were made elsewhere."""


@dataclass(frozen=True)
class Plan:
    """The cells and runs that a sweep holds.

    Attributes
    ----------
    all_cells : DataFrame
        `CELLS`, by number; dropped ones too.
    parts : tuple of DataFrame
        `ROWS`, oldest first; runs of dropped cells too.
    dropped : Series
        Numbers of the cells that were taken out for good.
    """

    all_cells: pl.DataFrame
    parts: tuple[pl.DataFrame, ...]
    dropped: pl.Series

    @classmethod
    def empty(cls) -> Plan:
        """Return a plan that holds nothing."""
        return cls(pl.DataFrame(schema=dict(CELLS)), (), _numbers([]))

    @classmethod
    def read(cls, paths: SweepPaths) -> Plan:
        """Read a sweep's plan.

        A part is the commit of a planning: cells that no part refers to are left over from one
        that was interrupted, and don't exist.
        """
        marked = paths.marked_files()  # first: what is marked was there before its mark
        files, lists = paths.parts(), paths.all_dropped()
        for file in marked:
            if file not in {*files, *lists}:
                raise lost(file)
        for number, file in enumerate(files, 1):
            if file != paths.part(number):
                raise DamagedFile(paths.part(number), "is absent, though later parts are there")
        parts = tuple(read_parquet(file, ROWS).select(*ROWS) for file in files)
        cells = (
            _complete(read_parquet(paths.cells), paths.cells)
            .filter(pl.col("part") <= len(parts))
            .sort("cell")
        )
        _require_one_plan(cells, parts, paths)
        _require_same_cells(cells, files, paths)
        return cls(cells, parts, _numbers(_dropped(lists, identity_of(paths))))

    @cached_property
    def cells(self) -> pl.DataFrame:
        """The cells that were not dropped."""
        return self._without_dropped(self.all_cells)

    @cached_property
    def rows(self) -> pl.DataFrame:
        """Every run with its group, dropped cells' left out: group, cell, repeat, run, row."""
        return self._without_dropped(self.all_rows)

    @cached_property
    def all_rows(self) -> pl.DataFrame:
        """Every run that has a row in the store: columns group, cell, repeat, run, row."""
        if not self.parts:
            return pl.DataFrame(schema=pl.Schema({"group": pl.UInt32(), **ROWS}))
        return pl.concat([self.with_group(part) for part in self.parts])

    def with_group(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Return rows of parts with their group: columns group, cell, repeat, run, row."""
        return rows.select(self.all_cells["group"].gather(rows["cell"]), *ROWS)

    @cached_property
    def extents(self) -> pl.DataFrame:
        """What is planned of every cell, dropped ones too: columns cell, repeats, runs.

        A plan only grows, and grows each cell as a whole: its runs are all of repeats × runs.
        """
        rows = pl.concat(self.parts) if self.parts else pl.DataFrame(schema=pl.Schema(ROWS))
        return rows.group_by("cell").agg(
            repeats=pl.col("repeat").max().cast(pl.UInt32) + 1,
            runs=pl.col("run").max().cast(pl.UInt32) + 1,
        )

    @cached_property
    def identity(self) -> str:
        """What identifies this plan, 32 hexadecimal digits; empty where nothing is planned.

        Taken over the first part and the cells that came with it: it stays when the plan grows.
        """
        if not self.parts:
            return ""
        digest = hashlib.sha256()
        for cell in self.all_cells.filter(part=1).select("cell", "cell_id", "path").iter_rows():
            digest.update(repr(cell).encode())
        for column in self.parts[0].sort("cell", "repeat", "run").iter_columns():
            digest.update(column.to_numpy().tobytes())
        return digest.digest()[:16].hex()

    def journals(self, paths: SweepPaths) -> JournalFolder:
        """Return the sweep's journals; those of another plan do not count."""
        return JournalFolder(paths.journals, self.identity)

    @cached_property
    def groups(self) -> pl.DataFrame:
        """Every group: columns group, path, dataset, classifier, length (rows with padding).

        The classifier is named as in `GroupSpec.named`.
        """
        lengths = self.all_rows.group_by("group").agg(length=pl.col("row").max() + 1)
        first = self.all_cells.group_by("group").first().with_columns(METHOD)
        own = pl.when(pl.col("method") != "").then(pl.format("~{}", "method"))
        named = pl.concat_str("classifier", own.otherwise(pl.lit("")))
        names = first.select("group", "path", "dataset", classifier=named)
        return names.join(lengths, on="group", how="left").sort("group")

    @property
    def lengths(self) -> dict[int, int]:
        """Rows of each group, with the padding between parts."""
        return dict(self.groups.select("group", "length").iter_rows())

    def cell(self, number: int) -> Cell:
        """Return what a cell's runs are."""
        return Cell.from_text(self.all_cells["canonical"][number])

    def first_cell(self, group: int) -> Cell:
        """Return the first cell of a group: all share its dataset and classifier."""
        return self.cell(self.all_cells.filter(pl.col("group") == group)["cell"][0])

    def _without_dropped(self, frame: pl.DataFrame) -> pl.DataFrame:
        if self.dropped.is_empty():
            return frame
        return frame.filter(~pl.col("cell").is_in(self.dropped.implode()))


def _require_one_plan(
    cells: pl.DataFrame, parts: Sequence[pl.DataFrame], paths: SweepPaths
) -> None:
    """Refuse cells and parts that do not belong together, as when one file is another sweep's.

    Raises
    ------
    DamagedFile
    """
    numbers = cells["cell"]
    expected = pl.int_range(len(cells), dtype=pl.UInt32, eager=True)
    if cells.null_count().sum_horizontal()[0] or not (numbers == expected).all():
        raise DamagedFile(paths.cells, "does not describe the cells 0, 1, 2, … one by one")
    used = [part["cell"].unique() for part in parts]
    for number, (part, own) in enumerate(zip(parts, used, strict=True), 1):
        if part.null_count().sum_horizontal()[0] or not own.is_in(numbers.implode()).all():
            raise DamagedFile(paths.part(number), "holds runs of cells that cells.parquet lacks")
        new = cells.filter(part=number)["cell"]
        if not new.is_in(own.implode()).all():
            raise DamagedFile(paths.part(number), "lacks the runs of cells that came with it")


def _require_same_cells(cells: pl.DataFrame, files: Sequence[Path], paths: SweepPaths) -> None:
    """Refuse parts that were planned with other cells, as those of another sweep of the same form.

    Raises
    ------
    DamagedFile
    """
    digests = _digests(cells, len(files))
    for file, digest in zip(files, digests, strict=True):
        if read_metadata(file).get(_CELLS_DIGEST, digest) != digest:
            raise DamagedFile(
                paths.cells,
                f"does not hold the cells that {file} was planned with:"
                " one of the two is another sweep's",
            )


def _digests(cells: pl.DataFrame, n_parts: int) -> list[str]:
    """Return for every part the digest of the cells that it and the parts before it brought."""
    digest, digests = hashlib.sha256(), []
    for number in range(1, n_parts + 1):
        own = cells.filter(part=number).sort("cell")
        lines = own.select(pl.concat_str("cell", "cell_id", "group", "path", separator="\t"))
        digest.update("".join(f"{line}\n" for line in lines.to_series()).encode())
        digests.append(digest.copy().hexdigest())
    return digests


def _dropped(lists: Sequence[Path], plan: str) -> list[int]:
    """Return the cells on lists of dropped ones; refuse those of another plan.

    Raises
    ------
    DamagedFile
    """
    cells: list[int] = []
    for file in lists:
        one = read_record(file, Dropped)
        require_same_plan(file, one.plan, plan)
        cells += one.cells
    return cells


def identity_of(paths: SweepPaths) -> str:
    """Return the identity of a sweep's plan without reading it.

    Empty where nothing is planned, an earlier version planned it, or its file cannot be read: those
    who read the plan say so.
    """
    try:
        return read_metadata(paths.part(1)).get(_IDENTITY, "")
    except (FileNotFoundError, DamagedFile, UnavailableError):
        return ""


def _complete(cells: pl.DataFrame, file: Path) -> pl.DataFrame:
    """Return cells with the columns that plans have; refuse those of another version.

    Raises
    ------
    UserError
    """
    if "core_seconds" not in cells.columns:  # as early plans; what has run corrects it
        cells = cells.with_columns(core_seconds=pl.lit(_UNKNOWN_SECONDS))
    cells = cells.with_columns(
        pl.lit(value).alias(axis) for axis, value in LATER.items() if axis not in cells.columns
    )
    if set(cells.columns) != set(CELLS):
        differing = ", ".join(sorted(set(cells.columns) ^ set(CELLS)))
        raise UserError(
            f"another version of manyseed wrote this plan, with other columns: {differing}",
            file=file,
            remedy="go on with that version; or export its predictions and import them with this",
        )
    return cells.select(*CELLS)


def _numbers(cells: list[int]) -> pl.Series:
    return pl.Series("cell", cells, dtype=pl.UInt32).unique()


def write_plan(
    paths: SweepPaths,
    plan: Plan,
    *,
    new_part: bool,
    before_rename: Callable[[], None] | None = None,
) -> None:
    """Write a plan's cells, then its newest part: the part's appearance commits both.

    Axes that came later have no column while no cell uses them, as in earlier versions.

    Parameters
    ----------
    paths : SweepPaths
    plan : Plan
    new_part : bool
        Whether its last part is to be written.
    before_rename : callable, optional
        Called before each file appears; what it raises abandons it.
    """
    unused = [axis for axis in LATER if (plan.all_cells[axis] == LATER[axis]).all()]
    write_parquet(paths.cells, plan.all_cells.drop(unused), before_rename=before_rename)
    if new_part:
        number = len(plan.parts)
        metadata = {_CELLS_DIGEST: _digests(plan.all_cells, number)[-1]}
        if number == 1:
            metadata[_IDENTITY] = plan.identity
        write_parquet(
            paths.part(number),
            plan.parts[-1],
            metadata,
            is_new=True,
            before_rename=before_rename,
        )
    mark(paths)
