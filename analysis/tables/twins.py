"""Twins, cells whose runs are the same fits, count once wherever cells are aggregated."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import polars as pl

from manyseed.analysis import counts
from manyseed.analysis.axes import VARY

if TYPE_CHECKING:
    from manyseed.analysis.tables.schema import Tables

SAME_AS = "same_as"
"""The column of cells that names the twin that counts; null if it is the cell itself."""

DRAWS_FROM = "draws_from"
"""The column of cells that says which sources in `vary` their fits draw from."""

IS_TWIN = pl.col(SAME_AS).is_not_null()
_FITS = pl.coalesce(SAME_AS, "cell")


def same_as(fits: pl.DataFrame, cells: pl.DataFrame) -> pl.DataFrame:
    """Return which cell counts for all cells with the same fits.

    It is the one with the most finished runs; among equals, the one planned first.

    Parameters
    ----------
    fits : polars frame
        Columns cell, draws_from, and fits: equal for cells with the same fits.
    cells : polars frame
        The table of cells.

    Returns
    -------
    polars frame
        Columns cell, draws_from and `same_as` (a cell), for the cells of `cells`.
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
