"""The cells of a sweep with the sources that vary in them, and the results of their runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from manyseed.analysis.axes import AXES
from manyseed.analysis.questions.components import Estimates, covariances
from manyseed.analysis.questions.effects import UNPERTURBED
from manyseed.analysis.questions.hoeffding import matrix
from manyseed.analysis.tables.rows import Tables

CONSISTENCY = ("ec_local", "ec_global")
FEWEST = 3  # runs needed: a covariance without one of them takes two

Real = NDArray[np.float64]
Runs = Mapping[int, tuple[NDArray[Any], Real]]
"""By repeat index: ascending run indices, and a value per run."""


@dataclass(frozen=True, slots=True)
class Varied:
    """A cell, the sources that vary in it, and the results of its runs.

    Attributes
    ----------
    cell : int
    sources : frozenset of str
        Those of `vary`, subsample, and axes of schemes.
    accuracy : Runs
    errors : mapping of int to tuple
        By repeat index: run indices, followed by what `inconsistency` returns.
    pairs : mapping of str to mapping of int to float array (run, run)
        By column and repeat index.
    """

    cell: int
    sources: frozenset[str]
    accuracy: Runs
    errors: Mapping[int, tuple[NDArray[Any], float, Real]]
    pairs: Mapping[str, Mapping[int, Real]] = field(repr=False)


Term = tuple[float, Varied, Varied]
"""A coefficient and the two cells whose covariance over runs it multiplies."""


def contexts(tables: Tables) -> dict[tuple[Any, ...], list[Varied]]:
    """Return cells by the values of `CONTEXT`, all that describes them except `vary`.

    Parameters
    ----------
    tables : Tables
        With the columns of `AXES` in the repeats.
    """
    known = tables.repeats.filter(pl.col("n_runs") > 1)
    fraction = pl.col("train_fraction").cast(pl.String)
    described = known.with_columns(fraction).select("cell", *AXES).unique("cell").sort("cell")
    runs = tables.runs.select("cell", "repeat_index", "run_index", "accuracy")
    of_runs = _by_cell(runs.sort("cell", "repeat_index", "run_index"))
    names = [name for name in CONSISTENCY if name in tables.pairs.columns]
    pairs = tables.pairs.select("cell", "repeat_index", "run_i", "run_j", *names)
    of_pairs = _by_cell(pairs.sort("cell", "repeat_index", "run_i", "run_j"))
    found: dict[tuple[Any, ...], list[Varied]] = {}
    for row in described.iter_rows(named=True):
        one = _read(row, of_runs.get(row["cell"]), of_pairs.get(row["cell"]), names)
        found.setdefault(tuple(row[name] for name in CONTEXT), []).append(one)
    return found


CONTEXT = tuple(name for name in AXES if name != "vary")
"""The axes in which cells of a context agree."""


def _by_cell(frame: pl.DataFrame) -> dict[int, pl.DataFrame]:
    return {int(own["cell"][0]): own for own in frame.partition_by("cell", maintain_order=True)}


def _read(
    row: Mapping[str, Any],
    runs: pl.DataFrame | None,
    pairs: pl.DataFrame | None,
    names: Sequence[str],
) -> Varied:
    drawn = [axis for axis, level in UNPERTURBED.items() if row[axis] != level]
    sources = {"subsample" if axis == "train_fraction" else axis for axis in drawn}
    accuracy, errors = {}, {}
    of_pairs: dict[str, dict[int, Real]] = {name: {} for name in names}
    for own in [] if runs is None else runs.drop_nulls().partition_by("repeat_index"):
        values = own["accuracy"].to_numpy()
        accuracy[int(own["repeat_index"][0])] = (own["run_index"].to_numpy(), values)
    for own in [] if pairs is None else pairs.partition_by("repeat_index"):
        repeat = int(own["repeat_index"][0])
        i, j = own["run_i"].to_numpy(), own["run_j"].to_numpy()
        for name in names:
            of_pairs[name][repeat] = matrix(i, j, own[name].fill_null(np.nan).to_numpy())
        if "ec_global" in names and repeat in accuracy:
            index, values = accuracy[repeat]
            both = of_pairs["ec_global"][repeat]
            if (
                both.shape[0] == index.size
                and not np.isnan(both[~np.eye(index.size, dtype=bool)]).any()
            ):
                errors[repeat] = (index, *inconsistency(1 - values, both))
    return Varied(
        int(row["cell"]),
        frozenset(sources | set(row["vary"].split("+"))),
        accuracy,
        errors,
        of_pairs,
    )


def inconsistency(wrong: Real, both: Real) -> tuple[float, Real]:
    """Return the variance between runs of being wrong, averaged over points; also without each run.

    The unbiased estimate E[e] - E[e_i e_j], i ≠ j.
    """
    n = wrong.size
    by_run = np.nansum(both, axis=1)
    total = by_run.sum() / 2
    whole = wrong.mean() - total / (n * (n - 1) / 2)
    if n < FEWEST:
        return float(whole), np.full(n, np.nan)
    without = (wrong.sum() - wrong) / (n - 1) - (total - by_run) / ((n - 1) * (n - 2) / 2)
    return float(whole), without


def ordered(sources: frozenset[str]) -> list[str]:
    """Return sources in the order of reports."""
    first = ["init", "batch", "train", "subsample"]
    return [*(s for s in first if s in sources), *sorted(sources.difference(first))]


def sharing(own: Sequence[Varied], full: Varied) -> dict[str, list[Term]]:
    """Return the terms of the own part of each source, where cells of a context determine it."""
    everything = frozenset().union(*(one.sources for one in own))
    if len(everything) < 2:
        return {}
    others = [one for one in own if one is not full]
    found: dict[str, list[Term]] = {}
    for one, other in [*((one, full) for one in others), *combinations(others, 2)]:
        shared = one.sources & other.sources
        if len(shared) == 1 and one.sources | other.sources == everything:
            found.setdefault(next(iter(shared)), [(1.0, one, other)])
    for one in others if full.sources == everything else []:
        lacks = everything - one.sources
        if len(lacks) == 1:
            found.setdefault(next(iter(lacks)), [(1.0, full, full), (-1.0, one, one)])
    return found


def combined(terms: Sequence[Term]) -> tuple[Estimates, tuple[float, float]] | None:
    """Estimate a sum of covariances over the runs that all its cells have.

    Returns
    -------
    (Estimates, (float, float)) or None
        The second is the scale of the first term (`components.covariances`); None without runs.
    """
    accuracy = {one.cell: one.accuracy for _, *both in terms for one in both}
    shared = _shared(list(accuracy.values()))
    if not shared:
        return None
    values = {cell: [sides[k] for sides in shared] for k, cell in enumerate(accuracy)}
    (_, one, other), *rest = terms
    found, scale = covariances(values[one.cell], values[other.cell])
    for times, one, other in rest:
        found = found.plus(covariances(values[one.cell], values[other.cell])[0], times)
    return found, scale


def _shared(sides: Sequence[Runs]) -> list[tuple[Real, ...]]:
    """Return the values of the runs that all sides have, repeat by repeat."""
    found = []
    for repeat in sorted(set.intersection(*(set(side) for side in sides))):
        index = sides[0][repeat][0]
        for side in sides[1:]:
            index = np.intersect1d(index, side[repeat][0])
        if index.size >= FEWEST:
            found.append(tuple(side[repeat][1][np.isin(side[repeat][0], index)] for side in sides))
    return found


def errors(cells: Sequence[Varied]) -> list[Estimates] | None:
    """Return the estimates of each cell from the repeats in which all have the same runs."""
    repeats = [
        repeat
        for repeat in sorted(set.intersection(*(set(one.errors) for one in cells)))
        if cells[0].errors[repeat][0].size >= FEWEST
        and all(np.array_equal(one.errors[repeat][0], cells[0].errors[repeat][0]) for one in cells)
    ]
    if not repeats:
        return None
    return [
        Estimates(
            np.array([one.errors[repeat][1] for repeat in repeats]),
            tuple(one.errors[repeat][2] for repeat in repeats),
        )
        for one in cells
    ]
