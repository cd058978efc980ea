"""Which classifiers can be compared: those that share enough cells, on the cells that all have."""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from manyseed.analysis.axes import AXES

CONTEXT = [name for name in AXES if name != "classifier"]
"""What a cell is, but for its classifier."""


@dataclass(frozen=True, slots=True)
class CellBlock:
    """Classifiers, and the cells of contexts that all of them have.

    Attributes
    ----------
    classifiers : tuple of str
    contexts : int
        Cells of each of them.
    left : tuple of str
        Classifiers that share too few cells with the others.
    cells : polars frame
        Columns cell, classifier and dataset.
    """

    classifiers: tuple[str, ...]
    contexts: int
    left: tuple[str, ...]
    cells: pl.DataFrame


def block(cells: pl.DataFrame) -> CellBlock | None:
    """Return the largest block: most classifiers times most contexts; None without two of them.

    Classifiers are added in the order of how many contexts they have.

    Parameters
    ----------
    cells : polars frame
        With cell and the columns of `AXES`.
    """
    known = cells.select("cell", *AXES).with_columns(
        pl.col("dataset", "classifier").cast(pl.String)
    )
    known = known.with_columns(_context=pl.struct(CONTEXT)).unique("cell", maintain_order=True)
    have = {
        name: set(own["_context"].map_elements(repr, return_dtype=pl.String))
        for (name,), own in known.partition_by("classifier", as_dict=True).items()
    }
    order = sorted(have, key=lambda name: (-len(have[name]), name))
    best: tuple[int, int] = (0, 0)
    common: set[str] = set()
    shared = have[order[0]] if order else set()
    for count, name in enumerate(order, start=1):
        shared = shared & have[name]
        size = (count * len(shared), count)
        if count > 1 and shared and size >= best:
            best, common = size, shared
    if not common:
        return None
    kept = tuple(sorted(order[: best[1]]))
    told = known.with_columns(
        pl.col("_context").map_elements(repr, return_dtype=pl.String).alias("_told")
    )
    inside = told.filter(
        pl.col("classifier").is_in(kept), pl.col("_told").is_in(sorted(common))
    ).select("cell", "classifier", "dataset")
    return CellBlock(kept, len(common), tuple(sorted(order[best[1] :])), inside)
