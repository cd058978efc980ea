"""The plan on disk: cells, append-only parts with one row per run, dropped cells, and its marks."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import polars as pl
from annotated_types import Interval

from manyseed.analysis.axes import LATER
from manyseed.jobs.ensembling.methods import NONE
from manyseed.jobs.hparams.grid import is_written, names
from manyseed.orchestrator.disk.parquet import read_metadata, read_parquet, write_parquet
from manyseed.orchestrator.disk.placing import place_new, unavailable
from manyseed.orchestrator.disk.records import json_text, read_record, require_same_plan
from manyseed.orchestrator.errors import RESTORE, DamagedFile, UnavailableError, UserError
from manyseed.orchestrator.paths import GIVEN, SweepPaths
from manyseed.orchestrator.store.arrays import NOISY, SEEN
from manyseed.orchestrator.store.index import JournalFolder

if TYPE_CHECKING:
    from manyseed.jobs.run import Cell


def lost(file: Path) -> DamagedFile:
    """Return the error about a part or list that is missing though its mark exists."""
    mark, remedy = marker(file), None
    if file.suffix == ".json":
        remedy = f"{RESTORE}; or remove {mark.name} beside it: "
        remedy += "the cells that it dropped are planned again"
    return DamagedFile(file, f"is absent, though {mark.name} shows that it was made", remedy)


def marker(file: Path) -> Path:
    """Return the empty file that marks a part or a list of dropped cells as made for good."""
    return file.with_name(file.name + GIVEN)


def mark(paths: SweepPaths) -> None:
    """Mark existing parts, lists of dropped cells and ids of points, so that a loss is noticed.

    Nothing else shows that the last of them are gone. Sweeps of earlier versions get their marks
    with the next planning or drop.
    """
    for file in (*paths.parts(), *paths.all_dropped(), *paths.all_points()):
        if not (empty := marker(file)).exists():
            with unavailable("write", empty):
                empty.touch()


ROWS: Mapping[str, pl.DataType] = {
    "cell": pl.UInt32(),
    "repeat": pl.UInt16(),
    "run": pl.UInt16(),
    "row": pl.UInt32(),
}
"""The columns of a part: the run's cell, its test set, its number within the repeat, and its row
in the group's store."""

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
"""The columns of ``cells.parquet``: `cell` numbers the cells of this sweep, `group` and `path` say
where their predictions are, `device` is the requested resource class, `core_seconds` the expected
duration of a fit on one core, `canonical` the description that `cell_id` identifies, `part` the
plan part that added the cell."""

METHOD = (
    pl.when(pl.all_horizontal(pl.col(axis) == value for axis, value in LATER.items()))
    .then(pl.lit(""))
    .otherwise(
        pl.concat_str(
            "ensembling",
            *(
                pl.when(pl.col(axis) == NONE).then(pl.lit("")).otherwise(pl.lit(suffix))
                for axis, suffix in (("test_augment", SEEN), ("perturb_labels", NOISY))
            ),
        )
    )
    .alias("method")
)
"""`GroupSpec.ensembling` of a cell's group: cells that use a `LATER` axis have their own groups."""

WITH_METHOD = (
    pl.when(pl.col("ensembling") == NONE)
    .then(pl.col("classifier"))
    .otherwise(pl.concat_str("classifier", pl.lit("~"), "ensembling"))
)
"""A cell's classifier, with its ensembling method if any: costs are estimated for each of these."""

_CELLS_DIGEST = "cells"
"""Key in a part's footer: the SHA-256, in hexadecimal, of the cells planned when the part was
written. Parts of earlier versions lack it."""

_IDENTITY = "plan"  # key in the first part's footer: the plan's identity

_UNKNOWN_SECONDS = 1.0  # the expected duration of a fit in plans that do not record one


@dataclass(frozen=True, slots=True)
class Dropped:
    """The cells that one `drop` removed, with its condition, its time and the plan's identity."""

    cells: tuple[Annotated[int, Interval(ge=0, lt=2**32)], ...]
    where: str = ""
    dropped: str = ""
    plan: str = ""

    def write(self, paths: SweepPaths, before_link: Callable[[], None] | None = None) -> None:
        """Write this as the sweep's newest list of dropped cells."""
        numbers = (int(file.stem.rpartition("-")[2]) for file in paths.all_dropped())
        file = paths.dropped(max(numbers, default=0) + 1)
        record = {name: value for name, value in asdict(self).items() if value or name != "plan"}
        place_new(file, json_text(record), before_link)


IS_IMPORTED = pl.col("canonical").str.contains('"source":"imported"', literal=True)
"""Whether a cell's predictions were made elsewhere."""


