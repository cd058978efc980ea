"""Which cells of a dataset a headline is about: those without noise on all training rows, if any.

The context that most classifiers have is chosen; of several, the one nearest to the references of
the axes, then the first.
"""

from __future__ import annotations

import polars as pl

from manyseed.analysis.axes import AXES
from manyseed.analysis.questions.effects import REFERENCES, UNPERTURBED

CONTEXT = [name for name in AXES if name != "classifier"]
"""The axes that describe a cell, without its classifier."""

_OTHERS = [name for name in CONTEXT if name != "dataset"]
_DATA = [*UNPERTURBED]
"""The axes along which training data or hparams are drawn or changed: no matter of seeds alone."""


def chosen(own: pl.DataFrame) -> pl.DataFrame:
    """Return the context of a dataset, in one row; `own`: columns cell and those of `AXES`."""
    usual = [pl.col(name).cast(pl.String) == REFERENCES[name] for name in _OTHERS]
    return (
        own.group_by(_OTHERS, maintain_order=True)
        .agg(pl.col("classifier").n_unique().alias("_many"), pl.col("cell").min().alias("_first"))
        .with_columns(_usual=pl.sum_horizontal(one.fill_null(value=False) for one in usual))
        .sort("_many", "_usual", "_first", descending=[True, True, False])
        .head(1)
        .select(_OTHERS)
    )


def usual_cells(rows: pl.DataFrame) -> tuple[pl.DataFrame, str]:
    """Return the cells whose training data are those of the chosen context, in a column `cell`.

    With them, in words, what is unusual of them where a dataset has other cells; mostly nothing.

    `rows`: columns cell and those of `AXES`.
    """
    known = rows.select("cell", *AXES).unique("cell", maintain_order=True).sort("cell")
    kept, levels = [known.select("cell").clear()], dict[str, None]()
    for own in known.partition_by("dataset", maintain_order=True):
        context = chosen(own).select(_DATA)
        kept.append(own.join(context, on=_DATA, how="semi", nulls_equal=True).select("cell"))
        levels |= {
            f"{axis} {level}".replace("_", " "): None
            for axis, level in context.row(0, named=True).items()
            if own[axis].n_unique() > 1 and str(level) != str(REFERENCES[axis])
        }
    return pl.concat(kept), ", ".join(levels)


def of_usual(points: pl.LazyFrame) -> pl.LazyFrame:
    """Return the rows of usual cells of the table of points; all where cells were added up."""
    cells = points.select("cell", "n_cells", *AXES).unique().collect()
    if cells["n_cells"].max() != 1:
        return points
    usual, _ = usual_cells(cells)
    return points.filter(pl.col("cell").is_in(usual["cell"].to_list()))
