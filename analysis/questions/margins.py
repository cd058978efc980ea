"""Distribution of the margins of a repeat: counts in fixed bins, with the envelope of its runs.

RKS, figure 4: each run is a histogram of its logit gaps; the runs of a repeat have a mean and an
envelope. RKS24, figure 2: single runs are compared with the average of all others, their
leave-one-out ensemble; here the run nearest to its own and the run furthest from it, and two runs
alike in accuracy and churn against theirs, of which one is as near and one as far as can be. The
bins are the same everywhere, so repeats, cells and sweeps can be combined. They have equal width on
the scale asinh(4 · margin): 0.04 near 0, and a sixth of the margin far from it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numba
import numpy as np
import polars as pl
from dask.delayed import Delayed, delayed
from numpy.typing import NDArray

from manyseed.analysis.graph.chunks import PART_RUNS, Member, blocks
from manyseed.analysis.graph.predictions import Predictions, Rows, Sources, read, readers
from manyseed.analysis.metrics.alpha_hat import ALPHA_HAT
from manyseed.analysis.options import Options
from manyseed.analysis.tables.rows import REPEAT_KEY
from manyseed.analysis.tables.schema import records

SCALE = 4.0
PER_UNIT = 6  # bins per unit of asinh(SCALE · margin)
FURTHEST = 72  # bins on each side of 0, up to 20 344; one more on each side is unbounded

EDGES: NDArray[np.float64] = np.round(
    np.sinh(np.arange(-FURTHEST, FURTHEST + 1) / PER_UNIT) / SCALE, 6
)
"""Edges of the bins, ascending; a bin contains its lower edge. 0 is an edge: with two classes, the
points in the bins above it are predicted as positive."""

N_FINITE = EDGES.size + 1
APART = ("nan", "-inf", "inf")  # values outside all bins, counted after them in this order

SCHEMA = records()["margins"].types

ALIKE = 0.005  # most difference of two such runs in accuracy, and in churn
MOST_ALIKE = 500  # runs, the first, that they are taken from
FEWEST = 3  # runs of a repeat needed for a nearest and a furthest one

Counts = NDArray[np.int64]


@numba.njit(cache=True, nogil=True)
def histograms(values: NDArray[Any], edges: NDArray[np.float64]) -> Counts:
    """Count the values of each run in bins.

    `values`, float array (run, sample). `edges`, float64 array (edge,): ascending. Returns int64
    array (run, edge + 4): below the first edge, between two edges, from the last edge on; then NaN,
    -inf and inf.
    """
    n = edges.size
    counts = np.zeros((values.shape[0], n + 4), dtype=np.int64)
    for run in range(values.shape[0]):
        for point in range(values.shape[1]):
            value = values[run, point]
            if np.isnan(value):
                counts[run, n + 1] += 1
            elif np.isinf(value):
                counts[run, n + 2 if value < 0 else n + 3] += 1
            else:
                counts[run, np.searchsorted(edges, value, side="right")] += 1
    return counts


def build(predictions: Predictions, options: Options) -> list[Delayed]:
    """Return lazy frames of `SCHEMA`; none if α̂ is not asked for or margins were not kept.

    Each repeat and snapshot has a row per bin that holds a point of any run; copies of a run are
    left out. A task reads as many runs at once as a block may hold.
    """
    if ALPHA_HAT.name not in options.metrics or not predictions.has_margin:
        return []
    distinct = replace(predictions, runs=predictions.runs.filter(~pl.col("identical")))
    result = []
    for position in predictions.positions(options):
        sources = Sources.of(predictions, ["margin"], options, position).only("margin")
        fit = max(1, options.block_bytes // max(sources.run_bytes, 1))
        for members in blocks(distinct, options, fit, position):
            step = min(PART_RUNS, fit)
            pieces = [
                (number, slice(start, start + step))
                for number, member in enumerate(members)
                for start in range(0, member.row.size, step)
            ]
            rows = sources.rows([members[number].row[runs] for number, runs in pieces])
            owners = tuple(number for number, _ in pieces)
            run_index = [members[number].run_index[runs] for number, runs in pieces]
            held = sum(member.row.size for member in members) <= fit
            gaps = predictions.n_classes == 2
            task = partial(_measure, members, owners, run_index, rows, gaps=gaps, held=held)
            result.append(delayed(task, pure=False)())
    return result


def _measure(
    members: Sequence[Member],
    owners: Sequence[int],
    run_index: Sequence[NDArray[np.int64]],
    rows: Mapping[str, Rows],
    *,
    gaps: bool,
    held: bool,
) -> pl.DataFrame:
    """Count the margins of a block piece by piece; the result does not depend on the pieces.

    If the block fits into memory (`held`), margins are read once for both passes.
    """
    opened = readers(rows)
    histograms_of: dict[int, Histograms] = {}
    kept: list[NDArray[Any]] = []
    for piece, owner in enumerate(owners):
        values = read(opened, piece, members[owner].held_out)["margin"]
        histograms_of.setdefault(owner, Histograms(members[owner].held_out.n_test)).add(values)
        if held and gaps:
            kept.append(values)
    for piece, owner in enumerate(owners if gaps else ()):
        if histograms_of[owner].has_candidates:
            again = kept[piece] if held else read(opened, piece, members[owner].held_out)["margin"]
            y_true = members[owner].held_out.y_true
            histograms_of[owner].compare(run_index[piece], again, y_true)
    return pl.concat(
        histograms_of[number].frame(member, gaps=gaps) for number, member in enumerate(members)
    )


@dataclass(frozen=True, slots=True)
class Candidate:
    """A run beside the average of all others of its repeat.

    `run`: index of the run. `apart`: largest difference between the two eCDFs at the edges of bins,
    in test points. `own` and `others`, int64 array (bin,): points of the run, and of the average of
    the others' logit gaps, in each bin. `right` and `churn`: points that the run gets right, and to
    which that average gives another label.
    """

    run: int
    apart: int
    own: Counts
    others: Counts
    right: int
    churn: int


class Histograms:
    """Histograms of the runs of a repeat read so far."""

    def __init__(self, n_test: int) -> None:
        shape = EDGES.size + 1 + len(APART)
        self.total = np.zeros(shape, np.int64)
        self.least = np.full(shape, n_test, np.int64)
        self.most = np.zeros(shape, np.int64)
        self.sum = np.zeros(n_test)
        self.averaged = 0
        self.nearest: Candidate | None = None
        self.furthest: Candidate | None = None
        self.first = list[Candidate]()

    def add(self, values: NDArray[np.floating[Any]]) -> None:
        """Add runs in their order, so that sums are bitwise the same for any pieces."""
        counts = histograms(np.ascontiguousarray(values), EDGES)
        self.total += counts.sum(axis=0)
        np.minimum(self.least, counts.min(axis=0), out=self.least)
        np.maximum(self.most, counts.max(axis=0), out=self.most)
        with np.errstate(invalid="ignore"):  # infinities of two signs
            for run in values[counts[:, N_FINITE] == 0]:
                self.sum += run
                self.averaged += 1

    @property
    def has_candidates(self) -> bool:
        """Whether single runs can be compared with the average of the others."""
        return self.averaged >= FEWEST and bool(np.isfinite(self.sum).all())

    def compare(
        self,
        run_index: NDArray[np.int64],
        values: NDArray[np.floating[Any]],
        y_true: NDArray[np.integer[Any]],
    ) -> None:
        """Compare runs with the average of all others, after all are added; ties keep the first."""
        for run, own in zip(run_index, values, strict=True):
            if not np.isfinite(own).all():
                continue
            others = (self.sum - own) / (self.averaged - 1)
            counts = histograms(np.stack([own.astype(np.float64), others]), EDGES)
            apart = int(np.abs(np.cumsum(counts[0] - counts[1])).max())
            label = own >= 0
            right, churn = int((label == y_true).sum()), int((label != (others >= 0)).sum())
            candidate = Candidate(int(run), apart, counts[0], counts[1], right, churn)
            if len(self.first) < MOST_ALIKE:
                self.first.append(candidate)
            if self.nearest is None or apart < self.nearest.apart:
                self.nearest = candidate
            if self.furthest is None or apart > self.furthest.apart:
                self.furthest = candidate

    def alike(self, n_test: int) -> tuple[Candidate, Candidate] | tuple[None, None]:
        """Return two runs alike in accuracy and churn that differ most in distance, nearer first.

        None if no two are alike, or those that are do not differ.
        """
        facts = np.array([(one.right, one.churn, one.apart) for one in self.first]).reshape(-1, 3)
        by = np.abs(facts[:, None] - facts[None])
        tolerance = max(1, int(ALIKE * n_test))
        gap = np.where((by[..., :2] <= tolerance).all(axis=2), by[..., 2], 0)
        if not gap.any():
            return None, None
        both = np.unravel_index(gap.argmax(), gap.shape)
        near, far = sorted((self.first[place] for place in both), key=lambda one: one.apart)
        return near, far

    def frame(self, member: Member, *, gaps: bool) -> pl.DataFrame:
        """Return the rows of the repeat; for logit gaps with the ensemble's share."""
        n_test, n_runs = member.held_out.n_test, member.row.size
        ensemble = None
        if gaps and self.averaged:
            ensemble = histograms((self.sum / self.averaged)[None], EDGES)[0]
        filled = self.total > 0 if ensemble is None else (self.total > 0) | (ensemble > 0)
        near, far = self.alike(n_test)
        ends = {
            "nearest": self.nearest,
            "furthest": self.furthest,
            "alike_near": near,
            "alike_far": far,
        }
        for end in ends.values():
            filled |= False if end is None else end.others > 0
        bins = np.flatnonzero(filled)
        kinds = [*["finite"] * N_FINITE, *APART]
        low = [None, *EDGES.tolist(), *[None] * len(APART)]
        high = [*EDGES.tolist(), None, *[None] * len(APART)]
        size = bins.size
        nothing = [None] * size
        candidates: dict[str, object] = {}
        for name, end in ends.items():
            candidates[f"{name}_run"] = nothing if end is None else [end.run] * size
            candidates[name] = nothing if end is None else end.own[bins] / n_test
            candidates[f"{name}_loo"] = nothing if end is None else end.others[bins] / n_test
        return pl.DataFrame(
            {
                "cell": np.full(size, member.cell),
                "epoch": np.full(size, member.epoch),
                "repeat_index": np.full(size, member.held_out.repeat_index),
                "bin": bins,
                "values": [kinds[b] for b in bins],
                "low": [low[b] for b in bins],
                "high": [high[b] for b in bins],
                "n_runs": np.full(size, n_runs),
                "n_test": np.full(size, n_test),
                "points": self.total[bins],
                "share": self.total[bins] / (n_runs * n_test),
                "share_min": self.least[bins] / n_test,
                "share_max": self.most[bins] / n_test,
                "ensemble": nothing if ensemble is None else ensemble[bins] / n_test,
                **candidates,
            },
            schema_overrides=dict(SCHEMA),
            strict=False,
        )


