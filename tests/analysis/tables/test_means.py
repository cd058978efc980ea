"""Means within groups do not depend on how a frame lies in memory, or who adds it up."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from manyseed.analysis.tables.rows import compares_runs, mean_of, pooled, same_of, std_of
from manyseed.analysis.tables.schema import OVER_REPEATS, cells


def test_means_are_the_same_whatever_the_chunks():
    rng = np.random.default_rng(0)
    values, cell = rng.random(50_000), np.sort(rng.integers(0, 5, 50_000))
    values[rng.random(50_000) < 0.1] = np.nan
    whole = pl.DataFrame({"cell": cell, "value": values}).with_columns(
        pl.col("value").fill_nan(None)
    )
    parts = pl.concat([whole[i : i + 997] for i in range(0, whole.height, 997)], rechunk=False)
    column = pl.col("value")
    found, again = (
        frame.group_by("cell").agg(mean_of(column), std_of(column).alias("std")).sort("cell")
        for frame in (whole, parts)
    )
    assert found.equals(again)
    for number, mean, std in found.iter_rows():
        own = values[(cell == number) & ~np.isnan(values)]
        assert (mean, std) == pytest.approx((own.mean(), own.std(ddof=1)), rel=1e-12)


def test_pooled_spread_is_that_between_runs_whatever_lies_between_test_sets():
    rng = np.random.default_rng(1)
    sizes = [2, 9, 40, 1, 3]
    own = [rng.normal(centre, 0.01, n) for centre, n in enumerate(sizes)]
    rows = pl.DataFrame(
        {
            "half": [0, 0, 1, 1, 1],
            "std": [values.std(ddof=1) if values.size > 1 else None for values in own],
            "free": [n - 1 for n in sizes],
        },
        schema_overrides={"free": pl.UInt32},
    )
    squares = sum(np.square(values - values.mean()).sum() for values in own)
    expected = (squares / (sum(sizes) - len(sizes))) ** 0.5
    std = pooled(pl.col("std"), pl.col("free")).alias("std")
    assert rows.select(std).item() == pytest.approx(expected, rel=1e-12)
    twice = rows.group_by("half").agg(std, pl.col("free").sum()).select(std)
    assert twice.item() == pytest.approx(expected, rel=1e-12)
    assert rows.filter(free=0).select(std).item() is None


def test_a_value_stands_for_a_group_only_where_it_is_the_same():
    rows = pl.DataFrame({"of": [1, 1, 2, 2, 3], "delta": [0.1, 0.1, 0.1, 0.2, None]})
    found = rows.group_by("of", maintain_order=True).agg(same_of(pl.col("delta")))
    assert found["delta"].to_list() == [0.1, None, None]


def test_repeats_of_identical_runs_dilute_nothing():
    """Three repeats that vary with error consistency .6, seven of copies with 1."""
    values = {name: [0.6] * 3 + [0.8] * 7 for name in OVER_REPEATS}
    for name in filter(compares_runs, OVER_REPEATS):
        identical = 1.0 if name.startswith("ec") else 0.0
        values[name] = [0.6] * 3 + [identical] * 7
    repeats = pl.DataFrame(
        {
            "cell": [0] * 10,
            "epoch": 0,
            "repeat_index": range(10),
            "n_runs": [5] * 9 + [1],
            "n_distinct": [5] * 3 + [1] * 7,
            "identical": [False] * 3 + [True] * 6 + [False],
            "coverage": [1.0] * 9 + [0.2],
            "n_test": [50] * 10,
            "n_side": [25] * 10,
            "delta": [0.5] * 10,
            "probe": ["gap"] * 10,
            **values,
        }
    )
    row = cells(repeats).row(0, named=True)
    assert (row["n_repeats"], row["n_identical_repeats"]) == (10, 6)
    for name in OVER_REPEATS:
        expected = (0.6, 3) if compares_runs(name) else (0.74, 10)
        assert (row[name], row[f"{name}_n"]) == (pytest.approx(expected[0]), expected[1]), name
    alone = {name for name in OVER_REPEATS if not compares_runs(name)}
    assert not any(name.startswith(("ec_", "churn", "alpha_hat")) for name in alone)
    assert alone >= {
        *("accuracy_mean", "accuracy_q05", "accuracy_median", "accuracy_q95"),
        *("balanced_accuracy_mean", "f1_macro_mean", "matthews_corrcoef_mean"),
        *("roc_auc_mean", "average_precision_mean"),
        *("ece_mean", "log_likelihood_mean", "log_loss_mean", "brier_mean"),
        *("cll_mean", "aurc_mean"),
        *("ensemble_accuracy", "train_accuracy_mean", "generalization_gap_mean"),
    }
