"""Agreement of two runs from counts of test points: error consistency, churn, kappa.

The counts for two parts of a repeat's runs are one tile of the repeat's Gram matrix. Up to
`Options.max_pair_runs` runs, tiles are assembled; above, each is summarised where it is computed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from operator import add
from typing import TypeVar

import numpy as np
import polars as pl
from numpy.typing import NDArray

from manyseed.analysis.metrics import formulas
from manyseed.analysis.metrics.gram import above, both_wrong, class_counts, count, pack, same_label
from manyseed.analysis.metrics.metric import Column, Finished, HeldOut, Metric, Part, Spread, real
from manyseed.analysis.options import Options

Number = TypeVar("Number", bound=np.generic)
Counts = NDArray[np.int64]
Real = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Pairs:
    """Counts of test points for pairs of runs, arrays of one shape.

    Attributes
    ----------
    both, same : int64 array
        Points that both get wrong, and points to which both give the same label.
    by_chance : int64 array
        Σ_c n_ic · n_jc, where n_ic is the number of points to which run i gives label c.
    errors_i, errors_j : int64 array
        Points that each gets wrong.
    """

    both: Counts
    same: Counts
    by_chance: Counts
    errors_i: Counts
    errors_j: Counts

    @property
    def union(self) -> Counts:
        """Points that at least one gets wrong."""
        return self.errors_i + self.errors_j - self.both

    def values(self, n_test: int, empty_union: float) -> dict[str, Real]:
        """Return the columns that depend on the two runs alone."""
        ec_local = formulas.ec_local(self.errors_i, self.errors_j, self.both, empty_union)
        ec_global = formulas.ec_global(self.both, n_test)
        accuracies = 1 - self.errors_i / n_test, 1 - self.errors_j / n_test
        churn = formulas.churn(self.same, n_test)
        return {
            "ec_local": ec_local,
            "ec_global": ec_global,
            "churn": churn,
            "ec_kappa": formulas.ec_kappa(self.errors_i, self.errors_j, self.both, n_test),
            "agreement": 1 - churn,
            "label_kappa": formulas.kappa(self.same, self.by_chance, n_test),
            "ec_local_cube_root": formulas.ec_cube_root(*accuracies, ec_local),
            "ec_global_cube_root": formulas.ec_cube_root(*accuracies, ec_global),
            "ec_local_square_root": formulas.ec_square_root(*accuracies, ec_local),
            "ec_global_square_root": formulas.ec_square_root(*accuracies, ec_global),
        }


@dataclass(frozen=True, slots=True)
class Tile:
    """The pairs between two parts of a repeat's runs."""

    start_i: int
    start_j: int
    pairs: Pairs


@dataclass(frozen=True, slots=True)
class Tiles:
    """A summary of some tiles of a repeat; summaries can be added.

    Attributes
    ----------
    different : int64 array (run,)
        For each run of the repeat, points on which it disagrees with others, summed over the tiles.
    wrong : uint64 array (word,)
        Points that any run gets wrong, as packed bits.
    largest_union : int
        Most points that at least one of two runs gets wrong.
    listed : tuple of Tile
        The tiles themselves, if pairs are listed.
    spreads : mapping of column name to Spread
        Distributions instead, if they are not.
    """

    different: Counts
    wrong: NDArray[np.uint64]
    largest_union: int
    listed: tuple[Tile, ...]
    spreads: dict[str, Spread]

    def __add__(self, other: Tiles) -> Tiles:
        return Tiles(
            different=self.different + other.different,
            wrong=self.wrong | other.wrong,
            largest_union=max(self.largest_union, other.largest_union),
            listed=self.listed + other.listed,
            spreads={name: own + other.spreads[name] for name, own in self.spreads.items()},
        )


def _chunk(own: Part, other: Part, shared: None, options: Options) -> Tiles:
    held_out, n_test = own.held_out, own.held_out.n_test
    wrong_i = pack(own.label != held_out.y_true)
    wrong_j = wrong_i if other is own else pack(other.label != held_out.y_true)
    both = both_wrong(wrong_i, wrong_j)
    errors_i = np.broadcast_to(count(wrong_i)[:, None], both.shape)
    errors_j = np.broadcast_to(count(wrong_j)[None, :], both.shape)
    classes_i = class_counts(own.label, held_out.n_classes).astype(np.float64)
    classes_j = (
        classes_i
        if other is own
        else class_counts(other.label, held_out.n_classes).astype(np.float64)
    )
    if held_out.n_classes == 2:  # two wrong labels are the same label
        same = n_test - errors_i - errors_j + 2 * both
    else:
        same = same_label(own.label, other.label)
    pairs = Pairs(both, same, (classes_i @ classes_j.T).astype(np.int64), errors_i, errors_j)
    diagonal = own.start == other.start
    different = np.zeros(own.n_repeat, dtype=np.int64)
    different[own.start :][: own.n_runs] = (n_test - same).sum(axis=1)
    if not diagonal:
        different[other.start :][: other.n_runs] = (n_test - same).sum(axis=0)
    few = own.n_repeat <= options.max_pair_runs
    return Tiles(
        different=different,
        wrong=np.bitwise_or.reduce(wrong_i) | np.bitwise_or.reduce(wrong_j),
        largest_union=int(_of_pairs(pairs.union, diagonal).max(initial=0)),
        listed=(Tile(own.start, other.start, pairs),) if few else (),
        spreads={} if few else _spreads(pairs, n_test, diagonal, options.empty_union),
    )