@dataclass(frozen=True)
class Plan:
    """The cells and runs that a sweep holds.

    `all_cells`: columns `CELLS`, in order of their number; including dropped cells. `parts`:
    columns `ROWS`, oldest part first; including runs of dropped cells. `dropped`: numbers of the
    cells that were removed for good.
    """

    all_cells: pl.DataFrame
    parts: tuple[pl.DataFrame, ...]
    dropped: pl.Series

    @property
    def is_imported(self) -> bool:
        """Whether its predictions were made elsewhere: then there is nothing to train."""
        return bool(self.all_cells.select(IS_IMPORTED.any()).item())

    @classmethod
    def empty(cls) -> Plan:
        """Return a plan that holds nothing."""
        return cls(pl.DataFrame(schema=dict(CELLS)), (), _numbers([]))

    @classmethod
    def read(cls, paths: SweepPaths) -> Plan:
        """Read a sweep's plan.

        Writing a part commits a planning: cells that no part refers to are left over from an
        interrupted planning and are ignored.
        """
        marked = paths.marked_files()  # read first: a file exists before its mark does
        files, lists = paths.parts(), paths.all_dropped()
        for file in marked:
            if file not in {*files, *lists}:
                raise lost(file)
        for number, file in enumerate(files, 1):
            if file != paths.part(number):
                raise DamagedFile(paths.part(number), "is absent, though later parts are there")
        parts = tuple(read_parquet(file, ROWS).select(*ROWS) for file in files)
        if not paths.cells.exists():
            raise DamagedFile(paths.cells, "is absent")
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
        """All cells but the dropped ones."""
        return self._without_dropped(self.all_cells)

    @cached_property
    def rows(self) -> pl.DataFrame:
        """Every run but those of dropped cells: columns group, cell, repeat, run, row."""
        return self._without_dropped(self.all_rows)

    @cached_property
    def all_rows(self) -> pl.DataFrame:
        """Every run that has a row in the store: columns group, cell, repeat, run, row."""
        if not self.parts:
            return pl.DataFrame(schema=pl.Schema({"group": pl.UInt32(), **ROWS}))
        return pl.concat([self.with_group(part) for part in self.parts])

    def with_group(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Add the group to rows of parts: columns group, cell, repeat, run, row."""
        return rows.select(self.all_cells["group"].gather(rows["cell"]), *ROWS)

    @cached_property
    def extents(self) -> pl.DataFrame:
        """The planned size of every cell, including dropped ones: columns cell, repeats, runs.

        A plan only grows, and each cell as a whole: a cell has exactly repeats × runs runs. Those
        that were imported may have any numbers, such as seeds from 100 on: `runs` is how many.
        """
        rows = pl.concat(self.parts) if self.parts else pl.DataFrame(schema=pl.Schema(ROWS))
        numbered = pl.col("run").max().cast(pl.UInt32) + 1
        return rows.group_by("cell").agg(
            repeats=pl.col("repeat").max().cast(pl.UInt32) + 1,
            runs=pl.col("run").n_unique() if self.is_imported else numbered,
        )

    @cached_property
    def identity(self) -> str:
        """The plan's identity, 32 hexadecimal digits; empty if nothing is planned.

        A digest of the first part and its cells, so it stays the same when the plan grows.
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
        """Return the sweep's journals, ignoring those of another plan."""
        return JournalFolder(paths.journals, self.identity)

    @cached_property
    def groups(self) -> pl.DataFrame:
        """Every group: columns group, path, dataset, classifier, length (rows with padding).

        The classifier is named as in `GroupSpec.named`.
        """
        lengths = self.all_rows.group_by("group").agg(length=pl.col("row").max() + 1)
        first = self.all_cells.group_by("group").first().with_columns(METHOD)
        suffix = pl.when(pl.col("method") != "").then(pl.format("~{}", "method"))
        named = pl.concat_str("classifier", suffix.otherwise(pl.lit("")))
        names = first.select("group", "path", "dataset", classifier=named)
        return names.join(lengths, on="group", how="left").sort("group")

    @property
    def lengths(self) -> dict[int, int]:
        """The number of rows of each group, including the padding between parts."""
        return dict(self.groups.select("group", "length").iter_rows())

    def cell(self, number: int) -> Cell:
        """Return a cell by its number."""
        from manyseed.jobs.run import Cell

        return Cell.from_text(self.all_cells["canonical"][number])

    def first_cell(self, group: int) -> Cell:
        """Return the first cell of a group; all its cells share dataset and classifier."""
        return self.cell(self.all_cells.filter(pl.col("group") == group)["cell"][0])

    def _without_dropped(self, frame: pl.DataFrame) -> pl.DataFrame:
        if self.dropped.is_empty():
            return frame
        return frame.filter(~pl.col("cell").is_in(self.dropped.implode()))


def _require_one_plan(
    cells: pl.DataFrame, parts: Sequence[pl.DataFrame], paths: SweepPaths
) -> None:
    """Refuse cells and parts that do not match, as when one file comes from another sweep."""
    numbers = cells["cell"]
    expected = pl.int_range(len(cells), dtype=pl.UInt32, eager=True)
    if cells.null_count().sum_horizontal()[0] or not (numbers == expected).all():
        raise DamagedFile(paths.cells, "does not describe each of the cells 0, 1, 2, … once")
    for number, part in enumerate(parts, 1):
        used = part["cell"].unique()
        if part.null_count().sum_horizontal()[0] or not used.is_in(numbers.implode()).all():
            raise DamagedFile(paths.part(number), "holds runs of cells that cells.parquet lacks")
        new = cells.filter(part=number)["cell"]
        if not new.is_in(used.implode()).all():
            raise DamagedFile(paths.part(number), "lacks the runs of cells that it added")


def _require_same_cells(cells: pl.DataFrame, files: Sequence[Path], paths: SweepPaths) -> None:
    """Refuse parts that were planned with other cells, such as those of a similar sweep."""
    digests = _digests(cells, len(files))
    for file, digest in zip(files, digests, strict=True):
        if read_metadata(file).get(_CELLS_DIGEST, digest) != digest:
            raise DamagedFile(
                paths.cells,
                f"does not hold the cells that {file} was planned with:"
                " one of the two is another sweep's",
            )


def _digests(cells: pl.DataFrame, n_parts: int) -> list[str]:
    """Return for every part the digest of the cells that it and all earlier parts added."""
    digest, digests = hashlib.sha256(), []
    for number in range(1, n_parts + 1):
        added = cells.filter(part=number).sort("cell")
        lines = added.select(pl.concat_str("cell", "cell_id", "group", "path", separator="\t"))
        digest.update("".join(f"{line}\n" for line in lines.to_series()).encode())
        digests.append(digest.copy().hexdigest())
    return digests


def _dropped(lists: Sequence[Path], plan: str) -> list[int]:
    """Return the cells on lists of dropped cells; refuse a list of another plan."""
    cells: list[int] = []
    for file in lists:
        dropped = read_record(file, Dropped)
        require_same_plan(file, dropped.plan, plan)
        cells += dropped.cells
    return cells


def identity_of(paths: SweepPaths) -> str:
    """Return the identity of a sweep's plan without reading it.

    Empty if nothing is planned, if an earlier version wrote the plan, or if its file cannot be
    read: reading the plan reports that.
    """
    try:
        return read_metadata(paths.part(1)).get(_IDENTITY, "")
    except (FileNotFoundError, DamagedFile, UnavailableError):
        return ""


def _complete(cells: pl.DataFrame, file: Path) -> pl.DataFrame:
    """Add columns that earlier plans lack; refuse cells that another version wrote."""
    if "core_seconds" not in cells.columns:  # an early plan; observed durations correct it
        cells = cells.with_columns(core_seconds=pl.lit(_UNKNOWN_SECONDS))
    cells = cells.with_columns(
        pl.lit(value).alias(axis) for axis, value in LATER.items() if axis not in cells.columns
    )
    if set(cells.columns) != set(CELLS):
        differing = ", ".join(sorted(set(cells.columns) ^ set(CELLS)))
        raise UserError(
            f"another version of manyseed wrote this plan, with other columns: {differing}",
            file=file,
            remedy="keep using that version, or export its predictions and import them with this",
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
    """Write a plan's cells, then its newest part, which commits both.

    A `LATER` axis gets no column while no cell uses it, as in earlier versions.

    `new_part`: whether to write its last part. `before_rename`: called before each file appears; an
    exception from it abandons the file.
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


PREFIX = "hparam_"


def with_anchors(cells: pl.DataFrame) -> pl.DataFrame:
    """Add a column ``hparam_NAME`` for each hparam that a grid among these cells varies.

    It holds the anchor of every cell, also of those outside a grid: null if the classifier has no
    such hparam, or if a search finds it. Cells without grids are returned unchanged.

    `cells`: with the columns hparams and canonical.
    """
    written = filter(is_written, cells["hparams"].unique())
    varied = sorted({name for text in written for name in names(text)})
    if not varied:
        return cells
    anchors = [json.loads(canonical)["hparams"] for canonical in cells["canonical"]]
    values_of = {name: [each.get(name) for each in anchors] for name in varied}
    return cells.with_columns(
        _column(f"{PREFIX}{name}", values)
        for name, values in values_of.items()
        if any(value is not None for value in values)  # imported cells may have such names
    )


def _column(name: str, values: Sequence[Any]) -> pl.Series:
    """Return a column of one type: booleans or numbers if all values are, else strings."""
    kinds = {type(value) for value in values if value is not None}
    for whole, dtype in (({bool}, pl.Boolean), ({int}, pl.Int64), ({int, float}, pl.Float64)):
        if kinds <= whole:
            return pl.Series(name, values, dtype=dtype)
    texts = [value if value is None else str(value) for value in values]
    return pl.Series(name, texts, dtype=pl.String)


def meaning(name: str) -> tuple[str, str]:
    """Return the unit and the meaning of such a column."""
    hparam = name.removeprefix(PREFIX)
    return "", f"The cell's anchor of the hparam {hparam}; null if it has none or searches for it."
