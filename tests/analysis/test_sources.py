"""Tables II to V, and notes on what is missing, beside loops over rows."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from analysis.ranking import ranked
from analysis.sources import sources
from analysis.tables import Tables
from tests.analysis.samples import sweep


@pytest.fixture(scope="module")
def tables():
    made = sweep({"vehicle": 60}, {"lr-sgd": 0.6, "xgb": 0.0}, repeats=2, runs=5)
    vary = pl.when(pl.col("cell") % 2 == 0).then(pl.lit("init")).otherwise(pl.lit("batch"))
    rng = np.random.default_rng(0)
    runs = made.runs.with_columns(alpha_hat=pl.Series(rng.uniform(0, 0.1, made.runs.height)))
    return Tables(
        *(table.with_columns(vary=vary) for table in (runs, made.pairs, made.repeats, made.cells))
    )


def test_sources_are_compared_row_by_row(tables):
    found = sources(tables)
    assert found.select("classifier", "vary").rows() == [
        ("lr-sgd", "batch"), ("lr-sgd", "init"), ("xgb", "batch"), ("xgb", "init"),
    ]  # fmt: skip
    for row in found.iter_rows(named=True):
        here = (pl.col("classifier") == row["classifier"]) & (pl.col("vary") == row["vary"])
        runs = tables.runs.filter(here, ~pl.col("identical"))
        close = runs.filter(pl.col("alpha_hat") <= 0.05)
        assert (row["n_runs"], row["n_close"]) == (runs.height, close.height)
        assert row["accuracy_mean"] == pytest.approx(runs["accuracy"].mean())
        assert row["accuracy_std"] == pytest.approx(runs["accuracy"].std())
        assert (row["accuracy_min"], row["accuracy_max"]) == (
            runs["accuracy"].min(),
            runs["accuracy"].max(),
        )
        assert row["accuracy_min_close"] == close["accuracy"].min()
        levels = runs.select("cell", "repeat_index", "run_index", "alpha_hat")
        alpha = {tuple(key): level for *key, level in levels.rows()}
        repeats = tables.repeats.filter(here)
        assert row["ensemble_accuracy"] == pytest.approx(repeats["ensemble_accuracy"].mean())
        if repeats["identical"].all():
            assert row["n_pairs"] is None
            continue
        pairs = tables.pairs.filter(here).select("cell", "repeat_index", "run_i", "run_j", "churn")
        near = [c for *k, i, j, c in pairs.rows() if max(alpha[*k, i], alpha[*k, j]) <= 0.05]
        assert (row["n_pairs"], row["n_pairs_close"]) == (pairs.height, len(near))
        assert (row["churn_min_close"], row["churn_max_close"]) == (
            min(near, default=None),
            max(near, default=None),
        )


def test_runs_are_ranked_by_the_sources_rule():
    runs = pl.DataFrame(
        [
            (0, 0, 0, 0.90, 0.20, False),
            (0, 0, 1, 0.85, 0.01, False),
            (0, 0, 2, 0.88, 0.05, False),
            (0, 0, 3, 0.95, None, False),
            (0, 0, 4, 0.88, 0.02, False),
            (0, 0, 5, 0.88, 0.02, True),
            (0, 1, 0, 0.70, 0.30, False),
        ],
        schema=["cell", "repeat_index", "run_index", "accuracy", "alpha_hat", "identical"],
        orient="row",
    )
    found = ranked(runs)
    assert found["run_index"].to_list() == [4, 2, 1, 3, 0, 0]
    assert found["rank"].to_list() == [1, 2, 3, 4, 5, 1]
    assert found["close"].to_list() == [True, True, True, False, False, False]
    assert ranked(runs, within=0.06)["run_index"].to_list() == [3, 0, 0]
    assert ranked(runs, close=0.01)["run_index"].to_list()[0] == 1