def _of_pairs(matrix: NDArray[Number], diagonal: bool) -> NDArray[Number]:
    """Return the entries that belong to pairs i < j."""
    return matrix[above(matrix.shape[0])] if diagonal else matrix.ravel()


def _spreads(pairs: Pairs, n_test: int, diagonal: bool, empty_union: float) -> dict[str, Spread]:
    return {
        name: Spread.of(_of_pairs(values, diagonal))
        for name, values in pairs.values(n_test, empty_union).items()
    }


def _finish(held_out: HeldOut, partials: Sequence[Tiles], options: Options) -> Finished:
    tiles, n_test = reduce(add, partials), held_out.n_test
    n_runs, union = tiles.different.size, int(count(tiles.wrong))
    # Turn a share of all points into a share of these points.
    scales = {
        name: n_test / size if size else np.nan
        for name, size in (("ec_union", union), ("ec_largest_union", tiles.largest_union))
    }
    undefined = np.full(n_runs, np.nan)
    runs = {"churn_mean": tiles.different / ((n_runs - 1) * n_test) if n_runs > 1 else undefined}
    repeat = {"n_wrong_by_any": np.asarray(union)}
    if tiles.spreads:
        ec_global = tiles.spreads["ec_global"]
        scaled = {name: ec_global.scaled(scale) for name, scale in scales.items()}
        scaled["churn_points"] = tiles.spreads["churn"].scaled(n_test)
        return Finished(runs=runs, spreads=tiles.spreads | scaled, repeat=repeat)
    listed = _pairs(tiles.listed, n_runs)
    values = listed.values(n_test, options.empty_union)
    values["churn_points"] = (n_test - listed.same).astype(np.float64)
    values |= {name: values["ec_global"] * scale for name, scale in scales.items()}
    return Finished(runs=runs, pairs=values, repeat=repeat)


def _pairs(tiles: Sequence[Tile], n_runs: int) -> Pairs:
    """Assemble the tiles of a repeat and list pairs i < j, i first."""
    columns = {}
    for name in Pairs.__slots__:
        matrix = np.zeros((n_runs, n_runs), dtype=np.int64)
        for tile in tiles:
            part: Counts = getattr(tile.pairs, name)
            rows = slice(tile.start_i, tile.start_i + part.shape[0])
            matrix[rows, tile.start_j : tile.start_j + part.shape[1]] = part
        columns[name] = matrix[above(n_runs)]
    return Pairs(**columns)


_FULL = ("n", "mean", "min", "max", "range", "q05", "median", "q95")
_POINTS = "share of test points"

AGREEMENT = Metric(
    name="agreement",
    needs="label",
    source="MV, Error consistency; RKS (churn); Geirhos et al. 2020 (ec_kappa); Cohen 1960",
    chunk=_chunk,
    finish=_finish,
    pairwise=True,
    runs=(
        real(
            "churn_mean", _POINTS, "Mean churn of the run against each other run of its repeat.", ()
        ),
    ),
    pairs=(
        real(
            "ec_local",
            "share of the union",
            "Local error consistency: points both get wrong, among those at least one gets wrong.",
            _FULL,
        ),
        real(
            "ec_global",
            _POINTS,
            "Global error consistency: points both get wrong, among all.",
            _FULL,
        ),
        real("churn", _POINTS, "Points to which the two runs give different labels.", _FULL),
        Column(
            "churn_points",
            pl.UInt32,
            "test points",
            "The same as a number of points.",
            ("mean", "min", "max"),
        ),
        real("ec_kappa", "1", "Cohen's kappa of the two runs' correctness.", _FULL),
        real("agreement", _POINTS, "Points to which the two runs give the same label."),
        real("label_kappa", "1", "Cohen's kappa of the two runs' labels."),
        real(
            "ec_union",
            "share of the union",
            "Points both get wrong, among those that any run of the repeat gets wrong.",
        ),
        real(
            "ec_largest_union",
            "share of the union",
            "Points both get wrong, divided by the largest union of the errors of two runs.",
        ),
        real("ec_local_cube_root", "1", "Cube root of both accuracies times ec_local."),
        real("ec_global_cube_root", "1", "Cube root of both accuracies times ec_global."),
        real(
            "ec_local_square_root",
            "1",
            "Square root of the accuracies' geometric mean times ec_local.",
        ),
        real(
            "ec_global_square_root",
            "1",
            "Square root of the accuracies' geometric mean times ec_global.",
        ),
    ),
    repeat=(
        Column(
            "n_wrong_by_any",
            pl.UInt32,
            "test points",
            "Points that at least one run of the repeat gets wrong.",
        ),
    ),
)
