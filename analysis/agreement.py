"""Agreement of two runs: error consistency, churn, kappa; all from counts of test points.

The counts of two parts of a repeat's runs are one tile of the repeat's Gram matrix. Tiles are put
together up to `Options.max_pair_runs` runs; above, each is summed up where it was computed.
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

from analysis.consistency import (
    churn,
    ec_cube_root,
    ec_global,
    ec_kappa,
    ec_local,
    ec_square_root,
    kappa,
)
from analysis.gram import both_wrong, class_counts, same_label
from analysis.metric import Column, Finished, HeldOut, Metric, Part
from analysis.options import Options
from analysis.spread import Spread

Number = TypeVar("Number", bound=np.generic)
Counts = NDArray[np.int64]
Real = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Pairs:
    """Counts of test points of pairs of runs, arrays of one shape.

    Attributes
    ----------
    both, same : int64 array
        Points that both get wrong, and points to which both give the same label.
    by_chance : int64 array
        Σ_c n_ic · n_jc over the numbers of points to which they give label c.
    errors_i, errors_j : int64 array
        Points that either gets wrong.
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
        """Return the columns that take nothing but the two runs."""
        local = ec_local(self.errors_i, self.errors_j, self.both, empty_union)
        everywhere = ec_global(self.both, n_test)
        accuracies = 1 - self.errors_i / n_test, 1 - self.errors_j / n_test
        changed = churn(self.same, n_test)
        return {
            "ec_local": local,
            "ec_global": everywhere,
            "churn": changed,
            "ec_kappa": ec_kappa(self.errors_i, self.errors_j, self.both, n_test),
            "agreement": 1 - changed,
            "label_kappa": kappa(self.same, self.by_chance, n_test),
            "ec_local_cube_root": ec_cube_root(*accuracies, local),
            "ec_global_cube_root": ec_cube_root(*accuracies, everywhere),
            "ec_local_square_root": ec_square_root(*accuracies, local),
            "ec_global_square_root": ec_square_root(*accuracies, everywhere),
        }


@dataclass(frozen=True, slots=True)
class Tile:
    """What two parts of a repeat's runs, or one with itself, say of its pairs.

    Attributes
    ----------
    start_i, start_j : int
        Position of their first runs.
    different_i, different_j : int64 array (run,)
        Sum of the points on which a run of one part disagrees with those of the other.
    wrong : bool array (sample,) or None
        Points that any run of the part gets wrong; only of a part with itself.
    largest_union : int
        Most points that at least one of two runs gets wrong.
    pairs : Pairs, arrays (run of one, run of other), or None
        Where pairs are to be listed.
    spreads : mapping of column name to Spread
        Where they are not.
    """

    start_i: int
    start_j: int
    different_i: Counts
    different_j: Counts
    wrong: NDArray[np.bool_] | None
    largest_union: int
    pairs: Pairs | None
    spreads: dict[str, Spread]


def _chunk(own: Part, other: Part, shared: None, options: Options) -> Tile:
    held_out, n_test = own.held_out, own.held_out.n_test
    wrong_i = own.label != held_out.y_true
    wrong_j = wrong_i if other is own else other.label != held_out.y_true
    both = both_wrong(wrong_i, wrong_j)
    errors_i = np.broadcast_to(wrong_i.sum(axis=1)[:, None], both.shape)
    errors_j = np.broadcast_to(wrong_j.sum(axis=1)[None, :], both.shape)
    classes_i = class_counts(own.label, held_out.n_classes).astype(np.float64)
    classes_j = class_counts(other.label, held_out.n_classes).astype(np.float64)
    if held_out.n_classes == 2:  # two wrong labels are the same label
        same = n_test - errors_i - errors_j + 2 * both
    else:
        same = same_label(own.label, other.label)
    pairs = Pairs(both, same, (classes_i @ classes_j.T).astype(np.int64), errors_i, errors_j)
    different = n_test - same
    diagonal = own.start == other.start
    few = own.n_repeat <= options.max_pair_runs
    return Tile(
        start_i=own.start,
        start_j=other.start,
        different_i=different.sum(axis=1),
        different_j=different.sum(axis=0),
        wrong=wrong_i.any(axis=0) if diagonal else None,
        largest_union=int(_above(pairs.union, diagonal).max(initial=0)),
        pairs=pairs if few else None,
        spreads={} if few else _spreads(pairs, n_test, diagonal, options.empty_union),
    )


def _above(matrix: NDArray[Number], diagonal: bool) -> NDArray[Number]:
    """Return the entries that belong to pairs i < j."""
    return matrix[np.triu_indices(matrix.shape[0], k=1)] if diagonal else matrix.ravel()


