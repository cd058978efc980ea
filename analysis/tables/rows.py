"""Rows of result tables: their keys, which of them count, and how they are aggregated.

Columns that compare the runs of a repeat (consistency, churn, range, spread, α̂) are aggregated over
repeats whose runs vary; repeats of identical runs are left out and counted separately. Standard
deviations are pooled. α̂ of two probes is never averaged.

Where one answer per cell is needed, the cell's last analysed snapshot gives it; tables of earlier
versions have no column `epoch`, and one snapshot. Imports nothing that computes metrics.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, TypeVar

import polars as pl

from manyseed.analysis import counts
from manyseed.analysis.axes import FRACTION, VARY

EPOCH = {"epoch": pl.UInt32}  # the column that names a row's snapshot, and its type

REPEAT = ("cell", "repeat_index")
RUN = (*REPEAT, "run_index")
PAIR = (*REPEAT, "run_i", "run_j")
REPEAT_KEY = ("cell", "epoch", "repeat_index")
RUN_KEY = (*REPEAT_KEY, "run_index")
PAIR_KEY = (*REPEAT_KEY, "run_i", "run_j")
CELL_KEY = ("cell", "epoch")
IS_METHOD = pl.col("run_index").is_not_null()
"""Whether a row of the table uncertainty averages the members of one run: no deep ensemble."""


VARIES = pl.col("n_distinct") > 1  # whether the runs of a repeat differ: at least two are distinct
IS_ONE_MODEL = (pl.col("n_identical_repeats") == pl.col("n_repeats")) & (
    pl.col("n_runs") > pl.col("n_distinct")
)  # of a cell: whether all runs on a test set are copies of one

_COMPARING = (
    *("ec_", "churn", "agreement", "label_kappa"),
    *("alpha_hat", "ks_distance", "ks_rejected", "below_resolution", "wasserstein"),
)
_FACTS = ("n_test", "n_side", "n_wrong_by_any")


Failures = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Tables:
    """The results of one group; ``docs/results.md`` describes every column.

    `runs`: one row per finished run and snapshot, sorted by cell, epoch, repeat index and run
    index. `pairs`: one row per pair of runs of a repeat, run_i < run_j, and snapshot. `repeats`:
    one row per cell, snapshot and repeat index. `cells`: one row per cell and snapshot: the
    distribution over its repeats. `failures`: why users' own metrics could not be computed; their
    columns are all null.
    """

    runs: pl.DataFrame
    pairs: pl.DataFrame
    repeats: pl.DataFrame
    cells: pl.DataFrame
    failures: Failures = field(default_factory=dict)


def mean_of(column: pl.Expr) -> pl.Expr:
    """Return a column's mean within a group; polars' own depends on the number of threads."""
    return column.implode().list.mean()


def std_of(column: pl.Expr) -> pl.Expr:
    """Return a column's standard deviation (n - 1) within a group, as `mean_of` does."""
    return column.implode().list.std()


def pooled(std: pl.Expr, freedom: pl.Expr) -> pl.Expr:
    """Return the pooled standard deviation of a group's rows; null without a degree of freedom.

    √(Σ f s² / Σ f), s the standard deviation of a row (n - 1) and f its degrees of freedom. Pooled
    values can be pooled again, with the sums of their degrees of freedom, to the same result.
    """
    known = pl.when(std.is_not_null()).then(freedom.cast(pl.Float64))
    total = known.implode().list.sum()
    squares = (known * std**2).implode().list.sum()
    return pl.when(total > 0).then((squares / total).sqrt())


def compares_runs(name: str) -> bool:
    """Return whether a column compares the runs of a repeat, so identical runs are left out."""
    return name.startswith(_COMPARING) or name.endswith(("_range", "_std"))


def is_level(name: str) -> bool:
    """Return whether a column holds α̂: comparable within one probe only, and read with δ."""
    return name.startswith("alpha_hat")


def is_count(name: str) -> bool:
    """Return whether a column is a count, to be summed."""
    return (name.startswith("n_") or name.endswith("_n")) and name not in _FACTS


def of_one_probe(value: pl.Expr) -> pl.Expr:
    """Return a value computed from a group's α̂, null if they rest on several probes."""
    return pl.when(pl.col("probe").drop_nulls().n_unique() <= 1).then(value)


