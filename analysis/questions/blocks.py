"""Which classifiers can be compared, and on which cells: those that all of them have."""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from manyseed.analysis.axes import AXES

CONTEXT = [name for name in AXES if name != "classifier"]
"""The axes that describe a cell, without its classifier."""


@dataclass(frozen=True, slots=True)
class CellBlock:
    """Classifiers and the cells of the contexts that all of them have.

    Attributes
    ----------
    classifiers : tuple of str
    contexts : int
        Number of cells of each classifier.
    left : tuple of str
        Classifiers left out: they share too few cells with the others.
    cells : polars frame
        Columns cell, classifier and dataset.
    """

    classifiers: tuple[str, ...]
    contexts: int
    left: tuple[str, ...]
    cells: pl.DataFrame


def block(cells: pl.DataFrame) -> CellBlock | None:
    """Return the block with the most cells; None if no two classifiers share a context.

    Classifiers are added in descending order of how many contexts they have.

    Parameters
    ----------
    cells : polars frame
        Columns cell and those of `AXES`.
    """
    context = pl.struct(CONTEXT).map_elements(repr, return_dtype=pl.String)
    known = (
        cells.select("cell", *AXES)
        .with_columns(pl.col("dataset", "classifier").cast(pl.String))
        .with_columns(_context=context)
        .unique("cell", maintain_order=True)
    )
    have = {
        name: set(own["_context"])
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
    inside = known.filter(
        pl.col("classifier").is_in(kept), pl.col("_context").is_in(sorted(common))
    ).select("cell", "classifier", "dataset")
    return CellBlock(kept, len(common), tuple(sorted(order[best[1] :])), inside)
