"""How many independent models a model is worth, and what averaging gains: deep ensembles."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from manyseed.analysis import Refused
from manyseed.analysis.axes import AXES
from manyseed.analysis.metrics.metric import BETTER
from manyseed.analysis.tables.rows import IS_CROSSED, IS_METHOD, REPEAT, mean_of, std_of
from manyseed.analysis.tables.schema import records
from manyseed.analysis.uncertainty import (
    COMPARABLE,
    Spread,
    equivalent,
    size_for,
    spread,
)

Real = NDArray[np.float64]

METRICS = ("cll", "c_brier", "c_aurc", "error")  # PIT, figures 3 and 7–9
SIZES = (1, 2, 3, 5, 7, 10, 15, 20, 30, 50, 70, 100)
SCHEMA = records()["dee"].types


@dataclass(frozen=True, slots=True)
class Curve:
    """A metric of one repeat's deep ensembles, by size.

    `mean` and `std`, float array (M,): over draws (n - 1), for ensembles of 1…M runs.
    """

    mean: Real
    std: Real
    draws: int

    @property
    def pool(self) -> int:
        """Number of runs that members are drawn from (M)."""
        return self.mean.size


def check(metric: str) -> str:
    """Return the metric if models can be compared by it."""
    if metric not in COMPARABLE:
        reason = ""
        if metric.startswith("misclassification_"):
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

    `sizes`: ascending. `mean` and `std`, float array (size,): over draws of deep ensembles, or over
    runs of an ensembling method (n - 1). `runs`: number of runs that members are drawn from, or of
    the method.
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

    `uncertainty`: one row per cell, repeat index, draw and size (`analysis.questions.members`).
    `cells`: `cell` and the columns of `AXES`. `kind`: standard deviation that the bounds use.

    Returns columns `SCHEMA`: `value` (and `value_std`, over draws) of ensembles of `members` of the
    `n_runs` runs of `cell`, or, if its runs are ensembles of members, their mean (and standard
    deviation) over these runs; `dee`, how many runs of `deep_cell` are worth as much, its bounds,
    and `beyond`, the pool's size if that does not reach the value.
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
    return frame.sort(records()["dee"].key)


def _neighbours(cells: pl.DataFrame) -> Iterator[tuple[int, int, str]]:
    """Yield (cell, deep cell, axis) for all pairs of one dataset that differ in one axis.

    Crossed runs share values, so none of their cells says what independent runs are worth.
    """
    independent = cells.filter(~IS_CROSSED)["cell"].to_list()
    for axis in AXES:
        if axis == "dataset":
            continue
        others = [name for name in AXES if name != axis]
        for group in cells.partition_by(others, maintain_order=True):
            numbers = group["cell"].to_list()
            yield from (
                (cell, deep, axis)
                for cell in numbers
                for deep in numbers
                if cell != deep and deep in independent
            )


def _values(curve: Curve) -> CellValues:
    """Return the values of deep ensembles of `SIZES` and of the whole pool."""
    pool = curve.pool
    sizes = sorted({*(size for size in SIZES if size <= pool), pool})
    at = [size - 1 for size in sizes]
    return CellValues(tuple(sizes), curve.mean[at], curve.std[at], pool)


def _rows(cell: CellValues, deep: Curve, metric: str, kind: Spread) -> Iterator[tuple[Any, ...]]:
    std, less = spread(deep.std, kind), BETTER[metric] == "less"
    by_size = zip(cell.sizes, cell.mean.tolist(), cell.std.tolist(), strict=True)
    for size, value, value_std in by_size:
        found = equivalent(value, deep.mean, std, less_is_better=less)
        yield (
            *(size, value, value_std, cell.runs),
            *(found.dee, found.lower, found.upper),
            *(None if found.dee is not None else deep.pool, deep.pool, deep.draws),
        )


@dataclass(frozen=True, slots=True)
class Gain:
    """What deep ensembles of some cells gain.

    `single` and `whole`: mean over repeats for one run, and for all runs averaged. `pool`: fewest
    runs of any repeat. `half` and `most`: members that bring half, and nine tenths, of the gain of
    all runs over one, averaged over repeats with a gain; None if no repeat has one. `repeats` and
    `gaining`: number of repeats, and of those in which all runs are better than one, by more than
    three standard errors of the draws. `bounded`:
    share of temperatures at a bound, over ensembles of all sizes; None for plain metrics.
    """

    metric: str
    single: float
    whole: float
    pool: int
    half: float | None
    most: float | None
    repeats: int
    gaining: int
    bounded: float | None

    @property
    def words(self) -> str:
        """The answer as a sentence or two."""
        text = (
            f"{self.metric}: one run {self.single:.4g}, all {self.pool} averaged {self.whole:.4g}"
        )
        if self.half is None or self.most is None:
            text += "; no gain by averaging is seen."
        else:
            where = f"where that is a gain ({self.gaining} of {self.repeats} repeats), "
            text += (
                f"; {where if self.gaining < self.repeats else ''}{self.half:.1f} bring half of "
                f"the gain, {self.most:.1f} nine tenths."
            )
        if self.bounded:
            share = f"{self.bounded:.0%}" if self.bounded >= 0.005 else "Under 1%"
            text += (
                f" {share} of the temperatures are at a bound: the test set has few errors to "
                "calibrate on."
            )
        return text


@dataclass(frozen=True, slots=True)
class EquivalentRuns:
    """How many independent runs of deep cells are worth as much as ensembles of other cells.

    `value` and `deep_value`: levels of the compared cells and the deep cells in this axis.
    `members`: number of runs averaged. `dee`: mean over the repeats in which the value is reached;
    None if there are none. `dee_min` and `dee_max`: smallest and largest over these repeats.
    `lower` and `upper`: means of the bounds over these repeats; an upper bound of None is above the
    number of runs in at least one of them. `repeats` and `unreached`: repeats of all cells
    together, and those whose deep ensembles never reach the value. `pool`: fewest runs of any
    repeat of the deep cells.
    """

    metric: str
    axis: str
    value: object
    deep_value: object
    members: int
    dee: float | None
    dee_min: float | None
    dee_max: float | None
    lower: float | None
    upper: float | None
    repeats: int
    unreached: int
    pool: int

    @property
    def words(self) -> str:
        """The answer as a sentence."""
        what = f"{self.axis} = {self.value}"
        averaged = "1 run is" if self.members == 1 else f"{self.members} averaged runs are"
        if self.axis == "ensembling":  # members of each run
            averaged = "1 member is" if self.members == 1 else f"{self.members} members are"
        runs = f"independent runs with {self.axis} = {self.deep_value}"
        if self.dee is None:
            return f"{what}: {averaged} worth more, as measured, than {self.pool} {runs}."
        if self.unreached:
            others = f"{self.dee:.1f} in {self.repeats - self.unreached}"
            where = f"in {self.unreached} of {self.repeats} repeats, {others}"
            return f"{what}: {averaged} worth more, as measured, than {self.pool} {runs} {where}."
        upper = f"{self.upper:.1f}" if self.upper is not None else f"more than {self.pool}"
        ends = f"{self.lower:.1f} to {upper} within one sd"
        return f"{what}: {averaged} worth {self.dee:.1f} ({ends}) {runs}."


def gains(uncertainty: pl.DataFrame, metric: str) -> Gain | None:
    """Return what deep ensembles of the cells of a table gain; None without any."""
    found = list(curves(uncertainty, check(metric)).values())
    if not found:
        return None
    sign = -1.0 if BETTER[metric] == "less" else 1.0
    gaining = [curve for curve in found if _gains(curve, sign)]
    shares = [[size_for(share, sign * curve.mean) for curve in gaining] for share in (0.5, 0.9)]
    half, most = ([size for size in sizes if size is not None] for sizes in shares)
    return Gain(
        metric=metric,
        single=float(np.mean([curve.mean[0] for curve in found])),
        whole=float(np.mean([curve.mean[-1] for curve in found])),
        pool=min(curve.pool for curve in found),
        half=float(np.mean(half)) if half else None,
        most=float(np.mean(most)) if most else None,
        repeats=len(found),
        gaining=len(half),
        bounded=_bounded(uncertainty, metric),
    )


_ERRORS = 3.0


def _gains(curve: Curve, sign: float) -> bool:
    """Return whether all runs are better than one by more than the error of few draws.

    The mean of one run is that of the runs drawn first, some of which are drawn more often.
    """
    error = float(np.nan_to_num(curve.std[0])) / math.sqrt(curve.draws)
    return bool(sign * (curve.mean[-1] - curve.mean[0]) > _ERRORS * error)


def _bounded(uncertainty: pl.DataFrame, metric: str) -> float | None:
    if not metric.startswith("c") or "temperature_bounded" not in uncertainty.columns:
        return None
    found = uncertainty["temperature_bounded"].drop_nulls().to_numpy()
    return float(found.mean()) if found.size else None


def worths(
    rows: pl.DataFrame, cells: pl.DataFrame, members: int | None = None
) -> list[EquivalentRuns]:
    """Average comparisons over repeats and cells, by axis, pair of values and size.

    `rows`: as `compared` returns them, for one metric. `cells`: `cell` and the columns of `AXES`.
    `members`: size of the compared ensembles; by default 1, and the largest that all compared cells
    have.
    """
    known = {axis: dict(cells.select("cell", axis).iter_rows()) for axis in AXES}
    places: dict[tuple[str, object, object], list[int]] = {}
    for place, (axis, *both) in enumerate(rows.select("axis", "cell", "deep_cell").iter_rows()):
        value, deep_value = (known[axis][cell] for cell in both)
        places.setdefault((axis, value, deep_value), []).append(place)
    result = []
    for (axis, value, deep_value), at in places.items():
        group = rows[at]
        sizes = set(_shared_sizes(group))
        wanted = {1, max(sizes)} if members is None else {members} & sizes
        result += [
            _worth(axis, value, deep_value, size, group.filter(pl.col("members") == size))
            for size in sorted(wanted)
        ]
    return result


def _shared_sizes(rows: pl.DataFrame) -> list[int]:
    """Return the sizes that every compared cell has in every repeat."""
    repeat = pl.struct(*REPEAT)
    n_repeats = rows.select(repeat.n_unique()).item()
    by_size = rows.group_by("members").agg(n=repeat.n_unique())
    found: list[int] = by_size.filter(n=n_repeats)["members"].to_list()
    return found


def _worth(
    axis: str, value: object, deep_value: object, members: int, rows: pl.DataFrame
) -> EquivalentRuns:
    """Average the rows (one or more) of one axis, pair of values and size."""
    reached = rows.filter(pl.col("dee").is_not_null())
    dee = reached["dee"].to_numpy()
    # without a known spread at that size (dee_std = "independent") there is no bound
    lower = reached["dee_lower"].fill_null(reached["dee"]).to_numpy()
    upper = reached["dee_upper"]
    return EquivalentRuns(
        metric=rows["metric"][0],
        axis=axis,
        value=value,
        deep_value=deep_value,
        members=members,
        dee=float(dee.mean()) if dee.size else None,
        dee_min=float(dee.min()) if dee.size else None,
        dee_max=float(dee.max()) if dee.size else None,
        lower=float(lower.mean()) if lower.size else None,
        upper=None if upper.has_nulls() or upper.is_empty() else float(upper.to_numpy().mean()),
        repeats=rows.height,
        unreached=rows.height - reached.height,
        pool=min(rows["pool"].to_list()),
    )
