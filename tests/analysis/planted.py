"""Result tables of any size with planted numbers: nothing is trained or analysed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import combinations, product
from typing import Any

import numpy as np
import polars as pl

from manyseed.analysis.tables.rows import Tables
from manyseed.analysis.tables.schema import OVER_REPEATS, cells

Number = Callable[[str, str, str, float], float] | float
"""The same for all cells, or of dataset, classifier, scheme and training fraction."""

Noise = Callable[[np.random.Generator, tuple[int, ...]], Any]
"""Draws of mean 0 and variance 1."""


def normal(rng: np.random.Generator, shape: tuple[int, ...]) -> Any:
    """Return normal draws."""
    return rng.normal(size=shape)


_TAIL = 0.3142


def long_tailed(rng: np.random.Generator, shape: tuple[int, ...]) -> Any:
    """Return draws of skewness -1, as of accuracies whose errors are log-normal."""
    errors = np.exp(_TAIL * rng.normal(size=shape))
    mean = np.exp(_TAIL**2 / 2)
    return (mean - errors) / (mean * np.sqrt(np.expm1(_TAIL**2)))


def planted(
    datasets: int = 1,
    classifiers: Sequence[str] = ("lr-sgd", "mlp"),
    schemes: Sequence[str] = ("none",),
    fractions: Sequence[float] = (1.0,),
    repeats: int = 3,
    runs: int = 10,
    *,
    accuracy: Number = 0.9,
    sd: Number = 0.01,
    consistency: Number = 0.6,
    alpha: Number = 0.0,
    delta: float = 0.04,
    between: float = 0.02,
    noise: Noise = normal,
    missing: int = 0,
    seed: int = 0,
) -> Tables:
    """Return tables whose numbers vary around planted ones.

    Accuracy is planted plus a part of the test set (normal, of sd `between`) plus one of the run
    (`noise` of sd `sd`), both the same streams in all cells; `missing` runs of each repeat of the
    last cell are not there.
    """
    rng = np.random.default_rng(seed)
    names = [f"data-{index:02d}" for index in range(datasets)]
    of_cell = list(product(names, classifiers, schemes, fractions))
    count = len(of_cell)
    described = pl.DataFrame(of_cell, schema=_AXES, orient="row").with_row_index("cell")
    described = described.with_columns(
        pl.lit("none").alias("perturb_categorical"),
        pl.lit("none").alias("augment"),
        pl.lit("none").alias("perturb_hparams"),
        pl.lit("none").alias("ensembling"),
        pl.lit("none").alias("test_augment"),
        pl.lit("none").alias("perturb_labels"),
        pl.lit("default").alias("hparams"),
        pl.lit("init+batch").alias("vary"),
    )
    drawn = noise(rng, (count, repeats, runs))
    sets = dict(zip(names, between * rng.normal(size=(datasets, repeats)), strict=True))
    level = np.array([_at(accuracy, one) + sets[one[0]] for one in of_cell])
    scale = np.array([_at(sd, one) for one in of_cell])
    values = level[:, :, None] + scale[:, None, None] * drawn
    levels = np.array([_at(alpha, one) for one in of_cell])[:, None, None] + 0.0 * values
    cell, repeat, run = np.indices(values.shape).reshape(3, -1)
    frame = pl.DataFrame(
        {
            "cell": cell.astype(np.uint32),
            "epoch": np.zeros(cell.size, np.uint32),
            "repeat_index": repeat.astype(np.uint16),
            "run_index": run.astype(np.uint16),
            "identical": False,
            "accuracy": values.ravel(),
            "alpha_hat": levels.ravel(),
            "fit_seconds": 1.0,
            **dict.fromkeys(_NULL, pl.Series([None] * cell.size, dtype=pl.Float64)),
            "probe": "gap",
        }
    )
    if missing:
        last = (pl.col("cell") == count - 1) & (pl.col("run_index") >= runs - missing)
        frame = frame.filter(~last)
    i, j = np.array(list(combinations(range(runs), 2)), dtype=int).reshape(-1, 2).T
    shape = (count, repeats, i.size)
    ec = np.array([_at(consistency, one) for one in of_cell])[:, None, None]
    # a part of each run, so that pairs depend on each other
    part = 0.05 * rng.normal(size=(count, repeats, runs))
    ec = (ec + part[:, :, i] + part[:, :, j]).reshape(-1)
    where = np.indices(shape).reshape(3, -1)
    pairs = pl.DataFrame(
        {
            "cell": where[0].astype(np.uint32),
            "epoch": np.zeros(where[0].size, np.uint32),
            "repeat_index": where[1].astype(np.uint16),
            "run_i": i[where[2]].astype(np.uint16),
            "run_j": j[where[2]].astype(np.uint16),
            "ec_local": ec,
            "ec_global": ec / 10,
        }
    )
    if missing:
        gone = (pl.col("cell") == count - 1) & (pl.col("run_j") >= runs - missing)
        pairs = pairs.filter(~gone)
    key = ["cell", "epoch", "repeat_index"]
    summed = frame.group_by(key, maintain_order=True).agg(
        pl.len().cast(pl.UInt32).alias("n_runs"),
        pl.col("accuracy").mean().alias("accuracy_mean"),
        pl.col("accuracy").std().alias("accuracy_std"),
        (pl.col("accuracy").max() - pl.col("accuracy").min()).alias("accuracy_range"),
        pl.col("alpha_hat").mean().alias("alpha_hat_mean"),
    )
    of_pairs = pairs.group_by(key, maintain_order=True).agg(
        pl.col("ec_local").mean().alias("ec_local_mean"),
        pl.col("ec_global").mean().alias("ec_global_mean"),
    )
    summed = summed.join(of_pairs, on=key, how="left", maintain_order="left").with_columns(
        pl.col("n_runs").alias("n_distinct"),
        pl.lit(None, pl.String).alias("problem"),
        pl.lit(value=False).alias("identical"),
        (pl.col("n_runs") / runs).alias("coverage"),
        pl.lit(4000, pl.UInt32).alias("n_test"),
        pl.lit(2000, pl.UInt32).alias("n_side"),
        pl.lit(delta).alias("delta"),
        pl.lit(400, pl.UInt32).alias("n_wrong_by_any"),
        pl.lit("gap").alias("probe"),
    )
    summed = summed.with_columns(
        pl.lit(0.1234).alias(name) for name in OVER_REPEATS if name not in summed.columns
    )
    tables = (frame, pairs, summed, cells(summed))
    return Tables(*(one.join(described, on="cell", maintain_order="left") for one in tables))


def one_apart(classifier: str, run: int, **sizes: Any) -> Tables:
    """Return tables in which one run of the first repeat of a classifier has collapsed.

    As in RKS's definition, α̂ of all runs of that repeat is 1; against the majority, only its own.
    """
    tables = planted(**sizes)
    here = (pl.col("classifier") == classifier) & (pl.col("repeat_index") == 0)
    level = pl.when(pl.col("run_index") == run).then(1.0).otherwise(0.0)
    runs = tables.runs.with_columns(
        pl.when(here).then(1.0).otherwise("alpha_hat").alias("alpha_hat"),
        alpha_hat_majority=pl.when(here).then(level),
    )
    return replace(tables, runs=runs)


def equal_runs(classifier: str | None = None, *, points: int = 40, **sizes: Any) -> Tables:
    """Return tables in which all runs of a classifier (by default of all) agree, on few points."""
    tables = planted(**sizes)
    here = pl.lit(value=True) if classifier is None else pl.col("classifier") == classifier
    runs = tables.runs.with_columns(accuracy=pl.when(here).then(0.9).otherwise("accuracy"))
    repeats = tables.repeats.with_columns(
        pl.when(here).then(0.0).otherwise("accuracy_std").alias("accuracy_std"),
        n_test=pl.lit(points, pl.UInt32),
    )
    return replace(tables, runs=runs, repeats=repeats)


def curves_of_depth(
    seed: int = 0,
    runs: int = 2,
    told: float = 0.0,
    per_depth: int = 12,
    transforms: Sequence[str] = ("intra", "inter"),
) -> pl.DataFrame:
    """Return scores of models whose gap depends on depth, and their scores on depth, too.

    Given depth, scores say nothing, except gi if `told` (0 to 1) of it is the gap. The first run
    indices differ in seeds. Hparams: depth (4 values), and width (3) which matters for nothing.
    """
    rng = np.random.default_rng(seed)
    depth = np.repeat(np.arange(4), per_depth)
    width = np.tile(np.arange(3), depth.size // 3)
    parts = []
    for transform, run in product(transforms, range(runs)):
        own = rng.normal(0, 0.5, (4, depth.size))
        gap = 0.3 + 0.05 * (depth + own[0])
        gi, mean, end = (
            depth
            + np.where([[True], [False], [False]], told * own[0], 0)
            + (np.sqrt(1 - np.array([[told], [0], [0]]) ** 2) * own[1:])
        )
        parts.append(
            pl.DataFrame(
                {
                    "dataset": "d",
                    "classifier": "c",
                    "transform": transform,
                    "layer": pl.Series([0] * depth.size, dtype=pl.UInt8),
                    "repeat_index": 0,
                    "run_index": run,
                    "augment": "none",
                    "hparam_depth": depth,
                    "hparam_width": width,
                    "gap": gap,
                    "gi": 0.5 + 0.05 * gi,
                    "mean_accuracy": 0.5 - 0.05 * mean,
                    "end_accuracy": 0.5 - 0.05 * end,
                    "train_accuracy": 1.0,
                    **dict.fromkeys(_UNSCORED, pl.Series([None] * depth.size, dtype=pl.Float64)),
                }
            )
        )
    return pl.concat(parts)


_UNSCORED = ("gi_folded", "pal", "pal_printed", "shifted_train_accuracy", "dbi")


def two_groups(
    runs: tuple[int, int] = (6, 8), points: int = 4000, contaminated: float = 0.0, seed: int = 0
) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Return probe values (run, point) of groups A and B; a share of A's points lies elsewhere."""
    rng = np.random.default_rng(seed)
    a, b = (rng.normal(size=(n, points)).astype(np.float32) for n in runs)
    a[rng.random(a.shape) < contaminated] += 60
    return a, b


def wrong_points(
    runs: tuple[int, int], apart: float = 0.0, points: int = 1000, seed: int = 0
) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Return which points the runs of A and B get wrong, (run, point).

    Some points are harder than others, for both groups alike; `apart` of B's are others than A's.
    """
    rng = np.random.default_rng(seed)
    hard = rng.beta(0.3, 2, points)
    other = np.where(rng.random(points) < apart, rng.permutation(hard), hard)
    a, b = runs
    return rng.random((a, points)) < hard, rng.random((b, points)) < other


def _at(number: Number, one: tuple[str, str, str, float]) -> float:
    return number(*one) if callable(number) else number


_NULL = ("cll", "log_likelihood", "brier", "error")
_AXES = {
    "dataset": pl.String,
    "classifier": pl.String,
    "perturb_continuous": pl.String,
    "train_fraction": pl.Float64,
}