def _spreads(pairs: Pairs, n_test: int, diagonal: bool, empty_union: float) -> dict[str, Spread]:
    return {
        name: Spread.of(_above(values, diagonal))
        for name, values in pairs.values(n_test, empty_union).items()
    }


def _finish(held_out: HeldOut, tiles: Sequence[Tile], options: Options) -> Finished:
    n_test = held_out.n_test
    n_runs = max(tile.start_j + tile.different_j.size for tile in tiles)
    different = np.zeros(n_runs, dtype=np.int64)
    for tile in tiles:
        different[tile.start_i :][: tile.different_i.size] += tile.different_i
        if tile.start_i != tile.start_j:
            different[tile.start_j :][: tile.different_j.size] += tile.different_j
    union = int(reduce(np.logical_or, [t.wrong for t in tiles if t.wrong is not None]).sum())
    # What a global error consistency becomes when it is divided by a number of errors instead.
    scales = {
        "ec_union": n_test / union if union else np.nan,
        "ec_largest_union": n_test / largest
        if (largest := max(tile.largest_union for tile in tiles))
        else np.nan,
    }
    alone = np.full(n_runs, np.nan)
    runs = {"churn_mean": different / ((n_runs - 1) * n_test) if n_runs > 1 else alone}
    repeat = {"n_wrong_by_any": np.asarray(union)}
    if tiles[0].pairs is None:
        names = tiles[0].spreads
        spreads = {name: reduce(add, [tile.spreads[name] for tile in tiles]) for name in names}
        spreads |= {name: spreads["ec_global"].scaled(scale) for name, scale in scales.items()}
        return Finished(runs=runs, spreads=spreads, repeat=repeat)
    values = _listed(tiles, n_runs).values(n_test, options.empty_union)
    values |= {name: values["ec_global"] * scale for name, scale in scales.items()}
    return Finished(runs=runs, pairs=values, repeat=repeat)


def _listed(tiles: Sequence[Tile], n_runs: int) -> Pairs:
    """Put the tiles of a repeat together, and list pairs i < j, i first."""
    above = np.triu_indices(n_runs, k=1)
    columns = {}
    for name in Pairs.__slots__:
        matrix = np.zeros((n_runs, n_runs), dtype=np.int64)
        for tile in tiles:
            part: Counts = getattr(tile.pairs, name)
            matrix[
                tile.start_i : tile.start_i + part.shape[0],
                tile.start_j : tile.start_j + part.shape[1],
            ] = part
        columns[name] = matrix[above]
    return Pairs(**columns)


_FULL = ("n", "mean", "min", "max", "range", "q05", "median", "q95")
_SHORT = ("mean", "range")


def _column(name: str, unit: str, meaning: str, summaries: tuple[str, ...] = _SHORT) -> Column:
    return Column(name, pl.Float64, unit, meaning, summaries)


_POINTS = "share of test points"

AGREEMENT = Metric(
    name="agreement",
    needs="label",
    source="MV, Error consistency; RKS (churn); Geirhos et al. 2020 (ec_kappa); Cohen 1960",
    chunk=_chunk,
    finish=_finish,
    pairwise=True,
    runs=(
        Column(
            "churn_mean",
            pl.Float64,
            _POINTS,
            "Mean churn of the run against each other run of its repeat.",
        ),
    ),
    pairs=(
        _column(
            "ec_local",
            "share of the union",
            "Local error consistency: points both get wrong, among those at least one gets wrong.",
            _FULL,
        ),
        _column(
            "ec_global",
            _POINTS,
            "Global error consistency: points both get wrong, among all.",
            _FULL,
        ),
        _column("churn", _POINTS, "Points to which the two runs give different labels.", _FULL),
        _column("ec_kappa", "1", "Cohen's kappa of the two runs' correctness.", _FULL),
        _column("agreement", _POINTS, "Points to which the two runs give the same label."),
        _column("label_kappa", "1", "Cohen's kappa of the two runs' labels."),
        _column(
            "ec_union",
            "share of the union",
            "Points both get wrong, among those that any run of the repeat gets wrong.",
        ),
        _column(
            "ec_largest_union",
            "share of the union",
            "Points both get wrong, divided by the largest union of the errors of two runs.",
        ),
        _column("ec_local_cube_root", "1", "Cube root of both accuracies times ec_local."),
        _column("ec_global_cube_root", "1", "Cube root of both accuracies times ec_global."),
        _column(
            "ec_local_square_root",
            "1",
            "Square root of the accuracies' geometric mean times ec_local.",
        ),
        _column(
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
