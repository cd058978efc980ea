"""How many independent models is it worth: cells compared with deep ensembles of other cells."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from manyseed.analysis.axes import AXES
from manyseed.analysis.refused import Refused
from manyseed.analysis.tables.keys import IS_METHOD, REPEAT
from manyseed.analysis.tables.means import mean_of, std_of
from manyseed.analysis.uncertainty.dee import (
    COMPARABLE,
    LESS_IS_BETTER,
    Spread,
    equivalent,
    size_for,
    spread,
)

Real = NDArray[np.float64]

METRICS = ("cll", "c_brier", "c_aurc", "error")  # PIT, figures 3 and 7 to 9
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
    """A metric of the deep ensembles of one repeat, by size.

    Attributes
    ----------
    mean, std : float array (M,)
        Over draws (n - 1), of ensembles of 1…M runs.
    draws : int
    """

    mean: Real
    std: Real
    draws: int

    @property
    def pool(self) -> int:
        """Runs that members are drawn from (M)."""
        return self.mean.size


def check(metric: str) -> str:
    """Return a metric by which models can be compared.

    Raises
    ------
    Refused
        For another one: areas under misclassification curves are of each model's own errors.
    """
    if metric not in COMPARABLE:
        own = metric.startswith("misclassification_auroc")
        reason = "is not comparable between models: each has its own errors to find" if own else ""
        raise Refused("metric", metric, reason, COMPARABLE)
    return metric


def curves(uncertainty: pl.DataFrame, metric: str) -> dict[tuple[int, int], Curve]:
    """Return the curve of each cell and repeat index whose deep ensembles all have the metric."""
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
    found = {}
    for (cell, repeat), own in by_size.partition_by(REPEAT, as_dict=True).items():
        if own.height == own["pool"][0]:
            curve = Curve(own["mean"].to_numpy(), own["std"].to_numpy(), int(own["draws"][0]))
            found[cell, repeat] = curve
    return found


def _is_method(uncertainty: pl.DataFrame) -> pl.Expr:
    return IS_METHOD if "run_index" in uncertainty.columns else pl.lit(value=False)


@dataclass(frozen=True, slots=True)
class Values:
    """A metric of what cells are compared by: ensembles of some sizes in one repeat.

    Attributes
    ----------
    sizes : tuple of int
        Ascending.
    mean, std : float array (size,)
        Over draws of a deep ensemble, over runs of a method (n - 1).
    runs : int
        That they are drawn from, or that there are.
    """

    sizes: tuple[int, ...]
    mean: Real
    std: Real
    runs: int


def methods(uncertainty: pl.DataFrame, metric: str) -> dict[tuple[int, int], Values]:
    """Return of each cell and repeat whose runs are ensembles of members what these are by size.

    Sizes that some of the runs lack are left out.
    """
    if "run_index" not in uncertainty.columns:  # of an earlier version
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
        (cell, repeat): Values(
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
    """Compare cells with deep ensembles of cells that differ from them in one axis alone.

    All cells of a dataset share their test sets, so that values of one repeat index are of the same
    points.

    Parameters
    ----------
    uncertainty : polars frame
        A row for each cell, repeat index, draw and size (`analysis.questions.deep`).
    cells : polars frame
        `cell` and the columns of `AXES`.
    metrics : sequence of str
    kind : Spread
        Which standard deviation the bounds are drawn with.

    Returns
    -------
    polars frame
        Columns `SCHEMA`: `value` (and `value_std`, over draws) of ensembles of `members` runs of
        `cell`, of which there are `n_runs`; or, where its runs are ensembles of members themselves,
        their mean over so many runs. And how many runs of `deep_cell` it takes.
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
                own, other = values.get((cell, repeat)), known.get((deep, repeat))
                if own is not None and other is not None:
                    key = (cell, deep, axis, str(known_cells[deep][axis]), repeat, metric)
                    rows += [(*key, *found) for found in _rows(own, other, metric, kind)]
    frame = pl.DataFrame(rows, schema=dict(SCHEMA), orient="row")
    frame = frame.with_columns(pl.col("value_std").fill_nan(None))
    return frame.sort("deep_cell", "axis", "cell", "repeat_index", "metric", "members")


def _neighbours(cells: pl.DataFrame) -> Iterator[tuple[int, int, str]]:
    """Yield (cell, deep cell, axis): all pairs of one dataset that differ in one axis."""
    for axis in AXES:
        if axis == "dataset":
            continue
        others = [name for name in AXES if name != axis]
        for own in cells.partition_by(others, maintain_order=True):
            numbers = own["cell"].to_list()
            yield from ((cell, deep, axis) for cell in numbers for deep in numbers if cell != deep)


def _values(curve: Curve) -> Values:
    """Return what a deep ensemble is compared by: some sizes, and all of its pool."""
    pool = curve.pool
    sizes = sorted({*(size for size in SIZES if size <= pool), pool})
    at = [size - 1 for size in sizes]
    return Values(tuple(sizes), curve.mean[at], curve.std[at], pool)


def _rows(own: Values, deep: Curve, metric: str, kind: Spread) -> Iterator[tuple[Any, ...]]:
    std, less = spread(deep.std, kind), metric in LESS_IS_BETTER
    for size, value, own_std in zip(own.sizes, own.mean.tolist(), own.std.tolist(), strict=True):
        found = equivalent(value, deep.mean, std, less_is_better=less)
        yield (
            *(size, value, own_std, own.runs),
            *(found.dee, found.lower, found.upper),
            *(None if found.dee is not None else deep.pool, deep.pool, deep.draws),
        )


