"""Means within groups do not depend on how a frame lies in memory, or who adds it up."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from analysis.means import mean_of, std_of


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
