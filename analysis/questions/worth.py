"""What deep ensembles gain, and how many of their runs other models are worth, over repeats."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl

from manyseed.analysis.axes import AXES
from manyseed.analysis.questions.dee import check, curves
from manyseed.analysis.tables.rows import REPEAT
from manyseed.analysis.uncertainty.dee import LESS_IS_BETTER, size_for


@dataclass(frozen=True, slots=True)
class Gain:
    """What deep ensembles of some cells gain.

    Attributes
    ----------
    metric : str
    single, whole : float
        Mean over repeats for one run, and for all runs averaged.
    pool : int
        Fewest runs of any repeat.
    half, most : float or None
        Members that bring half, and nine tenths, of the gain of all runs over one, averaged over
        repeats with a gain; None if no repeat has one.
    repeats, gaining : int
        Number of repeats, and of those in which all runs are better than one.
    bounded : float or None
        Share of temperatures at a bound, over ensembles of all sizes; None for plain metrics.
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
            text += "; nothing is gained by averaging."
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
class Worth:
    """How many independent runs of deep cells are worth as much as ensembles of other cells.

    Attributes
    ----------
    metric, axis : str
    value, deep_value : object
        Levels of the compared cells and the deep cells in this axis.
    members : int
        Number of runs averaged.
    dee : float or None
        Mean over the repeats in which the value is reached; None if there are none.
    dee_min, dee_max : float or None
        Smallest and largest over these repeats.
    lower, upper : float or None
        Means of the bounds over these repeats; an upper bound of None is above the number of runs
        in at least one of them.
    repeats, unreached : int
        Repeats of all cells together, and those whose deep ensembles never reach the value.
    pool : int
        Fewest runs of any repeat of the deep cells.
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
            return f"{what}: {averaged} worth more than {self.pool} {runs}."
        if self.unreached:
            others = f"{self.dee:.1f} in {self.repeats - self.unreached}"
            where = f"in {self.unreached} of {self.repeats} repeats, {others}"
            return f"{what}: {averaged} worth more than {self.pool} {runs} {where}."
        upper = f"{self.upper:.1f}" if self.upper is not None else f"more than {self.pool}"
        return f"{what}: {averaged} worth {self.dee:.1f} ({self.lower:.1f} to {upper}) {runs}."


def gains(uncertainty: pl.DataFrame, metric: str) -> Gain | None:
    """Return what deep ensembles of the cells of a table gain; None without any."""
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
    """Average comparisons over repeats and cells, by axis, pair of values and size.

    Parameters
    ----------
    rows : polars frame
        As `compared` returns them, for one metric.
    cells : polars frame
        `cell` and the columns of `AXES`.
    members : int or None
        Size of the compared ensembles; by default 1, and the largest that all compared cells have.
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


def _worth(axis: str, value: object, deep_value: object, members: int, rows: pl.DataFrame) -> Worth:
    """Average the rows (one or more) of one axis, pair of values and size."""
    reached = rows.filter(pl.col("dee").is_not_null())
    dee = reached["dee"].to_numpy()
    # without a known spread at that size (dee_std = "independent") there is no bound
    lower = reached["dee_lower"].fill_null(reached["dee"]).to_numpy()
    upper = reached["dee_upper"]
    return Worth(
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
