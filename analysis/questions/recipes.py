"""Whether runs made in several ways differ by more than chance: a test within test sets."""

from __future__ import annotations

import math

import numpy as np
import polars as pl
from numpy.typing import NDArray

from manyseed.analysis.questions.intervals import holm

DRAWS = 1_999
"""Permutations of each test."""
_MOST = 10_000  # runs tested of one classifier on one dataset
_LEAST = 20  # arrangements below which no difference can reach 5 %
_GROUP = ["dataset", "classifier"]
_SET = ["cell", "repeat_index"]
_SEED = 20_260_101

Floats = NDArray[np.float64]


def recipes_compared(runs: pl.DataFrame) -> pl.DataFrame:
    """Compare the accuracies of runs of several recipes, by dataset and classifier.

    Only runs of one cell on one test set are compared. Under the hypothesis that recipes do not
    matter, their recipes could be exchanged, so the test permutes accuracies within these sets; its
    statistic is the sum of squares that recipes explain. It assumes no distribution.

    Parameters
    ----------
    runs : DataFrame
        Columns dataset, classifier, cell, repeat_index, recipe, accuracy and identical, at one
        snapshot.

    Returns
    -------
    DataFrame
        A row for each dataset and classifier with several recipes: ``recipes`` and ``sets``, how
        many there are; ``shared``, how many sets have runs of several recipes; ``moved``, the
        difference between the highest and the lowest mean accuracy of a recipe, adjusted for sets;
        ``p``, and ``p_holm`` for all rows together. The last three are null if nothing can be told.
    """
    known = runs.filter(~pl.col("identical") & pl.col("accuracy").is_not_null())
    rows = []
    for names, group in known.group_by(_GROUP, maintain_order=True):
        if (n := group["recipe"].n_unique()) < 2:
            continue
        kinds = group.group_by(_SET, maintain_order=True).agg(n=pl.col("recipe").n_unique())
        shared = kinds.filter(pl.col("n") > 1).select(_SET)
        moved, p = _tested(group.join(shared, on=_SET, how="semi", maintain_order="left"))
        rows.append((*names, n, kinds.height, shared.height, moved, p))
    schema = {
        **dict.fromkeys(_GROUP, pl.String()),
        **dict.fromkeys(("recipes", "sets", "shared"), pl.Int64()),
        **dict.fromkeys(("moved", "p"), pl.Float64()),
    }
    found = pl.DataFrame(rows, schema=schema, orient="row")
    corrected = holm(found["p"].fill_null(float("nan")).to_numpy())
    return found.with_columns(p_holm=pl.Series(corrected, dtype=pl.Float64).fill_nan(None))


def _tested(runs: pl.DataFrame) -> tuple[float | None, float | None]:
    """Return `moved` and `p` of runs in sets with several recipes each."""
    numbers = runs.select(
        place=pl.struct(_SET).rank("dense") - 1, recipe=pl.col("recipe").rank("dense") - 1
    )
    place, recipe = (numbers[name].to_numpy().astype(np.int64) for name in numbers.columns)
    order = np.argsort(place, kind="stable")[:_MOST]
    place, recipe = place[order], recipe[order]
    if not len(order) or _arrangements(place, recipe) < math.log(_LEAST):
        return None, None
    y = _centred(runs["accuracy"].to_numpy()[order].astype(np.float64), place)
    design = np.stack([recipe == one for one in range(1, recipe.max() + 1)], axis=1)
    columns = np.stack([_centred(c, place) for c in design.T.astype(np.float64)], axis=1)
    means = np.append(0.0, np.linalg.lstsq(columns, y, rcond=None)[0])
    left, sizes, _ = np.linalg.svd(columns, full_matrices=False)
    basis = left[:, sizes > 1e-9 * max(sizes.max(), 1.0)]
    explained = float(((basis.T @ y) ** 2).sum())
    random, beyond = np.random.default_rng(_SEED), 0
    for _ in range(DRAWS):
        shuffled = y[np.lexsort((random.random(len(y)), place))]
        beyond += float(((basis.T @ shuffled) ** 2).sum()) >= explained * (1 - 1e-9) - 1e-15
    return float(means.max() - means.min()), (1 + beyond) / (1 + DRAWS)


def _centred(values: Floats, place: NDArray[np.int64]) -> Floats:
    """Return values without the mean of their set."""
    counts = np.bincount(place)
    means = np.bincount(place, weights=values) / np.maximum(counts, 1)
    return np.asarray(values - means[place])


def _arrangements(place: NDArray[np.int64], recipe: NDArray[np.int64]) -> float:
    """Return the logarithm of the number of ways to exchange recipes within sets."""
    of_set = np.bincount(place)
    of_both = np.unique(np.stack([place, recipe]), axis=1, return_counts=True)[1]
    return sum(map(math.lgamma, of_set + 1.0)) - sum(map(math.lgamma, of_both + 1.0))