def over_repeats(table: pl.DataFrame, by: Sequence[str]) -> pl.DataFrame:
    """Combine repeats: mean share over all runs, envelope, and mean ensemble over repeats.

    A bin without points in a repeat counts as 0 there.

    `table`: columns `SCHEMA` and `by`. `by`: columns that define groups; each repeat lies in one
    group. Returns `by`, `bin`, `values`, `low`, `high`, `share`, `share_min`, `share_max` and
    `ensemble` (mean over repeats), sorted by `by` and `bin`.
    """
    repeats = table.select(list(dict.fromkeys([*by, *REPEAT_KEY, "n_runs", "n_test"]))).unique()
    all_points = (pl.col("n_runs").cast(pl.Float64) * pl.col("n_test")).sum()
    sizes = repeats.group_by(by).agg(_all=all_points, _repeats=pl.len())
    has_ensemble = pl.col("ensemble").is_not_null().any()
    return (
        table.group_by(*by, "bin")
        .agg(
            pl.col("values", "low", "high").first(),
            pl.len().alias("_with_points"),
            pl.col("points").sum(),
            pl.col("share_min").min(),
            pl.col("share_max").max(),
            pl.when(has_ensemble).then(pl.col("ensemble").sum()).alias("ensemble"),
        )
        .join(sizes, on=by)
        .with_columns(
            share=pl.col("points") / pl.col("_all"),
            share_min=pl.when(pl.col("_with_points") == pl.col("_repeats"))
            .then("share_min")
            .otherwise(0.0),
            ensemble=pl.col("ensemble") / pl.col("_repeats"),
        )
        .select(*by, "bin", "values", "low", "high", "share", "share_min", "share_max", "ensemble")
        .sort(*by, "bin")
    )