def same_of(column: pl.Expr) -> pl.Expr:
    """Return the value that all rows of a group share, null where they differ."""
    known = column.drop_nulls()
    return pl.when(known.n_unique() == 1).then(known.first())


IS_CROSSED = pl.col("vary").cast(pl.String).str.contains("*", literal=True)
"""Whether a cell's sources are crossed, by its column `vary`: some runs of a repeat then share a
value of one source."""


def diagonal(sources: int) -> list[int]:
    """Return the runs that share no value of so many crossed sources: (0, 0), (1, 1) and so on.

    Each is the last of the runs with no larger value; a repeat has at most 2¹⁶ runs.
    """
    return [k**sources - 1 for k in range(1, 257)]


def independent(tables: Tables) -> Tables:
    """Return tables whose runs and pairs are independent of each other: of a cross, its diagonal.

    `tables`: with the column vary in the repeats, whose other columns stay those of all runs.
    """
    if "vary" not in tables.repeats.columns:
        return tables
    crossed = tables.repeats.filter(IS_CROSSED).select("cell", "vary").unique("cell")
    if crossed.is_empty():
        return tables
    sources = pl.col("vary").cast(pl.String).str.count_matches("*", literal=True) + 1
    diagonals = [(crossed.filter(sources == n)["cell"].implode(), diagonal(n)) for n in (2, 3)]

    def kept(frame: pl.DataFrame, *names: str) -> pl.DataFrame:
        for cells, held in diagonals:
            shares = pl.any_horizontal(~pl.col(name).is_in(held) for name in names)
            frame = frame.filter(~(pl.col("cell").is_in(cells) & shares))
        return frame

    runs, pairs = kept(tables.runs, "run_index"), kept(tables.pairs, "run_i", "run_j")
    return replace(tables, runs=runs, pairs=pairs)


Table = TypeVar("Table", pl.DataFrame, pl.LazyFrame)

IS_LAST = pl.col("epoch") == pl.col("epoch").max().over("cell")
"""Whether a row belongs to its cell's last snapshot, in a table of all analysed snapshots."""


def several(cells: pl.DataFrame) -> bool:
    """Return whether a table holds more than one snapshot of a cell."""
    if "epoch" not in cells.columns:
        return False
    return cells.select(CELL_KEY).n_unique() > cells["cell"].n_unique()


def last(table: Table) -> Table:
    """Return the rows of each cell's last snapshot."""
    return table.filter(IS_LAST) if "epoch" in table.collect_schema() else table


def at_last(tables: Tables) -> Tables:
    """Return the rows of each cell's last snapshot."""
    return of_cells(tables, last(tables.cells)) if several(tables.cells) else tables


def of_cells(tables: Tables, cells: pl.DataFrame) -> Tables:
    """Return the rows of the cells and snapshots that `cells` lists."""
    key = [name for name in CELL_KEY if name in cells.columns]
    wanted = cells.select(key).unique()
    parts: dict[str, Any] = {
        field.name: frame.join(wanted, on=key, how="semi", maintain_order="left")
        for field in fields(tables)
        if isinstance(frame := getattr(tables, field.name), pl.DataFrame)
    }
    return replace(tables, **parts)


def side_by_side(compute: Callable[[Tables], pl.DataFrame], tables: Tables) -> pl.DataFrame:
    """Compute a table for each epoch by itself; sorted by `CELL_KEY` first.

    `compute` takes the tables of one epoch and returns a frame that is sorted by its column cell.
    """
    parts = []
    epochs = tables.cells["epoch"].unique().sort()
    for epoch in epochs:
        at_epoch = tables.cells.filter(epoch=epoch)
        computed = compute(tables if len(epochs) == 1 else of_cells(tables, at_epoch))
        computed = computed.with_columns(pl.lit(epoch, EPOCH["epoch"]).alias("epoch"))
        parts.append(computed.select("cell", "epoch", pl.exclude(CELL_KEY)))
    return pl.concat(parts).sort(CELL_KEY, maintain_order=True)


SAME_AS = "same_as"
"""The column of cells that names the twin that counts; null if it is the cell itself."""

DRAWS_FROM = "draws_from"
"""The column of cells that says which sources in `vary` their fits draw from."""

IS_TWIN = pl.col(SAME_AS).is_not_null()
_FITS = pl.coalesce(SAME_AS, "cell")


