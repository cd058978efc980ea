"""What makes results doubtful: missing runs, several recipes, guessing, features that tell all."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import polars as pl
from numpy.typing import NDArray

from benchmarks.claims.record import (
    Claim,
    Tally,
)
from manyseed.analysis.questions import caveats
from manyseed.jobs.datasets.columns import told_by
from manyseed.jobs.datasets.info import ColumnInfo, DatasetInfo
from manyseed.orchestrator.results.caveats import guesses, leaks, mixed
from tests.analysis.planted import Noise, normal

Real = NDArray[np.float64]


def _lacking(seed: int, pattern: str, *, slow: float = 0.0, bad: bool = False) -> Tally:
    """Return whether a warning is given of two groups of four cells whose runs are missing."""
    rng = np.random.default_rng([seed, 19])
    groups, cells, repeats, runs = 2, 4, 6, 8
    grid = np.indices((groups, cells, repeats, runs)).reshape(4, -1)
    group, cell, repeat, run = grid
    noise = rng.normal(size=(2, run.size))
    easy, long = rng.normal(size=(2, groups, repeats))[:, group, repeat]
    of_run = 0.8 * noise[0] + noise[1]
    gone = rng.random(run.size) < 0.1
    if slow:
        gone = noise[0] + long > slow
    if bad:  # where bad runs fail
        gone = (rng.random((groups, cells, repeats)) < 0.5)[group, cell, repeat] & (of_run < 0)
    gone[0] = True
    whole = pl.DataFrame(
        {
            "dataset": [f"data {number}" for number in group],
            "classifier": "mlp",
            "cell": cell + cells * group,
            "repeat_index": repeat,
            "fit_seconds": 1.0 + cell + long + noise[0],
            "accuracy": 0.5 + 0.1 * cell + easy + of_run,
        }
    ).filter(pl.Series(~gone))
    key = ["dataset", "classifier", "cell", "repeat_index"]
    repeats_left = whole.group_by(key, maintain_order=True).agg(
        coverage=pl.len() / runs, accuracy_mean=pl.col("accuracy").mean()
    )
    return Tally(bool(re.search(pattern, " ".join(caveats.missing_notes(whole, repeats_left)))))


def recipes(moved: float, pattern: str, noise: Noise = normal) -> Callable[[int], Tally]:
    """Return what is said of runs of two recipes on 4 test sets of 12 runs."""

    def count(seed: int) -> Tally:
        rng = np.random.default_rng([seed, 41])
        place = np.repeat(np.arange(4), 12)
        recipe = rng.integers(1, 3, place.size)
        drawn = 0.01 * noise(rng, place.shape)
        runs = pl.DataFrame(
            {
                "dataset": "d",
                "classifier": "c",
                "cell": 0,
                "repeat_index": place,
                "recipe": recipe,
                "accuracy": 0.9 + 0.02 * place + drawn + moved * (recipe == 2),
                "identical": False,
            }
        )
        return Tally(bool(re.search(pattern, " ".join(mixed(runs)))))

    return count


def guessing(better: float) -> Callable[[int], Tally]:
    """Return whether a classifier is said to guess, on 5 test sets of 200 points, 4 classes."""

    def count(seed: int) -> Tally:
        rng = np.random.default_rng([seed, 43])
        right = rng.binomial(200, 0.25 + better, (5, 4)).mean(axis=1) / 200
        named = {"dataset": "d", "classifier": "c", "repeat_index": range(5)}
        repeats = pl.DataFrame({**named, "cell": 0, "n_test": 200, "accuracy_mean": right})
        most = pl.DataFrame({**named, "share": 0.25})
        said = [headline for headline, _ in guesses(repeats, most)]
        return Tally("better than the most frequent class" in " ".join(said))

    return count


def telling(agrees: float, values: int = 2, each: int = 20) -> Callable[[int], Tally]:
    """Return whether one of `values` values, `each` in as many rows, is said to tell the class."""

    def count(seed: int) -> Tally:
        rng = np.random.default_rng([seed, 47])
        of_value = np.arange(values) % 2 if values == 2 else rng.integers(0, 2, values)
        value = rng.permutation(np.repeat(np.arange(values), each))
        y = np.where(rng.random(value.size) < agrees, of_value[value], 1 - of_value[value])
        column = told_by(ColumnInfo("x", "categorical", values), value.astype(float), y)
        info = DatasetInfo({"target": "y"}, y.size, 1, 0, 1, ("a", "b"), None, None, 1, 1)
        return Tally(bool(leaks("d", replace(info, columns=(column,)))))

    return count


CLAIMS: tuple[Claim, ...] = (
    Claim(
        "Runs are not missing at random: accuracy varies with coverage",
        "page, analyze",
        r"not missing at random. Within a cell, accuracy",
        0.05,
        "sweeps",
        lambda seed: _lacking(seed, "accuracy varies with coverage"),
        lambda seed: _lacking(seed, "accuracy varies with coverage", bad=True),
        "a tenth of the runs missing at random",
        "bad runs fail in half of the repeats",
    ),
    Claim(
        "Runs are not missing at random: slow fits",
        "page, analyze",
        r"not missing at random. Within a cell, {} runs are missing",
        0.05,
        "sweeps",
        lambda seed: _lacking(seed, "fits take longer"),
        lambda seed: _lacking(seed, "more runs are missing where fits take longer", slow=1.0),
        "a tenth of the runs missing at random",
        "slow runs fail",
    ),
    Claim(
        "Runs were made in several ways; these differ beyond chance (or: is not established)",
        "answers, page",
        r"these differ beyond chance|no difference between these is established",
        0.05,
        "sweeps",
        recipes(0.0, "differ beyond chance"),
        recipes(0.01, "differ beyond chance: by"),
        "two recipes that are alike, 4 test sets of 12 runs",
        "recipes that differ by 0.01 (1 sd)",
    ),
    Claim(
        "No better than the most frequent class (or: not told to be)",
        "answers, page",
        r"^not told to be$|better than $|the most frequent class(\{\})?$|"
        r"of the test points are right|"
        r"\{\} against \{\}$",
        0.05,
        "sweeps",
        guessing(0.05),
        guessing(0.0),
        "accuracy 0.05 above that of the most frequent of 4 classes, 5 test sets of 4 runs and 200 "
        "points",
        "a classifier that guesses",
    ),
    Claim(
        "A column tells the target by itself",
        "answers, page, init, plan",
        r"tells \{\} by itself|each of its \{\} values has one class, \{\}|"
        r"so accuracy says nothing of other features",
        0.05,
        "tables",
        telling(0.9),
        telling(1.0),
        "a feature that agrees with the class in 9 of 10 of 40 rows",
        "one that always does",
    ),
    Claim(
        "Rows of one patient may be in both training part and test set",
        "answers, page, init, plan",
        r"may be in both training part and test set|values has one class, so a test point's class|"
        r"may be known by its",
        0.05,
        "tables",
        telling(0.9, 50, 4),
        telling(1.0, 50, 4),
        "patients of 4 rows each, of which one in 10 has another class",
        "patients with one class each",
    ),
)
