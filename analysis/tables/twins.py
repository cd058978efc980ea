"""Cells whose runs are the same fits as another's count once, wherever cells are put together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import polars as pl

from manyseed.analysis.axes import VARY

if TYPE_CHECKING:
    from manyseed.analysis.tables.schema import Tables

SAME_AS = "same_as"
"""The column of cells that names the twin which counts; null where that is the cell itself."""

DRAWS_FROM = "draws_from"
"""The column of cells that says which of the sources of `vary` fits draw from."""

IS_TWIN = pl.col(SAME_AS).is_not_null()
_FITS = pl.coalesce(SAME_AS, "cell")


def same_as(fits: pl.DataFrame, cells: pl.DataFrame) -> pl.DataFrame:
    """Return which cell counts for each of the others with the same fits.

    It is the one with the most finished runs, of equals the one that was planned first.

    Parameters
    ----------
    fits : polars frame
        Columns cell, draws_from, and fits: the same value for cells of the same fits.
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
    """Return whether a row is of a cell that counts: the first of the same fits that is there.

    Of the rows of a frame with the columns cell and `same_as`, those of one cell count for all that
    have the same fits; with `by`, within each group.
    """
    first = pl.col("cell").sort_by(IS_TWIN, "cell").first()
    return pl.col("cell") == first.over(_FITS, *by)


def cells_once(cells: pl.DataFrame, by: Sequence[str] = ()) -> pl.DataFrame:
    """Return the table of cells without those whose fits are another's that is there."""
    if SAME_AS not in cells.columns:  # of an earlier version
        return cells
    return cells.filter(counted(by))


def once(tables: Tables) -> Tables:
    """Return tables without the cells whose fits are another's."""
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
    """Return tables with the same fits once, for pairs of cells that differ in an axis.

    Cells that draw from the same sources are to be paired whatever their `vary` names: in the
    table of repeats it is one name for all cells of a dataset and classifier, and of one scheme of
    hparams, that draw from the same, the default if one has it.
    """
    own = once(tables)
    if DRAWS_FROM not in own.cells.columns:
        return own
    alike = ("dataset", "classifier", "hparams", "perturb_hparams", DRAWS_FROM)
    one = pl.col("vary").sort_by(pl.col("vary") != VARY, "vary").first().over(alike)
    names = own.cells.select("cell", one).unique("cell", maintain_order=True)
    repeats = own.repeats.drop("vary").join(names, on="cell", how="left", maintain_order="left")
    return replace(own, repeats=repeats)


def in_words(cells: pl.DataFrame) -> list[str]:
    """Say which cells of the table of cells are the same fits as others, and count once."""
    if SAME_AS not in cells.columns:
        return []
    apart = ("train_fraction", "vary")
    others = cells.select("cell", *apart, DRAWS_FROM)
    twins = cells.filter(IS_TWIN).select("dataset", "classifier", SAME_AS, *apart)
    pairs = twins.join(others, left_on=SAME_AS, right_on="cell", suffix="_same")
    said: dict[str, int] = {}
    for row in pairs.sort("dataset", "classifier").iter_rows(named=True):
        differing = [axis for axis in apart if row[axis] != row[f"{axis}_same"]]
        names = (", ".join(f"{a} = {row[a + e]}" for a in differing) for e in ("", "_same"))
        one, other = names
        text = f"{row['classifier']} with {one} as with {other} (draws from {row[DRAWS_FROM]})"
        said[text] = said.get(text, 0) + 1
    return [f"{text}: {n:,} {'cell' if n == 1 else 'cells'}" for text, n in said.items()]