@dataclass(frozen=True, slots=True)
class Gain:
    """What deep ensembles of some cells gain.

    Attributes
    ----------
    metric : str
    single, whole : float
        Mean over repeats of one run, and of all averaged.
    pool : int
        Runs of a repeat, the fewest.
    half, most : float or None
        Members that bring half, and nine tenths, of what all bring over one: means over the
        repeats; None where in none of them all are better than one.
    repeats, gaining : int
        Repeats, and those of them where all are better than one.
    bounded : float or None
        Share of temperatures at a bound, of ensembles of all sizes; None for plain metrics.
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
        said = (
            f"{self.metric}: one run {self.single:.4g}, all {self.pool} averaged {self.whole:.4g}"
        )
        if self.half is None or self.most is None:
            said += "; nothing is gained by averaging."
        else:
            where = f"where that is a gain ({self.gaining} of {self.repeats} repeats), "
            said += (
                f"; {where if self.gaining < self.repeats else ''}{self.half:.1f} bring half of "
                f"the gain, {self.most:.1f} nine tenths."
            )
        if self.bounded:
            share = f"{self.bounded:.0%}" if self.bounded >= 0.005 else "Under 1%"
            said += (
                f" {share} of the temperatures are at a bound: the test set has few errors to "
                "calibrate on."
            )
        return said


@dataclass(frozen=True, slots=True)
class Worth:
    """How many independent runs of deep cells are worth as much as ensembles of other cells.

    Attributes
    ----------
    metric, axis : str
    value, deep_value : object
        What the compared cells and the deep cells are in this axis.
    members : int
        Runs that are averaged.
    dee : float or None
        Mean over the repeats in which the value is reached; None where in none.
    dee_min, dee_max : float or None
        Smallest and largest of these.
    lower, upper : float or None
        Means of the bounds over the same repeats; an upper one of None: more than there are runs,
        in one of them or more.
    repeats, unreached : int
        Repeats of all cells together, and those whose deep ensembles never reach the value.
    pool : int
        Runs of a deep cell's repeat, the fewest.
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
        of = f"independent runs with {self.axis} = {self.deep_value}"
        if self.dee is None:
            return f"{what}: {averaged} worth more than {self.pool} {of}."
        if self.unreached:
            others = f"{self.dee:.1f} in {self.repeats - self.unreached}"
            some = f"in {self.unreached} of {self.repeats} repeats, {others}"
            return f"{what}: {averaged} worth more than {self.pool} {of} {some}."
        upper = f"{self.upper:.1f}" if self.upper is not None else f"more than {self.pool}"
        return f"{what}: {averaged} worth {self.dee:.1f} ({self.lower:.1f} to {upper}) {of}."


def gains(uncertainty: pl.DataFrame, metric: str) -> Gain | None:
    """Say what deep ensembles of the cells of a table gain; None where there are none."""
    found = list(curves(uncertainty, check(metric)).values())
    if not found:
        return None
    sign = -1.0 if metric in LESS_IS_BETTER else 1.0
    shares = [[size_for(share, sign * curve.mean) for curve in found] for share in (0.5, 0.9)]
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


def _bounded(uncertainty: pl.DataFrame, metric: str) -> float | None:
    if not metric.startswith("c") or "temperature_bounded" not in uncertainty.columns:
        return None
    found = uncertainty["temperature_bounded"].drop_nulls().to_numpy()
    return float(found.mean()) if found.size else None


def worths(rows: pl.DataFrame, cells: pl.DataFrame, members: int | None = None) -> list[Worth]:
    """Average comparisons over the repeats, and over all cells of the rows, by axis and size.

    Parameters
    ----------
    rows : polars frame
        As `compared` gives them, of one metric.
    cells : polars frame
        `cell` and the columns of `AXES`.
    members : int or None
        Which size; by default one run, and the largest that all compared cells have.
    """
    known = {row["cell"]: row for row in cells.iter_rows(named=True)}
    groups: dict[tuple[str, object, object], list[dict[str, Any]]] = {}
    for row in rows.iter_rows(named=True):
        axis = row["axis"]
        of = (axis, known[row["cell"]][axis], known[row["deep_cell"]][axis])
        groups.setdefault(of, []).append(row)
    result = []
    for (axis, value, deep_value), own in groups.items():
        shared = set.intersection(
            *(
                {r["members"] for r in own if (r["cell"], r["repeat_index"]) == key}
                for key in {(r["cell"], r["repeat_index"]) for r in own}
            )
        )
        wanted = {1, max(shared)} if members is None else {members} & shared
        for size in sorted(wanted):
            here = [row for row in own if row["members"] == size]
            result.append(_worth(axis, value, deep_value, size, here))
    return result


def _worth(
    axis: str, value: object, deep_value: object, members: int, rows: Sequence[Mapping[str, Any]]
) -> Worth:
    there = [row for row in rows if row["dee"] is not None]
    reached = [row["dee"] for row in there]
    # where no spread is known of that size (dee_std = "independent"), no bound is
    lower = [row["dee"] if row["dee_lower"] is None else row["dee_lower"] for row in there]
    upper = [row["dee_upper"] for row in there]
    return Worth(
        metric=rows[0]["metric"],
        axis=axis,
        value=value,
        deep_value=deep_value,
        members=members,
        dee=float(np.mean(reached)) if reached else None,
        dee_min=min(reached, default=None),
        dee_max=max(reached, default=None),
        lower=float(np.mean(lower)) if lower else None,
        upper=None if None in upper or not upper else float(np.mean(upper)),
        repeats=len(rows),
        unreached=len(rows) - len(reached),
        pool=min(row["pool"] for row in rows),
    )
