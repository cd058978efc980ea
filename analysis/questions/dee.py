"""How many independent models a model is worth: cells compared with deep ensembles of others."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from manyseed.analysis.axes import AXES
from manyseed.analysis.refused import Refused
from manyseed.analysis.tables.rows import IS_METHOD, REPEAT, mean_of, std_of
from manyseed.analysis.uncertainty.dee import (
    COMPARABLE,
    LESS_IS_BETTER,
    Spread,
    equivalent,
    spread,
)

Real = NDArray[np.float64]

METRICS = ("cll", "c_brier", "c_aurc", "error")  # PIT, figures 3 and 7–9
SIZES = (1, 2, 3, 5, 7, 10, 15, 20, 30, 50, 70, 100)
SCHEMA: Mapping[str, Any] = {
    "cell": pl.UInt32,
    "deep_cell": pl.UInt32,
    "axis": pl.String,
    "deep_value": pl.String,
    "repeat_index": pl.UInt16,
    "metric": pl.String,
    "members": pl.UInt32,
    "value": pl.Float64,
    "value_std": pl.Float64,
    "n_runs": pl.UInt32,
    "dee": pl.Float64,
    "dee_lower": pl.Float64,
    "dee_upper": pl.Float64,
    "beyond": pl.UInt32,
    "pool": pl.UInt32,
    "draws": pl.UInt32,
}


@dataclass(frozen=True, slots=True)
class Curve:
    """A metric of one repeat's deep ensembles, by size.

    Attributes
    ----------
    mean, std : float array (M,)
        Over draws (n - 1), for ensembles of 1…M runs.
    draws : int
    """

    mean: Real
    std: Real
    draws: int

    @property
    def pool(self) -> int:
        """Number of runs that members are drawn from (M)."""
        return self.mean.size


def check(metric: str) -> str:
    """Return the metric if models can be compared by it.

    Raises
    ------
    Refused
        For another one: an area under a misclassification curve depends on each model's own errors.
    """
    if metric not in COMPARABLE:
        reason = ""
        if metric.startswith("misclassification_auroc"):
            reason = "is not comparable between models: each has its own errors to find"
        raise Refused("metric", metric, reason, COMPARABLE)
    return metric


def curves(uncertainty: pl.DataFrame, metric: str) -> dict[tuple[int, int], Curve]:
    """Return the curve of each cell and repeat index in which every size has the metric."""
    by_size = (
        uncertainty.filter(pl.col(metric).is_not_null() & ~_is_method(uncertainty))
        .group_by(*REPEAT, "members", maintain_order=True)
        .agg(
            mean_of(pl.col(metric)).alias("mean"),
            std_of(pl.col(metric)).alias("std"),
            pl.len().alias("draws"),
            pl.col("pool").first(),
        )
        .sort(*REPEAT, "members")
    )
    return {
        (cell, repeat): Curve(
            rows["mean"].to_numpy(), rows["std"].to_numpy(), int(rows["draws"][0])
        )
        for (cell, repeat), rows in by_size.partition_by(REPEAT, as_dict=True).items()
        if rows.height == rows["pool"][0]
    }


def _is_method(uncertainty: pl.DataFrame) -> pl.Expr:
    return IS_METHOD if "run_index" in uncertainty.columns else pl.lit(value=False)


@dataclass(frozen=True, slots=True)
class CellValues:
    """The values that cells are compared by: a metric of ensembles of some sizes in one repeat.

    Attributes
    ----------
    sizes : tuple of int
        Ascending.
    mean, std : float array (size,)
        Over draws of deep ensembles, or over runs of an ensembling method (n - 1).
    runs : int
        Number of runs that members are drawn from, or of the method.
    """

    sizes: tuple[int, ...]
    mean: Real
    std: Real
    runs: int


def methods(uncertainty: pl.DataFrame, metric: str) -> dict[tuple[int, int], CellValues]:
    """Return the values of each cell and repeat whose runs are ensembles of members.

    Sizes that some runs lack are left out.
    """
    if "run_index" not in uncertainty.columns:  # written by an earlier version
        return {}
    own = uncertainty.filter(IS_METHOD)
    by_size = (
        own.filter(pl.col(metric).is_not_null())
        .group_by(*REPEAT, "members", maintain_order=True)
        .agg(
            mean_of(pl.col(metric)).alias("mean"),
            std_of(pl.col(metric)).alias("std"),
            pl.len().alias("n"),
        )
        .join(own.group_by(REPEAT).agg(runs=pl.col("run_index").n_unique()), on=REPEAT)
        .filter(pl.col("n") == pl.col("runs"))
        .sort(*REPEAT, "members")
    )
    return {
        (cell, repeat): CellValues(
            tuple(rows["members"].to_list()),
            rows["mean"].to_numpy(),
            rows["std"].to_numpy(),
            int(rows["runs"][0]),
        )
        for (cell, repeat), rows in by_size.partition_by(REPEAT, as_dict=True).items()
    }


def compared(
    uncertainty: pl.DataFrame,
    cells: pl.DataFrame,
    metrics: Sequence[str] = METRICS,
    kind: Spread = "draws",
) -> pl.DataFrame:
    """Compare cells with deep ensembles of cells that differ from them in one axis only.

    All cells of a dataset share their test sets, so values of one repeat index rest on the same
    points.

    Parameters
    ----------
    uncertainty : polars frame
        One row per cell, repeat index, draw and size (`analysis.questions.deep`).
    cells : polars frame
        `cell` and the columns of `AXES`.
    metrics : sequence of str
    kind : Spread
        Standard deviation that the bounds use.

    Returns
    -------
    polars frame
        Columns `SCHEMA`: `value` (and `value_std`, over draws) of ensembles of `members` of the
        `n_runs` runs of `cell`, or, if its runs are ensembles of members, their mean (and standard
        deviation) over these runs; `dee`, how many runs of `deep_cell` are worth as much, its
        bounds, and `beyond`, the pool's size if that does not reach the value.
    """
    pairs = list(_neighbours(cells))
    known_cells = {row["cell"]: row for row in cells.iter_rows(named=True)}
    rows = []
    for metric in metrics:
        known = curves(uncertainty, check(metric))
        values = {key: _values(curve) for key, curve in known.items()}
        values |= methods(uncertainty, metric)
        repeats = sorted({repeat for _, repeat in known})
        for cell, deep, axis in pairs:
            for repeat in repeats:
                compared, curve = values.get((cell, repeat)), known.get((deep, repeat))
                if compared is not None and curve is not None:
                    key = (cell, deep, axis, str(known_cells[deep][axis]), repeat, metric)
                    rows += [(*key, *row) for row in _rows(compared, curve, metric, kind)]
    frame = pl.DataFrame(rows, schema=dict(SCHEMA), orient="row")
    frame = frame.with_columns(pl.col("value_std").fill_nan(None))
    return frame.sort("deep_cell", "axis", "cell", "repeat_index", "metric", "members")


def _neighbours(cells: pl.DataFrame) -> Iterator[tuple[int, int, str]]:
    """Yield (cell, deep cell, axis) for all pairs of one dataset that differ in one axis."""
    for axis in AXES:
        if axis == "dataset":
            continue
        others = [name for name in AXES if name != axis]
        for group in cells.partition_by(others, maintain_order=True):
            numbers = group["cell"].to_list()
            yield from ((cell, deep, axis) for cell in numbers for deep in numbers if cell != deep)


def _values(curve: Curve) -> CellValues:
    """Return the values of deep ensembles of `SIZES` and of the whole pool."""
    pool = curve.pool
    sizes = sorted({*(size for size in SIZES if size <= pool), pool})
    at = [size - 1 for size in sizes]
    return CellValues(tuple(sizes), curve.mean[at], curve.std[at], pool)


def _rows(cell: CellValues, deep: Curve, metric: str, kind: Spread) -> Iterator[tuple[Any, ...]]:
    std, less = spread(deep.std, kind), metric in LESS_IS_BETTER
    by_size = zip(cell.sizes, cell.mean.tolist(), cell.std.tolist(), strict=True)
    for size, value, value_std in by_size:
        found = equivalent(value, deep.mean, std, less_is_better=less)
        yield (
            *(size, value, value_std, cell.runs),
            *(found.dee, found.lower, found.upper),
            *(None if found.dee is not None else deep.pool, deep.pool, deep.draws),
        )