def same_as(fits: pl.DataFrame, cells: pl.DataFrame) -> pl.DataFrame:
    """Return which cell counts for all cells with the same fits.

    It is the one with the most finished runs; among equals, the one planned first.

    `fits`: columns cell, draws_from, and fits: equal for cells with the same fits. `cells`: the
    table of cells. Returns columns cell, draws_from and `same_as` (a cell), for the cells of
    `cells`.
    """
    each = cells.group_by("cell", maintain_order=True).agg(pl.col("n_distinct").max())
    known = each.join(fits, on="cell", how="left", maintain_order="left")
    first = pl.col("cell").sort_by("n_distinct", "cell", descending=[True, False]).first()
    known = known.with_columns(first=first.over("fits"))
    other = pl.col("first") != pl.col("cell")
    return known.select("cell", DRAWS_FROM, pl.when(other).then("first").alias(SAME_AS))


def counted(by: Sequence[str] = ()) -> pl.Expr:
    """Return whether a row belongs to a cell that counts.

    In a frame with the columns cell and `same_as`, one cell counts for all with the same fits; with
    `by`, one in each group.
    """
    first = pl.col("cell").sort_by(IS_TWIN, "cell").first()
    return pl.col("cell") == first.over(_FITS, *by)


def cells_once(cells: pl.DataFrame, by: Sequence[str] = ()) -> pl.DataFrame:
    """Return the table of cells with one cell of each set of twins (`counted`)."""
    if SAME_AS not in cells.columns:  # written by an earlier version
        return cells
    return cells.filter(counted(by))


def once(tables: Tables) -> Tables:
    """Return tables with one cell of each set of twins."""
    cells = cells_once(tables.cells)
    if cells.height == tables.cells.height:
        return tables
    runs, pairs, repeats = (
        frame.join(cells, on="cell", how="semi", maintain_order="left")
        if "cell" in frame.columns
        else frame
        for frame in (tables.runs, tables.pairs, tables.repeats)
    )
    return replace(tables, runs=runs, pairs=pairs, repeats=repeats, cells=cells)


def paired(tables: Tables) -> Tables:
    """Return tables with one cell of each set of twins, for pairing cells that differ in one axis.

    Cells that draw from the same sources can be paired whatever their `vary` says. So in the table
    of repeats, cells with the same dataset, classifier, hparams scheme and sources get the same
    `vary`: the default if one of them has it.
    """
    distinct = once(tables)
    if DRAWS_FROM not in distinct.cells.columns:
        return distinct
    alike = ("dataset", "classifier", "hparams", "perturb_hparams", DRAWS_FROM)
    common = pl.col("vary").sort_by(pl.col("vary") != VARY, "vary").first().over(alike)
    names = distinct.cells.select("cell", common).unique("cell", maintain_order=True)
    repeats = distinct.repeats.drop("vary")
    repeats = repeats.join(names, on="cell", how="left", maintain_order="left")
    return replace(distinct, repeats=repeats)


def in_words(cells: pl.DataFrame) -> list[str]:
    """Say which cells in the table of cells are twins, and of which."""
    if SAME_AS not in cells.columns:
        return []
    apart = ("train_fraction", "vary")
    others = cells.select("cell", *apart, DRAWS_FROM)
    twins = cells.filter(IS_TWIN).select("dataset", "classifier", SAME_AS, *apart)
    pairs = twins.join(others, left_on=SAME_AS, right_on="cell", suffix="_same")
    texts: Counter[str] = Counter()
    for row in pairs.sort("dataset", "classifier").iter_rows(named=True):
        differing = [axis for axis in apart if row[axis] != row[f"{axis}_same"]]
        own, other = (
            ", ".join(f"{axis} = {row[axis + ending]}" for axis in differing)
            for ending in ("", "_same")
        )
        texts[f"{row['classifier']} with {own} as with {other} (draws from {row[DRAWS_FROM]})"] += 1
    return [f"{text}: {counts.counted(n, 'cell')}" for text, n in texts.items()]


_FRACTION = pl.col(FRACTION).cast(pl.Float64)
SIZE = pl.when(_FRACTION <= 1).then(_FRACTION).otherwise(-1 / _FRACTION)
"""What orders shares and numbers of training rows: the largest is the largest, all rows above all.

Which of a share and a number is larger is no matter of the tables: shares count as larger.
"""
